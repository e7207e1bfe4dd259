#pragma once

namespace convx::depthwise::banded {

constexpr int kSide = 16;     // results of a tile, and depth of a fragment of 16 bits
constexpr int kChannels = 8;  // of a block where they are last: 16 bytes of 16 bits

}  // namespace convx::depthwise::banded
