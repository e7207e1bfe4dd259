// Filters in the order in which products read them, rounded to their precision:
// packed[group][step of channels][tap][64 filters][part][piece][filter][16 bytes], zeros beyond the last
// filter and channel.
#pragma once
#include "methods/cuconv/tensor/arguments.cuh"

namespace convx::cuconv::tensor {

constexpr int kPackThreads = 256;

struct PackShape {
  uint32_t pieces;  // in all
  int filters, channels;
  FastDivide taps, m_tiles, steps;
  PlainOrder plain;
};

template <Precision Kind, class T>
CONVX_KERNEL(kPackThreads, 1)
pack_kernel(const T* weight, Vector<uint32_t, 4>* packed, PackShape shape) {
  const uint32_t index = blockIdx.x * kPackThreads + threadIdx.x;
  if (index >= shape.pieces) return;
  // Neighbouring threads read neighbouring taps, then what comes after those in the plain order.
  const uint32_t of_tap = shape.taps.quotient(index), tap = index - of_tap * shape.taps.divisor;
  const int within = static_cast<int>(of_tap % (kFilterTile * kPieces));
  const int row = shape.plain.flipped ? within % kFilterTile : within / kPieces;
  const int piece = shape.plain.flipped ? within / kFilterTile : within % kPieces;
  const uint32_t tile = of_tap / (kFilterTile * kPieces), of_tile = shape.m_tiles.quotient(tile);
  const uint32_t group = shape.steps.quotient(of_tile), m_tile = tile - of_tile * shape.m_tiles.divisor;
  const int filter = static_cast<int>(m_tile) * kFilterTile + row;
  constexpr int kChannels = piece_channels(Kind);
  const int channel =
      static_cast<int>(of_tile - group * shape.steps.divisor) * step_channels(Kind) + piece * kChannels;
  const T* const from = weight + shape.plain.first(group, filter, static_cast<int>(tap));
  const auto value = [&](int i) -> T {
    if (filter >= shape.filters || channel + i >= shape.channels) return T{};
    return from[(channel + i) * shape.plain.channel_step];
  };
  Vector<uint32_t, 4> words, low;
  CONVX_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2) {
      words.element[i] = value(2 * i).bits | static_cast<uint32_t>(value(2 * i + 1).bits) << 16;
    } else if constexpr (Kind == matrix::kSplit) {
      part_filter(value(i), channel + i, words.element[i], low.element[i]);
    } else {
      words.element[i] = round_to_tf32(value(i));
    }
  }
  packed += ((static_cast<int64_t>(of_tile) * shape.taps.divisor + tap) * shape.m_tiles.divisor + m_tile) *
            (kFilterTile * kPieces * matrix::parts(Kind));
  packed[piece * kFilterTile + row] = words;
  if constexpr (Kind == matrix::kSplit) packed[(kPieces + piece) * kFilterTile + row] = low;
}

}  // namespace convx::cuconv::tensor
