// Staging and multiplying of flat sweeps: 1x1 filters of stride 1 over whole planes, which are rows of
// pixels. A tile's pixels of a channel come in pieces of four elements, 16 bytes for float32, from the piece
// that holds the first pixel: planes of any size (7x7) begin anywhere, and every lane copies as much.
#pragma once
#include "methods/cuconv/tile/arguments.cuh"

namespace convx::cuconv::tile {

template <int Lanes, class T, int Filters, int Pixels>
class FlatFeed {
 public:
  using A = Accumulator<T>;
  static constexpr bool kFlat = true;
  static constexpr int kBlockFilters = kFilterLanes * Filters, kBlockPixels = Lanes / kFilterLanes * Pixels;
  static constexpr int kChannelPitch = flat_pitch(kBlockPixels), kWeightPitch = kFlatChunk + 4;
  // Pieces of a channel, a power of two so that division is a shift; the last may lie behind the pixels.
  static constexpr int kPieces = kBlockPixels <= 28 ? 8 : kBlockPixels <= 56 ? 16 : 32;
  static constexpr int kCopies = (kFlatChunk * kPieces + Lanes - 1) / Lanes;
  static_assert(4 * kPieces >= kBlockPixels + 3, "pieces hold the pixels wherever the first begins");

  CONVX_DEVICE FlatFeed(const Arguments<T>& arguments, int*, int in_warp)
      : a(arguments), task(task_of(arguments, kBlockFilters, kBlockPixels, kFlat)), lane(in_warp) {
    // Chunks of a multiple of four channels begin as far from a piece's beginning as the first.
    const int64_t first = a.source_offset + task.first_channel * a.source_plane + task.first_column;
    const int misalignment = static_cast<int>(first & 3);
    origin = first - misalignment;
    const int pixels = min(kBlockPixels, a.result_plane - task.first_column);
    CONVX_UNROLL
    for (int n = 0; n < 4; ++n) shift[n] = (misalignment + n * a.source_plane) & 3;
    CONVX_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int piece = lane + i * Lanes, place = 4 * (piece % kPieces);
      const int offset = misalignment + piece / kPieces * a.source_plane, beyond = offset & 3;
      const bool needed = piece < kFlatChunk * kPieces && place < beyond + pixels;
      start[i] = needed ? offset - beyond + place : kNever;
    }
  }

  CONVX_DEVICE void open(int /*window*/) { block_barrier(); }

  CONVX_DEVICE void stage(A* target, int chunk) const {
    const int channel = chunk * kFlatChunk;
    stage_weights(target, channel);
    A* const values = target + kBlockFilters * kWeightPitch;
    const int64_t begin = origin + static_cast<int64_t>(channel) * a.source_plane;
    const T* const first = a.source + begin;
    // Pieces of channels behind the last are read where they exist, and not used.
    const int64_t rest = a.source_end - begin;
    const int readable = rest < kNever ? static_cast<int>(rest) : kNever;
    CONVX_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int piece = lane + i * Lanes;
      if (start[i] < readable) {
        stage_piece<T>(values + piece / kPieces * kChannelPitch + 4 * (piece % kPieces), first + start[i],
                       min(readable - start[i], 4));
      }
    }
  }

  CONVX_DEVICE void multiply(const A* stage, int chunk, A (&sums)[Filters][Pixels]) const {
    const A* const filter = stage + lane % kFilterLanes * kWeightPitch;
    const A* const values = stage + kBlockFilters * kWeightPitch + lane / kFilterLanes * Pixels;
    const int count = min(kFlatChunk, a.channels - chunk * kFlatChunk);
    int c = 0;
    CONVX_NO_UNROLL
    for (; c + 4 <= count; c += 4) {
      Vector<A, 4> factor[Filters];
      CONVX_UNROLL
      for (int k = 0; k < Filters; ++k) {
        factor[k] = *reinterpret_cast<const Vector<A, 4>*>(filter + k * kFilterLanes * kWeightPitch + c);
      }
      CONVX_UNROLL
      for (int n = 0; n < 4; ++n) {
        add_product(
            values + (c + n) * kChannelPitch + shift[n], [&](int k) { return factor[k].element[n]; }, sums);
      }
    }
    CONVX_NO_UNROLL
    for (int n = 0; c < count; ++c, ++n) {
      const int beyond = n == 0 ? shift[0] : n == 1 ? shift[1] : shift[2];
      add_product(
          values + c * kChannelPitch + beyond,
          [&](int k) { return filter[k * kFilterLanes * kWeightPitch + c]; }, sums);
    }
  }

  const Arguments<T>& a;
  const BlockTask task;
  const int lane;

 private:
  static constexpr int kNever = 1 << 30;
  static constexpr int kFilterPieces = kFlatChunk / 4;
  static constexpr int kWeightCopies = (kBlockFilters * kFilterPieces + Lanes - 1) / Lanes;

  int64_t origin;      // of the first channel's pieces
  int shift[4];        // of the first pixel in its piece, by the channel modulo four
  int start[kCopies];  // of this lane's pieces, from the first channel's; kNever where there is none

  CONVX_DEVICE void stage_weights(A* target, int channel) const {
    const T* const first = a.weight + task.first_filter * a.channels + channel;
    const int count = min(kFlatChunk, a.channels - channel);
    if (!a.wide_weights) {
      stage_values<Lanes>(a, first, task.filters, count, lane, kWeightPitch, target,
                          [](int place) { return place; });
      return;
    }
    CONVX_UNROLL
    for (int i = 0; i < kWeightCopies; ++i) {
      const int piece = lane + i * Lanes, filter = piece / kFilterPieces;
      const int place = 4 * (piece % kFilterPieces);
      if (filter < task.filters && place < count) {
        stage_piece<T>(target + filter * kWeightPitch + place, first + filter * a.channels + place, 4);
      }
    }
  }
};

}  // namespace convx::cuconv::tile
