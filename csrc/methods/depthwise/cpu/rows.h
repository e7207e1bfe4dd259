// Rows of one plane between memory and a scratch buffer of accumulators: packing with zeros at both ends, and
// storing through the epilogue. Also the epilogue itself and the scratch memory.
#pragma once
#include <cmath>
#include <cstdlib>

#include "methods/depthwise/cpu/job.h"
#include "platform/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

using depthwise::Algorithm;
using depthwise::ColumnPlan;
using depthwise::Job;
using depthwise::PackedRun;
using depthwise::PackedTap;
using depthwise::TargetColumns;

CONVX_INLINE int64_t minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}
CONVX_INLINE int64_t maximum(int64_t a, int64_t b) {
  return a > b ? a : b;
}
CONVX_INLINE int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
CONVX_INLINE int64_t round_up(int64_t a, int64_t b) {
  return ceil_divide(a, b) * b;
}

// Weight gradient: rows summed apart before they join the total, since one accumulator's rounding error grows
// with its length (Higham, "The accuracy of floating point summation", 1993); some 64 products of each lane
// make the second level's cost vanish.
CONVX_INLINE int64_t rows_summed_apart(int64_t products_per_row, int64_t products = 64) {
  return maximum(1, products / products_per_row);
}

constexpr int64_t kBandBytes = 24576;  // of packed source rows: most of a first-level cache

// Memory of one piece of work: on the stack while it is small.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
    if (bytes <= static_cast<int64_t>(sizeof local_)) return;
    heap_ = allocate_scratch(bytes);
  }
  ~Scratch() { std::free(heap_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(heap_ != nullptr ? heap_ : local_);
  }

 private:
  void* heap_ = nullptr;
  alignas(64) unsigned char local_[65536];
};

// exp to 2 units in the last place: 2^n times a polynomial on [-ln2 / 2, ln2 / 2]. Infinity past the largest
// float, as exp has it; no less than the smallest normal number. NaN stays NaN.
template <int L>
CONVX_INLINE Simd<float, L> exponential(Simd<float, L> x) {
  using V = Simd<float, L>;
  const V high = broadcast<V>(88.7228f), low = broadcast<V>(-87.3f);
  V y = x > high ? high : x;
  y = y < low ? low : y;
  const V shifter = broadcast<V>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V rounded = y * 1.44269504f + shifter;
  const V n = rounded - shifter;
  V r = y - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = broadcast<V>(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  using I = Simd<int32_t, L>;
  // Scaled in two steps, because n may be 128.
  const I exponent = __builtin_convertvector(n, I);
  const I half = exponent >> 1;
  const V first = bit_cast<V>((half + 127) << 23), second = bit_cast<V>((exponent - half + 127) << 23);
  const V result = p * first * second;
  const V limit = x > high ? broadcast<V>(__builtin_inff()) : result;
  return x != x ? x : limit;
}

template <class A, int L>
CONVX_INLINE Simd<A, L> activate(Simd<A, L> value, Activation activation) {
  using V = Simd<A, L>;
  if (activation == Activation::none) return value;
  const V zero = V{}, six = broadcast<V>(A(6));
  switch (activation) {
    case Activation::relu:
      return value < zero ? zero : value;  // NaN stays NaN, as in torch
    case Activation::relu6: {
      const V low = value < zero ? zero : value;
      return low > six ? six : low;
    }
    case Activation::silu:
      if constexpr (sizeof(A) == 4) {
        return value / (exponential<L>(-value) + A(1));
      } else {
        for (int lane = 0; lane < L; ++lane) value[lane] = value[lane] / (A(1) + std::exp(-value[lane]));
        return value;
      }
    case Activation::hardswish: {
      V gate = value + A(3);
      gate = gate < zero ? zero : gate;
      gate = gate > six ? six : gate;
      return value * gate / A(6);
    }
    case Activation::gelu:
      for (int lane = 0; lane < L; ++lane) {
        const A x = value[lane];
        value[lane] = x * A(0.5) * (A(1) + std::erf(x * A(0.70710678118654752440)));
      }
      return value;
    default:
      return value;
  }
}

template <int L, class A>
CONVX_INLINE void add_to(A* address, Simd<A, L> value) {
  store<L>(address, load<L>(address) + value);
}

// Fills count accumulators with zeros; may write up to a vector more.
template <class A>
CONVX_INLINE void zero_over(A* address, int64_t count) {
  constexpr int L = kLanes<A>;
  for (int64_t i = 0; i < count; i += L) store<L>(address + i, Simd<A, L>{});
}

// Source position that tap meets at target, or -1.
struct AxisRule {
  int64_t pad, stride, dilation, source_size;
  bool transposed;
  CONVX_INLINE int64_t source(int64_t target, int64_t tap) const {
    int64_t position = transposed ? target + pad - tap * dilation : target * stride - pad + tap * dilation;
    if (transposed) {
      if (position < 0 || position % stride != 0) return -1;
      position /= stride;
    }
    return position >= 0 && position < source_size ? position : -1;
  }
  // Of the source positions that a target meets with so many taps, those in the image lie from here …
  CONVX_INLINE int64_t first_source(int64_t target, int64_t taps) const {
    const int64_t first = transposed ? target + pad - (taps - 1) * dilation : target * stride - pad;
    return first <= 0 ? 0 : transposed ? (first - 1) / stride + 1 : first;
  }
  // … to here.
  CONVX_INLINE int64_t last_source(int64_t target, int64_t taps) const {
    const int64_t last = transposed ? target + pad : target * stride - pad + (taps - 1) * dilation;
    return minimum(transposed ? last / stride : last, source_size - 1);
  }
};

// A row of one plane in memory: width elements, step apart.
template <class T>
struct Line {
  const T* data;  // null for a row of padding
  int64_t width, step;
};

// Packs columns first, first + 1, … of a line as `pitch` accumulators (a multiple of the lanes), zeros
// outside the line. May write up to a vector beyond, so rows are packed in ascending order.
template <class T>
CONVX_INLINE void pack_row(const Line<T>& line, int64_t first, Accumulator<T>* packed, int64_t pitch) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  if (line.data == nullptr) return zero_over(packed, pitch);
  const int64_t begin = minimum(maximum(-first, 0), pitch);  // packed position of the first real column
  const int64_t end = maximum(minimum(line.width - first, pitch), begin);
  zero_over(packed, begin);
  const T* data = line.data + (begin + first) * line.step;
  A* target = packed + begin;
  const int64_t count = end - begin;
  if (line.step == 1 && count >= L) {
    for (int64_t i = 0; i + L <= count; i += L) store<L>(target + i, load<L>(data + i));
    store<L>(target + count - L, load<L>(data + count - L));
  } else if (line.step == 1 && count >= L / 2 && L >= 8) {
    constexpr int H = L >= 8 ? L / 2 : L;
    store<H>(target, load<H>(data));
    store<H>(target + count - H, load<H>(data + count - H));
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] = widen(data[i * line.step]);
  }
  zero_over(packed + end, pitch - end);
}

// Columns first + 2 * q to packed[q], whole vectors from q on, none beyond end; where they end. Reads pairs,
// whose second element must lie in the line too.
template <int N, class T>
CONVX_INLINE int64_t pack_every_other(const Line<T>& line, int64_t first, int64_t q, int64_t end,
                                      Accumulator<T>* packed) {
  for (; q + N <= end && first + 2 * (q + N) <= line.width; q += N) {
    const T* data = line.data + first + 2 * q;
    store<N>(packed + q, even_lanes(load<N>(data), load<N>(data + N)));
  }
  return q;
}

// As pack_row, for columns first, first + stride, …, `count` of them.
template <class T>
CONVX_INLINE void pack_columns(const Line<T>& line, int64_t first, int64_t stride, Accumulator<T>* packed,
                               int64_t count) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  if (stride == 1) return pack_row(line, first, packed, count);
  if (line.data == nullptr) return zero_over(packed, count);
  // q with 0 <= first + q * stride < width
  const int64_t begin = minimum(first >= 0 ? 0 : ceil_divide(-first, stride), count);
  const int64_t end =
      maximum(minimum(first < line.width ? ceil_divide(line.width - first, stride) : 0, count), begin);
  zero_over(packed, begin);
  int64_t q = begin;
  if constexpr (L >= 4) {
    if (stride == 2 && line.step == 1) {
      q = pack_every_other<L>(line, first, q, end, packed);
      if constexpr (L >= 8) q = pack_every_other<L / 2>(line, first, q, end, packed);
    }
  }
  for (; q < end; ++q) packed[q] = widen(line.data[(first + q * stride) * line.step]);
  zero_over(packed + end, count - end);
}

// All columns from `first` on, dealt out by their residue: column first + q * stride + r goes to
// packed[r * pitch + q].
template <class T>
CONVX_INLINE void pack_row_strided(const Line<T>& line, int64_t first, Accumulator<T>* packed, int64_t pitch,
                                   int64_t stride) {
  for (int64_t residue = 0; residue < stride; ++residue) {
    pack_columns(line, first + residue, stride, packed + residue * pitch, pitch);
  }
}

// Bias and activation of one channel.
template <class A>
struct Epilogue {
  A bias;
  Activation activation;
  template <int L>
  CONVX_INLINE Simd<A, L> operator()(Simd<A, L> value) const {
    return activate<A, L>(value + bias, activation);
  }
};

// The first count lanes of a vector.
template <int L, class T>
CONVX_INLINE void store_some(T* target, Simd<Accumulator<T>, L> value, int64_t count) {
  T lanes[L];
  store<L>(lanes, value);
  for (int64_t i = 0; i < count; ++i) target[i] = lanes[i];
}

// A finished row of accumulators to memory, elements step apart. The row is readable for a vector beyond
// count.
template <class T>
CONVX_INLINE void store_row(const Accumulator<T>* row, T* target, int64_t count, int64_t step,
                            const Epilogue<Accumulator<T>>& epilogue) {
  constexpr int L = kLanes<Accumulator<T>>;
  for (int64_t i = 0; i < count; i += L) {
    const Simd<Accumulator<T>, L> value = epilogue.template operator()<L>(load<L>(row + i));
    const int64_t left = minimum(count - i, L);
    if (step == 1 && left == L) {
      store<L>(target + i, value);
    } else if (step == 1) {
      store_some<L>(target + i, value, left);
    } else {
      for (int64_t lane = 0; lane < left; ++lane) {
        store_one(target + (i + lane) * step, static_cast<Accumulator<T>>(value[lane]));
      }
    }
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
