// A squeeze-and-excitation, described without tensors (Hu, Shen and Sun, 2018).
#pragma once
#include <cstdint>
#include <string>

#include "problem/problem.h"

namespace convx {

enum class Gate : uint8_t { sigmoid, hardsigmoid };

Gate parse_gate(const std::string& text);  // throws InvalidArgument
const char* to_string(Gate gate);

// result = input * gate(excite(activation(squeeze(mean of each plane of the input) + bias)) + bias), where
// squeeze and excite are products with matrices, 1x1 convolutions of one pixel; for a dense tensor of (batch,
// channels, height, width) in the layout, and a result of its size and layout.
struct ExciteProblem {
  DType dtype = DType::float32;
  Layout layout = Layout::nchw;
  Activation activation = Activation::relu;
  Gate gate = Gate::sigmoid;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t squeezed_channels = 0;

  int64_t pixels() const { return height * width; }  // of a plane
  int64_t elements() const { return batch * channels * pixels(); }
  // Fewest bytes that move, each once, and multiply-adds counted as two.
  double bytes() const;
  double flops() const;
  ExciteProblem as_tuned() const { return *this; }
  bool operator==(const ExciteProblem& other) const;
  size_t hash() const;
};

// Its matrices as torch has the filters, dense, with their biases or null. The pointers are to elements of
// the problem's dtype.
struct ExciteWeights {
  const void *squeeze = nullptr, *squeeze_bias = nullptr;  // (squeezed_channels, channels)
  const void *excite = nullptr, *excite_bias = nullptr;    // (channels, squeezed_channels)
};

// Its name where a convolution's is forward, input_grad or weight_grad.
constexpr const char* kExciteOperation = "squeeze_excite";

// Throws InvalidArgument for sizes below 1 (a batch below 0) and more elements than 64 bits can address.
void validate(const ExciteProblem& problem);

std::string describe(const ExciteProblem& problem);  // one line for messages

}  // namespace convx
