// The address sanitizer is told to call a function at each load and store (see build.py). The ones below take
// the place of the sanitizer's own: they do its check, and this file's. Compiled without the sanitizer
// itself.
//
// A thread's accesses are stamped with the number of block barriers and of its warp's barriers passed so far,
// and of the times that it has arrived at its cluster's barrier. Of two accesses in one block, the earlier is
// ordered before the later if its block stamp is smaller, or if both are of one warp and its warp stamp is
// smaller; of two in one cluster, if its thread had arrived less often than the later's has waited. Shuffles
// order nothing.
#include "race.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#if defined(SIMT_ADDRESS_SANITIZER)
extern "C" void __sanitizer_print_stack_trace();
#endif

namespace simt::race {
namespace {

constexpr int kMany = -1;

struct Stamp {
  uint32_t block = 0;  // 0: never
  uint32_t warp_barriers = 0;
  uint32_t arrivals = 0;
  int16_t rank = 0;
  int16_t warp = 0;
  int16_t thread =
      0;  // kMany: several of the warp, or of several warps, or blocks, where those are kMany too
};

struct Region {
  const char* name;
  size_t granule;  // bytes per cell, at most the smallest element that threads write
  uintptr_t begin = 0, end = 0;
  bool across_blocks = false;  // whether accesses of other blocks count
  std::vector<Stamp> writes = {}, reads = {};
};

bool watching = false;
Region regions[] = {{"shared memory", 2}, {"the result", 1}};
uint32_t last_stamp = 0, first_stamp_of_cluster = 0;
int lanes_of_warp = 32, threads_of_block = 32;
std::vector<uint32_t> block_stamps, warp_barriers, arrivals, waits;

void watch(Region& region, const void* memory, size_t bytes) {
  region.begin = reinterpret_cast<uintptr_t>(memory);
  region.end = region.begin + bytes;
  region.writes.assign((bytes + region.granule - 1) / region.granule, Stamp());
  region.reads = region.writes;
}

bool is_ordered(const Region& region, const Stamp& before, const Stamp& now) {
  if (before.block == 0) return true;
  if (before.block < first_stamp_of_cluster) return !region.across_blocks;
  if (before.arrivals < waits[now.thread]) return true;
  if (before.rank != now.rank) return false;
  if (before.block < now.block) return true;
  if (before.warp != now.warp) return false;
  return before.warp_barriers < now.warp_barriers || before.thread == now.thread;
}

void print_stack() {
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_print_stack_trace();
#endif
}

// Keeps of a cluster's readers enough to tell whether a later write by any thread races with one of them.
void merge_read(Stamp& read, const Stamp& now) {
  if (read.block < first_stamp_of_cluster) {
    read = now;
  } else if (read.rank != now.rank) {
    read.block = std::max(read.block, now.block);
    read.arrivals = std::max(read.arrivals, now.arrivals);
    read.rank = read.warp = read.thread = kMany;
  } else if (read.block != now.block) {
    read = now;
  } else if (read.warp != now.warp) {
    read.warp = read.thread = kMany;
  } else if (read.warp_barriers != now.warp_barriers) {
    read = now;
  } else if (read.thread != now.thread) {
    read.thread = kMany;
  }
}

void check(Region& region, uintptr_t address, size_t bytes, bool is_write) {
  const int thread = current_thread();
  const int warp = thread / lanes_of_warp, rank = thread / threads_of_block;
  const Stamp now{block_stamps[rank],         warp_barriers[warp],        arrivals[thread],
                  static_cast<int16_t>(rank), static_cast<int16_t>(warp), static_cast<int16_t>(thread)};
  const size_t last = (address + bytes - 1 - region.begin) / region.granule;
  for (size_t i = (address - region.begin) / region.granule; i <= last && i < region.writes.size(); ++i) {
    const bool after_write = is_ordered(region, region.writes[i], now);
    if (after_write && (!is_write || is_ordered(region, region.reads[i], now))) {
      is_write ? void(region.writes[i] = now) : merge_read(region.reads[i], now);
      continue;
    }
    const Stamp& other = after_write ? region.reads[i] : region.writes[i];
    char text[200];
    std::snprintf(text, sizeof text,
                  "race in %s at byte %zu: thread %d %s what thread %d %s with no barrier between",
                  region.name, static_cast<size_t>(address - region.begin), thread,
                  is_write ? "writes" : "reads", other.thread, after_write ? "reads" : "writes");
    print_stack();
    stop_thread(text);
  }
}

}  // namespace

void enable(bool on) {
  watching = on;
}
void watch_shared(const void* memory, size_t bytes) {
  watch(regions[0], memory, bytes);
}
void watch_result(const void* memory, size_t bytes) {
  watch(regions[1], memory, bytes);
  regions[1].across_blocks = true;
}
void begin_cluster(int blocks, int threads, int lanes) {
  lanes_of_warp = lanes, threads_of_block = threads;
  first_stamp_of_cluster = ++last_stamp;
  block_stamps.assign(blocks, last_stamp);
  warp_barriers.assign(blocks * threads / lanes, 0);
  arrivals.assign(blocks * threads, 0);
  waits.assign(blocks * threads, 0);
}
void block_barrier(int rank) {
  block_stamps[rank] = ++last_stamp;
}
void warp_barrier(int warp) {
  ++warp_barriers[warp];
}
void cluster_arrive() {
  ++arrivals[current_thread()];
}
void cluster_wait() {
  ++waits[current_thread()];
}

}  // namespace simt::race

#if defined(SIMT_ADDRESS_SANITIZER)
extern "C" {
void __asan_get_shadow_mapping(size_t* scale, size_t* offset);
void* __asan_region_is_poisoned(void* begin, size_t size);
void __asan_report_load_n(void* address, size_t size);
void __asan_report_store_n(void* address, size_t size);

// Threads that are given up in the middle of a kernel leak what their frames own.
const char* __asan_default_options() {
  return "detect_leaks=0";
}
}

namespace {

size_t shadow_offset() {
  size_t scale = 0, offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  return offset;
}

// Of at most 16 bytes. A shadow byte says how many of its 8 bytes may be used, the first ones; 0 is all of
// them.
inline bool is_poisoned(uintptr_t address, size_t bytes) {
  static const size_t offset = shadow_offset();
  const uintptr_t last = address + bytes - 1;
  const int8_t usable = *reinterpret_cast<const int8_t*>((last >> 3) + offset);
  if (usable != 0 && static_cast<int8_t>(last & 7) >= usable) return true;
  return address >> 3 != last >> 3 && *reinterpret_cast<const int8_t*>((address >> 3) + offset) != 0;
}

inline void access(void* pointer, size_t bytes, bool is_write) {
  using namespace simt::race;
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (bytes <= 16 ? is_poisoned(address, bytes) : __asan_region_is_poisoned(pointer, bytes) != nullptr) {
    is_write ? __asan_report_store_n(pointer, bytes) : __asan_report_load_n(pointer, bytes);
  }
  if (!watching) return;
  for (Region& region : regions) {
    if (address >= region.begin && address < region.end) check(region, address, bytes, is_write);
  }
}

}  // namespace

extern "C" {
void __asan_load1(void* address) {
  access(address, 1, false);
}
void __asan_load2(void* address) {
  access(address, 2, false);
}
void __asan_load4(void* address) {
  access(address, 4, false);
}
void __asan_load8(void* address) {
  access(address, 8, false);
}
void __asan_load16(void* address) {
  access(address, 16, false);
}
void __asan_loadN(void* address, size_t bytes) {
  access(address, bytes, false);
}
void __asan_store1(void* address) {
  access(address, 1, true);
}
void __asan_store2(void* address) {
  access(address, 2, true);
}
void __asan_store4(void* address) {
  access(address, 4, true);
}
void __asan_store8(void* address) {
  access(address, 8, true);
}
void __asan_store16(void* address) {
  access(address, 16, true);
}
void __asan_storeN(void* address, size_t bytes) {
  access(address, bytes, true);
}
}
#endif
