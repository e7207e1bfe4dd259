// What happens to a convolution's sums before they are rounded: the forward epilogue.
#pragma once
#include <cstdint>
#include <string>

namespace convx {

enum class Activation : uint8_t { none, relu, relu6, silu, hardswish, gelu };

// result = activation(scale[k] * sum + bias[k] + residual), or activation(scale[k] * sum + bias[k]) +
// residual with residual_after_activation, in the accumulator's type, rounded once. bias and scale have a
// value per output channel, the residual has the output's shape and layout; all have the input's dtype.
struct Epilogue {
  bool has_bias = false, has_scale = false, has_residual = false;
  bool residual_after_activation = false;
  Activation activation = Activation::none;

  // What a result may go through beside bias and activation.
  bool is_more_than_bias() const { return has_scale || has_residual; }
  // Elements that are read for it, each once.
  double elements(int64_t out_channels, int64_t output_elements) const {
    return static_cast<double>(out_channels) * (has_bias + has_scale) +
           (has_residual ? static_cast<double>(output_elements) : 0.0);
  }
  uint64_t bits() const {  // tells any two apart
    return static_cast<uint64_t>(activation) | static_cast<uint64_t>(has_bias) << 8 |
           static_cast<uint64_t>(has_scale) << 9 | static_cast<uint64_t>(has_residual) << 10 |
           static_cast<uint64_t>(residual_after_activation) << 11;
  }
  bool operator==(const Epilogue& other) const { return bits() == other.bits(); }
};

// Equal ones are equal then: without an activation a residual is added before it as well.
inline void normalize(Epilogue& epilogue) {
  if (!epilogue.has_residual || epilogue.activation == Activation::none) {
    epilogue.residual_after_activation = false;
  }
}

const char* to_string(Activation value);
Activation parse_activation(const std::string& name);  // throws InvalidArgument listing what is supported
std::string describe(const Epilogue& epilogue);        // ", bias, relu"; "" for none

}  // namespace convx
