// Products of pixels and filters: register tiles of some pixels, of one row or of two short ones, times a
// panel of output channels. What a pixel has at each depth is broadcast.
#pragma once
#include <utility>

#include "methods/epilogue_cpu.h"
#include "methods/panels/panels.h"
#include "platform/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace panels {

using convx::panels::kPanel;
constexpr int L = kLanes<float>;
using V = Simd<float, L>;
constexpr int kTilePixels = kRegisters >= 32 ? 14 : 6;
constexpr int64_t kTileSums = kTilePixels * kPanel * L;  // at most
constexpr int kChainTiles = kRegisters >= 32 ? 4 : 12;   // that meet a chain while its filters are near

// An activation. Most keep values between two bounds, in registers; others go over what was stored.
struct Ends {
  Activation activation;
  bool clamps;
  V low, high;

  explicit Ends(Activation of)
      : activation(of),
        clamps(of == Activation::none || of == Activation::relu || of == Activation::relu6),
        low(broadcast<V>(of == Activation::relu || of == Activation::relu6 ? 0.0f : -INFINITY)),
        high(broadcast<V>(of == Activation::relu6 ? 6.0f : INFINITY)) {}

  CONVX_INLINE V clamped(V value) const {
    value = value < low ? low : value;  // NaN stays NaN
    return value > high ? high : value;
  }
};

// Pixels that are multiplied: rows of them, which lie row_step floats apart in a source or target.
struct Area {
  int64_t rows, width;
};

// What pixels have: runs of neighbours, `run_step` floats apart; the last run may be shorter.
struct Source {
  const float* values;
  int64_t row_step, pixel_step, run_step, run, depth;

  const float* at(int64_t row, int64_t pixel) const { return values + row * row_step + pixel * pixel_step; }
};

// Where a panel's results go, and what is added to them before: null, or floats in the same places.
struct Target {
  float* values;
  int64_t row_step, pixel_step, block_step;
  const float* residual;
  int64_t last_lanes;  // of the panel's last vector

  Target from(int64_t row, int64_t pixel) const {
    const int64_t place = row * row_step + pixel * pixel_step;
    const float* const added = residual == nullptr ? nullptr : residual + place;
    return {values + place, row_step, pixel_step, block_step, added, last_lanes};
  }
};

CONVX_INLINE V load_lanes(const float* from, int64_t count) {
#if CONVX_SIMD_BYTES >= 32
  return load_part<L>(from, first_lanes<L>(count));
#else
  V value{};
  for (int64_t lane = 0; lane < count; ++lane) value[lane] = from[lane];
  return value;
#endif
}

CONVX_INLINE void store_lanes(float* to, V value, int64_t count) {
#if CONVX_SIMD_BYTES >= 32
  store_part<L>(to, value, first_lanes<L>(count));
#else
  store_some<L>(to, value, count);
#endif
}

// In place: the first lanes of vectors that lie step floats apart.
template <Activation Of>
__attribute__((noinline)) void activate_vectors(float* values, int64_t step, int64_t count, int64_t lanes) {
  if (lanes < L) {
    for (; count > 0; --count, values += step) {
      store_lanes(values, activate<float, L>(load_lanes(values, lanes), Of), lanes);
    }
  }
  for (; count > 0; --count, values += step) store<L>(values, activate<float, L>(load<L>(values), Of));
}

CONVX_INLINE void activate_some(float* values, int64_t step, int64_t count, int64_t lanes,
                                Activation activation) {
  switch (activation) {
    case Activation::silu:
      return activate_vectors<Activation::silu>(values, step, count, lanes);
    case Activation::hardswish:
      return activate_vectors<Activation::hardswish>(values, step, count, lanes);
    case Activation::gelu:
      return activate_vectors<Activation::gelu>(values, step, count, lanes);
    default:  // others are bounds
      return;
  }
}

// A row of a tile.
template <int Pixels, int Vectors>
CONVX_INLINE void end_row(V (*sum)[Vectors], const Target& to, const Ends& ends) {
  CONVX_UNROLLED
  for (int v = 0; v < Vectors; ++v) {
    float* const values = to.values + v * to.block_step;
    const float* const residual = to.residual + v * to.block_step;
    const int64_t lanes = v + 1 == Vectors ? to.last_lanes : L;
    if (lanes == L) {
      if (to.residual != nullptr) {
        CONVX_UNROLLED
        for (int i = 0; i < Pixels; ++i) sum[i][v] += load<L>(residual + i * to.pixel_step);
      }
      CONVX_UNROLLED
      for (int i = 0; i < Pixels; ++i) store<L>(values + i * to.pixel_step, ends.clamped(sum[i][v]));
    } else {
      if (to.residual != nullptr) {
        CONVX_UNROLLED
        for (int i = 0; i < Pixels; ++i) sum[i][v] += load_lanes(residual + i * to.pixel_step, lanes);
      }
      CONVX_UNROLLED
      for (int i = 0; i < Pixels; ++i) {
        store_lanes(values + i * to.pixel_step, ends.clamped(sum[i][v]), lanes);
      }
    }
    if (!ends.clamps) activate_some(values, to.pixel_step, Pixels, lanes, ends.activation);
  }
}

// What a tile's pixels have at one depth, times a panel's filters there. Three pixels to a pointer: x86
// addresses have an index times 1, 2, 4 or 8.
template <int Rows, int Pixels, int Vectors>
CONVX_INLINE void add_products(const float* const (&pixels)[Rows][(Pixels + 2) / 3], int64_t step, int at,
                               const float* filters, V (&sum)[Rows][Pixels][Vectors]) {
  V filter[Vectors];
  CONVX_UNROLLED
  for (int v = 0; v < Vectors; ++v) {
    filter[v] = load<L>(filters + (at * Vectors + v) * L);
    keep(filter[v]);
  }
  CONVX_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    CONVX_UNROLLED
    for (int i = 0; i < Pixels; ++i) {
      const V value = broadcast<V>(pixels[r][i / 3][i % 3 * step + at]);
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) sum[r][i][v] += value * filter[v];
    }
  }
}

// Sums that are in the making: of a tile, [row][pixel][vector][lane]. One long sum's rounding error grows
// with its length: chains of products are summed apart.
struct Chain {
  float* sums;         // of the first tile, then of its neighbours
  const float* ahead;  // filters that are needed soon: each of kChainTiles fetches its part of a chain's
  int64_t ahead_step;  // from one tile to the next
  bool is_first, is_last;
};

// So many tiles, neighbours in their rows. filters: [depth][Vectors][L].
template <int Rows, int Pixels, int Vectors>
CONVX_NO_HOISTING __attribute__((noinline)) void multiply_tiles(int64_t count, const Source& from,
                                                                const float* filters, const float* bias,
                                                                const Chain& chain, const Target& to,
                                                                const Ends& ends) {
  // As many depths at a time as there are registers for: GCC 12 loads values of the last before it needs
  // them.
  constexpr int kAtOnce = kRegisters >= 32 ? 4 : 3, kPointers = (Pixels + 2) / 3;
  constexpr int kLine = 16, kAhead = kAtOnce * Vectors * L / kChainTiles;  // floats
  const int64_t step = from.pixel_step;
  for (int64_t tile = 0; tile < count; ++tile) {
    V sum[Rows][Pixels][Vectors];
    const auto each = [&](const auto& body) {
      CONVX_UNROLLED
      for (int r = 0; r < Rows; ++r) {
        CONVX_UNROLLED
        for (int i = 0; i < Pixels; ++i) {
          CONVX_UNROLLED
          for (int v = 0; v < Vectors; ++v) body(sum[r][i][v], v, ((r * Pixels + i) * Vectors + v) * L);
        }
      }
    };
    V first[Vectors];
    CONVX_UNROLLED
    for (int v = 0; v < Vectors; ++v) first[v] = chain.is_first ? load<L>(bias + v * L) : V{};
    each([&](V& own, int v, int) { own = first[v]; });
    const float* run = from.values + tile * Pixels * step;
    const float* filter = filters;
    const float* ahead = chain.ahead + tile * chain.ahead_step;
    for (int64_t left = from.depth; left > 0; left -= from.run, run += from.run_step) {
      const float* pixels[Rows][kPointers];
      CONVX_UNROLLED
      for (int r = 0; r < Rows; ++r) {
        CONVX_UNROLLED
        for (int i = 0; i < kPointers; ++i) pixels[r][i] = run + r * from.row_step + 3 * i * step;
      }
      const auto advance = [&](int depth) {
        CONVX_UNROLLED
        for (int r = 0; r < Rows; ++r) {
          CONVX_UNROLLED
          for (int i = 0; i < kPointers; ++i) pixels[r][i] += depth;
        }
        filter += depth * Vectors * L;
      };
      int64_t depth = minimum(left, from.run);
      for (; depth >= kAtOnce; depth -= kAtOnce) {
        CONVX_UNROLLED
        for (int at = 0; at < kAtOnce; ++at)
          add_products<Rows, Pixels, Vectors>(pixels, step, at, filter, sum);
        advance(kAtOnce);
        CONVX_UNROLLED
        for (int place = 0; place < kAhead; place += kLine) __builtin_prefetch(ahead + place, 0, 2);
        ahead += kAhead;
      }
      for (; depth > 0; --depth) {
        add_products<Rows, Pixels, Vectors>(pixels, step, 0, filter, sum);
        advance(1);
      }
    }
    const auto place_of = [&](int place) { return chain.sums + tile * kTileSums + place; };
    if (!chain.is_first) each([&](V& own, int, int place) { own += load<L>(place_of(place)); });
    if (!chain.is_last) {
      each([&](V& own, int, int place) { store<L>(place_of(place), own); });
      continue;
    }
    CONVX_UNROLLED
    for (int r = 0; r < Rows; ++r) end_row<Pixels, Vectors>(sum[r], to.from(r, tile * Pixels), ends);
  }
}

using MultiplyTiles = void (*)(int64_t, const Source&, const float*, const float*, const Chain&,
                               const Target&, const Ends&);

template <int Rows, int Vectors, int... Less>
MultiplyTiles tiles_of(int64_t pixels, std::integer_sequence<int, Less...>) {
  static constexpr MultiplyTiles kTable[] = {multiply_tiles<Rows, Less + 1, Vectors>...};
  return kTable[pixels - 1];
}

inline MultiplyTiles tiles_of(int64_t rows, int64_t pixels, int64_t vectors) {
  constexpr auto kLong = std::make_integer_sequence<int, kTilePixels>();
  constexpr auto kShort = std::make_integer_sequence<int, kTilePixels / 2>();
  if (rows == 2) return vectors == 1 ? tiles_of<2, 1>(pixels, kShort) : tiles_of<2, 2>(pixels, kShort);
  return vectors == 1 ? tiles_of<1, 1>(pixels, kLong) : tiles_of<1, 2>(pixels, kLong);
}

// How an area is cut into tiles: of one row, or of two where one row's would have too few sums to keep the
// units busy that add products, 8 vectors of them. From tile to tile by additions: a division takes as long
// as the products of some channels.
struct Tiles {
  static constexpr int64_t kFewestPixels = 4;  // of two vectors each
  struct Tile {
    int64_t row, place, column;
  };

  explicit Tiles(const Area& of)
      : area(of),
        rows(2 * of.width <= kTilePixels || of.width < kFewestPixels * ceil_divide(of.width, kTilePixels)
                 ? 2
                 : 1),
        across(ceil_divide(of.width, kTilePixels / rows)),
        columns(of.width / across),
        wider(of.width % across) {}

  int64_t count() const { return ceil_divide(area.rows, rows) * across; }
  int64_t rows_of(const Tile& tile) const { return minimum(rows, area.rows - tile.row); }
  int64_t columns_of(const Tile& tile) const { return columns + (tile.place < wider ? 1 : 0); }
  // It and those next to it that have as many columns.
  int64_t alike(const Tile& tile) const { return (tile.place < wider ? wider : across) - tile.place; }
  Tile behind(const Tile& tile, int64_t alike) const {
    if (tile.place + alike == across) return {tile.row + rows, 0, 0};
    return {tile.row, tile.place + alike, tile.column + alike * columns_of(tile)};
  }

  Area area;
  int64_t rows, across, columns, wider;  // so many tiles of a row have a column more
};

// Some pixels times a panel of `vectors` vectors, some `apart` products at a time. Filters that a first-level
// cache has no room for, and those of several chains, meet some tiles at a time, and the next are fetched
// meanwhile: they come from farther away than the hardware looks ahead.
inline void multiply(const Source& from, const Area& area, int64_t apart, const float* filters,
                     const float* bias, int64_t vectors, const Target& to, const Ends& ends) {
  constexpr int64_t kNear = 24 * 1024;
  alignas(64) float sums[kChainTiles * kTileSums];
  const Tiles cut(area);
  // Of one chain: whole runs, or a part of one.
  const int64_t parts = maximum(1, (from.run + apart / 2) / apart);
  const int64_t runs = parts > 1 ? 1 : maximum(apart / from.run, 1);
  const bool are_near = from.depth * vectors * L * static_cast<int64_t>(sizeof(float)) <= kNear;
  const bool stay = are_near && parts == 1 && runs * from.run >= from.depth;
  const int64_t tiles = cut.count(), at_once = stay ? tiles : kChainTiles;
  Tiles::Tile behind{};
  for (int64_t begin = 0; begin < tiles; begin += at_once) {
    const int64_t end = minimum(begin + at_once, tiles);
    const Tiles::Tile first_tile = behind;
    const float* filter = filters;
    int64_t first = 0;  // of a pixel's values
    for (int64_t done = 0; done < from.depth; first += runs * from.run_step) {
      const int64_t all = minimum(runs * from.run, from.depth - done);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t at = all * part / parts, length = all * (part + 1) / parts - at;
        const int64_t next = length * vectors * L, step = length / kChainTiles * vectors * L;
        behind = first_tile;
        for (int64_t tile = begin, alike; tile < end; tile += alike) {
          alike = minimum(cut.alike(behind), end - tile);
          const bool fetches = !stay || tile < kChainTiles;  // of filters that stay the first tiles do
          if (stay && fetches) alike = minimum(alike, kChainTiles - tile);
          const Source some{from.at(behind.row, behind.column) + first + at,
                            from.row_step,
                            from.pixel_step,
                            from.run_step,
                            from.run,
                            length};
          const Chain chain{sums + (stay ? 0 : (tile - begin) * kTileSums),
                            fetches ? filter + next + (tile - begin) * step : filter, fetches ? step : 0,
                            done == 0, done + length == from.depth};
          tiles_of(cut.rows_of(behind), cut.columns_of(behind), vectors)(
              alike, some, filter, bias, chain, to.from(behind.row, behind.column), ends);
          behind = cut.behind(behind, alike);
        }
        filter += next, done += length;
      }
    }
  }
}

}  // namespace panels
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
