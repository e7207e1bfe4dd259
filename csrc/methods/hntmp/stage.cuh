// A warp brings a few source channels and their filters into its own shared memory.
#pragma once
#include <type_traits>

#include "methods/hntmp/arguments.h"
#include "methods/hntmp/tiles.h"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/platform.h"

namespace convx::hntmp {

// One element into shared memory, as it is or as the type that sums have; zero where there is none.
template <class T, class Staged>
CONVX_DEVICE void copy_element(Staged* shared, const T* source, bool valid) {
  if constexpr (sizeof(T) >= 4) {
    constexpr int kBytes = sizeof(T);
    copy_async<kBytes>(shared, source, valid ? kBytes : 0);
  } else {
    T value{};
    if (valid) value = *source;
    if constexpr (std::is_same_v<T, Staged>) {
      *shared = value;
    } else {
      *shared = widen(value);
    }
  }
}

// One piece of memory of `all` elements, of which the first `valid` exist, both in whole pieces of 16 bytes;
// zeros for the rest. All is their number where it is known, else 0.
template <int Lanes, int All, class T>
CONVX_DEVICE void stage_pieces(T* shared, const T* source, int valid, int all, int lane) {
  constexpr int kBytes = sizeof(T), kPiece = 16 / kBytes, kStep = Lanes * kPiece;
  shared += lane * kPiece;
  source += lane * kPiece;
  if (All > 0 && valid == all) {
    CONVX_UNROLL
    for (int i = 0; i < All; i += kStep) {
      if (i + kStep > All && lane * kPiece + i >= All) continue;
      copy_async<16>(shared + i, source + i, 16);
    }
    return;
  }
  valid -= lane * kPiece;
  all -= lane * kPiece;
  CONVX_NO_UNROLL
  for (int i = 0; i < all; i += kStep) copy_async<16>(shared + i, source + i, i < valid ? 16 : 0);
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

// From one pixel of channels_last to the next, where a group has so many channels.
template <class T, class A>
CONVX_DEVICE int pixel_step(const Arguments<T, A>& a, int channels) {
  return static_cast<int>(a.groups.divisor) * channels;
}

// The window of a tile of channels_last: neighbouring lanes take the neighbouring channels of a pixel, which
// lie in the same cache lines; in shared memory they are planes as ever.
template <int Lanes, class T, class A, class Staged>
CONVX_DEVICE void stage_pixels(const Arguments<T, A>& a, Staged* shared, const T* source, int channels,
                               int row, int column, int lane) {
  const int step = pixel_step(a, a.source_channels);
  const int slot = lane & (a.slots - 1), pixels = Lanes >> a.slots_log2;
  const bool exists = slot < channels;
  shared += slot * a.channel_stride;
  source += exists ? slot : 0;
  constexpr int kAtOnce = sizeof(T) == 8 ? 1 : 4;  // as in write_back
  CONVX_NO_UNROLL
  for (int begin = lane >> a.slots_log2; begin < a.window_positions; begin += kAtOnce * pixels) {
    CONVX_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int position = begin + i * pixels;
      if (position >= a.window_positions) continue;
      const int down = static_cast<int>(a.window_width.quotient(position));
      const int y = row + down, x = column + position - down * static_cast<int>(a.window_width.divisor);
      const bool inside = exists && y >= 0 && y < a.source_height && x >= 0 && x < a.source_width;
      const int pixel = inside ? y * a.source_width + x : 0;
      copy_element(shared + position, source + static_cast<int64_t>(pixel) * step, inside);
    }
  }
}

// Pieces of Count elements of a window, at most Most of a channel: where each lies in a plane does not change
// from channel to channel. Single elements come as the type that sums have.
template <int Lanes, int Count, int Most>
class Pieces {
 public:
  // Of `pieces`, place(piece, inside) returns the offset of one in a plane, and whether it lies in the image.
  template <class Place>
  CONVX_DEVICE Pieces(int pieces, int lane, const Place& place) : lane_(lane) {
    CONVX_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      bool inside = false;
      offset_[i] = place(lane + i * Lanes, inside);
      if (lane + i * Lanes >= pieces) continue;
      present_ |= 1u << i;
      if (inside) inside_ |= 1u << i;
    }
  }

  template <class T, class A, class Staged>
  CONVX_DEVICE void stage(const Arguments<T, A>& a, Staged* shared, const T* source, int channels) const {
    if constexpr (Count * sizeof(T) >= 4) {
      stage_async(a, shared + lane_ * Count, source, channels);
    } else {
      stage_at_once(a, shared + lane_, source, channels);
    }
  }

 private:
  static constexpr int kSteps = (Most + Lanes - 1) / Lanes;

  template <class T, class A>
  CONVX_DEVICE void stage_async(const Arguments<T, A>& a, T* shared, const T* source, int channels) const {
    constexpr int kBytes = Count * sizeof(T);
    CONVX_NO_UNROLL
    for (int slot = 0; slot < a.slots; ++slot, source += a.source_plane, shared += a.channel_stride) {
      const uint32_t inside = slot < channels ? inside_ : 0;
      CONVX_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        if (!(present_ >> i & 1)) continue;
        const bool valid = inside >> i & 1;
        copy_async<kBytes>(shared + i * Lanes * Count, source + offset_[i], valid ? kBytes : 0);
      }
    }
  }

  // What no asynchronous copy can bring: elements of several channels are on their way at once.
  template <class T, class A>
  CONVX_DEVICE void stage_at_once(const Arguments<T, A>& a, A* shared, const T* source, int channels) const {
    // Tiles of 1x1 filters have the most sums, and few registers for more.
    constexpr int kChannels = kSteps == 1 || kSteps > 4 ? 2 : kSteps > 2 ? 4 : 8;
    CONVX_NO_UNROLL
    for (int slot = 0; slot < a.slots; slot += kChannels) {
      T value[kChannels][kSteps];
      CONVX_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        const uint32_t inside = slot + c < channels ? inside_ : 0;
        CONVX_UNROLL
        for (int i = 0; i < kSteps; ++i) {
          value[c][i] = inside >> i & 1 ? source[offset_[i]] : T{};
        }
        source += a.source_plane;
      }
      CONVX_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        CONVX_UNROLL
        for (int i = 0; i < kSteps; ++i) {
          if (slot + c < a.slots && (present_ >> i & 1)) shared[i * Lanes] = widen(value[c][i]);
        }
        shared += a.channel_stride;
      }
    }
  }

  int lane_;
  uint32_t inside_ = 0, present_ = 0;
  int offset_[kSteps];
};

}  // namespace convx::hntmp
