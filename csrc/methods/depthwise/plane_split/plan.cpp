// Planning of plane_split: how many planes and threads make a block.
#include <algorithm>

#include "methods/depthwise/family.h"
#include "methods/depthwise/plane_split/geometry.h"
#include "methods/depthwise/planes_support.h"

namespace convx::depthwise {
namespace {

using plane_split::Geometry;
using plane_split::Mapping;
using plane_split::View;

constexpr int64_t kMostElements = 4096;  // of a plane; larger ones are no longer latency
constexpr int64_t kSharedBytes = 48 * 1024;
constexpr int64_t kLimit = int64_t{1} << 30;

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support planes = supports_planes(problem, device); !planes.ok) return planes;
  if (problem.out_channels != problem.in_channels) {
    return Support::no("needs groups = in_channels = out_channels");
  }
  const int64_t filter = problem.filter_height;
  if (problem.epilogue.is_more_than_bias()) return Support::no(kAddsBiasAlone);
  if (problem.in_height > kMostElements || problem.in_width > kMostElements ||
      problem.in_height * problem.in_width > kMostElements || problem.out_height > kMostElements ||
      problem.out_width > kMostElements || problem.out_height * problem.out_width > kMostElements) {
    return Support::no("needs planes of up to 4096 elements");
  }
  for (const int64_t padding :
       {problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right}) {
    if (padding >= filter) return Support::no("needs padding smaller than the filter");
  }
  const View view = strip::view_of(problem);
  if (view.mapping != Mapping::transpose2 && view.result_width < plane_split::strip_of(view.mapping)) {
    return Support::no("needs rows of 7 results or more");
  }
  const Geometry geometry = plane_split::geometry_of(view, filter);
  if (geometry.planes >= kLimit) return Support::no("needs batch * channels below 2^30");
  if (plane_split::shared_bytes(geometry, 1, element_size(problem.dtype)) > kSharedBytes) {
    return Support::no("needs a plane's source and results in 48 KB");
  }
  return Support::yes();
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const View view = strip::view_of(problem);
  const int64_t filter = problem.filter_height, bytes = element_size(problem.dtype);
  const Geometry geometry = plane_split::geometry_of(view, filter);
  const int64_t processors = std::max(device.multiprocessors, 1);
  // Blocks of half the size where that is what it takes to give each multiprocessor two.
  int64_t threads = plane_split::kThreads;
  const auto planes_of_block = [&] {
    return std::clamp<int64_t>(threads / geometry.units(), 1, geometry.planes);
  };
  if (geometry.planes < 2 * processors * planes_of_block()) threads /= 2;
  int64_t planes = planes_of_block();
  while (planes > 1 && plane_split::shared_bytes(geometry, planes, bytes) > kSharedBytes) --planes;

  Plan plan;
  plan.candidate = plane_split_family.name;
  plan.kernel = kPlaneSplit;
  plan.tiling = {{"lanes", device.lanes}, {"threads", threads}, {"planes", planes}};
  // Bound by instructions where not by latency: about one for each multiply-add, load from shared memory and
  // edge, on four schedulers.
  const bool transposed = view.mapping == Mapping::transpose2;
  const double results = plane_split::strip_of(view.mapping) * plane_split::rows_of(view.mapping);
  const double taps = static_cast<double>(filter * filter) / (transposed ? 4 : 1);
  const double instructions = results * taps * 1.5 + static_cast<double>(filter * filter) + 130;
  const double warps = static_cast<double>(geometry.planes * geometry.units()) / 32;
  const double cycles_per_us = device.busy_cycles_per_us();
  const double issue = warps * instructions / (static_cast<double>(processors) * 4 * cycles_per_us * 0.7);
  const double stream = problem.bytes() / (device.bandwidth_GBps * 1e3) / 0.75;
  plan.predicted_us = 2.2 + instructions / cycles_per_us + std::max(issue, stream);
  plans.push_back(std::move(plan));
}

}  // namespace

const Family plane_split_family = {"plane_split", supports, append};

}  // namespace convx::depthwise
