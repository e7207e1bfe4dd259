// Packed filters on their way: a ring of chunks in shared memory, three in use and those that come next.
#pragma once
#include "methods/inverted_residual/geometry.h"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/stage.h"

namespace convx::inverted_residual {

// What a block does of its tile: chunks of the expanded channels. Of a cluster each block has some.
struct Share {
  int rank, first, chunks;
};

template <class Arguments>
class FilterRing {
 public:
  // Fetches the first chunks: filters do not depend on the kernel before.
  CONVX_DEVICE FilterRing(const Arguments& a, const Share& share, unsigned char* shared)
      : a_(a),
        share_(share),
        ring_(shared + a.ring_at),
        stages_(reinterpret_cast<uint64_t*>(shared + a.barriers_at)) {
    for (int chunk = 0; chunk < a_.ahead; ++chunk) fetch(chunk);
  }

  // Into a stage that no thread reads any more. Chunks are counted from the block's first one.
  CONVX_DEVICE void fetch(int chunk) {
    const unsigned char* const from =
        a_.filters + static_cast<int64_t>(share_.first + chunk) * a_.chunk_bytes;
    if (block_stages_copy()) {
      // One thread's alone, and out of the way of the others.
      if (__builtin_expect(threadIdx.x == 0 && chunk < share_.chunks, 0)) {
        stages_.begin(next_, a_.chunk_bytes);
        stages_.load(next_, ring_ + next_ * a_.chunk_bytes, from, a_.chunk_bytes);
      }
    } else {
      unsigned char* const to = ring_ + next_ * a_.chunk_bytes;
      for (int at = threadIdx.x * 16; at < a_.chunk_bytes && chunk < share_.chunks; at += blockDim.x * 16) {
        copy_async<16>(to + at, from + at, 16);
      }
      commit_copies();
    }
    next_ = next_ + 1 == a_.ring ? 0 : next_ + 1;
  }

  // Until a chunk is there, once a barrier has followed; called for one after the other.
  CONVX_DEVICE void wait(int chunk) {
    if (block_stages_copy()) {
      if (chunk < share_.chunks) stages_.wait(current_, phase_);
    } else {
      wait_copies(a_.ahead - 1);
    }
  }
  // The chunk that was waited for, and those before it.
  CONVX_DEVICE const unsigned char* stage(int before) const { return ring_ + stage_at(before); }
  CONVX_DEVICE int stage_at(int before) const {
    const int at = at_ - before * a_.chunk_bytes, wrapped = at < 0 ? at + a_.ring_bytes : at;
    return Arguments::kMayHaveOneChunk ? max(wrapped, 0) : wrapped;  // of a ring of one it is the first
  }
  CONVX_DEVICE void advance() {
    at_ += a_.chunk_bytes;
    if (++current_ == a_.ring) current_ = 0, at_ = 0, phase_ ^= 1;
  }

 private:
  const Arguments& a_;
  const Share& share_;
  unsigned char* ring_;
  BlockStages<kMostRing> stages_;
  int next_ = 0, current_ = 0;
  int at_ = 0;  // of the current chunk, in the ring
  uint32_t phase_ = 0;
};

}  // namespace convx::inverted_residual
