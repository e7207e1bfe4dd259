// A tile of results by one block; see geometry.h. What a stage holds and how it is multiplied is the feed's.
#pragma once
#include "methods/cuconv/tile/flat.cuh"
#include "methods/cuconv/tile/window.cuh"
#include "platform/gpu/overlap.h"

namespace convx::cuconv::tile {

// InParts: sums are put aside, into shared memory behind the rings, after each Arguments::part chunks.
template <int Lanes, class T, int Filters, int Pixels, class Feed, bool InParts>
class TileBlock : Feed {
 public:
  using A = Accumulator<T>;
  using Feed::a;
  using Feed::kBlockFilters;
  using Feed::kBlockPixels;
  using Feed::lane;
  using Feed::task;
  static constexpr int kSumPitch = kBlockPixels | 1;

  CONVX_DEVICE TileBlock(const Arguments<T>& arguments, unsigned char* memory)
      : Feed(arguments, reinterpret_cast<int*>(memory) + kBlockPixels, static_cast<int>(threadIdx.x) % Lanes),
        warp(static_cast<int>(threadIdx.x) / Lanes),
        results(reinterpret_cast<int*>(memory)),
        shared(reinterpret_cast<A*>(memory + 4 * static_cast<size_t>(a.table_words))),
        aside(InParts ? shared + a.warps * a.stages * a.stage : shared) {
    first_result = (task.image * a.groups * a.filters + task.first_filter) * a.result_plane;
    if (a.partial != nullptr) first_result += task.plane * a.results;
    keep_per_lane(first_result);
    if constexpr (InParts) {
      keep_per_lane(aside);
      keep_per_lane(part);
      keep_per_lane(left);
    }
    list_results();
  }

  CONVX_DEVICE void run() {
    A sums[Filters][Pixels] = {};
    if constexpr (InParts) put_sums(sums);
    int window = 0, last_window = a.windows, begin = 0, end = a.chunks;
    if (a.planes_are_taps) {
      window = task.plane;
      last_window = window + 1;
    } else {
      const int64_t planes = a.planes.divisor;
      begin = static_cast<int>(a.chunks * static_cast<int64_t>(task.plane) / planes);
      end = static_cast<int>(a.chunks * static_cast<int64_t>(task.plane + 1) / planes);
    }
    CONVX_NO_UNROLL
    for (; window < last_window; ++window) {
      Feed::open(window);
      add_chunks(begin + warp, end, sums);
    }
    block_barrier();  // the rings are no longer read
    if constexpr (InParts) add_aside(sums);
    put_sums(sums);
    block_barrier();
    finish();
  }

 private:
  const int warp;
  int* const results;  // by pixel of the tile: its place in the result plane, -1 outside
  A* const shared;
  A* aside;                        // where the warps' sums come to lie
  int part = a.part, left = part;  // chunks of a part; those of this one that are still to come
  int64_t first_result;            // of the block's first filter

  CONVX_DEVICE void list_results() {
    for (int i = static_cast<int>(threadIdx.x); i < kBlockPixels; i += static_cast<int>(blockDim.x)) {
      int place = task.first_column + i;
      bool inside = place < a.result_plane;
      if (!Feed::kFlat) {
        const int strip = i / Pixels, row = task.first_row + strip / a.across;
        const int column = task.first_column + strip % a.across * Pixels + i % Pixels;
        inside = row < a.result_height && column < a.result_width;
        place = row * a.result_width + column;
      }
      results[i] = inside ? place : -1;
    }
  }

  // Chunks chunk, chunk + warps, ...: a ring of stages is filled ahead of its use.
  CONVX_DEVICE void add_chunks(int chunk, int end, A (&sums)[Filters][Pixels]) {
    int stage = a.stage, stages = a.stages, warps = a.warps;
    keep_per_lane(stage);
    keep_per_lane(stages);
    keep_per_lane(warps);
    keep_per_lane(end);
    A* const ring = shared + warp * stages * stage;
    A* const ring_end = ring + stages * stage;
    const A* current = ring;
    A* ahead = ring;
    int chunk_ahead = chunk, turns_ahead = stages - 1;
    CONVX_NO_UNROLL
    while (chunk < end) {
      const bool filled = turns_ahead == 0;
      if (filled) {
        wait_copies(stages - 2);
        warp_barrier<Lanes>();
      }
      if (chunk_ahead < end) Feed::stage(ahead, chunk_ahead);
      commit_copies();
      chunk_ahead += warps;
      ahead = ahead + stage == ring_end ? ring : ahead + stage;
      if (!filled) {
        --turns_ahead;
        continue;
      }
      Feed::multiply(current, chunk, sums);
      if constexpr (InParts) {
        if (--left == 0) put_part_aside(sums);
      }
      current = current + stage == ring_end ? ring : current + stage;
      chunk += warps;
    }
  }

  // This lane's sums in shared memory; the rows of its filters are kFilterLanes apart.
  CONVX_DEVICE A* own_sums() const {
    return aside + warp * (kBlockFilters * kSumPitch) + lane / kFilterLanes * Pixels;
  }
  CONVX_DEVICE int row_of(int k) const { return (k * kFilterLanes + lane % kFilterLanes) * kSumPitch; }

  CONVX_DEVICE void put_sums(const A (&sums)[Filters][Pixels]) const {
    A* const own = own_sums();
    CONVX_UNROLL
    for (int k = 0; k < Filters; ++k) {
      CONVX_UNROLL
      for (int j = 0; j < Pixels; ++j) own[row_of(k) + j] = sums[k][j];
    }
  }
  CONVX_DEVICE void add_aside(A (&sums)[Filters][Pixels]) const {
    const A* const own = own_sums();
    CONVX_UNROLL
    for (int k = 0; k < Filters; ++k) {
      CONVX_UNROLL
      for (int j = 0; j < Pixels; ++j) sums[k][j] += own[row_of(k) + j];
    }
  }
  CONVX_DEVICE void put_part_aside(A (&sums)[Filters][Pixels]) {
    left = part;
    add_aside(sums);
    put_sums(sums);
    CONVX_UNROLL
    for (int k = 0; k < Filters; ++k) {
      CONVX_UNROLL
      for (int j = 0; j < Pixels; ++j) sums[k][j] = 0;
    }
  }

  // The warps' sums, added in their order, and the tile's rows to memory.
  CONVX_DEVICE void finish() const {
    for (int i = static_cast<int>(threadIdx.x); i < task.filters * kBlockPixels;
         i += static_cast<int>(blockDim.x)) {
      const int filter = i / kBlockPixels, pixel = i % kBlockPixels, place = results[pixel];
      const A* const sum = aside + filter * kSumPitch + pixel;
      A total = sum[0];
      for (int w = 1; w < a.warps; ++w) total += sum[w * (kBlockFilters * kSumPitch)];
      if (place < 0) continue;
      const int64_t index = first_result + static_cast<int64_t>(filter) * a.result_plane + place;
      if (a.partial != nullptr) {
        a.partial[index] = total;
      } else {
        const int64_t channel = task.first_filter + filter;
        a.result[index] = finished(total + bias_of(a.bias, channel), a.finishing, channel, a.result + index);
      }
    }
  }
};

template <int Lanes, class T, int Filters, int Pixels, template <int, class, int, int> class Feed,
          bool InParts>
CONVX_KERNEL(most_threads(Lanes, Filters), 1)
tile_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_DYNAMIC_SHARED(memory);
  take_turn();
  TileBlock<Lanes, T, Filters, Pixels, Feed<Lanes, T, Filters, Pixels>, InParts>(a, memory).run();
}

}  // namespace convx::cuconv::tile
