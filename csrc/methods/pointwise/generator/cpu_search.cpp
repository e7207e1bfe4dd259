// The candidates of a problem on a CPU, ranked.
#include <algorithm>
#include <cmath>

#include "methods/pointwise/generator/cpu.h"
#include "methods/pointwise/grid.h"

namespace convx::pointwise::generator::cpu {
namespace {

constexpr int kMostRepeats = 64;  // of tiles along either axis of a task

// The longest stage that the constraints allow, one of the paper's powers of two.
void choose_stage(Tiling& t, const Space& s, bool exact) {
  for (int longer = 1; longer <= most_products_apart(s.device.isa); longer *= 2) {
    if (exact ? s.in_channels % longer != 0 : longer >= 2 * s.in_channels) break;
    Tiling tried = t;
    tried.stage_c = longer;
    if (cpu::used_shared(tried, s) > cpu::shared_limit(tried, s)) break;
    t = tried;
  }
}

// Numbers of tiles for a task: all of the axis, and halves of that.
std::vector<int> repeats(int64_t extent, int wave) {
  std::vector<int> found;
  for (int64_t tiles = ceil_divide(extent, wave); tiles >= 1;
       tiles = tiles == 1 ? 0 : ceil_divide(tiles, 2)) {
    if (tiles <= kMostRepeats) found.push_back(static_cast<int>(tiles));
  }
  return found;
}

// Rows that share out an extent evenly.
bool is_balanced(int64_t extent, int rows) {
  return rows == 1 || ceil_divide(extent, ceil_divide(extent, rows)) == rows;
}

template <class Visit>
void for_each_tiling(const Space& s, bool exact, const Visit& visit) {
  for (const bool pixel_lanes : {false, true}) {
    if (pixel_lanes && s.channels_last) continue;
    const int64_t row_extent = pixel_lanes ? s.out_channels : s.pixels;
    const int64_t vector_extent = ceil_divide(pixel_lanes ? s.pixels : s.out_channels, s.device.lanes);
    for (int vectors = 1; vectors <= kMostVectors; ++vectors) {
      if (vectors > 1 && vectors > vector_extent) break;
      for (int rows = most_rows(s.device.isa, vectors); rows >= 1; --rows) {
        if (!exact && !is_balanced(row_extent, rows)) continue;
        Tiling t;
        t.pixel_lanes = pixel_lanes;
        t.wave_w = pixel_lanes ? vectors * s.device.lanes : rows;
        t.wave_c = pixel_lanes ? rows : vectors * s.device.lanes;
        choose_stage(t, s, exact);
        for (const int repeat_w : repeats(s.pixels, t.wave_w)) {
          for (const int repeat_c : repeats(s.out_channels, t.wave_c)) {
            t.repeat_w = repeat_w, t.repeat_c = repeat_c, t.wave_n = repeat_w * repeat_c;
            visit(t);
          }
        }
      }
    }
  }
}

double as_double(int64_t value) {
  return static_cast<double>(value);
}

// One axis of the tasks of a product: their number, and what the first of them and all have to do.
struct Axis {
  int64_t tasks, first, all;
};

// The part of all work that the busiest thread has, of shares of neighbouring tasks: the first share, since
// ragged tasks come last.
double busiest_share(const Tiling& t, const Space& s) {
  const int lanes = s.device.lanes;
  const auto units = [lanes](int64_t extent, bool in_vectors) {
    return in_vectors ? ceil_divide(extent, lanes) : extent;
  };
  const auto axis = [&](int64_t extent, int64_t tile, bool in_vectors) {
    return Axis{ceil_divide(extent, tile), units(std::min(extent, tile), in_vectors),
                units(extent, in_vectors)};
  };
  const Axis pixels = axis(s.pixels, t.tile_w(), t.pixel_lanes);
  const Axis channels = axis(s.out_channels, t.tile_c(), !t.pixel_lanes);
  const bool channels_outside = s.out_channels > s.pixels;  // as the kernels have it
  const Axis& outer = channels_outside ? channels : pixels;
  const Axis& inner = channels_outside ? pixels : channels;
  const int64_t each = outer.tasks * inner.tasks, products = s.batch * s.groups;
  const int64_t share = ceil_divide(each * products, std::max(s.device.threads, 1));
  const int64_t left = share % each;
  const double work =
      as_double(share / each) * as_double(outer.all * inner.all) +
      as_double(outer.first) * as_double(left / inner.tasks * inner.all + left % inner.tasks * inner.first);
  return work / (as_double(products) * as_double(outer.all * inner.all));
}

}  // namespace

double predicted_us(const Tiling& t, const Space& s) {
  const double threads = std::max(s.device.threads, 1);
  const int lanes = s.device.lanes;
  const int64_t pixel_tasks = ceil_divide(s.pixels, t.tile_w());
  const int64_t channel_tasks = ceil_divide(s.out_channels, t.tile_c());
  const double tasks = as_double(s.batch * s.groups * pixel_tasks * channel_tasks);
  // Of one group of one image: rows, vectors, and the tiles that they are shared out to.
  const int64_t row_extent = t.pixel_lanes ? s.out_channels : s.pixels;
  const double all_rows = as_double(row_extent);
  const double row_tiles = as_double(ceil_divide(row_extent, rows(t)));
  const double all_vectors = as_double(ceil_divide(t.pixel_lanes ? s.pixels : s.out_channels, lanes));
  const double vector_tiles = std::ceil(all_vectors / vectors(t, s));
  const double tile_rows = all_rows / row_tiles, tile_vectors = all_vectors / vector_tiles;
  const double depth = as_double(s.in_channels);

  // Cycles of a step: multiply-adds, or the latency of those that follow one another, or loads, which vectors
  // of half the width have half the time for.
  const double sums = tile_rows * tile_vectors, operands = tile_rows + tile_vectors;
  const double load = s.device.isa == CpuIsa::avx512 ? 0.06 : 0.25;
  const double step = std::max({sums, 8.0, operands / 2}) + load * operands + 0.5;
  const double store = t.pixel_lanes || s.channels_last ? 5 : 9;  // of a vector; others are transposed
  const double ends = 20 + sums * (store + (s.is_widened ? 6 : 0) + 2 * std::ceil(depth / t.stage_c));
  double cycles = row_tiles * vector_tiles * (depth * step + ends);
  // What is brought to the form of accumulators beforehand, a vector at a time unless pixels are gathered:
  // every task's source, and its filters of 16 bits.
  if (s.is_widened || s.is_gathered) {
    const double source_vectors = as_double(s.pixels) / lanes * depth * as_double(channel_tasks);
    cycles += source_vectors * (s.is_gathered && !s.channels_last ? 20 : 4);
  }
  if (s.is_widened) {
    cycles += as_double(pixel_tasks) * as_double(s.out_channels) / lanes * depth * 4;
  }
  cycles *= as_double(s.batch * s.groups);
  // The traits' rate is a cautious one: register tiles reach 1.45 times as much (two AVX-512 cores).
  const double cycles_per_us = s.device.fp32_TFLOPs / threads * 1e6 / (2 * lanes * s.element_bytes / 4.0);
  return cycles * busiest_share(t, s) / (cycles_per_us * 1.45) + (tasks > 1 ? 3 : 1);
}

std::vector<Tiling> tilings(const Space& space, bool exact) {
  std::vector<std::pair<double, Tiling>> ranked;
  for_each_tiling(space, exact, [&](const Tiling& tiling) {
    if (is_allowed(tiling, space, exact)) ranked.emplace_back(cpu::predicted_us(tiling, space), tiling);
  });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tiling> found;
  for (const auto& each : ranked) found.push_back(each.second);
  return found;
}

}  // namespace convx::pointwise::generator::cpu
