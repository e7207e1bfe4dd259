// Pooling between convolutions, which otherwise ends a chain and begins another.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "front/calls.h"
#include "front/link.h"
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

  void launch(Pointers pointers) const override { library->launch_pooling(problem_, pointers); }

 private:
  PoolingProblem problem_;
};

// What torch refuses has no results.
PoolingWindow window_of(int64_t extent, const PoolingAsked& asked, size_t dimension) {
  PoolingWindow window{extent,
                       0,
                       asked.filter[dimension],
                       asked.stride[dimension],
                       asked.padding[dimension],
                       asked.dilation[dimension]};
  const int64_t filter = window.filter, stride = window.stride, padding = window.padding;
  const int64_t dilation = window.dilation;
  constexpr int64_t kMost = int64_t{1} << 30;  // whose products are in range
  for (const int64_t each : {extent, filter, stride, dilation}) {
    if (each < 1 || each > kMost) return window;
  }
  if (padding < 0 || padding > filter / 2) return window;
  const int64_t room =
      extent + 2 * padding - dilation * (filter - 1) - 1 + (asked.ceil_mode ? stride - 1 : 0);
  window.results = room < 0 ? 0 : room / stride + 1;
  // The last one begins in the input or in the padding before it.
  if (asked.ceil_mode && window.first(window.results - 1) >= extent) --window.results;
  return window;
}

std::shared_ptr<PooledLink> made(const Tensor& input, const PoolingAsked& asked) {
  const KernelLibrary* const library = library_of_images(input);
  if (library == nullptr) return nullptr;
  PoolingProblem problem;
  problem.kind = asked.kind == "max" ? Pooling::max : Pooling::average;
  const bool is_nhwc =
      !input.is_contiguous() || input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  problem.layout = is_nhwc ? Layout::nhwc : Layout::nchw;
  problem.batch = input.size(0), problem.channels = input.size(1);
  problem.down = window_of(input.size(2), asked, 0), problem.across = window_of(input.size(3), asked, 1);
  problem.counts_padding = asked.counts_padding, problem.divisor = asked.divisor;
  if (problem.down.results < 1 || problem.across.results < 1) return nullptr;
  return std::make_shared<PooledLink>(input, problem, *library);
}

}  // namespace

py::object pooled_link(py::handle input, const PoolingAsked& asked) {
  const std::shared_ptr<Link> link = made(THPVariable_Unpack(input.ptr()), asked);
  return link == nullptr ? py::none() : py::cast(link);
}

std::optional<Tensor> pooled(const Tensor& input, const PoolingAsked& asked) {
  if (input.requires_grad() && at::GradMode::is_enabled()) return std::nullopt;
  const auto link = made(input, asked);
  return link == nullptr ? std::nullopt : std::optional<Tensor>(link->launched(input));
}

}  // namespace convx::front
