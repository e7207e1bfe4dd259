#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/cost.h"
#include "methods/pointwise/tensor/schedule.h"

namespace convx::pointwise {
namespace {

using tensor::Access;
using tensor::Precision;
using tensor::Schedule;

constexpr double kOverlapUs = 0.7;  // of launches that begin while the kernel before them drains

// What a tile is for a warp width that is known at run time.
struct TileSizes {
  int64_t columns, pixels, stage_steps;
  bool exchange;
  Schedule schedule;
};

template <Precision Kind, int Lanes, Access How, class Tile>
TileSizes sizes_of(const DeviceTraits& device, const Product& product, int64_t batch, int64_t row_tiles,
                   int64_t plane, int64_t steps) {
  using Size = tensor::Sizes<Kind, Lanes, How, Tile>;
  return {Size::kColumns, tensor::Form<How>::kWholeImages ? Size::kColumns * plane : Size::kColumns,
          Tile::kStageSteps, Tile::kWarpDepths > 1,
          tensor::schedule_of<Kind, Lanes, How, Tile>(device, product, batch, row_tiles, plane, steps)};
}

template <Precision Kind, Access How, class Tile>
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Product& product,
                    const TileSizes& size) {
  using Form = tensor::Form<How>;
  constexpr tensor::Cost cost = tensor::cost_of(Kind, How);
  const double units = std::max(1, device.multiprocessors);
  // Rates of an H200's multiprocessor, in bytes and instructions a microsecond.
  const double clock = device.clock_MHz, fill = 26 * clock;
  const Schedule& schedule = size.schedule;
  const double count = std::ceil(static_cast<double>(schedule.row_tiles * schedule.column_tiles) / units);
  const double waves = std::ceil(count / static_cast<double>(schedule.resident));
  const double depth = static_cast<double>(product.depth), pixels = static_cast<double>(size.pixels);
  const double bytes = tensor::element_bytes(Kind), rows = Tile::kRows;
  // Elements alone take as many instructions as pieces of several.
  const bool elements =
      Form::kSingleElements || (Form::kPixelRows && product.depth % (16 / tensor::element_bytes(Kind)) != 0);
  const double single = !elements ? 1 : bytes == 2 ? 4 : 2;
  // For a single tile they are fetched as well, whether they stay or not.
  const double filter_rows = schedule.filters_stay && schedule.rounds > 1 ? 0 : rows * tensor::parts(Kind);
  const double in = count * depth * (pixels * single + filter_rows) * bytes / fill;
  const double out = count * rows * pixels * single * bytes / fill;
  const double products = count * (rows / 16) * (pixels / 8) * (depth / tensor::step_depth(Kind)) *
                          (Kind == tensor::kSplit ? 3 : 1) * 2 / clock;
  const double taken = tensor::is_spread(How) ? 1 : Form::neighbours(tensor::element_bytes(Kind));
  const double reads = count * Tile::kWarpRows * pixels * depth / 32 / taken / clock;
  const double chunks = std::ceil(depth / static_cast<double>(size.stage_steps * tensor::step_depth(Kind)));
  const double waits = schedule.rounds > 1 ? waves - cost.flow * (waves - 1) : waves;
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  const double us = cost.launch + cost.in * in + cost.out * out + cost.products * products +
                    cost.reads * reads +
                    waits * (cost.wave + cost.chunk * chunks + cost.step * chunks * Tile::kSteps +
                             (size.exchange ? cost.exchange : 0)) +
                    cost.memory * memory + cost.rows * count * Tile::kRowsEach;
  return std::max(us - (device.has_bulk_copy() ? kOverlapUs : 0), 1.5 + memory);
}

template <Precision Kind, Access How>
void append_access(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  const int64_t plane = sweep_of(problem).result_plane();
  const int64_t steps = tensor::steps_of(Kind, How, product.depth);
  for (int index = 0;; ++index) {
    const bool found = tensor::with_tile<Kind, How>(index, [&](auto tile) {
      using Tile = decltype(tile);
      const int64_t row_tiles = divide_up(product.rows, Tile::kRows) * problem.groups;
      auto* const sizes = device.lanes == 64 ? sizes_of<Kind, 64, How, Tile> : sizes_of<Kind, 32, How, Tile>;
      const TileSizes size = sizes(device, product, problem.batch, row_tiles, plane, steps);
      const Schedule& schedule = size.schedule;
      const int64_t shared_bytes = schedule.shared_bytes + tensor::kBarrierBytes;
      if (shared_bytes > device.shared_bytes_per_block || schedule.blocks() > INT32_MAX) return;
      Plan plan;
      plan.candidate = Kind == tensor::kSplit ? "tensor3" : "tensor";
      plan.variant = tensor::Form<How>::kVariant;
      plan.kernel = kTensor;
      plan.tiling = {{"precision", Kind},
                     {"access", How},
                     {"tile", index},
                     {"rows", Tile::kRows},
                     {"columns", size.columns},
                     {"rounds", schedule.rounds},
                     {"filters_stay", schedule.filters_stay},
                     {"lanes", device.lanes}};
      plan.packing = tensor::packing_name(Kind, tensor::Form<How>::kOrder, device.lanes);
      plan.packed_weight_bytes =
          problem.groups * tensor::row_tiles_of(How, product.rows) * steps * 512 * tensor::parts(Kind);
      plan.reads_both = Kind == tensor::kSplit;  // sums that are not finite are computed again
      plan.predicted_us = predicted_us<Kind, How, Tile>(problem, device, product, size);
      plans.push_back(std::move(plan));
    });
    if (!found) return;
  }
}

template <Precision Kind>
void append_precision(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  const int64_t plane = sweep_of(problem).result_plane();
  constexpr int64_t kPiece = 16 / tensor::element_bytes(Kind);
  if (problem.layout == Layout::nhwc) {
    // Their stores have no registers for scales and residuals: calls without any took up to a quarter longer.
    if (problem.epilogue.is_more_than_bias()) return;
    if (device.backend == Backend::hip && !tensor::planned_on_amd(Kind, tensor::kChannels)) return;
    append_access<Kind, tensor::kChannels>(problem, device, plans);
  } else if (product.same_pixels && plane % kPiece == 0) {
    append_access<Kind, tensor::kRows>(problem, device, plans);
  } else if (product.same_pixels && plane >= tensor::kFewestPlanePixels &&
             plane <= tensor::kMostPlanePixels && product.depth * plane % kPiece == 0 &&
             product.rows * plane % kPiece == 0) {
    append_access<Kind, tensor::kPlanes>(problem, device, plans);
  } else if (product.same_pixels && kPiece == 8 && plane % 4 == 0) {
    if constexpr (kPiece == 8) append_access<Kind, tensor::kShortRows>(problem, device, plans);
  } else {
    if constexpr (kPiece == 4) {
      const bool planned = device.backend != Backend::hip || tensor::planned_on_amd(Kind, tensor::kShifted);
      if (product.same_pixels && planned)
        return append_access<Kind, tensor::kShifted>(problem, device, plans);
    }
    append_access<Kind, tensor::kElements>(problem, device, plans);
  }
}

}  // namespace

void append_tensor(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const bool images_countable = problem.in_channels * problem.in_height * problem.in_width < INT32_MAX / 2 &&
                                problem.out_channels * problem.out_height * problem.out_width < INT32_MAX / 2;
  if (problem.operation == Operation::weight_grad || problem.dtype == DType::float64 ||
      !matrix::has_units(device) || !images_countable) {
    return;
  }
  switch (matrix::precision_of(problem, device)) {
    case tensor::kBfloat16:
      return append_precision<tensor::kBfloat16>(problem, device, plans);
    case tensor::kFloat16:
      return append_precision<tensor::kFloat16>(problem, device, plans);
    case tensor::kTf32:
      return append_precision<tensor::kTf32>(problem, device, plans);
    default:
      return append_precision<tensor::kSplit>(problem, device, plans);
  }
}

}  // namespace convx::pointwise
