// Products of few pixels with deep filters: the layers of networks at one image. A block makes a pair of
// fragments of filters and some fragments of pixels, a warp of it the part of some of the depth: operands
// come straight from memory to registers, the next while some are multiplied, filters before the kernel's
// turn. Then warps add up what they have in shared memory, and the blocks of a cluster, which have other
// depths. The depth is the channels or, of a window, those of all taps.
#pragma once
#include "methods/deep/ending.cuh"
#include "methods/deep/warp.cuh"
#include "platform/gpu/cluster.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/unroll.h"

namespace convx::deep {

template <Precision Kind, int Lanes, int Fragments, bool Planes, bool Taps, class T>
CONVX_KERNEL(kWarps* Lanes, 1)
deep_kernel(const uint32_t* packed, const T* source, const T* bias, T* result, Shape shape,
            Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  CONVX_DYNAMIC_SHARED(shared);
  using OfWarp = Warp<Kind, Lanes, Fragments, Planes, Taps>;
  using Quad = Vector<float, 4>;
  constexpr int kPixels = OfWarp::kPixels, kUnits = kPixels * kPairFilters / 4;
  constexpr int kSums = OfWarp::kRows * OfWarp::kPitch;
  using OfBlock = Ending<Kind, Lanes, T, kPixels, Planes, Taps>;
  const int ranks = static_cast<int>(shape.ranks.divisor);
  const bool is_shared = kHasClusters && ranks > 1;
  if (is_shared) cluster_arrive();
  const uint32_t tile = shape.ranks.quotient(blockIdx.x);
  const int rank = static_cast<int>(shape.ranks.remainder(blockIdx.x));
  const int pair = static_cast<int>(shape.pairs.remainder(tile));
  const uint32_t first_pixel = shape.pairs.quotient(tile) * kPixels;
  const int warp = static_cast<int>(threadIdx.x) / Lanes;
  const int first = min((rank * kWarps + warp) * shape.warp_pairs, shape.step_pairs);
  const int end = min(first + shape.warp_pairs, shape.step_pairs);

  OfWarp own(shape, packed, source, pair, static_cast<int>(threadIdx.x) % Lanes, first, end);
  constexpr int kSlots = OfWarp::kAtOnce;
  // A short depth fills few slots, and runs nothing but what these take.
  unrolled_steps<kSlots>([&](auto slot) {
    if (first + slot < end) own.fetch_filters(slot);
  });
  own.aim(first_pixel);
  // The branch also keeps what stands before it from coming after the wait: ptxas moves waits up in a block.
  if (first_pixel == 0) own.prefetch_filters();
  take_turn();
  unrolled_steps<kSlots>([&](auto slot) {
    if (first + slot < end) own.fetch_pixels(slot);
  });
  int at = first;
  CONVX_NO_UNROLL
  for (; at + kSlots < end; at += kSlots) {
    unrolled_steps<kSlots>([&](auto slot) {
      own.multiply(slot);
      own.fetch_filters(slot);
      own.fetch_pixels(slot);
    });
  }
  unrolled_steps<kSlots>([&](auto slot) {
    if (at + slot < end) own.multiply(slot);
  });

  float* const sums = reinterpret_cast<float*>(shared);
  Quad* const exchange = reinterpret_cast<Quad*>(shared + shape.exchange_at);  // [giver][unit]
  own.store_sums(sums + warp * kSums);
  block_barrier();
  const OfBlock ending{shape, packed, source, bias, result, finishing, pair * kPairFilters, first_pixel};
  // The sum of `count` quads that lie `step` floats apart, in their order.
  const auto sum_of = [](const float* place, int count, int step) {
    Quad all = *reinterpret_cast<const Quad*>(place);
    for (int other = 1; other < count; ++other) {
      const Quad more = *reinterpret_cast<const Quad*>(place += step);
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) all.element[i] += more.element[i];
    }
    return all;
  };
  const auto sum_of_warps = [&](int unit) {
    constexpr int kQuads = OfBlock::kQuads;
    return sum_of(sums + unit / kQuads * OfWarp::kPitch + unit % kQuads * 4, kWarps, kSums);
  };
  const int of_rank = kUnits / ranks;
  if (is_shared) {
    cluster_wait();  // the others have begun: their shared memory is theirs
    CONVX_NO_UNROLL
    for (int unit = static_cast<int>(threadIdx.x); unit < kUnits; unit += kWarps * Lanes) {
      *in_block(exchange + rank * of_rank + unit % of_rank, unit / of_rank) = sum_of_warps(unit);
    }
    cluster_arrive();
    cluster_wait();
  }
  CONVX_NO_UNROLL
  for (int unit = static_cast<int>(threadIdx.x); unit < of_rank; unit += kWarps * Lanes) {
    const Quad all = is_shared ? sum_of(reinterpret_cast<const float*>(exchange + unit), ranks, of_rank * 4)
                               : sum_of_warps(unit);
    ending.store_unit(rank * of_rank + unit, all);
  }
}

}  // namespace convx::deep
