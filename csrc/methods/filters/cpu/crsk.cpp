// Brings filters into the order of crsk.h on a CPU.
#include "methods/filters/crsk.h"

#include <cstring>

namespace convx::filters {
namespace {

// One block of result channels: for every source channel and tap, block neighbours of the packed order. Word
// is any type of the element's size.
template <class Word>
void pack_block(const Crsk& order, int64_t group, int64_t index, const Word* weight, Word* packed) {
  const int64_t first = index * order.block;
  const int64_t used =
      order.result_channels - first < order.block ? order.result_channels - first : order.block;
  const int64_t result_step = order.flipped ? order.taps : order.source_channels * order.taps;
  const int64_t source_step = order.flipped ? order.result_channels * order.taps : order.taps;
  const Word* filters =
      weight + group * order.source_channels * order.result_channels * order.taps + first * result_step;
  for (int64_t source = 0; source < order.source_channels; ++source) {
    for (int64_t tap = 0; tap < order.taps; ++tap, packed += order.block) {
      const Word* from = filters + source * source_step + (order.flipped ? order.taps - 1 - tap : tap);
      for (int64_t i = 0; i < used; ++i) packed[i] = from[i * result_step];
      std::memset(packed + used, 0, static_cast<size_t>(order.block - used) * sizeof(Word));
    }
  }
}

template <class Word>
void pack_words(const Crsk& order, const void* weight, void* packed, const ThreadPool& pool) {
  const int64_t blocks = order.blocks(), elements = order.block_elements();
  pool.parallel_for(order.groups * blocks, (order.groups * blocks + pool.threads - 1) / pool.threads,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        pack_block(order, i / blocks, i % blocks, static_cast<const Word*>(weight),
                                   static_cast<Word*>(packed) + i * elements);
                      }
                    });
}

}  // namespace

void pack_crsk_cpu(const ConvProblem& problem, int64_t block, const void* weight, void* packed,
                   const ThreadPool& pool) {
  const Crsk order = crsk_of(problem, block);
  switch (element_size(problem.dtype)) {
    case 2:
      return pack_words<uint16_t>(order, weight, packed, pool);
    case 4:
      return pack_words<uint32_t>(order, weight, packed, pool);
    default:
      return pack_words<uint64_t>(order, weight, packed, pool);
  }
}

}  // namespace convx::filters
