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

}  // namespace

std::string why_no_deep(const ConvProblem& p, const DeviceTraits& device) {
  const Sweep s = sweep_of(p);
  if (!matrix::has_units(device)) return "it needs matrix units: NVIDIA's since sm_80, AMD's CDNA 2 and 3";
  if (p.dtype == DType::float64) return "it takes no float64";
  if (p.groups != 1) return "it takes one group";
  if (s.is_flat()) return "a filter of one tap at the pixel itself is pointwise/deep's";
  if (s.batch * s.result_plane() > deep::kMostPixels) {
    return "it is for few pixels: " + std::to_string(deep::kMostPixels) + " of the output, over the batch";
  }
  if (!deep::has_whole_pieces(p, s.source_channels, s.result_channels)) {
    return "in channels_last it needs channels that are whole 16 bytes, and filters by four";
  }
  if (matrix::precision_of(p, device) == matrix::kSplit && s.source_channels < kFewestSplit) {
    return "exact float32 needs " + std::to_string(kFewestSplit) +
           " channels: sums of fewer have the error of one product";
  }
  return is_countable(s) ? "" : "the elements of the padded input must be below 2^30";
}

void append_deep(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!why_no_deep(problem, device).empty()) return;
  Plan plan;
  plan.candidate = "deep";
  plan.kernel = kDeep;
  plan.packing = "32 filters by taps, for " + std::to_string(device.lanes) + " lanes";
  const matrix::Product product = deep::product_of(sweep_of(problem), element_size(problem.dtype));
  deep::append_plans(problem, device, product, true, plan, plans);
}

}  // namespace convx::cuconv
