// Layers, blocks and pooling on a CPU, each prepared for tensors like those of one call: what a chain
// is made of.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

#include "front/engine.h"

namespace convx::front {

class Link {
 public:
  virtual ~Link() = default;
  // Whether torch's own function computes it, which allocates its result: run() then, launch() otherwise.
  virtual bool is_torchs() const { return false; }
  virtual Tensor run(const Tensor& input) const;
  // pointers: input, result and, as the epilogue's residual, what else is read.
  virtual void launch(Pointers pointers) const;
  // Of images, dense in either layout, or of a matrix: input_sizes, input_format, options and library.
  void read(const Tensor& input, const KernelLibrary& of);
  // launch() by itself: a tensor of its own for the result. second: as the epilogue's residual.
  Tensor launched(const Tensor& input, const Tensor* second = nullptr) const;
  // A tensor like the input, as the link reads it.
  Tensor dense(const Tensor& tensor) const;

  c10::DimVector input_sizes, result_sizes;
  c10::DimVector residual_sizes;  // of what is read beside the input, where something is
  at::MemoryFormat input_format = at::MemoryFormat::Contiguous, result_format = input_format;
  at::TensorOptions options;  // dtype and device of all its tensors
  bool adds_residual = false;
  const KernelLibrary* library = nullptr;
};

// All are null where the call has to be made by its layer.

// residual and packed, what PackedFilters keeps for the call, may be None; so may bias.
pybind11::object convolution_link(pybind11::handle input, pybind11::handle weight, pybind11::handle bias,
                                  pybind11::handle residual, bool residual_after_activation,
                                  const std::array<int64_t, 2>& stride, const std::array<int64_t, 4>& padding,
                                  const std::array<int64_t, 2>& dilation, int64_t groups,
                                  const std::string& activation, const std::string& algorithm,
                                  pybind11::handle packed);

// problem: the input's, a kBlockCapsule. algorithm, packed: the plan, and the filters in its order.
pybind11::object block_link(pybind11::handle input, const pybind11::capsule& problem,
                            const std::string& algorithm, pybind11::handle packed);

// The library where images are usual ones on a CPU, of float32 and dense in either layout; null otherwise.
const KernelLibrary* library_of_images(const Tensor& images);

// The same of images on a GPU, of any dtype that kernels are for.
const KernelLibrary* gpu_library_of_images(const Tensor& images);

// Each plane's mean, with planes of one pixel or without them.
pybind11::object mean_link(pybind11::handle input, bool keeps_planes);
// The same by a call: bit for bit what the link gives. None where it would be null, or a gradient is wanted.
std::optional<Tensor> plane_means(const Tensor& input, bool keeps_planes);

// Pooling of planes as torch has it: kind is "max" or "average"; for each of height and width.
struct PoolingAsked {
  std::string kind;
  std::array<int64_t, 2> filter, stride, padding, dilation;
  bool ceil_mode;  // a last window may reach beyond the padding
  bool counts_padding;
  int64_t divisor;  // 0: by the values' count
};
pybind11::object pooled_link(pybind11::handle input, const PoolingAsked& asked);
// The same by a call, on GPUs too; None where the link would be null, or a gradient is wanted.
std::optional<Tensor> pooled(const Tensor& input, const PoolingAsked& asked);

// Layer norm of the channels of images in channels_last. weight and bias: of each channel, or neither.
pybind11::object norm_link(const Tensor& input, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& bias, double eps);
// The same by a call; None where the link would be null.
std::optional<Tensor> channel_norm(const Tensor& input, const std::optional<Tensor>& weight,
                                   const std::optional<Tensor>& bias, double eps);

// Channels of one tensor, or of two with the same pixels (second may be None), in another order: of each
// channel of the result its place among the first one's channels and then the second's.
pybind11::object moved_link(pybind11::handle first, pybind11::handle second,
                            const std::vector<int64_t>& order);
// The same by a call; None where the link would be null, or a gradient is wanted.
std::optional<Tensor> moved_channels(const Tensor& first, const std::optional<Tensor>& second,
                                     const std::vector<int64_t>& order);

// torch's own linear layer of a matrix. bias may be None.
pybind11::object linear_link(pybind11::handle input, pybind11::handle weight, pybind11::handle bias);

}  // namespace convx::front
