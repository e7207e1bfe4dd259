// Stage 1 as published (section 3 of the paper, scalar_prods): a block brings one filter row (k, r, s), its
// values along the channels, to shared memory and multiplies it with every source pixel of all images that it
// meets; its threads run over output pixels, so that loads and stores are coalesced. Where those are more
// than a block may have threads, several blocks have the same filter row. A tap's products fill a plane of
// their own.
#pragma once
#include "methods/cuconv/launch.h"
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::cuconv::stages {

constexpr int kRowElements = 1024;  // of a filter row in shared memory at a time

template <class T>
struct ProductArguments {
  const T *source, *weight, *bias;
  T* result;
  Accumulator<T>* partial;  // planes by tap; null for 1x1 filters, whose products are results
  int64_t results;
  int groups, channels, filters, all_filters, source_height, source_width, result_width, result_plane, pixels;
  int filter_width, taps, stride_h, stride_w, dilation_h, dilation_w, top, left;
  FastDivide pixel_blocks, divide_taps, divide_result_plane;
  Finishing<T> finishing;
};

template <class T>
CONVX_KERNEL(kMostProductThreads, 1)
products_kernel(ProductArguments<T> a) {
  using A = Accumulator<T>;
  CONVX_SHARED(A, row, [kRowElements]);
  take_turn();
  const uint32_t tap_index = a.pixel_blocks.quotient(blockIdx.x);
  const int filter = static_cast<int>(a.divide_taps.quotient(tap_index)), group = filter / a.filters;
  const int tap = static_cast<int>(tap_index - filter * a.divide_taps.divisor);
  // Of all images, then of its own.
  const uint32_t place = (blockIdx.x - tap_index * a.pixel_blocks.divisor) * blockDim.x + threadIdx.x;
  const bool exists = place < static_cast<uint32_t>(a.pixels);
  const int64_t image = exists ? a.divide_result_plane.quotient(place) : 0;
  const int pixel = exists ? static_cast<int>(place - image * a.result_plane) : 0;

  const int out_row = pixel / a.result_width, out_column = pixel - out_row * a.result_width;
  const int tap_row = tap / a.filter_width, tap_column = tap - tap_row * a.filter_width;
  const int source_row = out_row * a.stride_h - a.top + tap_row * a.dilation_h;
  const int source_column = out_column * a.stride_w - a.left + tap_column * a.dilation_w;
  const bool inside = exists && source_row >= 0 && source_row < a.source_height && source_column >= 0 &&
                      source_column < a.source_width;
  const int64_t source_plane = static_cast<int64_t>(a.source_height) * a.source_width;
  const T* source = a.source + (image * a.groups + group) * a.channels * source_plane;
  if (inside) source += source_row * a.source_width + source_column;
  const T* const weight = a.weight + static_cast<int64_t>(filter) * a.channels * a.taps + tap;

  A sum = A(0);
  for (int first = 0; first < a.channels; first += kRowElements) {
    const int count = min(kRowElements, a.channels - first);
    if (first > 0) block_barrier();  // the piece before is read
    for (int c = static_cast<int>(threadIdx.x); c < count; c += static_cast<int>(blockDim.x)) {
      row[c] = widen(weight[static_cast<int64_t>(first + c) * a.taps]);
    }
    block_barrier();
    if (inside) {
      for (int c = 0; c < count; ++c, source += source_plane)
        sum = multiply_add(row[c], A(widen(*source)), sum);
    }
  }
  if (!exists) return;
  const int64_t index = (image * a.all_filters + filter) * a.result_plane + pixel;
  if (a.partial != nullptr) {
    a.partial[tap * a.results + index] = sum;
  } else {
    a.result[index] = finished(sum + bias_of(a.bias, filter), a.finishing, filter, a.result + index);
  }
}

}  // namespace convx::cuconv::stages
