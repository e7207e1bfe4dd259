// Brings filters into the order of crsk.h on a CPU.
#include "methods/packing/crsk.h"

#include <algorithm>
#include <cstring>

namespace convx::packing {
namespace {

constexpr int64_t kSources = 16;             // a line of float32
constexpr int64_t kTask = int64_t{1} << 14;  // elements that are worth waking a thread for

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
  const auto tap_of = [&](int64_t tap) { return order.flipped ? order.taps - 1 - tap : tap; };
  // A few source channels at a time, so that lines of memory are read and written while they are in the
  // cache, whichever of the two has neighbours.
  for (int64_t begin = 0; begin < order.source_channels; begin += kSources) {
    const int64_t sources = std::min(kSources, order.source_channels - begin);
    for (int64_t tap = 0; tap < order.taps; ++tap) {
      const Word* from = filters + begin * source_step + tap_of(tap);
      Word* to = packed + (begin * order.taps + tap) * order.block;
      const int64_t to_step = order.taps * order.block;
      if (result_step == 1) {
        for (int64_t source = 0; source < sources; ++source) {
          std::memcpy(to + source * to_step, from + source * source_step,
                      static_cast<size_t>(used) * sizeof(Word));
        }
      } else {
        for (int64_t i = 0; i < used; ++i) {
          for (int64_t source = 0; source < sources; ++source) {
            to[source * to_step + i] = from[i * result_step + source * source_step];
          }
        }
      }
      for (int64_t source = 0; used < order.block && source < sources; ++source) {
        std::memset(to + source * to_step + used, 0, static_cast<size_t>(order.block - used) * sizeof(Word));
      }
    }
  }
}

template <class Word>
void pack_words(const Crsk& order, const void* weight, void* packed, const ThreadPool& pool) {
  const int64_t blocks = order.blocks(), elements = order.block_elements();
  const int64_t grain = std::max((order.groups * blocks + pool.threads - 1) / pool.threads, kTask / elements);
  pool.parallel_for(order.groups * blocks, grain, [&](int64_t begin, int64_t end) {
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

}  // namespace convx::packing
