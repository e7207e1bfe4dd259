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

// Whose sums they are: which of the blocks of a cluster, and of the warps that share a sum's depth there.
struct Giver {
  int rank, split, splits;

  CONVX_DEVICE bool is_of_cluster(int ranks) const { return kHasClusters && ranks > 1; }
};
// Of a cluster whose blocks have one warp for each sum.
struct BlockGiver {
  int rank;
  static constexpr int split = 0, splits = 1;

  CONVX_DEVICE bool is_of_cluster(int) const { return true; }
};

// Of the sums each block gets every so many, and its first warps that share them add them up in the order of
// their givers. They are pushed to who adds them: one way through the network, where fetching them takes two.
// Each block of a cluster has arrived at its barrier when it began. first_place: of the warp's sums.
template <int Lanes, int Tiles, int Pairs, class Arguments, class OfWarp>
CONVX_DEVICE void exchange_sums(const Arguments& a, PairSums (&of)[Tiles][Pairs], int first_pair,
                                int first_place, const OfWarp& giver, unsigned char* shared, int lane) {
  const int ranks = static_cast<int>(a.by_ranks.divisor), givers = ranks * giver.splits;
  const bool is_cluster = giver.is_of_cluster(ranks);
  using Half = Vector<float, 4>;
  Half* const lanes_own = reinterpret_cast<Half*>(shared + a.exchange_at) + lane;
  const auto halves = [&](int place, int of) {
    return lanes_own + (static_cast<int>(a.by_ranks.quotient(place)) * givers + of) * 2 * Lanes;
  };
  if (is_cluster) cluster_wait();  // the others have begun: their shared memory is theirs
  CONVX_UNROLL
  for (int i = 0; i < Tiles * Pairs; ++i) {
    if (first_pair + i % Pairs >= a.out_pairs) continue;
    const int place = first_place + i;
    Half* to = halves(place, giver.rank * giver.splits + giver.split);
    if (is_cluster) to = in_block(to, static_cast<int>(a.by_ranks.remainder(place)));
    const PairSums& sums = of[i / Pairs][i % Pairs];
    CONVX_UNROLL
    for (int half = 0; half < 2; ++half) to[half * Lanes] = sums.half(half);
  }
  if (is_cluster) {
    cluster_arrive();
    cluster_wait();
  } else {
    block_barrier();
  }
  CONVX_UNROLL
  for (int i = 0; i < Tiles * Pairs; ++i) {
    const int place = first_place + i;
    if (first_pair + i % Pairs >= a.out_pairs || giver.split > 0 || !has_sums(a, giver.rank, place)) continue;
    PairSums& sums = of[i / Pairs][i % Pairs];
    sums = PairSums(halves(place, 0)[0], halves(place, 0)[Lanes]);
    CONVX_NO_UNROLL
    for (int other = 1; other < givers; ++other) {
      sums += PairSums(halves(place, other)[0], halves(place, other)[Lanes]);
    }
  }
}

}  // namespace convx::inverted_residual
