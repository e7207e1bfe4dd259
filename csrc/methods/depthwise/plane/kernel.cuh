// Small planes, whole: a warp brings consecutive planes into shared memory some chunks ahead, convolves them
// in place and sends them back. Rows are read once and stay in registers for all the filter's rows (row
// reuse); every edge of the plane is known at compile time and costs nothing.
//
// Side 7: a lane makes a plane; planes are 49 words apart, which meets no bank conflict. Side 14: four lanes
// make a quarter each, read from its corner of the plane inwards, so that the padding is at the same taps for
// all.
#pragma once
#include "methods/depthwise/plane/geometry.h"
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"
#include "platform/gpu/stage.h"

namespace convx::depthwise::plane {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;
  const T* bias;  // null without
  T* result;
  int64_t planes, chunks;
  uint32_t channels, period, slices;
  bool bulk;  // both tensors start at multiples of 16 bytes
  bool flip;
  Activation activation;
};

template <class T, int Lanes, int Filter, int Side>
struct Form {
  static constexpr Tile kTile = tile_of(Lanes, static_cast<int>(sizeof(T)), Filter, Side);
  static constexpr int kThreads = kTile.warps * 32, kMinBlocks = kTile.min_blocks, kStages = kTile.stages;
  static constexpr int kPlanes = planes_of_chunk(Lanes, Side);
  static constexpr int kChunkBytes = kPlanes * Side * Side * static_cast<int>(sizeof(T));
};

template <class T, int Lanes, int Filter, int Side>
CONVX_KERNEL((Form<T, Lanes, Filter, Side>::kThreads), (Form<T, Lanes, Filter, Side>::kMinBlocks))
plane_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using Shape = Form<T, Lanes, Filter, Side>;
  constexpr int kPadding = Filter / 2, kSize = 7, kPlane = Side * Side;  // kSize x kSize results a lane
  constexpr int kStages = Shape::kStages, kPlanes = Shape::kPlanes, kParts = Lanes / kPlanes;
  constexpr int kReach = kParts == 4 ? kSize + kPadding : kSize;  // source rows and columns of a lane
  CONVX_DYNAMIC_SHARED(shared);
  CONVX_SHARED(uint64_t, barriers, [Shape::kThreads / 32][kStages]);
  const int lane = static_cast<int>(threadIdx.x) % Lanes, warp = static_cast<int>(threadIdx.x) / Lanes;
  const uint32_t share = blockIdx.x * (blockDim.x / Lanes) + warp;
  const uint32_t slice = share / a.period, residue = share - slice * a.period;
  if (slice >= a.slices || residue >= a.chunks) return;
  const int64_t rounds = (a.chunks - residue + a.period - 1) / a.period;
  const int64_t first_chunk = residue + rounds * slice / a.slices * a.period;
  const int steps = static_cast<int>(rounds * (slice + 1) / a.slices - rounds * slice / a.slices);

  unsigned char* const stages = shared + warp * (kStages * Shape::kChunkBytes);
  WarpStages<Lanes, kStages> ring(barriers[warp], lane);
  const auto first_plane = [&](int step) {
    return (first_chunk + static_cast<int64_t>(step) * a.period) * kPlanes;
  };
  const auto elements_of = [&](int step) {
    const int64_t left = a.planes - first_plane(step);
    return static_cast<int>(left < kPlanes ? left : kPlanes) * kPlane;
  };
  // The last chunk of the tensor is copied by elements: its size need not suit a bulk copy.
  const auto is_bulk = [&](int step) { return a.bulk && elements_of(step) == kPlanes * kPlane; };
  const auto issue = [&](int step) {
    if (step >= steps) return;
    const int stage = step % kStages;
    unsigned char* const target = stages + stage * Shape::kChunkBytes;
    const T* const source = a.source + first_plane(step) * kPlane;
    ring.wait_stores();
    if (is_bulk(step)) {
      ring.begin(stage, Shape::kChunkBytes);
      ring.load(stage, target, source, Shape::kChunkBytes);
    } else {
      warp_barrier<Lanes>();
      const int elements = elements_of(step);
      for (int i = lane; i < elements; i += Lanes) reinterpret_cast<T*>(target)[i] = source[i];
    }
  };
  take_turn();
  CONVX_UNROLL
  for (int step = 0; step < kStages - 1; ++step) issue(step);

  const int plane = lane % kPlanes, part = lane / kPlanes;
  const bool from_bottom = (part & 1) != 0, from_right = (part & 2) != 0;
  const int row_step = from_bottom ? -Side : Side, column_step = from_right ? -1 : 1;
  const int corner = plane * kPlane + (from_bottom ? (Side - 1) * Side : 0) + (from_right ? Side - 1 : 0);

  // A mirrored quarter takes a mirrored filter, and so does the input gradient.
  const uint32_t channel = (residue * kPlanes + plane) % a.channels;
  const bool mirror_rows = from_bottom != a.flip, mirror_columns = from_right != a.flip;
  const T* const filter = a.weight + static_cast<int64_t>(channel) * (Filter * Filter);
  float weight[Filter * Filter];
  CONVX_UNROLL
  for (int r = 0; r < Filter; ++r) {
    CONVX_UNROLL
    for (int q = 0; q < Filter; ++q) {
      const int row = mirror_rows ? Filter - 1 - r : r, column = mirror_columns ? Filter - 1 - q : q;
      weight[r * Filter + q] = widen(load<T, 1>(filter + (row * Filter + column)).element[0]);
    }
  }
  const float bias = a.bias != nullptr ? widen(load<T, 1>(a.bias + channel).element[0]) : 0.0f;

  for (int step = 0; step < steps; ++step) {
    issue(step + kStages - 1);
    const int stage = step % kStages;
    const bool bulk = is_bulk(step);
    if (bulk) {
      ring.wait(stage, step / kStages & 1);
    } else {
      warp_barrier<Lanes>();
    }
    T* const origin = reinterpret_cast<T*>(stages + stage * Shape::kChunkBytes) + corner;
    float sum[kSize][kSize];
    CONVX_UNROLL
    for (int o = 0; o < kSize; ++o) {
      CONVX_UNROLL
      for (int v = 0; v < kSize; ++v) sum[o][v] = bias;
    }
    const auto finish_row = [&](int o) {
      activate<T>(sum[o], a.activation);
      CONVX_UNROLL
      for (int v = 0; v < kSize; ++v) origin[o * row_step + v * column_step] = narrow<T>(sum[o][v]);
    };
    using Window = float[kReach];
    unrolled<kSize + kPadding>([&](auto source_row) {
      constexpr int i = decltype(source_row)::value;
      Window window;
      if (i < kReach) {
        CONVX_UNROLL
        for (int j = 0; j < kReach; ++j) window[j] = widen(origin[i * row_step + j * column_step]);
        CONVX_UNROLL
        for (int r = 0; r < Filter; ++r) {
          const int o = i - r + kPadding;
          if (o < 0 || o >= kSize) continue;
          CONVX_UNROLL
          for (int q = 0; q < Filter; ++q) {
            CONVX_UNROLL
            for (int v = 0; v < kSize; ++v) {
              const int j = v + q - kPadding;
              if (j >= 0 && j < kReach)
                sum[o][v] = multiply_add(window[j], weight[r * Filter + q], sum[o][v]);
            }
          }
        }
      }
      // Results take the place of source rows that every lane has read: the inner rows and columns of a
      // quarter are its neighbours' halo, the last kPadding rows for longest.
      constexpr int o = i - kPadding;
      if (o >= 0 && o < (kParts == 4 ? kSize - kPadding : kSize)) {
        if (kParts == 4) warp_barrier<Lanes>();
        finish_row(o);
      }
    });
    if (kParts == 4) {
      warp_barrier<Lanes>();
      CONVX_UNROLL
      for (int o = kSize - kPadding; o < kSize; ++o) finish_row(o);
    }
    T* const result = a.result + first_plane(step) * kPlane;
    unsigned char* const finished = stages + stage * Shape::kChunkBytes;
    if (bulk) {
      ring.store(result, finished, Shape::kChunkBytes);
    } else {
      warp_barrier<Lanes>();
      const int elements = elements_of(step);
      for (int i = lane; i < elements; i += Lanes) result[i] = reinterpret_cast<const T*>(finished)[i];
      warp_barrier<Lanes>();
    }
  }
  ring.finish();
}

}  // namespace convx::depthwise::plane
