// Depthwise rows in registers: a lane holds a strip of columns of a few source rows, uses each row for every
// result row that needs it (row reuse, Liu et al. 2024, Algorithm 1 corrected), and takes the halo columns
// from its neighbour lanes by shuffle (column reuse, Lu, Zhang and Wang 2020). No shared memory, no barriers.
#pragma once
#include <type_traits>

#include "methods/depthwise/strip/taps.cuh"
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::strip {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;
  const T* bias;  // null without
  T* result;
  int source_height, source_width, result_height, result_width;
  int first_source_row, first_result_row, column_shift;
  int first_strip, step, lead, groups_per_warp;
  FastDivide group_lanes, segments, row_tiles, result_channels, multiplier;
  uint32_t units;
  bool flip;
  Finishing<T> finishing;
};

// One source row of a lane: as elements in memory, as 32-bit words in shuffles.
template <class T, int Columns>
union Strip {
  static constexpr int kWords = Columns * static_cast<int>(sizeof(T)) / 4;
  Vector<T, Columns> vector;
  uint32_t word[kWords];
};

template <class T>
CONVX_DEVICE float element_of(uint32_t word, int half) {
  if constexpr (sizeof(T) == 4) {
    return bits_to_float(word);
  } else {
    return widen(T{static_cast<uint16_t>(half != 0 ? word >> 16 : word & 0xffffu)});
  }
}

// window[j] = source element j - Left of the lane's strip, from the neighbours where it is not the lane's
// own.
template <int Lanes, class T, int Columns, int Left, int Right>
CONVX_DEVICE void exchange(const Strip<T, Columns>& own, int lane, float (&window)[Left + Columns + Right]) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T)), kWords = Strip<T, Columns>::kWords;
  constexpr int kLeftWords = (Left + kPerWord - 1) / kPerWord,
                kRightWords = (Right + kPerWord - 1) / kPerWord;
  static_assert(kLeftWords <= kWords && kRightWords <= kWords, "halo columns come from the next lane alone");
  uint32_t word[kLeftWords + kWords + kRightWords];
  CONVX_UNROLL
  for (int i = 0; i < kLeftWords; ++i) {
    word[i] = shuffle<Lanes>(own.word[kWords - kLeftWords + i], (lane + Lanes - 1) % Lanes);
  }
  CONVX_UNROLL
  for (int i = 0; i < kWords; ++i) word[kLeftWords + i] = own.word[i];
  CONVX_UNROLL
  for (int i = 0; i < kRightWords; ++i) {
    word[kLeftWords + kWords + i] = shuffle<Lanes>(own.word[i], (lane + 1) % Lanes);
  }
  CONVX_UNROLL
  for (int j = 0; j < Left + Columns + Right; ++j) {
    const int place = j - Left + kLeftWords * kPerWord;
    window[j] = element_of<T>(word[place / kPerWord], place % kPerWord);
  }
}

// Element by element; those at `end` and beyond read as zero.
template <class T, int Columns>
CONVX_DEVICE void load_ragged(Vector<T, Columns>& to, const T* from, int end) {
  CONVX_UNROLL
  for (int j = 0; j < Columns; ++j) {
    if (j < end) to.element[j] = load<T, 1>(from + j).element[0];
  }
}

// Elements before `begin`, at `end` and beyond are not written.
template <class T, int Columns>
CONVX_DEVICE void store_ragged(T* to, const Vector<T, Columns>& from, int begin, int end) {
  CONVX_UNROLL
  for (int j = 0; j < Columns; ++j) {
    if (j >= begin && j < end) store<T, 1>(to + j, Vector<T, 1>{{from.element[j]}});
  }
}

template <class T, int Filter, Mapping M, Variant V>
struct Form {
  static constexpr Tile kTile = tile_of(static_cast<int>(sizeof(T)), Filter, M, V);
  static constexpr int kThreads = kTile.threads, kMinBlocks = kTile.min_blocks;
  static constexpr bool kAligned = is_aligned(V);
  using Index = Taps<M, Filter, kTile.columns, kTile.rows>;
};

template <int Lanes, class T, int Filter, Mapping M, Variant V>
CONVX_KERNEL((Form<T, Filter, M, V>::kThreads), (Form<T, Filter, M, V>::kMinBlocks))
strip_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using Shape = Form<T, Filter, M, V>;
  using Index = typename Shape::Index;
  constexpr int kColumns = Shape::kTile.columns, kRows = Shape::kTile.rows;
  constexpr int kThreads = Shape::kThreads;
  // With one row more ahead, 7x7's tiles of 16-bit elements need two registers more than gfx942 has.
  constexpr int kMostAhead = std::is_same_v<T, bfloat16> ? 2 : 3;
  constexpr bool kFewer = Lanes == 64 && Filter == 7 && sizeof(T) == 2 && Shape::kTile.ahead > kMostAhead;
  constexpr int kAhead = kFewer ? kMostAhead : Shape::kTile.ahead;
  constexpr int kLeft = Index::kLeft, kRight = Index::kRight, kHalo = kLeft + kRight;
  constexpr int kSourceRows = Index::kSourceRows, kResults = Index::kResults;

  // Lane -> (plane, tile of rows, segment of the row, strip).
  const int lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint32_t warp = blockIdx.x * (kThreads / Lanes) + threadIdx.x / Lanes;
  const int group = static_cast<int>(a.group_lanes.quotient(lane));
  const int place = lane - group * static_cast<int>(a.group_lanes.divisor);
  uint32_t unit = warp * a.groups_per_warp + group;
  const bool live = group < a.groups_per_warp && unit < a.units;
  if (!live) unit = a.units - 1;
  const uint32_t row_unit = a.segments.quotient(unit), plane = a.row_tiles.quotient(row_unit);
  const int segment = static_cast<int>(unit - row_unit * a.segments.divisor);
  const int tile = static_cast<int>(row_unit - plane * a.row_tiles.divisor);
  const int channel = static_cast<int>(a.result_channels.remainder(plane));
  const int strip = a.first_strip + segment * a.step + place - a.lead;
  const bool makes = live && place >= a.lead && place < a.lead + a.step;

  const int column = strip * kColumns;
  const int source_row = a.first_source_row + tile * Index::kSourceStep;
  const int columns_left = live && strip >= 0 ? a.source_width - column : 0;
  const T* source =
      a.source + static_cast<int64_t>(a.multiplier.quotient(plane)) * a.source_height * a.source_width;
  Strip<T, kColumns> rows[kSourceRows];
  T halo[loads_halo(V) ? kSourceRows : 1][loads_halo(V) ? kHalo : 1];
  auto load_row = [&](int i) {
    const int row = source_row + i;
    const bool inside = row >= 0 && row < a.source_height;
    const T* from = source + (row * a.source_width + column);
    rows[i].vector = Vector<T, kColumns>{};
    if constexpr (!Shape::kAligned) {
      if (inside) load_ragged(rows[i].vector, from, columns_left);
    } else {
      if (inside && columns_left > 0) rows[i].vector = load<T, kColumns>(from);
    }
    if constexpr (loads_halo(V)) {
      CONVX_UNROLL
      for (int j = 0; j < kHalo; ++j) {
        const int offset = j < kLeft ? j - kLeft : j - kLeft + kColumns;
        halo[i][j] = T{};
        if (inside && makes && column + offset >= 0 && column + offset < a.source_width)
          halo[i][j] = load<T, 1>(from + offset).element[0];
      }
    }
  };
  take_turn();
  CONVX_UNROLL
  for (int i = 0; i < kAhead && i < kSourceRows; ++i) load_row(i);

  float weight[Filter * Filter];
  const T* filter = a.weight + static_cast<int64_t>(channel) * (Filter * Filter);
  if constexpr (Lanes == 64) {
    // AMD's compiler would keep both branches' 49 offsets in scalar registers.
    float tap[Filter * Filter];
    CONVX_UNROLL
    for (int i = 0; i < Filter * Filter; ++i) tap[i] = widen(load<T, 1>(filter + i).element[0]);
    CONVX_UNROLL
    for (int i = 0; i < Filter * Filter; ++i) {
      // Two named values: a choice between array elements would keep the array in memory.
      const float forward = tap[i], flipped = tap[Filter * Filter - 1 - i];
      weight[i] = a.flip ? float(flipped) : float(forward);
    }
  } else if (a.flip) {
    CONVX_UNROLL
    for (int i = 0; i < Filter * Filter; ++i)
      weight[Filter * Filter - 1 - i] = widen(load<T, 1>(filter + i).element[0]);
  } else {
    CONVX_UNROLL
    for (int i = 0; i < Filter * Filter; ++i) weight[i] = widen(load<T, 1>(filter + i).element[0]);
  }
  const float bias = bias_of(a.bias, channel);

  const int result_row = a.first_result_row + tile * kRows;
  const int result_column = strip * kResults + a.column_shift;
  T* result = a.result + static_cast<int64_t>(plane) * a.result_height * a.result_width;
  float sum[kRows][kResults];
  CONVX_UNROLL
  for (int o = 0; o < kRows; ++o) {
    CONVX_UNROLL
    for (int v = 0; v < kResults; ++v) sum[o][v] = bias;
  }
  using Window = float[kLeft + kColumns + kRight];
  unrolled_steps<kSourceRows>([&](auto step) {
    const int i = step;
    if (i + kAhead < kSourceRows) load_row(i + kAhead);
    Window window;
    if constexpr (loads_halo(V)) {
      CONVX_UNROLL
      for (int j = 0; j < kColumns; ++j) window[kLeft + j] = widen(rows[i].vector.element[j]);
      CONVX_UNROLL
      for (int j = 0; j < kHalo; ++j) window[j < kLeft ? j : j + kColumns] = widen(halo[i][j]);
    } else {
      exchange<Lanes, T, kColumns, kLeft, kRight>(rows[i], lane, window);
    }
    CONVX_UNROLL
    for (int o = 0; o < kRows; ++o) {
      const int r = Index::filter_row(i, o);
      if (r < 0 || r >= Filter) continue;
      CONVX_UNROLL
      for (int q = 0; q < Filter; ++q) {
        CONVX_UNROLL
        for (int v = 0; v < kResults; ++v) {
          const int j = Index::window_index(v, q);
          if (j >= 0) sum[o][v] = multiply_add(window[j], weight[r * Filter + q], sum[o][v]);
        }
      }
    }
    CONVX_UNROLL
    for (int o = 0; o < kRows; ++o) {
      const int row = result_row + o;
      if (Index::last_source_row(o) != i || !makes || row < 0 || row >= a.result_height) continue;
      T* to = result + (row * a.result_width + result_column);
      if constexpr (!has_any_epilogue(Filter, V)) {
        activate<T>(sum[o], a.finishing.activation);
      } else if constexpr (Filter > 3) {
        finish_by_turns(sum[o], a.finishing, channel, [&](int v) -> const T* {
          return result_column + v >= 0 && result_column + v < a.result_width ? to + v : nullptr;
        });
      } else {
        finish(
            sum[o], a.finishing, [&](int) { return channel; },
            [&](T(&residuals)[kResults]) {
              if constexpr (!Shape::kAligned) {
                read_residuals(a.finishing, to, -result_column, a.result_width - result_column, residuals);
              } else if (result_column < a.result_width) {
                read_residuals(a.finishing, to, residuals);
              }
            });
      }
      Vector<T, kResults> finished;
      CONVX_UNROLL
      for (int v = 0; v < kResults; ++v) finished.element[v] = narrow<T>(sum[o][v]);
      if constexpr (!Shape::kAligned) {
        store_ragged(to, finished, -result_column, a.result_width - result_column);
      } else {
        if (result_column < a.result_width) store<T, kResults>(to, finished);
      }
    }
  });
}

}  // namespace convx::depthwise::strip
