// What kernels are told of the forward epilogue, on CPUs and GPUs.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "problem/epilogue.h"

namespace convx {

// Bits of EpilogueArguments::more: what there is beside bias and activation.
constexpr uint32_t kScale = 1, kResidualBefore = 2, kResidualAfter = 4;

// T: the type of results and parameters, void where kernels find it out themselves.
template <class T>
struct EpilogueArguments {
  const T* bias;   // what sums begin with, or have added first; null without, and where there is a scale
  const T* scale;  // null without
  const T* shift;  // the bias where there is a scale, which comes before it; null without
  int64_t residual_distance;  // from a result to what is added to it, in bytes
  uint32_t more;
  Activation activation;
};

// Of results that begin at `result`.
template <class T>
EpilogueArguments<T> epilogue_arguments(const Epilogue& epilogue, const EpiloguePointers& pointers,
                                        const void* result) {
  EpilogueArguments<T> a{};
  const T* const bias = static_cast<const T*>(pointers.bias);
  (epilogue.has_scale ? a.shift : a.bias) = bias;
  if (epilogue.has_scale) {
    a.scale = static_cast<const T*>(pointers.scale);
    a.more |= kScale;
  }
  if (epilogue.has_residual) {
    a.residual_distance = static_cast<const char*>(pointers.residual) - static_cast<const char*>(result);
    a.more |= epilogue.residual_after_activation ? kResidualAfter : kResidualBefore;
  }
  a.activation = epilogue.activation;
  return a;
}

// Gradients have none, and their pointers no operands of one.
template <class T>
EpilogueArguments<T> epilogue_arguments(const ConvProblem& problem, const Pointers& pointers) {
  if (problem.operation != Operation::forward) return {};
  return epilogue_arguments<T>(problem.epilogue, pointers.epilogue, pointers.result);
}

}  // namespace convx
