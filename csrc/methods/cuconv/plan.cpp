#include <algorithm>
#include <string>

#include "methods/cuconv/cuconv.h"
#include "methods/cuconv/family.h"
#include "problem/memory.h"

namespace convx::cuconv {

namespace {

// Sizes within a group or a plane are 32-bit in the kernels, and so is the number of blocks.
Support fits(const Sweep& s) {
  constexpr int64_t kLimit = int64_t{1} << 30;
  const auto below = [](int64_t value, const char* what) {
    return value < kLimit ? Support::yes() : Support::no(std::string(what) + " must be below 2^30");
  };
  const std::pair<int64_t, const char*> sizes[] = {
      {s.source_plane() + s.result_plane(), "the elements of an input and an output plane"},
      {s.source_channels * s.taps() * 64, "64 times the elements of a filter"},
      {std::max(s.filter_height * s.dilation_h, s.filter_width * s.dilation_w), "filter size times dilation"},
      {std::max(s.stride_h, s.stride_w), "the stride"},
      {s.source_plane() * 64, "64 times the elements of an input plane"},
  };
  for (const auto& [value, what] : sizes) {
    const Support support = below(value, what);
    if (!support.ok) return support;
  }
  if (static_cast<double>(s.results()) * static_cast<double>(s.taps()) > 1e15) {
    return Support::no("the products must be below 1e15");
  }
  return Support::yes();
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support epilogue = supports_epilogue(problem, device); !epilogue.ok) return epilogue;
  if (problem.batch == 0) return Support::no("the batch is empty");
  if (problem.layout != Layout::nchw && device.backend == Backend::cpu) return Support::no(kNeedsPlanes);
  if (problem.operation == Operation::weight_grad)
    return Support::no("it computes forward and input_grad, not weight_grad");
  if (problem.operation == Operation::input_grad && (problem.stride_h != 1 || problem.stride_w != 1)) {
    return Support::no(
        "it computes input_grad at stride 1 alone, as a forward convolution with flipped filters");
  }
  if (const Support padding = supports_padding(problem, device); !padding.ok) return padding;
  const Support support = fits(sweep_of(problem));
  if (!support.ok) return support;
  if (device.backend == Backend::cpu) {
    std::vector<Plan> plans;
    append_cpu(problem, device, plans);
    if (!plans.empty()) return Support::yes();
    return Support::no("a packed copy of one image is more than the " +
                       megabytes(static_cast<double>(workspace_limit())) + " MB of CONVX_WORKSPACE_LIMIT_MB");
  }
  if (has_gpu_plan(problem, device)) return Support::yes();
  if (problem.layout != Layout::nchw) {
    return Support::no("it needs the layout nchw, but for cuconv/deep: " + why_no_deep(problem, device));
  }
  return Support::no("no tiling has fewer than 2^31 blocks and fits shared memory");
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  device.backend == Backend::cpu ? append_cpu(problem, device, plans) : append_gpu(problem, device, plans);
  for (Plan& plan : plans) plan.method = &method;
  return plans;
}

std::string why_absent(const ConvProblem& problem, const DeviceTraits& device, const std::string& candidate) {
  return device.backend == Backend::cpu ? "" : why_absent_on_gpu(problem, device, candidate);
}

}  // namespace

const Method method = {"cuconv",
                       "scalar products along channels, lanes along pixels (Jorda, Valero-Lara, Pena 2021)",
                       supports, candidates, why_absent};

}  // namespace convx::cuconv
