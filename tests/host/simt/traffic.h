// Counts what kernels ask of global memory, as GPUs' profilers do: the loads and stores of warps, and the
// sectors of 32 bytes that these touch. In address-sanitized builds (race.cpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt::traffic {

struct Count {
  uint64_t requests = 0, sectors = 0;
};
struct Counts {
  Count loads, stores;
};

// Counts accesses to this memory from now on.
void watch(const void* memory, size_t bytes);
// What was counted since; no memory is watched any more.
Counts take();

// The rest is called by the executor. site: where the code that accesses memory goes on. The nth access that
// lanes of a warp make at a site is one of the warp's: true of lanes that go the same way.
extern bool is_counting;  // whether any memory is watched
void begin_blocks(int threads, int lanes);
// Where the memory is not watched, nothing.
void note(uintptr_t address, size_t bytes, bool is_write, const void* site);

}  // namespace simt::traffic
