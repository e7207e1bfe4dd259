// Rows of one plane between memory and a scratch buffer of accumulators: packing with zeros at both ends, and
// storing through an epilogue, which is called with vectors of sums, where they go, how many of their lanes
// do, and how far apart. Also the scratch memory.
#pragma once
#include <cstdlib>

#include "platform/cpu/memory.h"
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

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

// The first count lanes of a vector.
template <int L, class T>
CONVX_INLINE void store_some(T* target, Simd<Accumulator<T>, L> value, int64_t count) {
  T lanes[L];
  store<L>(lanes, value);
  for (int64_t i = 0; i < count; ++i) target[i] = lanes[i];
}

// A finished row of accumulators to memory, elements step apart. The row is readable for a vector beyond
// count.
template <class T, class Epilogue>
CONVX_INLINE void store_row(const Accumulator<T>* row, T* target, int64_t count, int64_t step,
                            const Epilogue& epilogue) {
  constexpr int L = kLanes<Accumulator<T>>;
  for (int64_t i = 0; i < count; i += L) {
    const int64_t left = minimum(count - i, L);
    const Simd<Accumulator<T>, L> value =
        epilogue.template operator()<L>(load<L>(row + i), target + i * step, left, step);
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
