// What kernels are told of the forward epilogue, on CPUs and GPUs.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "platform/gpu/hip.h"
#include "problem/epilogue.h"

namespace convx {

// Bits of Finishing::more: what there is beside bias and activation.
constexpr uint32_t kScale = 1, kResidualBefore = 2, kResidualAfter = 4;

// What a sum becomes that has its bias. T: the type of results and parameters, void where kernels find it out
// themselves.
#if defined(CONVX_HIP)
// AMD's waves have no scalar registers left for more than an activation (supports_epilogue in plan/method.h).
template <class T>
struct Finishing {
  static constexpr bool kAddsMore = false;
  static constexpr uint32_t more = 0;
  static constexpr int64_t residual_distance = 0;
  Activation activation;
};
#else
template <class T>
struct Finishing {
  static constexpr bool kAddsMore = true;
  const T* scale;             // null without
  const T* shift;             // the bias where there is a scale, which comes before it; null without
  int64_t residual_distance;  // from a result to what is added to it, in bytes
  uint32_t more;
  Activation activation;
};
#endif

// All of it, as kernels for CPUs take it.
template <class T>
struct EpilogueArguments : Finishing<T> {
  const T* bias;  // initial_bias
};

// What sums begin with, or have added first; null without a bias, and where a scale comes before it.
template <class T>
const T* initial_bias(const Epilogue& epilogue, const EpiloguePointers& pointers) {
  return epilogue.has_scale ? nullptr : static_cast<const T*>(pointers.bias);
}

// Of results that begin at `result`.
template <class T>
Finishing<T> finishing_of(const Epilogue& epilogue, const EpiloguePointers& pointers, const void* result) {
  Finishing<T> a{};
  if constexpr (Finishing<T>::kAddsMore) {
    if (epilogue.has_scale) {
      a.scale = static_cast<const T*>(pointers.scale);
      a.shift = static_cast<const T*>(pointers.bias);
      a.more |= kScale;
    }
    if (epilogue.has_residual) {
      a.residual_distance = static_cast<const char*>(pointers.residual) - static_cast<const char*>(result);
      a.more |= epilogue.residual_after_activation ? kResidualAfter : kResidualBefore;
    }
  }
  a.activation = epilogue.activation;
  return a;
}

template <class T>
EpilogueArguments<T> epilogue_arguments(const Epilogue& epilogue, const EpiloguePointers& pointers,
                                        const void* result) {
  return {finishing_of<T>(epilogue, pointers, result), initial_bias<T>(epilogue, pointers)};
}

// Gradients have no epilogue, and their pointers no operands of one.
template <class T>
const T* initial_bias(const ConvProblem& problem, const Pointers& pointers) {
  return problem.operation == Operation::forward ? initial_bias<T>(problem.epilogue, pointers.epilogue)
                                                 : nullptr;
}
template <class T>
Finishing<T> finishing_of(const ConvProblem& problem, const Pointers& pointers) {
  if (problem.operation != Operation::forward) return {};
  return finishing_of<T>(problem.epilogue, pointers.epilogue, pointers.result);
}
template <class T>
EpilogueArguments<T> epilogue_arguments(const ConvProblem& problem, const Pointers& pointers) {
  return {finishing_of<T>(problem, pointers), initial_bias<T>(problem, pointers)};
}

}  // namespace convx
