// Brings filters into the order of crsk.h on a GPU. Included by one source file of each method that reads it.
#pragma once
#include <algorithm>

#include "methods/filters/crsk.h"
#include "platform/launch.h"
#include "platform/platform.h"

namespace convx::filters {

struct CrskArguments {
  int64_t count;                     // packed elements
  int64_t groups_step;               // of the plain order: elements from one group's filters to the next
  int64_t result_step, source_step;  // and from a result or source channel to the next
  uint32_t source_channels, result_channels, taps, block, blocks;
  bool flipped;
};

constexpr int kCrskThreads = 256;

// A thread writes every gridDim-th packed element; neighbours write neighbours. Word is any type of the
// element's size.
template <class Word>
CONVX_KERNEL(kCrskThreads, 1)
pack_crsk_kernel(const Word* weight, Word* packed, CrskArguments a) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kCrskThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kCrskThreads + threadIdx.x; i < a.count; i += step) {
    int64_t rest = i / a.block;
    const uint32_t in_block = static_cast<uint32_t>(i - rest * a.block);
    int64_t outer = rest / a.taps;
    const uint32_t tap = static_cast<uint32_t>(rest - outer * a.taps);
    rest = outer / a.source_channels;
    const int64_t source = outer - rest * a.source_channels;
    const int64_t group = rest / a.blocks;
    const int64_t result = (rest - group * a.blocks) * a.block + in_block;
    Word value{};
    if (result < a.result_channels) {
      value = weight[group * a.groups_step + result * a.result_step + source * a.source_step +
                     (a.flipped ? a.taps - 1 - tap : tap)];
    }
    packed[i] = value;
  }
}

template <class Word>
void pack_crsk_words(const CrskArguments& arguments, const void* weight, void* packed, Stream stream) {
  constexpr int64_t kMostBlocks = 8192;  // a thread of more takes several elements
  Grid grid;
  grid.x = static_cast<uint32_t>(std::min((arguments.count + kCrskThreads - 1) / kCrskThreads, kMostBlocks));
  launch_kernel(pack_crsk_kernel<Word>, "pack_crsk", grid, kCrskThreads, 0, stream,
                static_cast<const Word*>(weight), static_cast<Word*>(packed), arguments);
}

inline void pack_crsk_gpu(const ConvProblem& problem, int64_t block, const void* weight, void* packed,
                          Stream stream) {
  const Crsk order = crsk_of(problem, block);
  CrskArguments a{};
  a.count = order.elements();
  a.groups_step = order.source_channels * order.result_channels * order.taps;
  a.result_step = order.flipped ? order.taps : order.source_channels * order.taps;
  a.source_step = order.flipped ? order.result_channels * order.taps : order.taps;
  a.source_channels = static_cast<uint32_t>(order.source_channels);
  a.result_channels = static_cast<uint32_t>(order.result_channels);
  a.taps = static_cast<uint32_t>(order.taps);
  a.block = static_cast<uint32_t>(block);
  a.blocks = static_cast<uint32_t>(order.blocks());
  a.flipped = order.flipped;
  switch (element_size(problem.dtype)) {
    case 2:
      return pack_crsk_words<uint16_t>(a, weight, packed, stream);
    case 4:
      return pack_crsk_words<uint32_t>(a, weight, packed, stream);
    default:
      return pack_crsk_words<uint64_t>(a, weight, packed, stream);
  }
}

}  // namespace convx::filters
