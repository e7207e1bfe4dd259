// Convolutions of torch's tensors with all that has to be found out once found out: what a call of the same
// kind then does is a launch. Written for the torch that is installed; where it does not fit, there are the
// operators, and whatever is unusual is theirs.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "choose/plans.h"
#include "plan/library.h"

namespace convx::front {

using at::Tensor;

struct Geometry {
  std::array<int64_t, 2> stride;    // height, width
  std::array<int64_t, 4> padding;   // top, bottom, left, right
  std::array<int64_t, 2> dilation;  // height, width
  int64_t groups;
};

// Gradients that a backward pass would be asked for.
enum Wanted : int { kInput = 1, kWeight = 2, kBias = 4 };

// Who computes: a kernel of convx, aten::convolution, or convx's operator, for native's other forms.
enum class By { kernel, torch, operators };

struct Step {
  ConvProblem problem;
  std::shared_ptr<const Plan> plan;
  By by = By::operators;
};

// A call of conv2d or conv1d with tensors of such sizes, types and layouts. Of a row, an image of height one
// is planned.
struct Prepared : torch::CustomClassHolder {
  Geometry geometry;
  std::string algorithm, algorithm_of_gradients;
  int64_t tf32 = 0;                          // torch's setting: csrc/torch/schema.cpp
  Activation activation = Activation::none;  // fused
  Activation after = Activation::none;       // torch's own operator, whose gradient needs what it was given
  int wanted = 0;
  bool is_torchs = false;      // the convolution, gradients too: torch's own function
  bool channels_last = false;  // the result, by torch's rule
  const KernelLibrary* library = nullptr;
  Backend backend = Backend::cpu;
  Step forward, input_grad, weight_grad;
  c10::DimVector input_sizes, weight_sizes, result_sizes;
  c10::DimVector result_strides;  // of a gradient by itself

  bool packs() const { return forward.by == By::kernel && !forward.plan->packing.empty(); }
  // Whether the forward kernel reads other memory than the weight's: filters in its own order, or a copy of a
  // weight that is not in torch's.
  bool keeps_filters(const Tensor& weight) const;
  // Whether it reads the weight, with kept filters or without.
  bool reads_weight(bool has_kept) const {
    return forward.by == By::kernel && (!has_kept || forward.plan->reads_both);
  }
};

std::optional<DType> dtype_of(const Tensor& tensor);  // none of those that no kernel takes
at::MemoryFormat format_of(const Prepared& prepared);
// The tensor, or a copy of it, dense in the format and where the kernels' vector loads can begin.
Tensor dense(const KernelLibrary& library, const Tensor& tensor, at::MemoryFormat format);

// Whether choices are to be measured on the input's device: torch.backends.cudnn.benchmark, which is of CPUs
// too here. Never in a graph's capture.
bool measures_first(const Tensor& input);

// What torch's settings let be rounded to TF32, as the operators take it; none where it can't be told.
std::optional<int64_t> tf32_setting(const Tensor& input);
// The part of it that is of matrix products; that they may, where it can't be told.
int64_t products_setting();

// A tensor like the result that is added to the sums, or after the activation.
enum class Residual { none, before, after };

struct Asked {
  Geometry geometry;
  Activation activation = Activation::none;
  std::string algorithm;
  Residual residual = Residual::none;  // of calls that want no gradients
};

// Null where a call of this kind is the operators'.
// measures: its problems, where auto is asked and nothing has been tuned, before their plans are chosen.
c10::intrusive_ptr<Prepared> prepare(const Tensor& input, const Tensor& weight,
                                     const std::optional<Tensor>& bias, const Asked& asked, int wanted,
                                     bool packs_each_call, bool measures);

// The same of one gradient by itself. which: kInput, from the output's gradient and the weight, or kWeight,
// from the input and the output's gradient. sizes: of the gradient.
c10::intrusive_ptr<Prepared> prepare_gradient(const Tensor& first, const Tensor& second, Wanted which,
                                              const Sizes& sizes, const Asked& asked, bool measures);

// The result of the call. Differentiable where Prepared wants gradients. packed: what PackedFilters keeps of
// this weight; undefined where nobody keeps any.
Tensor convolve(const c10::intrusive_ptr<Prepared>& prepared, const Tensor& input, const Tensor& weight,
                const std::optional<Tensor>& bias, const Tensor& packed);

// The parts: torch's own function with its own autograd, and without any the kernels of a plan.
Tensor run_torchs(const Prepared& prepared, const Tensor& input, const Tensor& weight,
                  const std::optional<Tensor>& bias);
Tensor activate(const Tensor& sums, Activation activation);
Tensor run_forward(const Prepared& prepared, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, const Tensor& packed);
// torch's convolution_backward for the gradients that mask names (kInput, kWeight, kBias). Of an operand that
// is not given it needs the sizes alone.
std::tuple<Tensor, Tensor, Tensor> run_torchs_backward(const Prepared& prepared, const Tensor& output_grad,
                                                       const Tensor& input, const Tensor& weight, int mask);
// What a launch of the plan works in, which pointers tells the kernel; undefined where it needs nothing.
Tensor add_workspace(const Plan& plan, const at::TensorOptions& bytes, Pointers& pointers);
// Launches a step's kernel, with the workspace and the packed filters that it asks for. like: a tensor of its
// dtype and device.
void launch(const Prepared& prepared, const Step& step, Pointers pointers, const Tensor& like,
            const Tensor& packed);
Tensor run_input_grad(const Prepared& prepared, const Tensor& output_grad, const Tensor& weight);
Tensor run_weight_grad(const Prepared& prepared, const Tensor& input, const Tensor& output_grad);
// What prepare_gradient has prepared, in the layout of its operands.
Tensor run_gradient(const Prepared& prepared, const Tensor& first, const Tensor& second);

// Neither a mode nor a transform is active that wants to see operators: the dispatcher's own state tells.
bool is_usual();
// A tensor like any other: dense, on a CPU or a GPU, no wrapper, without a tangent.
bool is_usual(const Tensor& tensor);

}  // namespace convx::front
