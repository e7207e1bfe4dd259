// Parts of planes, and the rows of bands, on their way to shared memory. All are 16 bits, whose meaning does
// not matter here. What lies outside of the planes is zero.
#pragma once
#include "methods/depthwise/banded/sizes.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::banded {

using Octet = Vector<uint16_t, kChannels>;

// One tensor, in elements.
struct Planes {
  const uint16_t* data;
  int64_t image;  // from image to image
  int height, width;
  int channels;
  bool has_octets;  // channels are last, and eight of them are 16 aligned bytes

  CONVX_DEVICE void keep_per_lane() {
    convx::keep_per_lane(image);
    convx::keep_per_lane(height);
    convx::keep_per_lane(width);
    convx::keep_per_lane(channels);
  }
};

CONVX_DEVICE void keep_per_lane(FastDivide& divide) {
  convx::keep_per_lane(divide.divisor);
  convx::keep_per_lane(divide.multiplier);
  convx::keep_per_lane(divide.shift);
}

CONVX_DEVICE bool is_inside(const Planes& planes, int y, int x) {
  return y >= 0 && y < planes.height && x >= 0 && x < planes.width;
}

// `count` rows of `width` elements of one plane, from (y, x) on: store(row, column, value) has each. The
// block's warps share them out, so many loads at a time.
template <int Lanes, int Warps, class Store>
CONVX_DEVICE void read_plane(const Planes& planes, int64_t image, int channel, int y, int x, int count,
                             int width, const Store& store) {
  constexpr int kAtOnce = 4;
  const int warp = static_cast<int>(threadIdx.x) / Lanes, lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint16_t* const plane =
      planes.data + image * planes.image + static_cast<int64_t>(channel) * planes.height * planes.width;
  for (int row = warp; row < count; row += Warps) {
    const uint16_t* const line = plane + static_cast<int64_t>(y + row) * planes.width;
    for (int begin = lane; begin < width; begin += kAtOnce * Lanes) {
      uint16_t value[kAtOnce];
      CONVX_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = begin + i * Lanes;
        value[i] = 0;
        if (column < width && is_inside(planes, y + row, x + column)) {
          value[i] = load<uint16_t, 1>(line + x + column).element[0];
        }
      }
      CONVX_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i * Lanes < width) store(row, begin + i * Lanes, value[i]);
      }
    }
  }
}

// `count` rows of `width` pixels from (y, x) on, AtOnce loads of a thread at a time: read(offset of the
// pixel) and store(row, column, octet) have eight channels that are last.
template <int Threads, int AtOnce, class Read, class Store>
CONVX_DEVICE void move_octets(const Planes& planes, int y, int x, int count, FastDivide width,
                              const Read& read, const Store& store) {
  const int pixels = count * static_cast<int>(width.divisor);
  CONVX_NO_UNROLL
  for (int begin = static_cast<int>(threadIdx.x); begin < pixels; begin += AtOnce * Threads) {
    Octet octet[AtOnce];
    int row[AtOnce], column[AtOnce];
    CONVX_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      const int pixel = begin + i * Threads;
      row[i] = static_cast<int>(width.quotient(pixel));
      column[i] = pixel - row[i] * static_cast<int>(width.divisor);
      octet[i] = {};
      if (pixel < pixels && is_inside(planes, y + row[i], x + column[i])) {
        octet[i] = read((static_cast<int64_t>(y + row[i]) * planes.width + x + column[i]) * planes.channels);
      }
    }
    CONVX_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      if (begin + i * Threads < pixels) store(row[i], column[i], octet[i]);
    }
  }
}

// From channel `channel` on.
template <int Threads, class Store>
CONVX_DEVICE void read_octets(const Planes& planes, int64_t image, int channel, int y, int x, int count,
                              FastDivide width, const Store& store) {
  const uint16_t* const first = planes.data + image * planes.image + channel;
  if (planes.has_octets) {
    const auto read = [&](int64_t offset) { return load<uint16_t, kChannels>(first + offset); };
    move_octets<Threads, 4>(planes, y, x, count, width, read, store);
    return;
  }
  const int channels = planes.channels - channel;
  const auto read = [&](int64_t offset) {
    Octet octet{};
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      if (c < channels) octet.element[c] = load<uint16_t, 1>(first + offset + c).element[0];
    }
    return octet;
  };
  move_octets<Threads, 1>(planes, y, x, count, width, read, store);
}

// Takes what is read to a block's planes in shared memory.
struct Staged {
  uint16_t* first;
  int plane_elements, pitch;

  CONVX_DEVICE void operator()(int row, int column, uint16_t value) const {
    first[row * pitch + column] = value;
  }
  CONVX_DEVICE void operator()(int row, int column, const Octet& octet) const {
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) first[c * plane_elements + row * pitch + column] = octet.element[c];
  }
};

// Takes it to the rows of bands. A row holds its values twice, Margin zeros before them: the second time one
// element earlier, so that the pair of values from a place on is a word of the one copy or the other.
template <int Margin>
struct Banded {
  uint16_t* first;
  int band_elements, row_elements;  // of a channel's band, of one copy of a row

  CONVX_DEVICE void operator()(int row, int column, uint16_t value) const {
    put(first + row * 2 * row_elements + column, value);
  }
  CONVX_DEVICE void operator()(int row, int column, const Octet& octet) const {
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      put(first + c * band_elements + row * 2 * row_elements + column, octet.element[c]);
    }
  }

 private:
  CONVX_DEVICE void put(uint16_t* place, uint16_t value) const {
    place[Margin] = value;
    place[row_elements + Margin - 1] = value;
  }
};

}  // namespace convx::depthwise::banded
