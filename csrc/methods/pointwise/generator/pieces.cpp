#include "methods/pointwise/generator/pieces.h"

namespace convx::pointwise::generator {

std::string number(int64_t value) {
  return std::to_string(value);
}

std::string all_of(const std::vector<std::string>& conditions) {
  std::string text;
  for (const std::string& each : conditions) text += (text.empty() ? "" : " && ") + each;
  return text;
}

const char* prologue() {
  return R"(
#ifndef CONVX_GENERATED
#define CONVX_GENERATED
#if defined(CONVX_SIMT)  // the host executor
#include "simt.h"
#define CONVX_DEVICE inline
#define CONVX_KERNEL(threads) extern "C" void
#define CONVX_DYNAMIC_SHARED(name) unsigned char* const name = SIMT_DYNAMIC_SHARED()
#define CONVX_BARRIER() simt::block_barrier()
#define CONVX_RESTRICT
template <int Lanes, class T>
T lane_xor(T value, int mask) {
  return simt::shuffle_xor<Lanes>(value, mask);
}
inline float bits_to_float(unsigned int bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline unsigned int float_to_bits(float value) {
  unsigned int bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
#else
#define CONVX_DEVICE __device__ __forceinline__
#define CONVX_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define CONVX_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define CONVX_BARRIER() __syncthreads()
#define CONVX_RESTRICT __restrict__
template <int Lanes, class T>
CONVX_DEVICE T lane_xor(T value, int mask) {
#if defined(__CUDACC_RTC__)
  return __shfl_xor_sync(0xffffffffu, value, mask);
#else
  return __shfl_xor(value, mask, Lanes);
#endif
}
CONVX_DEVICE float bits_to_float(unsigned int bits) { return __uint_as_float(bits); }
CONVX_DEVICE unsigned int float_to_bits(float value) { return __float_as_uint(value); }
#endif
#endif
)";
}

std::string element_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::float64: {
      const std::string type = dtype == DType::float32 ? "float" : "double";
      const std::string fused = dtype == DType::float32 ? "fmaf" : "fma";
      return "using Element = " + type + ";\nusing Sum = " + type + ";\n" +
             "CONVX_DEVICE Sum widen(Element value) { return value; }\n"
             "CONVX_DEVICE Element narrow(Sum value) { return value; }\n"
             "CONVX_DEVICE Sum multiply_add(Sum a, Sum b, Sum c) { return " +
             fused + "(a, b, c); }\n";
    }
    case DType::bfloat16:
      return R"(struct Element {
  unsigned short bits;  // bfloat16
};
using Sum = float;
CONVX_DEVICE Sum widen(Element value) { return bits_to_float(static_cast<unsigned int>(value.bits) << 16); }
CONVX_DEVICE Element narrow(Sum value) {  // to nearest even
  const unsigned int bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<unsigned short>((bits >> 16) | 0x40u)};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
CONVX_DEVICE Sum multiply_add(Sum a, Sum b, Sum c) { return fmaf(a, b, c); }
)";
    case DType::float16:
      return R"(struct Element {
  unsigned short bits;  // float16
};
using Sum = float;
#if defined(__CUDACC_RTC__)
CONVX_DEVICE Sum widen(Element value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
CONVX_DEVICE Element narrow(Sum value) {
  Element half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
}
#else
CONVX_DEVICE Sum widen(Element value) {
  _Float16 half;
  __builtin_memcpy(&half, &value.bits, sizeof half);
  return static_cast<float>(half);
}
CONVX_DEVICE Element narrow(Sum value) {
  const _Float16 half = static_cast<_Float16>(value);
  Element element;
  __builtin_memcpy(&element.bits, &half, sizeof half);
  return element;
}
#endif
CONVX_DEVICE Sum multiply_add(Sum a, Sum b, Sum c) { return fmaf(a, b, c); }
)";
  }
  return "";
}

// As csrc/methods/activate.cuh has them.
std::string activation(Activation activation, DType dtype) {
  const std::string suffix = dtype == DType::float64 ? "" : "f";
  std::string value = "value";
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      value = "value < Sum(0) ? Sum(0) : value";  // NaN stays NaN
      break;
    case Activation::relu6:
      value = "value < Sum(0) ? Sum(0) : value > Sum(6) ? Sum(6) : value";
      break;
    case Activation::silu:
      value = "value / (Sum(1) + exp" + suffix + "(-value))";
      break;
    case Activation::hardswish:
      value = "value * (value < Sum(-3) ? Sum(0) : value > Sum(3) ? Sum(6) : value + Sum(3)) / Sum(6)";
      break;
    case Activation::gelu:
      value = "value * Sum(0.5) * (Sum(1) + erf" + suffix + "(value * Sum(0.70710678118654752440)))";
      break;
  }
  return "CONVX_DEVICE Sum activate(Sum value) { return " + value + "; }\n";
}

std::string input_pixel(const ConvProblem& p) {
  if (p.stride_h == 1 && p.stride_w == 1)
    return "CONVX_DEVICE int input_pixel(int pixel) { return pixel; }\n";
  const std::string width = std::to_string(p.out_width);
  return "CONVX_DEVICE int input_pixel(int pixel) {  // rows of " + width + " pixels, strides (" +
         std::to_string(p.stride_h) + ", " + std::to_string(p.stride_w) + ")\n  return pixel / " + width +
         " * " + std::to_string(p.stride_h * p.in_width) + " + pixel % " + width + " * " +
         std::to_string(p.stride_w) + ";\n}\n";
}

}  // namespace convx::pointwise::generator
