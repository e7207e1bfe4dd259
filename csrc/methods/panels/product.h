// Products of pixels and filters: register tiles of some pixels times a panel of output channels. What a
// pixel has at each depth is broadcast.
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

// What pixels have: runs of neighbours, `run_step` floats apart; the last run may be shorter.
struct Source {
  const float* values;
  int64_t pixel_step, run_step, run, depth;

  Source from(int64_t pixel) const { return {values + pixel * pixel_step, pixel_step, run_step, run, depth}; }
};

// Where a panel's results go, and what is added to them before: null, or floats in the same places.
struct Target {
  float* values;
  int64_t pixel_step, block_step;
  const float* residual;
  int64_t last_lanes;  // of the panel's last vector

  Target from(int64_t pixel) const {
    const float* const added = residual == nullptr ? nullptr : residual + pixel * pixel_step;
    return {values + pixel * pixel_step, pixel_step, block_step, added, last_lanes};
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

template <int Pixels, int Vectors>
CONVX_INLINE void end_tile(V (&sum)[Pixels][Vectors], const Target& to, const Ends& ends) {
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

// A pixel's values at one depth, times a panel's filters there. Three pixels to a pointer: x86 addresses have
// an index times 1, 2, 4 or 8.
template <int Pixels, int Vectors>
CONVX_INLINE void add_products(const float* const (&pixels)[(Pixels + 2) / 3], int64_t step, int at,
                               const float* filters, V (&sum)[Pixels][Vectors]) {
  V filter[Vectors];
  CONVX_UNROLLED
  for (int v = 0; v < Vectors; ++v) {
    filter[v] = load<L>(filters + (at * Vectors + v) * L);
    keep(filter[v]);
  }
  CONVX_UNROLLED
  for (int i = 0; i < Pixels; ++i) {
    const V value = broadcast<V>(pixels[i / 3][i % 3 * step + at]);
    CONVX_UNROLLED
    for (int v = 0; v < Vectors; ++v) sum[i][v] += value * filter[v];
  }
}

// Sums that are in the making: of a tile, [pixel][vector][lane]. One long sum's rounding error grows with its
// length: chains of products are summed apart.
struct Chain {
  float* sums;
  bool is_first, is_last;
};

// filters: [depth][Vectors][L].
template <int Pixels, int Vectors>
__attribute__((noinline)) void multiply_tile(const Source& from, const float* filters, const float* bias,
                                             const Chain& chain, const Target& to, const Ends& ends) {
  constexpr int kAtOnce = 4, kPointers = (Pixels + 2) / 3;
  V sum[Pixels][Vectors];
  CONVX_UNROLLED
  for (int v = 0; v < Vectors; ++v) {
    const V first = chain.is_first ? load<L>(bias + v * L) : V{};
    CONVX_UNROLLED
    for (int i = 0; i < Pixels; ++i) sum[i][v] = first;
  }
  const int64_t step = from.pixel_step;
  const float* run = from.values;
  for (int64_t left = from.depth; left > 0; left -= from.run, run += from.run_step) {
    const float* pixels[kPointers];
    CONVX_UNROLLED
    for (int i = 0; i < kPointers; ++i) pixels[i] = run + 3 * i * step;
    const auto advance = [&](int depth) {
      CONVX_UNROLLED
      for (int i = 0; i < kPointers; ++i) pixels[i] += depth;
      filters += depth * Vectors * L;
    };
    int64_t depth = minimum(left, from.run);
    for (; depth >= kAtOnce; depth -= kAtOnce) {
      CONVX_UNROLLED
      for (int at = 0; at < kAtOnce; ++at) add_products<Pixels, Vectors>(pixels, step, at, filters, sum);
      advance(kAtOnce);
    }
    for (; depth > 0; --depth) {
      add_products<Pixels, Vectors>(pixels, step, 0, filters, sum);
      advance(1);
    }
  }
  if (!chain.is_first) {
    CONVX_UNROLLED
    for (int i = 0; i < Pixels; ++i) {
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) sum[i][v] += load<L>(chain.sums + (i * Vectors + v) * L);
    }
  }
  if (chain.is_last) return end_tile<Pixels, Vectors>(sum, to, ends);
  CONVX_UNROLLED
  for (int i = 0; i < Pixels; ++i) {
    CONVX_UNROLLED
    for (int v = 0; v < Vectors; ++v) store<L>(chain.sums + (i * Vectors + v) * L, sum[i][v]);
  }
}

using MultiplyTile = void (*)(const Source&, const float*, const float*, const Chain&, const Target&,
                              const Ends&);

template <int Vectors, int... Less>
MultiplyTile tile_of(int64_t pixels, std::integer_sequence<int, Less...>) {
  static constexpr MultiplyTile kTable[] = {multiply_tile<Less + 1, Vectors>...};
  return kTable[pixels - 1];
}

// Some pixels times a panel of `vectors` vectors, `apart` products at a time or some more.
inline void multiply(const Source& from, int64_t pixels, int64_t apart, const float* filters,
                     const float* bias, int64_t vectors, const Target& to, const Ends& ends) {
  constexpr auto kSizes = std::make_integer_sequence<int, kTilePixels>();
  alignas(64) float sums[kTilePixels * kPanel * L];
  // Of one chain: whole runs, or a part of one.
  const int64_t parts = from.run > apart ? ceil_divide(from.run, apart) : 1;
  const int64_t runs = parts > 1 ? 1 : maximum(apart / from.run, 1);
  for (int64_t at = 0; at < pixels; at += kTilePixels) {
    const int64_t count = minimum(pixels - at, kTilePixels);
    const MultiplyTile tile = vectors == 1 ? tile_of<1>(count, kSizes) : tile_of<2>(count, kSizes);
    Source some = from.from(at);
    const float* filter = filters;
    for (int64_t done = 0; done < from.depth; some.values += runs * from.run_step) {
      const int64_t all = minimum(runs * from.run, from.depth - done);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t begin = all * part / parts, length = all * (part + 1) / parts - begin;
        const Source of_part{some.values + begin, from.pixel_step, from.run_step, from.run, length};
        const Chain chain{sums, done == 0, done + length == from.depth};
        tile(of_part, filter, bias, chain, to.from(at), ends);
        filter += length * vectors * L, done += length;
      }
    }
  }
}

}  // namespace panels
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
