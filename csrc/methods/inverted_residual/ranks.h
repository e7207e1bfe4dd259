// Of how many blocks a cluster can be that share a tile's chunks.
#pragma once
#include <cstdint>
#include <vector>

#include "problem/device.h"
#include "problem/divide.h"

namespace convx::inverted_residual {

// blocks: of a kernel without clusters.
inline std::vector<int64_t> possible_ranks(const DeviceTraits& device, int64_t chunks, int64_t blocks) {
  std::vector<int64_t> found = {1};
  if (!device.has_clusters()) return found;
  for (int64_t ranks = 2; ranks <= kPortableClusterBlocks; ++ranks) {
    const bool all_have_some = (ranks - 1) * divide_up(chunks, ranks) < chunks;
    // A cluster is of neighbouring multiprocessors, 16 or so: others than powers of two leave some of them
    // idle.
    const int64_t room = (ranks & (ranks - 1)) == 0 ? device.multiprocessors : device.multiprocessors * 3 / 4;
    if (all_have_some && blocks <= room / ranks) found.push_back(ranks);
  }
  return found;
}

}  // namespace convx::inverted_residual
