// Filters in the order in which lanes read them as fragments, rounded to the precision of the products.
// packed[group][16 filters][step][part][lane][words], zeros beyond the last filter and channel.
#pragma once
#include "methods/matrix/precision.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/mma.h"

namespace convx::matrix {

constexpr int kPackThreads = 256;

// With taps, depth is the channels of one, whose products of one tap take of_tap channels, zeros at the end,
// and a filter's taps are neighbours in the weight.
struct PackShape {
  int64_t words;  // in all
  int rows, depth, steps, m_tiles;
  int64_t filter_row, filter_depth;
  int taps = 1;
  bool flipped = false;                             // from the last tap to the first
  FastDivide of_tap = divide_by(int64_t{1} << 30);  // more than there are: one tap's
};

// Order: which filter a row of a fragment holds, and which channel each value of a slot.
template <Precision Kind, int Lanes, class T, class Order>
CONVX_KERNEL(kPackThreads, 1)
pack_kernel(const T* weight, uint32_t* packed, PackShape shape, Order order) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using Cell = Fragment<Lanes>;
  constexpr int kBytes = element_bytes(Kind);
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (index >= shape.words) return;
  const int word = static_cast<int>(index % Cell::kWordsA),
            lane = static_cast<int>(index / Cell::kWordsA % Lanes);
  const int part = static_cast<int>(index / 128 % parts(Kind));
  const int64_t fragment = index / 128 / parts(Kind);
  const int step = static_cast<int>(fragment % shape.steps);
  const int64_t tile = fragment / shape.steps, group = tile / shape.m_tiles;
  const int row =
      order.template filter<Lanes>(static_cast<int>(tile % shape.m_tiles), Cell::row_of_a(lane, word));
  const auto channel_of = [&](int i) { return order.template channel<kBytes>(step, Cell::slot(lane), i); };
  const auto filter = [&](int i) -> T {
    const auto place = static_cast<uint32_t>(channel_of(i)), tap = shape.of_tap.quotient(place);
    const int channel = static_cast<int>(place - tap * shape.of_tap.divisor), of = static_cast<int>(tap);
    if (row >= shape.rows || channel >= shape.depth || of >= shape.taps) return T{};
    return weight[group * shape.rows * shape.depth * shape.taps + row * shape.filter_row +
                  channel * shape.filter_depth + (shape.flipped ? shape.taps - 1 - of : of)];
  };
  const int depth_word = Cell::depth_word_of_a(word);
  if constexpr (kBytes == 2) {
    packed[index] = filter(2 * depth_word).bits | static_cast<uint32_t>(filter(2 * depth_word + 1).bits)
                                                      << 16;
  } else {
    const float value = filter(depth_word);
    if constexpr (Kind == kTf32) {
      packed[index] = round_to_tf32(value);
    } else if constexpr (Kind == kFloat32) {
      packed[index] = float_to_bits(against_dropped_digits(value, channel_of(depth_word)));
    } else {
      uint32_t high, low;
      part_filter(value, channel_of(depth_word), high, low);
      packed[index] = part == 0 ? high : low;
    }
  }
}

}  // namespace convx::matrix
