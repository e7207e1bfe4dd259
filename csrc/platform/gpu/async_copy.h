// Copies from global to shared memory that go on while their thread computes: cp.async on NVIDIA GPUs since
// sm_80. Elsewhere a copy is done when the call returns, so that the same code is right there; by the host
// executor then, or when it is waited for.
//
// A thread's copies are complete, for itself, after wait_copies; for the other threads after the barrier
// that follows.
#pragma once
#include "platform/gpu/platform.h"

namespace convx {

#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define CONVX_ASYNC_COPY 1
#endif

namespace detail {
template <int Bytes>
CONVX_DEVICE void copy_now(void* shared, const void* global, int valid_bytes) {
  using Piece = Vector<uint32_t, Bytes / 4>;
  if (valid_bytes == Bytes) {
    *static_cast<Piece*>(shared) = *static_cast<const Piece*>(global);
    return;
  }
  CONVX_UNROLL
  for (int i = 0; i < Bytes / 4; ++i) {
    static_cast<uint32_t*>(shared)[i] = 4 * i < valid_bytes ? static_cast<const uint32_t*>(global)[i] : 0u;
  }
}

#if defined(CONVX_SIMT)
constexpr int kNone = 1 << 30;  // pending: nothing is waited for
// Those of the thread that the executor has done by now.
inline void perform_copies(int pending) {
  for (simt::Copy copy; simt::take_copy(pending, copy);) {
    const auto perform = copy.bytes == 16 ? copy_now<16> : copy.bytes == 8 ? copy_now<8> : copy_now<4>;
    perform(copy.to, copy.from, copy.valid_bytes);
  }
}
#endif
}  // namespace detail

// Bytes (4, 8 or 16) to shared memory, both addresses aligned to that. The first valid_bytes are read, the
// others become zero; with 0 nothing is read at all.
template <int Bytes>
CONVX_DEVICE void copy_async(void* shared, const void* global, int valid_bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "what cp.async takes");
#if defined(CONVX_ASYNC_COPY)
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(Bytes),
                 "r"(valid_bytes)
                 : "memory");
  }
#elif defined(CONVX_SIMT)
  simt::begin_copy({shared, global, Bytes, valid_bytes});
  detail::perform_copies(detail::kNone);
#else
  detail::copy_now<Bytes>(shared, global, valid_bytes);
#endif
}

// Ends a group of this thread's copies.
CONVX_DEVICE void commit_copies() {
#if defined(CONVX_ASYNC_COPY)
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(CONVX_SIMT)
  simt::commit_copies();
#endif
}

// Returns when all but the youngest Pending groups of this thread are complete.
template <int Pending>
CONVX_DEVICE void wait_copies() {
#if defined(CONVX_ASYNC_COPY)
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#elif defined(CONVX_SIMT)
  detail::perform_copies(Pending);
#endif
}
// The same for a number known at run time, 0 to 2; more than that waits for what 2 waits for.
CONVX_DEVICE void wait_copies(int pending) {
  if (pending <= 0) {
    wait_copies<0>();
  } else if (pending == 1) {
    wait_copies<1>();
  } else {
    wait_copies<2>();
  }
}

}  // namespace convx
