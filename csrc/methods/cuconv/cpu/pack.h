// Brings source channels into the form of PackedPlane.
#pragma once
#include "methods/cuconv/cpu/job.h"
#include "methods/epilogue_cpu.h"
#include "platform/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace row_products {

using cuconv::Job;
using cuconv::PackedPlane;

// Packed elements q of one residue: source[first + q * stride], zeros outside.
template <class T>
CONVX_INLINE void pack_residue(const T* source, int64_t width, int64_t first, int64_t stride, int64_t count,
                               Accumulator<T>* packed) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  const int64_t begin = minimum(first >= 0 ? 0 : ceil_divide(-first, stride), count);
  const int64_t end = maximum(minimum(first < width ? ceil_divide(width - first, stride) : 0, count), begin);
  for (int64_t q = 0; q < begin; ++q) packed[q] = A(0);
  const T* from = source + first + begin * stride;
  int64_t q = begin;
  if (stride == 1) {
    for (; q + L <= end; q += L, from += L) store<L>(packed + q, load<L>(from));
  }
  for (; q < end; ++q, from += stride) packed[q] = widen(*from);
  for (; q < count; ++q) packed[q] = A(0);
}

template <class T>
void pack_channel(const Sweep& s, const PackedPlane& plane, const T* source, Accumulator<T>* packed) {
  const int64_t height = plane.residue_plane / plane.pitch;
  const int64_t row_residues = s.filter_height == 1 ? 1 : s.stride_h;
  const int64_t column_residues = s.filter_width == 1 ? 1 : s.stride_w;
  for (int64_t row_residue = 0; row_residue < row_residues; ++row_residue) {
    for (int64_t column_residue = 0; column_residue < column_residues; ++column_residue) {
      for (int64_t line = 0; line < height; ++line, packed += plane.pitch) {
        const int64_t row = line * s.stride_h + row_residue - s.top;
        // A row outside is one without elements.
        const bool inside = row >= 0 && row < s.source_height;
        pack_residue(source + (inside ? row * s.source_width : 0), inside ? s.source_width : 0,
                     column_residue - s.left, s.stride_w, plane.pitch, packed);
      }
    }
  }
}

}  // namespace row_products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
