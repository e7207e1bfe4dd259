// Blocks of a cluster.
#pragma once

namespace convx {

constexpr int kPortableClusterBlocks = 8;  // that every GPU with clusters can place

}  // namespace convx
