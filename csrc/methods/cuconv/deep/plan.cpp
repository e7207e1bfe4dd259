// Which sweeps have few enough pixels for a deep product.
#include <algorithm>
#include <string>

#include "methods/cuconv/deep/product.h"
#include "methods/cuconv/family.h"
#include "methods/cuconv/launch.h"
#include "methods/deep/plans.h"

namespace convx::cuconv {
namespace {

// The source's elements, and the way from a tap to another with padding, are counted in 32 bits.
bool is_countable(const Sweep& s) {
  constexpr double kLimit = static_cast<double>(int64_t{1} << 30);
  const auto padded = [](int64_t source, int64_t result, int64_t stride, int64_t filter, int64_t dilation) {
    return static_cast<double>(std::max(source, (result - 1) * stride + (filter - 1) * dilation + 1));
  };
  const double plane = padded(s.source_height, s.result_height, s.stride_h, s.filter_height, s.dilation_h) *
                       padded(s.source_width, s.result_width, s.stride_w, s.filter_width, s.dilation_w);
  return static_cast<double>(s.batch * s.source_channels) * plane < kLimit &&
         static_cast<double>(s.taps() * s.source_channels) < kLimit / 32;
}

bool is_one(const ConvProblem& p, const Sweep& s, const DeviceTraits& device) {
  const bool are_pieces = s.source_channels % (deep::kPieceBytes / element_size(p.dtype)) == 0;
  const bool fits = deep::has_planes(p) || (are_pieces && s.result_channels % 4 == 0);
  return p.groups == 1 && p.dtype != DType::float64 && !s.transposed && !s.is_flat() && fits &&
         matrix::has_units(device) && s.batch * s.result_plane() <= deep::kMostPixels && is_countable(s);
}

}  // namespace

void append_deep(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Sweep s = sweep_of(problem);
  const bool split = matrix::precision_of(problem, device) == matrix::kSplit;
  if (!is_one(problem, s, device) || (split && s.source_channels < kFewestSplit)) return;
  Plan plan;
  plan.candidate = "deep";
  plan.kernel = kDeep;
  plan.packing = "32 filters by taps, for " + std::to_string(device.lanes) + " lanes";
  deep::append_plans(problem, device, deep::product_of(s, element_size(problem.dtype)), true, plan, plans);
}

}  // namespace convx::cuconv
