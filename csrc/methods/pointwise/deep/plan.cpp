#include <algorithm>
#include <cmath>
#include <string>

#include "methods/pointwise/deep/geometry.h"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/access.h"
#include "plan/append_fastest.h"

namespace convx::pointwise {
namespace {

using deep::Geometry;
using deep::Tiling;

constexpr size_t kMostPlans = 3;
constexpr int64_t kMostPixels = 4096;  // beyond them others have work for all multiprocessors

bool is_one(const ConvProblem& p, const Product& product, const DeviceTraits& device) {
  const bool planes = deep::has_planes(p);
  const bool are_pieces = product.depth % (16 / element_size(p.dtype)) == 0 && product.rows % 4 == 0;
  return p.operation != Operation::weight_grad && (planes || are_pieces) && p.dtype != DType::float64 &&
         p.groups == 1 && product.same_pixels && matrix::has_units(device) && product.columns <= kMostPixels;
}

// Of a multiprocessor, by the registers of its kernel.
int64_t resident_blocks(const Tiling& t, int64_t element_bytes) {
  if (t.fragments > 1) return 1;
  return element_bytes == 4 ? 1 : 2;
}

// What channels cost that come one by one. 285 layers of one image in a network on an H200 are within 13 % of
// that in the mean, 16 bits within 18 %, and up to 1.6 times it.
double of_planes_us(int64_t element_bytes) {
  return element_bytes == 4 ? 0.33 : 1.42;
}
constexpr double kDoubtOfPlanes = 1.6;

// Fitted to 543 plans of 66 problems in float32 and bfloat16, some drawn at random, on an H100, operands in
// its level-two cache, to 10 % in the mean; cold ones come no faster than memory brings them.
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Product& product,
                    matrix::Precision precision, const Tiling& t, const Geometry& g) {
  const int64_t element = element_size(problem.dtype), processors = std::max(device.multiprocessors, 1);
  const double of_processor = std::max(static_cast<double>(g.blocks) / static_cast<double>(processors), 1.0);
  const int64_t resident = resident_blocks(t, element), at_once = divide_up(g.blocks, processors);
  const double rounds = static_cast<double>(divide_up(at_once, resident));
  const double bytes = static_cast<double>(product.depth * element) / static_cast<double>(t.ranks) *
                       static_cast<double>(deep::kPairFilters + g.pixels);
  const double products = static_cast<double>(g.step_pairs * t.fragments) /
                          static_cast<double>(deep::kWarps * t.ranks) * (precision == matrix::kSplit ? 3 : 1);
  const int64_t more = divide_up(g.warp_pairs, deep::steps_at_once(t.fragments)) - 1;
  const double of_cluster = t.ranks > 1 ? 0.57 + 0.16 * static_cast<double>(t.ranks) : 0;
  const double us = 1.56 + (element == 4 ? 0.7 : 0) + of_cluster + 0.29 * rounds * static_cast<double>(more) +
                    (rounds - 1) * (t.ranks > 1 ? 3.3 : 1.5) + 6.9e-6 * of_processor * bytes +
                    0.057 * rounds * static_cast<double>(std::min(at_once, resident)) * products +
                    (t.planes ? of_planes_us(element) : 0);
  return std::max(us, 1.5 + problem.bytes() / (device.bandwidth_GBps * 1e3));
}

}  // namespace

void append_deep(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  if (!is_one(problem, product, device)) return;
  const matrix::Precision precision = matrix::precision_of(problem, device);
  std::vector<Plan> some;
  for (int64_t fragments = 1; fragments <= deep::kMostFragments; fragments *= 2) {
    for (int64_t ranks = 1; ranks <= (device.has_clusters() ? kPortableClusterBlocks : 1); ranks *= 2) {
      const Tiling t{device.lanes, fragments, ranks, deep::has_planes(problem)};
      if (t.planes && problem.in_height * problem.in_width % fragments != 0) continue;  // no whole loads
      const Geometry g = geometry_of(product, t, element_size(problem.dtype));
      if (g.shared_bytes > device.shared_bytes_per_block || g.blocks > INT32_MAX) continue;
      if (ranks > 1 && (ranks - 1) * deep::kWarps >= g.step_pairs) continue;  // some would have nothing
      Plan plan;
      plan.candidate = "deep";
      plan.kernel = kDeep;
      plan.tiling = {
          {"precision", precision}, {"fragments", fragments}, {"ranks", ranks}, {"lanes", device.lanes}};
      plan.packing = tensor::packing_name(element_size(problem.dtype) == 4 ? matrix::kFloat32 : precision,
                                          tensor::Form<tensor::kChannels>::kOrder, device.lanes);
      plan.packed_weight_bytes = g.pairs * g.step_pairs * 2048;
      plan.reads_both = precision == matrix::kSplit;  // sums that are not finite are computed again
      plan.predicted_us = predicted_us(problem, device, product, precision, t, g);
      if (problem.operation == Operation::forward) trust(plan, device, t.planes ? kDoubtOfPlanes : 1.3);
      some.push_back(std::move(plan));
    }
  }
  append_fastest(plans, std::move(some), kMostPlans);
}

}  // namespace convx::pointwise
