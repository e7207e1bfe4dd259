// What a lane reads and writes of one pixel: Channels neighbouring channels, kept as the 32-bit words they
// were loaded in. Splitting 16-bit pairs at the load would wait for the load.
#pragma once
#include "methods/depthwise/packed.cuh"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/pack.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::channels {

template <class T, int Channels>
struct Lane {
  static_assert(Channels * sizeof(T) == 4 || Channels == 1, "a word, or a single 16-bit channel");
  static constexpr bool kWord = Channels * sizeof(T) == 4;
  uint32_t word = 0;

  CONVX_DEVICE void read(const void* pixel) {
    const T* const address = static_cast<const T*>(pixel);
    if constexpr (kWord) {
      word = load<uint32_t, 1>(reinterpret_cast<const uint32_t*>(address)).element[0];
    } else {
      word = load<T, 1>(address).element[0].bits;
    }
  }
  CONVX_DEVICE float get(int channel) const { return unpack<T>(word, channel); }
};

// Rounds and writes the channels of one pixel.
template <class T, int Channels>
CONVX_DEVICE void write_lane(void* pixel, const float* values) {
  T* const address = static_cast<T*>(pixel);
  if constexpr (Channels == 2) {
    Vector<uint32_t, 1> word;
    word.element[0] = narrow_pair<T>(values[0], values[1]);
    store<uint32_t, 1>(reinterpret_cast<uint32_t*>(address), word);
  } else {
    Vector<T, 1> element;
    element.element[0] = narrow<T>(values[0]);
    store<T, 1>(address, element);
  }
}

// Copies the filters of a block's lanes, Taps words each, to shared memory: neighbours read neighbouring
// words, where lanes that read their own would touch a cache line each at every tap. Lane 0 has first_vector,
// and after the last vector comes the first one.
template <class T, int Taps, int Channels, int Threads>
CONVX_DEVICE void stage_filters(uint32_t* shared, const T* weight, uint32_t first_vector,
                                const FastDivide& filter_words) {
  CONVX_UNROLL
  for (int k = 0; k < Taps; ++k) {
    const uint32_t i = k * Threads + threadIdx.x;
    Lane<T, Channels> lane;
    lane.read(weight + static_cast<int64_t>(filter_words.remainder(first_vector * Taps + i)) * Channels);
    shared[i] = lane.word;
  }
}

// The filters of a lane's channels, [channel][tap]: those of a pair are whole words.
template <class T, int Taps, int Channels>
struct LaneFilter {
  uint32_t word[Taps];

  CONVX_DEVICE void read(const T* weight) {
    CONVX_UNROLL
    for (int i = 0; i < Taps; ++i) {
      Lane<T, Channels> lane;
      lane.read(weight + i * Channels);
      word[i] = lane.word;
    }
  }
  CONVX_DEVICE void take(const uint32_t* staged) {
    CONVX_UNROLL
    for (int i = 0; i < Taps; ++i) word[i] = staged[i];
  }
  CONVX_DEVICE float get(int channel, int tap) const {
    const int element = channel * Taps + tap;
    return unpack<T>(word[element / Channels], element % Channels);
  }
  // The tap of all channels as the lane's word.
  CONVX_DEVICE uint32_t packed(int tap) const {
    if constexpr (Channels == 1) {
      return word[tap];
    } else {
      const uint32_t low = word[tap / 2] >> (tap % 2 * 16) & 0xffffu;
      return low | (word[(Taps + tap) / 2] >> ((Taps + tap) % 2 * 16)) << 16;
    }
  }
};

}  // namespace convx::depthwise::channels
