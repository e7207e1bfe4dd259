// Clusters (sm_90 and later): neighbouring blocks along x that run together and write to each other's shared
// memory. Grid::cluster of launch_in_turn asks for them.
#pragma once
#include "platform/gpu/platform.h"

namespace convx {

#if (defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900) || defined(CONVX_SIMT)
constexpr bool kHasClusters = true;
#else
constexpr bool kHasClusters = false;
#endif

// The barrier of all threads of a cluster, in two halves: what was written before a thread arrives is seen by
// those that have waited.
CONVX_DEVICE void cluster_arrive() {
#if defined(CONVX_SIMT)
  simt::cluster_arrive();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

CONVX_DEVICE void cluster_wait() {
#if defined(CONVX_SIMT)
  simt::cluster_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// A place in this block's shared memory, in that of the cluster's block of the rank.
template <class T>
CONVX_DEVICE T* in_block(T* place, [[maybe_unused]] int rank) {
#if defined(CONVX_SIMT)
  return simt::in_block(place, rank);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t found;
  asm("mapa.u64 %0, %1, %2;" : "=l"(found) : "l"(place), "r"(rank));
  return reinterpret_cast<T*>(found);
#else
  return place;
#endif
}

}  // namespace convx
