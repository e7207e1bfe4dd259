// Pooling between convolutions, which otherwise ends a chain and begins another.
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "front/calls.h"
#include "front/link.h"
#include "methods/pooling/pooling.h"
#include "problem/pooling_problem.h"

namespace py = pybind11;

namespace convx::front {
namespace {

class PooledLink : public Link {
 public:
  PooledLink(const Tensor& input, const PoolingProblem& problem, const KernelLibrary& of)
      : problem_(problem) {
    read(input, of);
    result_sizes = input_sizes;
    result_sizes[2] = problem.down.results, result_sizes[3] = problem.across.results;
    // Of one channel, whose memory is the same in both, torch gives what it takes the input for.
    result_format = problem.layout == Layout::nhwc ? at::MemoryFormat::ChannelsLast : input_format;
  }

  void launch(Pointers pointers) const override {
    library->launch_pooling(problem_, pointers, options.device().index());
  }

 private:
  PoolingProblem problem_;
};

PoolingWindow window_of(int64_t extent, const PoolingAsked& asked, size_t dimension) {
  PoolingWindow window{extent,
                       0,
                       asked.filter[dimension],
                       asked.stride[dimension],
                       asked.padding[dimension],
                       asked.dilation[dimension]};
  window.results = results_of(window, asked.ceil_mode);
  return window;
}

// library: null where it has no kernels for such images.
std::shared_ptr<PooledLink> made(const Tensor& input, const PoolingAsked& asked,
                                 const KernelLibrary* library) {
  if (library == nullptr) return nullptr;
  PoolingProblem problem;
  problem.dtype = *dtype_of(input);
  problem.kind = asked.kind == "max" ? Pooling::max : Pooling::average;
  const bool is_nhwc =
      !input.is_contiguous() || input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  problem.layout = is_nhwc ? Layout::nhwc : Layout::nchw;
  problem.batch = input.size(0), problem.channels = input.size(1);
  problem.down = window_of(input.size(2), asked, 0), problem.across = window_of(input.size(3), asked, 1);
  problem.counts_padding = asked.counts_padding, problem.divisor = asked.divisor;
  if (problem.down.results < 1 || problem.across.results < 1) return nullptr;
  if (input.is_cuda() && !pooling::gpu_takes(problem)) return nullptr;
  return std::make_shared<PooledLink>(input, problem, *library);
}

}  // namespace

py::object pooled_link(py::handle input_object, const PoolingAsked& asked) {
  const Tensor& input = THPVariable_Unpack(input_object.ptr());
  const std::shared_ptr<Link> link = made(input, asked, library_of_images(input));
  return link == nullptr ? py::none() : py::cast(link);
}

std::optional<Tensor> pooled(const Tensor& input, const PoolingAsked& asked) {
  if (input.requires_grad() && at::GradMode::is_enabled()) return std::nullopt;
  const auto link =
      made(input, asked, input.is_cpu() ? library_of_images(input) : gpu_library_of_images(input));
  if (link == nullptr) return std::nullopt;
  const c10::DeviceGuard guard(input.device());
  return link->launched(link->dense(input));
}

}  // namespace convx::front
