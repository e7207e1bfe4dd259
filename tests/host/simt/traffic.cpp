#include "traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "race.h"

namespace simt::traffic {

bool is_counting = false;

namespace {

constexpr uintptr_t kSectorBytes = 32;

struct Span {
  uintptr_t begin;
  size_t bytes;
};
std::vector<Span> watched;
Counts counts;

using Site = const void*;
// Of the blocks that run: how often each thread has come by a site, and the sectors of a warp's accesses
// there.
std::vector<std::map<Site, uint32_t>> visits;
std::vector<std::map<std::pair<Site, uint32_t>, std::set<uintptr_t>>> warps[2];
int lanes_of_warp = 1;

void add_up() {
  Count* const of[] = {&counts.loads, &counts.stores};
  for (int is_write : {0, 1}) {
    for (const auto& warp : warps[is_write]) {
      of[is_write]->requests += warp.size();
      for (const auto& [access, sectors] : warp) of[is_write]->sectors += sectors.size();
    }
    warps[is_write].clear();
  }
  visits.clear();
}

}  // namespace

void watch(const void* memory, size_t bytes) {
  watched.push_back({reinterpret_cast<uintptr_t>(memory), bytes});
  is_counting = true;
}

Counts take() {
  add_up();
  watched.clear();
  is_counting = false;
  return std::exchange(counts, Counts());
}

void begin_blocks(int threads, int lanes) {
  if (!is_counting) return;
  add_up();
  lanes_of_warp = lanes;
  visits.resize(threads);
  for (auto& each : warps) each.resize((threads + lanes - 1) / lanes);
}

void note(uintptr_t address, size_t bytes, bool is_write, const void* site) {
  if (!std::any_of(watched.begin(), watched.end(),
                   [&](const Span& span) { return address - span.begin < span.bytes; })) {
    return;
  }
  const int thread = race::current_thread();
  auto& sectors = warps[is_write][thread / lanes_of_warp][{site, visits[thread][site]++}];
  for (uintptr_t sector = address / kSectorBytes; sector <= (address + bytes - 1) / kSectorBytes; ++sector) {
    sectors.insert(sector);
  }
}

}  // namespace simt::traffic
