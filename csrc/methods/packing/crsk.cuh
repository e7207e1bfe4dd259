// Brings filters into the order of crsk.h on a GPU. Included by one source file of each method that reads it.
#pragma once
#include "methods/packing/crsk.h"
#include "platform/gpu/launch.h"
#include "platform/gpu/platform.h"

namespace convx::packing {

struct CrskArguments {
  int64_t group_step;                // of the plain order: elements from one group's filters to the next
  int64_t result_step, source_step;  // and from a result or source channel to the next
  uint32_t result_channels;
  uint32_t rows, tile_rows;  // source_channels * taps, each `block` neighbours of the packed order; of a tile
  FastDivide taps, block, row_tiles, blocks;
  bool flipped;
};

constexpr int kCrskThreads = 256, kCrskElements = 2048;  // of a tile

// A block of threads writes a tile of rows of one block of channels, neighbours on neighbours. They read as
// many taps of each filter as fill the sectors that they touch. Word is any type of the element's size.
template <class Word>
CONVX_KERNEL(kCrskThreads, 1)
pack_crsk_kernel(const Word* weight, Word* packed, CrskArguments a) {
  const uint32_t outer = a.row_tiles.quotient(blockIdx.x);
  const uint32_t first_row = (blockIdx.x - outer * a.row_tiles.divisor) * a.tile_rows;
  const uint32_t group = a.blocks.quotient(outer);
  const uint32_t first_channel = (outer - group * a.blocks.divisor) * a.block.divisor;
  const uint32_t rows = min(a.tile_rows, a.rows - first_row);
  weight += group * a.group_step;
  packed += (static_cast<int64_t>(outer) * a.rows + first_row) * a.block.divisor;
  for (uint32_t i = threadIdx.x; i < rows * a.block.divisor; i += kCrskThreads) {
    const uint32_t row = a.block.quotient(i), channel = first_channel + i - row * a.block.divisor;
    const uint32_t source = a.taps.quotient(first_row + row);
    const uint32_t tap = first_row + row - source * a.taps.divisor;
    Word value{};
    if (channel < a.result_channels) {
      value = weight[channel * a.result_step + source * a.source_step +
                     (a.flipped ? a.taps.divisor - 1 - tap : tap)];
    }
    packed[i] = value;
  }
}

template <class Word>
void pack_crsk_words(const CrskArguments& arguments, int64_t blocks, const void* weight, void* packed,
                     Stream stream) {
  Grid grid;
  grid.x = static_cast<uint32_t>(blocks);
  launch_kernel(pack_crsk_kernel<Word>, "pack_crsk", grid, kCrskThreads, 0, stream,
                static_cast<const Word*>(weight), static_cast<Word*>(packed), arguments);
}

// Of fewer than 2^31 products of source_channels, taps, groups and blocks.
inline void pack_crsk_gpu(const ConvProblem& problem, int64_t block, const void* weight, void* packed,
                          Stream stream) {
  const Crsk order = crsk_of(problem, block);
  CrskArguments a{};
  const int64_t rows = order.source_channels * order.taps;
  const int64_t tile_rows = block < kCrskElements ? kCrskElements / block : 1;
  const int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  a.group_step = order.result_channels * rows;
  a.result_step = order.flipped ? order.taps : rows;
  a.source_step = order.flipped ? order.result_channels * order.taps : order.taps;
  a.result_channels = static_cast<uint32_t>(order.result_channels);
  a.rows = static_cast<uint32_t>(rows);
  a.tile_rows = static_cast<uint32_t>(tile_rows);
  a.taps = divide_by(order.taps), a.block = divide_by(block);
  a.row_tiles = divide_by(row_tiles), a.blocks = divide_by(order.blocks());
  a.flipped = order.flipped;
  const int64_t thread_blocks = order.groups * order.blocks() * row_tiles;
  switch (element_size(problem.dtype)) {
    case 2:
      return pack_crsk_words<uint16_t>(a, thread_blocks, weight, packed, stream);
    case 4:
      return pack_crsk_words<uint32_t>(a, thread_blocks, weight, packed, stream);
    default:
      return pack_crsk_words<uint64_t>(a, thread_blocks, weight, packed, stream);
  }
}

}  // namespace convx::packing
