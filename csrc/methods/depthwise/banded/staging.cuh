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

// Loads of a thread that are under way at once. On AMD each has a mask in scalar registers until it is
// stored.
#if defined(CONVX_HIP)
constexpr int kAtOnce = 4;
#else
constexpr int kAtOnce = 8;
#endif

// `count` rows of `width` pixels from (y, x) on, AtOnce loads of a thread at a time, of which there are
// `step`: read(pixel) has what lies there, and store(row, column, value) takes it.
template <int AtOnce, class Value, class Read, class Store>
CONVX_DEVICE void move(int first, int step, const Planes& planes, int y, int x, int count, FastDivide width,
                       const Read& read, const Store& store) {
  const int pixels = count * static_cast<int>(width.divisor);
  CONVX_NO_UNROLL
  for (int begin = first; begin < pixels; begin += AtOnce * step) {
    Value value[AtOnce];
    int row[AtOnce], column[AtOnce];
    CONVX_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      const int pixel = begin + i * step;
      row[i] = static_cast<int>(width.quotient(pixel));
      column[i] = pixel - row[i] * static_cast<int>(width.divisor);
      value[i] = {};
      if (pixel < pixels && is_inside(planes, y + row[i], x + column[i])) {
        value[i] = read((y + row[i]) * planes.width + x + column[i]);
      }
    }
    CONVX_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      if (begin + i * step < pixels) store(row[i], column[i], value[i]);
    }
  }
}

// Of one plane.
template <class Store>
CONVX_DEVICE void read_plane(int first, int step, const Planes& planes, int64_t image, int channel, int y,
                             int x, int count, FastDivide width, const Store& store) {
  const uint16_t* const plane =
      planes.data + image * planes.image + static_cast<int64_t>(channel) * planes.height * planes.width;
  const auto read = [&](int pixel) { return load<uint16_t, 1>(plane + pixel).element[0]; };
  move<kAtOnce, uint16_t>(first, step, planes, y, x, count, width, read, store);
}

// Of eight channels that are last, from `channel` on.
template <class Store>
CONVX_DEVICE void read_octets(int first, int step, const Planes& planes, int64_t image, int channel, int y,
                              int x, int count, FastDivide width, const Store& store) {
  const uint16_t* const data = planes.data + image * planes.image + channel;
  if (planes.has_octets) {
    const auto read = [&](int pixel) {
      return load<uint16_t, kChannels>(data + static_cast<int64_t>(pixel) * planes.channels);
    };
    move<kAtOnce, Octet>(first, step, planes, y, x, count, width, read, store);
    return;
  }
  const int channels = planes.channels - channel;
  const auto read = [&](int pixel) {
    Octet octet{};
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      if (c < channels) {
        octet.element[c] =
            load<uint16_t, 1>(data + static_cast<int64_t>(pixel) * planes.channels + c).element[0];
      }
    }
    return octet;
  };
  move<1, Octet>(first, step, planes, y, x, count, width, read, store);
}

// Where rows of planes lie in shared memory, in elements: `Rows` of them, which one lane has, one after
// another, and then so much more that lanes' rows begin in different banks.
template <int Rows>
struct RowPlaces {
  int pitch, group;

  CONVX_DEVICE int operator()(int row) const { return row / Rows * group + row % Rows * pitch; }
};

// Takes what is read to a block's planes in shared memory.
template <int Rows>
struct Staged {
  uint16_t* first;
  int plane_elements;
  RowPlaces<Rows> places;

  CONVX_DEVICE void operator()(int row, int column, uint16_t value) const {
    first[places(row) + column] = value;
  }
  CONVX_DEVICE void operator()(int row, int column, const Octet& octet) const {
    uint16_t* const place = first + places(row) + column;
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) place[c * plane_elements] = octet.element[c];
  }
};

// A multiple of eight elements, by the block.
CONVX_DEVICE void fill_with_zeros(uint16_t* first, int elements) {
  for (int i = static_cast<int>(threadIdx.x) * kChannels; i < elements;
       i += static_cast<int>(blockDim.x) * kChannels) {
    *reinterpret_cast<Octet*>(first + i) = Octet{};
  }
}

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
