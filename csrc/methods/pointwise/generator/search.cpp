// The candidates of a problem, ranked.
#include <algorithm>
#include <cmath>

#include "methods/pointwise/generator/cpu.h"
#include "methods/pointwise/generator/tiling.h"

namespace convx::pointwise::generator {
namespace {

constexpr int kMostWaves = 16;  // of a block, as in the paper
constexpr int kMostStage = 64;  // input channels of a buffer

double whole_tiles(int64_t a, int64_t b) {
  return static_cast<double>(ceil_divide(a, b));
}

// Wave_W: the factors of the width that the paper takes and, where tiles may be ragged, whole vectors.
std::vector<int> widths(const Space& space, bool exact) {
  std::vector<int> found;
  for (int width = 1; width <= 16; ++width) {
    const bool is_factor = space.pixels % width == 0;
    if (is_factor || (!exact && (width == 4 || width == 8 || width == 16))) found.push_back(width);
  }
  return found;
}

template <class Visit>
void for_each_tiling(const Space& space, bool exact, const Visit& visit) {
  const int lanes = space.device.lanes;
  Tiling t;
  for (int width : widths(space, exact)) {
    t.wave_w = width;
    for (t.group_c = 1; t.group_c <= lanes; t.group_c *= 2) {
      for (int thread_c = 1; thread_c <= 16; thread_c *= 2) {
        t.wave_c = thread_c * t.rows(lanes);
        for (t.repeat_w = 1; t.repeat_w <= kMostWaves; t.repeat_w *= 2) {
          for (t.repeat_c = 1; t.repeat_w * t.repeat_c <= kMostWaves; t.repeat_c *= 2) {
            t.wave_n = t.repeat_w * t.repeat_c;
            for (t.block_n = 1; t.block_n <= 16; t.block_n *= 2) {
              for (t.stage_c = t.group_c; t.stage_c <= std::max(kMostStage, t.group_c); t.stage_c *= 2)
                visit(t);
            }
          }
        }
      }
    }
  }
}

// Tiles that mostly stick out, or buffers of more channels than there are, are never the fastest; the
// smallest ones stay whatever they waste.
bool is_wasteful(const Tiling& t, const Space& s) {
  const auto sticks_out = [](int64_t extent, int tile) {
    return 2 * whole_tiles(extent, tile) * tile > 3.0 * static_cast<double>(extent);
  };
  const bool is_one_filter_a_lane = t.tile_c() == t.rows(s.device.lanes);
  return (t.tile_w() > 1 && sticks_out(s.pixels, t.tile_w())) ||
         (!is_one_filter_a_lane && sticks_out(s.out_channels, t.tile_c())) ||
         (t.stage_c > t.group_c && t.stage_c >= 2 * s.in_channels) ||
         (t.group_c > 1 && t.group_c >= 2 * s.in_channels);
}

}  // namespace

double predicted_us(const Tiling& t, const Space& s) {
  const DeviceTraits& device = s.device;
  if (device.backend == Backend::cpu) return cpu::predicted_us(t, s);
  const double tiles = whole_tiles(s.pixels, t.tile_w()) * whole_tiles(s.out_channels, t.tile_c()) *
                       static_cast<double>(s.groups * s.batch);
  const double resident = std::min<double>(t.block_n, std::ceil(tiles / device.multiprocessors));
  const double turns = std::ceil(tiles / (static_cast<double>(device.multiprocessors) * t.block_n));
  const double chunks = whole_tiles(s.in_channels, t.stage_c);
  // Cycles a chunk takes of a multiprocessor, by the unit that is busiest.
  const double cycles_per_us = device.busy_cycles_per_us();
  const double rate = device.fp32_TFLOPs * 1e6 / 2 / device.multiprocessors / cycles_per_us;  // multiply-adds
  const double products = double(t.tile_w()) * t.tile_c() * t.stage_c * s.accumulator_registers;
  const int wave_bytes = t.wave_w * s.element_bytes;  // pixels are read from shared memory by such pieces
  const int piece = wave_bytes % 16 == 0 ? 16 : wave_bytes % 8 == 0 ? 8 : s.element_bytes;
  const double operands = t.thread_c(device.lanes) + wave_bytes / piece;  // loads of a lane for a channel
  const double lane_steps = double(t.threads(device.lanes)) * t.stage_c / t.group_c;
  const double arithmetic = products / rate;
  const double shared = lane_steps * operands / device.lanes;
  const double global = double(t.tile_w() + t.tile_c()) * t.stage_c * s.element_bytes / 26;  // bytes a cycle
  const double latency = 500;  // a chunk's loads, a barrier, and what waits for them
  const double chunk = std::max(latency, resident * (std::max(arithmetic, shared) + 0.5 * global));
  // The reduction's shuffles, and one load's latency before the first chunk.
  const double finish = t.group_c == 1 ? 0 : resident * t.wave_n * t.wave_w * t.thread_c(device.lanes) * 2;
  const double kernel_us = turns * (chunks * chunk + 800 + finish) / cycles_per_us;
  const double elements = double(s.batch * s.groups) * s.pixels * (s.in_channels + s.out_channels) +
                          double(s.groups) * s.in_channels * s.out_channels;
  return std::max(kernel_us, elements * s.element_bytes / (device.bandwidth_GBps * 1e3)) + 1.5;
}

std::vector<Tiling> tilings(const ConvProblem& problem, const DeviceTraits& device, bool exact, size_t most) {
  std::vector<std::pair<double, Tiling>> ranked;
  if (!supports(problem, device).ok) return {};
  const Space space(problem, device);
  if (device.backend == Backend::cpu) {
    std::vector<Tiling> found = cpu::tilings(space, exact);
    if (found.size() > most) found.resize(most);
    return found;
  }
  for_each_tiling(space, exact, [&](const Tiling& tiling) {
    if (is_wasteful(tiling, space) || !is_allowed(tiling, space, exact)) return;
    ranked.emplace_back(predicted_us(tiling, space), tiling);
  });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (ranked.size() > most) ranked.resize(most);
  std::vector<Tiling> found;
  for (const auto& each : ranked) found.push_back(each.second);
  return found;
}

}  // namespace convx::pointwise::generator
