// Layer norm of the channels of each pixel (Ba, Kiros and Hinton, 2016), described without tensors.
#pragma once
#include <cstdint>

namespace convx {

// result = (input - mean) / sqrt(variance + eps) * weight + bias, of float32, for pixels that have their
// channels side by side. Either parameter may be null.
struct NormProblem {
  int64_t pixels = 0, channels = 0;
  float eps = 0;
  const float *weight = nullptr, *bias = nullptr;
};

}  // namespace convx
