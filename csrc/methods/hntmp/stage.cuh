// A warp brings a few source channels and their filters into its own shared memory.
#pragma once
#include "methods/hntmp/arguments.h"
#include "methods/hntmp/tiles.h"
#include "platform/async_copy.h"
#include "platform/platform.h"

namespace convx::hntmp {

// One element into shared memory, as the type that sums have; zero where there is none.
template <class T>
CONVX_DEVICE void copy_element(Accumulator<T>* shared, const T* source, bool valid) {
  if constexpr (sizeof(T) >= 4) {
    constexpr int kBytes = sizeof(T);
    copy_async<kBytes>(shared, source, valid ? kBytes : 0);
  } else {
    T value{};
    if (valid) value = *source;
    *shared = widen(value);
  }
}

// The filters of `channels` source channels, one piece of memory; zeros for the rest of the slots.
template <int Lanes, class T, class A>
CONVX_DEVICE void stage_weights(const Arguments<T, A>& a, T* shared, const T* weight, int channels,
                                int lane) {
  constexpr int kBytes = sizeof(T), kPiece = 16 / kBytes;
  const int valid = channels * a.weight_elements, all = a.slots * a.weight_elements;
  for (int i = lane * kPiece; i < all; i += Lanes * kPiece) {
    copy_async<16>(shared + i, weight + i, min(max(valid - i, 0), kPiece) * kBytes);
  }
}

// The window of a tile, element by element, for filters known at run time. source: the plane of the first
// channel; row, column: of the window's first element, which may lie outside.
template <int Lanes, class T, class A>
CONVX_DEVICE void stage_any_window(const Arguments<T, A>& a, A* shared, const T* source, int channels,
                                   int row, int column, int lane) {
  for (int position = lane; position < a.window_positions; position += Lanes) {
    const int down = static_cast<int>(a.window_width.quotient(position));
    const int y = row + down, x = column + position - down * static_cast<int>(a.window_width.divisor);
    const bool inside = y >= 0 && y < a.source_height && x >= 0 && x < a.source_width;
    const T* from = source + (inside ? y * a.source_width + x : 0);
    CONVX_NO_UNROLL
    for (int slot = 0; slot < a.slots; ++slot, from += a.source_plane) {
      copy_element(shared + slot * a.channel_stride + position, from, inside && slot < channels);
    }
  }
}

// Pieces of Count elements of a window whose size is known, Positions pieces a channel: where each lies in a
// plane does not change from channel to channel.
template <int Lanes, int Count, int Positions>
class Pieces {
 public:
  // place(piece, inside) returns the offset of that piece in a plane, and whether it lies in the image.
  template <class Place>
  CONVX_DEVICE Pieces(int lane, const Place& place) : lane_(lane) {
    CONVX_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      bool inside = false;
      offset_[i] = place(lane + i * Lanes, inside);
      if (inside && lane + i * Lanes < Positions) inside_ |= 1u << i;
    }
  }

  template <class T, class A>
  CONVX_DEVICE void stage(const Arguments<T, A>& a, A* shared, const T* source, int channels) const {
    constexpr int kBytes = Count * sizeof(T);
    shared += lane_ * Count;
    CONVX_NO_UNROLL
    for (int slot = 0; slot < a.slots; ++slot, source += a.source_plane, shared += a.channel_stride) {
      const uint32_t inside = slot < channels ? inside_ : 0;
      CONVX_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        if ((i + 1) * Lanes > Positions && lane_ + i * Lanes >= Positions) continue;
        copy_async<kBytes>(shared + i * Lanes * Count, source + offset_[i], inside >> i & 1 ? kBytes : 0);
      }
    }
  }

 private:
  static constexpr int kSteps = (Positions + Lanes - 1) / Lanes;
  int lane_;
  uint32_t inside_ = 0;
  int offset_[kSteps];
};

// Whole images, which follow each other in memory.
template <int Lanes, int Pixels, class T, class A>
CONVX_DEVICE void stage_images(const Arguments<T, A>& a, A* shared, const T* source, int channels, int lane) {
  constexpr int kBytes = sizeof(T), kPiece = 16 / kBytes;
  const int valid = channels * Pixels, all = a.slots * Pixels;
  for (int i = lane * kPiece; i < all; i += Lanes * kPiece) {
    copy_async<16>(shared + i, source + i, min(max(valid - i, 0), kPiece) * kBytes);
  }
}

}  // namespace convx::hntmp
