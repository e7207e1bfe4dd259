// What networks of convolutions end with: means of planes, and a linear layer.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/python_variable.h>

#include "front/calls.h"
#include "front/link.h"
#include "methods/plane_means/plane_means.h"

namespace py = pybind11;

namespace convx::front {
namespace {

constexpr int64_t kChannels = 32;  // that are summed at the same time: two cache lines of a pixel

// torch's own call of so little work takes several times as long where another core has just written what it
// reads: here a core reads the channels that it has made.
class MeanLink : public Link {
 public:
  MeanLink(const Tensor& input, bool keeps_planes, const KernelLibrary& of) {
    read(input, of);
    result_sizes = {input.size(0), input.size(1)};
    if (keeps_planes) result_sizes.append({1, 1});
    result_format = keeps_planes ? input_format : at::MemoryFormat::Contiguous;
  }

  void launch(Pointers pointers) const override {
    const auto* const from = static_cast<const float*>(pointers.input);
    auto* const to = static_cast<float*>(pointers.result);
    const int64_t batch = input_sizes[0], channels = input_sizes[1];
    if (input_format == at::MemoryFormat::Contiguous) {
      at::parallel_for(0, batch * channels, grain(1), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) to[plane] = mean_of(from + plane * pixels());
      });
      return;
    }
    const int64_t blocks = (channels + kChannels - 1) / kChannels;
    at::parallel_for(0, batch * blocks, grain(kChannels), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * kChannels, count = std::min(kChannels, channels - first);
        const float* const values = from + task / blocks * channels * pixels() + first;
        float* const means = to + task / blocks * channels + first;
        // A count that is known is what makes vectors of it.
        count == kChannels ? add_pixels(values, kChannels, means) : add_pixels(values, count, means);
      }
    });
  }

 private:
  int64_t height() const { return input_sizes[2]; }
  int64_t width() const { return input_sizes[3]; }
  int64_t pixels() const { return height() * width(); }
  // Tasks of so many planes that are worth a thread.
  int64_t grain(int64_t planes) const { return std::max<int64_t>(1, 4096 / (planes * pixels())); }

  // By rows, and by several sums of each: one long sum's rounding error grows with its length.
  float mean_of(const float* plane) const {
    constexpr int kSums = 8;
    float total = 0;
    for (int64_t y = 0; y < height(); ++y, plane += width()) {
      float sums[kSums] = {};
      int64_t x = 0;
      for (; x + kSums <= width(); x += kSums) {
        for (int k = 0; k < kSums; ++k) sums[k] += plane[x + k];
      }
      for (; x < width(); ++x) sums[0] += plane[x];
      total += ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
    }
    return total / static_cast<float>(pixels());
  }

  inline __attribute__((always_inline)) void add_pixels(const float* pixel, int64_t count,
                                                        float* means) const {
    float total[kChannels] = {};
    for (int64_t y = 0; y < height(); ++y) {
      float row[kChannels] = {};
      for (int64_t x = 0; x < width(); ++x, pixel += input_sizes[1]) {
        for (int64_t c = 0; c < count; ++c) row[c] += pixel[c];
      }
      for (int64_t c = 0; c < count; ++c) total[c] += row[c];
    }
    for (int64_t c = 0; c < count; ++c) means[c] = total[c] / static_cast<float>(pixels());
  }
};

// By torch: it spares a call from Python.
class LinearLink : public Link {
 public:
  LinearLink(const Tensor& input, Tensor weight, std::optional<Tensor> bias, const KernelLibrary& of)
      : weight_(std::move(weight)), bias_(std::move(bias)) {
    read(input, of);
    result_sizes = {input.size(0), weight_.size(0)};
  }

  bool is_torchs() const override { return true; }
  Tensor run(const Tensor& input) const override { return at::linear(input, weight_, bias_); }

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
};

std::optional<Tensor> means_on_gpu(const Tensor& input, bool keeps_planes) {
  const KernelLibrary* const library = gpu_library_of_images(input);
  if (library == nullptr) return std::nullopt;
  const bool is_nchw = input.is_contiguous();
  MeansProblem problem{*dtype_of(input), is_nchw ? Layout::nchw : Layout::nhwc};
  problem.batch = input.size(0), problem.channels = input.size(1);
  problem.pixels = input.size(2) * input.size(3);
  if (!plane_means::takes(problem)) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(input.device());
  const auto format = is_nchw ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
  const Tensor images = dense(*library, input, format);
  c10::DimVector sizes = {input.size(0), input.size(1)};
  if (keeps_planes) sizes.append({1, 1});
  Tensor result = at::empty(sizes, input.options(), keeps_planes ? format : at::MemoryFormat::Contiguous);
  Pointers pointers;
  pointers.input = images.const_data_ptr(), pointers.result = result.mutable_data_ptr();
  library->launch_means(problem, pointers, input.device().index());
  return result;
}

}  // namespace

py::object mean_link(py::handle input_object, bool keeps_planes) {
  const Tensor& input = THPVariable_Unpack(input_object.ptr());
  const KernelLibrary* const library = library_of_images(input);
  if (library == nullptr) return py::none();
  return py::cast(std::shared_ptr<Link>(new MeanLink(input, keeps_planes, *library)));
}

std::optional<Tensor> plane_means(const Tensor& input, bool keeps_planes) {
  if (input.requires_grad() && at::GradMode::is_enabled()) return std::nullopt;
  if (!input.is_cpu()) return means_on_gpu(input, keeps_planes);
  const KernelLibrary* const library = library_of_images(input);
  if (library == nullptr) return std::nullopt;
  return MeanLink(input, keeps_planes, *library).launched(input);
}

py::object linear_link(py::handle input_object, py::handle weight, py::handle bias) {
  const Tensor& input = THPVariable_Unpack(input_object.ptr());
  const std::optional<Operands> operands = usual_operands(input_object, weight, bias);
  const KernelLibrary* const library = find_library(false);
  const bool is_matrix = input.dim() == 2 && input.is_cpu() && input.is_contiguous();
  if (library == nullptr || !is_matrix || !operands || operands->key.wanted != 0 || operands->key.autocast) {
    return py::none();
  }
  return py::cast(std::shared_ptr<Link>(new LinearLink(input, operands->weight, operands->bias, *library)));
}

}  // namespace convx::front
