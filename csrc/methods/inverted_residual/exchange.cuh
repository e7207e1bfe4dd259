// Sums of the same results by the blocks of a cluster, which had some of the expanded channels each.
#pragma once
#include "methods/inverted_residual/fragments.cuh"
#include "platform/gpu/cluster.h"

namespace convx::inverted_residual {

// Which block of a cluster adds up a pair of tiles: place counts those of all warps.
template <class Arguments>
CONVX_DEVICE bool has_sums(const Arguments& a, int rank, int place) {
  return static_cast<int>(a.by_ranks.remainder(place)) == rank;
}

// Of the sums each block gets every so many, and adds them up in the order of the ranks. They are pushed to
// who adds them: one way through the network, where fetching them takes two. Each block has arrived at the
// cluster's barrier when it began. first_place: of the warp's sums.
template <int Lanes, int Tiles, int Pairs, class Arguments>
CONVX_DEVICE void exchange_sums(const Arguments& a, PairSums (&of)[Tiles][Pairs], int first_pair,
                                int first_place, int rank, unsigned char* shared, int lane) {
  const int ranks = static_cast<int>(a.by_ranks.divisor);
  using Half = Vector<float, 4>;
  Half* const lanes_own = reinterpret_cast<Half*>(shared + a.exchange_at) + lane;
  const auto halves = [&](int place, int of_rank) {
    return lanes_own + (static_cast<int>(a.by_ranks.quotient(place)) * ranks + of_rank) * 2 * Lanes;
  };
  cluster_wait();  // the others have begun: their shared memory is theirs
  CONVX_UNROLL
  for (int i = 0; i < Tiles * Pairs; ++i) {
    if (first_pair + i % Pairs >= a.out_pairs) continue;
    const int place = first_place + i;
    Half* const to = in_block(halves(place, rank), static_cast<int>(a.by_ranks.remainder(place)));
    const PairSums& sums = of[i / Pairs][i % Pairs];
    CONVX_UNROLL
    for (int half = 0; half < 2; ++half) to[half * Lanes] = sums.half(half);
  }
  cluster_arrive();
  cluster_wait();
  CONVX_UNROLL
  for (int i = 0; i < Tiles * Pairs; ++i) {
    const int place = first_place + i;
    if (first_pair + i % Pairs >= a.out_pairs || !has_sums(a, rank, place)) continue;
    PairSums& sums = of[i / Pairs][i % Pairs];
    sums = PairSums(halves(place, 0)[0], halves(place, 0)[Lanes]);
    CONVX_NO_UNROLL
    for (int other = 1; other < ranks; ++other) {
      sums += PairSums(halves(place, other)[0], halves(place, other)[Lanes]);
    }
  }
}

}  // namespace convx::inverted_residual
