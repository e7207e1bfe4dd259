#pragma once

namespace convx::depthwise::banded {

constexpr int kSide = 16;       // results of a tile, and depth of a fragment of 16 bits
constexpr int kChannels = 8;    // of a block where they are last: 16 bytes of 16 bits, and a warp each
constexpr int kPlaneWarps = 4;  // of a block elsewhere

}  // namespace convx::depthwise::banded
