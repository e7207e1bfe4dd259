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

#include "traffic.h"

#if defined(SIMT_ADDRESS_SANITIZER)
extern "C" void __sanitizer_print_stack_trace();
#endif

namespace simt::race {
namespace {

// Who: rank of the block, warp and thread, each in bits of its own. All ones there: several of the warp, or
// of several warps, or blocks, where those are all ones too.
constexpr int kRankShift = 28, kWarpShift = 16;
constexpr uint32_t kManyRanks = ~uint32_t{0};
constexpr uint32_t kManyWarps = (uint32_t{1} << kRankShift) - 1;
constexpr uint32_t kManyThreads = (uint32_t{1} << kWarpShift) - 1;

struct Stamp {
  uint32_t block = 0;  // 0: never
  uint32_t warp_barriers = 0;
  uint32_t arrivals = 0;
  uint32_t who = 0;
};
bool same_rank(const Stamp& a, const Stamp& b) {
  return (a.who ^ b.who) >> kRankShift == 0;
}
bool same_warp(const Stamp& a, const Stamp& b) {
  return (a.who ^ b.who) >> kWarpShift == 0;
}

// Side by side: an access looks at both.
struct Cell {
  Stamp write, read;
};

struct Region {
  const char* name;
  int shift;           // of an address to its cell, which is at most the smallest element that threads write
  bool across_blocks;  // whether accesses of other blocks count
  uintptr_t begin = 0;
  size_t bytes = 0;
  size_t watched = 0;  // bytes, or none
  std::vector<Cell> cells = {};
};

Region shared{"shared memory", 1, false}, result{"the result", 0, true};
uint32_t last_stamp = 0, first_stamp_of_cluster = 0;
Stamp now;                  // of the current thread's accesses
uint32_t waits_by_now = 0;  // at its cluster's barrier
std::vector<uint32_t> who, block_stamps, warp_barriers, arrivals, waits;

void watch(Region& region, const void* memory, size_t bytes) {
  region.begin = reinterpret_cast<uintptr_t>(memory);
  region.bytes = bytes;
  region.cells.resize((bytes >> region.shift) + 1);
}

inline bool is_ordered(const Region& region, const Stamp& before) {
  if (before.block < first_stamp_of_cluster) return before.block == 0 || !region.across_blocks;
  if (before.arrivals < waits_by_now) return true;
  if (!same_rank(before, now)) return false;
  if (before.block < now.block) return true;
  return same_warp(before, now) && (before.warp_barriers < now.warp_barriers || before.who == now.who);
}

void print_stack() {
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_print_stack_trace();
#endif
}

// Keeps of a cluster's readers enough to tell whether a later write by any thread races with one of them.
inline void merge_read(Stamp& read) {
  if (read.block < first_stamp_of_cluster) {
    read = now;
  } else if (!same_rank(read, now)) {
    read.block = std::max(read.block, now.block);
    read.arrivals = std::max(read.arrivals, now.arrivals);
    read.who = kManyRanks;
  } else if (read.block != now.block) {
    read = now;
  } else if (!same_warp(read, now)) {
    read.who |= kManyWarps;
  } else if (read.warp_barriers != now.warp_barriers) {
    read = now;
  } else if (read.who != now.who) {
    read.who |= kManyThreads;
  }
}

[[gnu::noinline, noreturn]] void report(const Region& region, const Stamp& other, bool was_write, size_t byte,
                                        bool is_write) {
  char text[200];
  std::snprintf(text, sizeof text,
                "race in %s at byte %zu: thread %d %s what thread %d %s with no barrier between", region.name,
                byte, current_thread(), is_write ? "writes" : "reads",
                static_cast<int16_t>(other.who & kManyThreads), was_write ? "writes" : "reads");
  print_stack();
  stop_thread(text);
}

template <bool IsWrite>
[[gnu::noinline]] void check(Region& region, size_t byte, size_t bytes) {
  Cell* const last = region.cells.data() + ((std::min(byte + bytes, region.bytes) - 1) >> region.shift);
  for (Cell* cell = region.cells.data() + (byte >> region.shift); cell <= last; ++cell) {
    if (!is_ordered(region, cell->write)) report(region, cell->write, true, byte, IsWrite);
    if constexpr (IsWrite) {
      if (!is_ordered(region, cell->read)) report(region, cell->read, false, byte, IsWrite);
      cell->write = now;
    } else {
      merge_read(cell->read);
    }
  }
}

}  // namespace

void enable(bool on) {
  for (Region* region : {&shared, &result}) region->watched = on ? region->bytes : 0;
}
// What other launches have left there is ordered before, as that of other clusters.
void watch_shared(const void* memory, size_t bytes) {
  watch(shared, memory, bytes);
}
void watch_result(const void* memory, size_t bytes) {
  result.cells.clear();
  watch(result, memory, bytes);
}
void begin_cluster(int blocks, int threads, int lanes) {
  traffic::begin_blocks(blocks * threads, lanes);
  first_stamp_of_cluster = ++last_stamp;
  block_stamps.assign(blocks, last_stamp);
  warp_barriers.assign(blocks * threads / lanes, 0);
  arrivals.assign(blocks * threads, 0);
  waits.assign(blocks * threads, 0);
  who.resize(blocks * threads);
  for (uint32_t i = 0; i < who.size(); ++i) {
    who[i] = i / threads << kRankShift | i / lanes << kWarpShift | i;
  }
}
void resume() {
  const int thread = current_thread();
  const uint32_t it = who[thread];
  now = {block_stamps[it >> kRankShift], warp_barriers[(it & kManyWarps) >> kWarpShift], arrivals[thread],
         it};
  waits_by_now = waits[thread];
}
void block_barrier(int rank) {
  block_stamps[rank] = ++last_stamp;
}
void warp_barrier(int warp) {
  ++warp_barriers[warp];
}
void cluster_arrive() {
  now.arrivals = ++arrivals[current_thread()];
}
void cluster_wait() {
  waits_by_now = ++waits[current_thread()];
}

}  // namespace simt::race

#if defined(SIMT_ADDRESS_SANITIZER)
extern "C" {
void __asan_get_shadow_mapping(size_t* scale, size_t* offset);
void* __asan_region_is_poisoned(void* begin, size_t size);
void __asan_report_load_n(void* address, size_t size);
void __asan_report_store_n(void* address, size_t size);

// Threads that are given up in the middle of a kernel leak what their frames own. Undefined behaviour is a
// trap (build.py), which is shown with its stack.
const char* __asan_default_options() {
  return "detect_leaks=0:handle_sigill=1";
}
}

namespace {

// Known before whatever else runs.
struct Shadow {
  size_t scale = 0, offset = 0;
  Shadow() { __asan_get_shadow_mapping(&scale, &offset); }
};
[[gnu::init_priority(101)]] const Shadow shadow;

// Of at most 16 bytes. A shadow byte says how many of its 8 bytes may be used, the first ones; 0 is all of
// them.
inline bool is_poisoned(uintptr_t address, size_t bytes) {
  const uintptr_t last = address + bytes - 1;
  const int8_t usable = *reinterpret_cast<const int8_t*>((last >> 3) + shadow.offset);
  if (usable != 0 && static_cast<int8_t>(last & 7) >= usable) return true;
  return address >> 3 != last >> 3 && *reinterpret_cast<const int8_t*>((address >> 3) + shadow.offset) != 0;
}

template <bool IsWrite>
[[gnu::noinline, gnu::cold]] void report_poisoned(void* pointer, size_t bytes) {
  IsWrite ? __asan_report_store_n(pointer, bytes) : __asan_report_load_n(pointer, bytes);
}

// Most accesses are to a thread's own stack and end here, without a frame: what else there is to do is called
// last.
template <bool IsWrite>
[[gnu::always_inline]] inline void access(void* pointer, size_t bytes, const void* site) {
  using namespace simt::race;
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (bytes <= 16 ? is_poisoned(address, bytes) : __asan_region_is_poisoned(pointer, bytes) != nullptr) {
    return report_poisoned<IsWrite>(pointer, bytes);
  }
  if (address - shared.begin < shared.watched) return check<IsWrite>(shared, address - shared.begin, bytes);
  if (simt::traffic::is_counting) simt::traffic::note(address, bytes, IsWrite, site);
  if (address - result.begin < result.watched) return check<IsWrite>(result, address - result.begin, bytes);
}

}  // namespace

extern "C" {
void __asan_load1(void* address) {
  access<false>(address, 1, __builtin_return_address(0));
}
void __asan_load2(void* address) {
  access<false>(address, 2, __builtin_return_address(0));
}
void __asan_load4(void* address) {
  access<false>(address, 4, __builtin_return_address(0));
}
void __asan_load8(void* address) {
  access<false>(address, 8, __builtin_return_address(0));
}
void __asan_load16(void* address) {
  access<false>(address, 16, __builtin_return_address(0));
}
void __asan_loadN(void* address, size_t bytes) {
  access<false>(address, bytes, __builtin_return_address(0));
}
void __asan_store1(void* address) {
  access<true>(address, 1, __builtin_return_address(0));
}
void __asan_store2(void* address) {
  access<true>(address, 2, __builtin_return_address(0));
}
void __asan_store4(void* address) {
  access<true>(address, 4, __builtin_return_address(0));
}
void __asan_store8(void* address) {
  access<true>(address, 8, __builtin_return_address(0));
}
void __asan_store16(void* address) {
  access<true>(address, 16, __builtin_return_address(0));
}
void __asan_storeN(void* address, size_t bytes) {
  access<true>(address, bytes, __builtin_return_address(0));
}
}
#endif
