// A ring of shared-memory stages that are filled from global memory ahead of their use.
//
// On sm_90 and later one thread issues bulk copies that complete on an mbarrier per stage. Addresses are
// 16-byte aligned and sizes multiples of 16 bytes.
#pragma once
#include "platform/gpu/platform.h"

namespace convx {

#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CONVX_BULK_COPY 1
#endif

// The pieces of 16 bytes that are this one's of Threads.
template <int Threads>
CONVX_DEVICE void copy_pieces(void* to, const void* from, uint32_t bytes, int thread) {
  using Piece = Vector<float, 4>;
  for (uint32_t i = thread; i < bytes / 16; i += Threads) {
    static_cast<Piece*>(to)[i] = static_cast<const Piece*>(from)[i];
  }
}

// Barriers that count the bytes of bulk copies, where there are such; else what they stand for is done at
// once.
namespace bulk {

#if defined(CONVX_BULK_COPY)
CONVX_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

template <int Stages>
CONVX_DEVICE void init(uint64_t* barriers) {
  CONVX_UNROLL
  for (int stage = 0; stage < Stages; ++stage) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + stage)));
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
#endif

CONVX_DEVICE void expect([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t bytes) {
#if defined(CONVX_BULK_COPY)
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}

// One of Threads that call this with the same operands. The first issues the copy; else each copies its
// pieces.
template <int Threads>
CONVX_DEVICE void load([[maybe_unused]] uint64_t* barrier, void* shared, const void* global, uint32_t bytes,
                       int thread) {
#if defined(CONVX_BULK_COPY)
  if (thread != 0) return;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#else
  copy_pieces<Threads>(shared, global, bytes, thread);
#endif
}

CONVX_DEVICE void wait([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t phase) {
#if defined(CONVX_BULK_COPY)
  asm volatile(
      "{\n.reg .pred done;\nwait_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "wait_%=;\n}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
#endif
}

}  // namespace bulk

// Whether BlockStages copies; the host executor does what it stands for, unless it is a GPU without.
#if defined(CONVX_SIMT)
using simt::block_stages_copy;
#elif defined(CONVX_BULK_COPY)
CONVX_DEVICE constexpr bool block_stages_copy() {
  return true;
}
#else
CONVX_DEVICE constexpr bool block_stages_copy() {
  return false;
}
#endif

// Stages of a block, filled by one of its threads. A stage may be filled again after a block_barrier that
// follows its last read.
template <int Stages>
class BlockStages {
 public:
  // barriers: Stages 64-bit words of shared memory. Every thread of the block calls this.
  CONVX_DEVICE explicit BlockStages(uint64_t* barriers) : barriers_(barriers) {
#if defined(CONVX_BULK_COPY)
    if (threadIdx.x == 0) bulk::init<Stages>(barriers_);
    block_barrier();
#endif
  }

  // One thread announces how many bytes load() will bring into a stage, all calls together, and calls it.
  CONVX_DEVICE void begin(int stage, uint32_t bytes) { bulk::expect(barriers_ + stage, bytes); }
  CONVX_DEVICE void load(int stage, void* shared, const void* global, uint32_t bytes) {
    bulk::load<1>(barriers_ + stage, shared, global, bytes, 0);
  }

  // Every thread: the stage's bytes are there, once a block_barrier has followed. phase alternates 0, 1 with
  // each use of the same stage.
  CONVX_DEVICE void wait(int stage, uint32_t phase) { bulk::wait(barriers_ + stage, phase); }

 private:
  uint64_t* barriers_;
};

// Stages of one warp, which also writes them back. Lane 0 issues bulk copies; elsewhere the warp's lanes copy
// 16 bytes each and the copy is complete at once. Every lane calls every function.
template <int Lanes, int Stages>
class WarpStages {
 public:
  // barriers: Stages 64-bit words of shared memory of this warp alone.
  CONVX_DEVICE WarpStages(uint64_t* barriers, int lane) : barriers_(barriers), lane_(lane) {
#if defined(CONVX_BULK_COPY)
    if (lane_ == 0) bulk::init<Stages>(barriers_);
    __syncwarp();
#endif
  }

  // Announces how many bytes load() will bring into a stage, all calls together. The stage must have been
  // released by a warp_barrier after its last read, and by wait_stores() if it was a store()'s source.
  CONVX_DEVICE void begin(int stage, uint32_t bytes) {
    if (lane_ == 0) bulk::expect(barriers_ + stage, bytes);
  }

  CONVX_DEVICE void load(int stage, void* shared, const void* global, uint32_t bytes) {
    bulk::load<Lanes>(barriers_ + stage, shared, global, bytes, lane_);
  }

  // Returns when the stage's bytes are there. phase alternates 0, 1 with each use of the same stage.
  CONVX_DEVICE void wait(int stage, uint32_t phase) {
    bulk::wait(barriers_ + stage, phase);
#if !defined(CONVX_BULK_COPY)
    warp_barrier<Lanes>();
#endif
  }

  // Writes shared memory that the warp's lanes have just filled to global memory.
  CONVX_DEVICE void store(void* global, const void* shared, uint32_t bytes) {
#if defined(CONVX_BULK_COPY)
    // The copy engine reads through another proxy: each writing lane fences its own stores first.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane_ == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                   "r"(bulk::shared_address(shared)), "r"(bytes)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
#else
    warp_barrier<Lanes>();
    copy_pieces<Lanes>(global, shared, bytes, lane_);
    warp_barrier<Lanes>();
#endif
  }

  // Shared memory that was a store()'s source may be written again.
  CONVX_DEVICE void wait_stores() {
#if defined(CONVX_BULK_COPY)
    if (lane_ == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  }

  // Before the kernel ends: every store() is complete.
  CONVX_DEVICE void finish() {
#if defined(CONVX_BULK_COPY)
    if (lane_ == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
  }

 private:
  uint64_t* barriers_;
  int lane_;
};

}  // namespace convx
