// Planning of shared_rows: by name alone, as the published form of row reuse.
#include <algorithm>

#include "methods/depthwise/family.h"
#include "methods/depthwise/planes_support.h"
#include "methods/depthwise/shared_rows/geometry.h"

namespace convx::depthwise {
namespace {

constexpr int64_t kLimit = int64_t{1} << 30;  // 32-bit offsets in a plane; numbers of groups below 2^31

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support planes = supports_planes(problem, device); !planes.ok) return planes;
  if (problem.operation != Operation::forward) return Support::no("computes forward");
  if (problem.dtype != DType::float32) return Support::no("has float32 alone");
  if (problem.out_channels != problem.in_channels) {
    return Support::no("needs groups = in_channels = out_channels");
  }
  const int64_t filter = problem.filter_height;
  if (problem.epilogue.is_more_than_bias()) return Support::no(kAddsBiasAlone);
  const int64_t height = std::max(problem.in_height, problem.out_height * problem.stride_h + filter);
  const int64_t width = std::max(problem.in_width, problem.out_width * problem.stride_w + filter);
  if (width >= kLimit || height >= kLimit / width) return Support::no("needs planes below 2^30 elements");
  if (shared_rows::geometry_of(problem, device.lanes).units >= kLimit) {
    return Support::no("needs batch * channels below 2^30");
  }
  return Support::yes();
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const shared_rows::Geometry geometry = shared_rows::geometry_of(problem, device.lanes);
  Plan plan;
  plan.candidate = shared_rows_family.name;
  plan.kernel = kSharedRows;
  plan.by_name_only = true;
  plan.tiling = {{"lanes", device.lanes},
                 {"threads", geometry.threads},
                 {"columns", geometry.columns},
                 {"groups", geometry.groups},
                 {"segments", geometry.segments}};
  // A row is a step that all threads of a block take together: the next row's way from memory, which only
  // other blocks hide, and the products at two cycles each (measured on an H200).
  const double taps = static_cast<double>(problem.filter_height * problem.filter_width);
  const double rows =
      static_cast<double>((problem.out_height - 1) * problem.stride_h + problem.filter_height);
  const double row_us = (2 * taps + 950) / device.busy_cycles_per_us();
  const double waves = std::max(1.0, static_cast<double>(geometry.blocks()) / (8.0 * device.multiprocessors));
  plan.predicted_us = 2 + std::max(problem.bytes() / (device.bandwidth_GBps * 1e3), waves * rows * row_us);
  plans.push_back(std::move(plan));
}

}  // namespace

const Family shared_rows_family = {"shared_rows", supports, append};

}  // namespace convx::depthwise
