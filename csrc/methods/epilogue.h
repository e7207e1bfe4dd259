// What kernels are told of the forward epilogue, on CPUs and GPUs.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "problem/epilogue.h"

namespace convx {

// Bits of EpilogueArguments::more: what there is beside bias and activation.
constexpr uint32_t kScale = 1, kResidualBefore = 2, kResidualAfter = 4;

// Of kernels that add a bias and an activation alone. T: the type of results and parameters, void where
// kernels find it out themselves.
template <class T>
struct BiasArguments {
  const T* bias;  // what sums begin with, or have added first; null without
  Activation activation;
  static constexpr uint32_t more = 0;
  static constexpr const T *scale = nullptr, *shift = nullptr;
  static constexpr int64_t residual_distance = 0;
};

template <class T>
BiasArguments<T> bias_arguments(const Epilogue& epilogue, const EpiloguePointers& pointers) {
  return {static_cast<const T*>(pointers.bias), epilogue.activation};
}

#if defined(CONVX_HIP)

// AMD's waves have no scalar registers left for more (supports_epilogue in plan/method.h).
template <class T>
using EpilogueArguments = BiasArguments<T>;

template <class T>
EpilogueArguments<T> epilogue_arguments(const Epilogue& epilogue, const EpiloguePointers& pointers,
                                        const void*) {
  return bias_arguments<T>(epilogue, pointers);
}

#else

template <class T>
struct EpilogueArguments {
  const T* bias;              // as above; null where there is a scale, too
  const T* scale;             // null without
  const T* shift;             // the bias where there is a scale, which comes before it; null without
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

#endif

// Gradients have none, and their pointers no operands of one.
template <class T>
EpilogueArguments<T> epilogue_arguments(const ConvProblem& problem, const Pointers& pointers) {
  if (problem.operation != Operation::forward) return {};
  return epilogue_arguments<T>(problem.epilogue, pointers.epilogue, pointers.result);
}
template <class T>
BiasArguments<T> bias_arguments(const ConvProblem& problem, const Pointers& pointers) {
  if (problem.operation != Operation::forward) return {};
  return bias_arguments<T>(problem.epilogue, pointers.epilogue);
}

}  // namespace convx
