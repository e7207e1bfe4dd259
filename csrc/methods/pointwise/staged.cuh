// Tiles of results that a block stores from shared memory: where a thread's neighbours in a row can't be one
// piece of memory, as planes begin anywhere, those of a warp are stored end to end.
#pragma once
#include "methods/pointwise/pixel_map.cuh"

namespace convx::pointwise {

// staged is [rows][Pitch], result the tile's first row. offset(column) is where a column lies in a row,
// kNoPixel from the first on that is not stored; is_zero(column) tells of those that are zero whatever was
// summed.
template <int Columns, int Pitch, int Threads, class T, class Offset, class IsZero>
CONVX_DEVICE void store_staged(const T* staged, T* result, int rows, int64_t row_stride, const Offset& offset,
                               const IsZero& is_zero) {
  constexpr int kWide = Columns < Threads ? Columns : Threads, kStep = Threads / kWide;
  static_assert(Threads % kWide == 0 && Columns % kWide == 0, "threads divide the columns");
  const int first = threadIdx.x / kWide;
  CONVX_NO_UNROLL
  for (int column = threadIdx.x % kWide; column < Columns; column += kWide) {
    const int64_t pixel = offset(column);
    if (pixel == kNoPixel) return;
    const bool zero = is_zero(column);
    const T* from = staged + first * Pitch + column;
    T* to = result + first * row_stride + pixel;
    for (int row = first; row < rows; row += kStep) {
      *to = zero ? T{} : *from;
      from += kStep * Pitch;
      to += kStep * row_stride;
    }
  }
}

}  // namespace convx::pointwise
