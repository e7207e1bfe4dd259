// A network's first convolution in channels_last on matrix units: filters times pixels, whose values are read
// from the image's rows in shared memory pair by pair, as geometry.h tells. A warp keeps the sums of all
// filters of its block for some fragments of pixels in registers.
#pragma once
#include "methods/activate.cuh"
#include "methods/epilogue.cuh"
#include "methods/hntmp/stem_tensor/geometry.h"
#include "methods/runs.cuh"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/mma.h"
#include "platform/gpu/overlap.h"

namespace convx::hntmp::stem_tensor {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;  // in blocks of the order "crsk block_channels"
  const T* bias;    // null without
  T* result;
  Activation activation;
  int channels, source_height, source_line, result_channels, result_height, result_width;  // line: values
  int top, left, stride_h, dilation_h, pixel_step;  // the last one: values
  int filter_height, filter_width, taps;            // taps: of all channels
  int tile_height, tile_width, fragments;           // of pixels, of a tile
  Runs runs;
  int steps, window_height, pitch, table_at, window_at;
  FastDivide tiles, tiles_across, channel_blocks, by_pieces, by_row_fragments, by_channels;
};

struct Task {
  int64_t image;
  int block, row, column;  // of filters; the first result's
};

template <class T>
CONVX_DEVICE Task task_of(const Arguments<T>& a) {
  Task task;
  const uint32_t rest = a.tiles.quotient(blockIdx.x), tile = a.tiles.remainder(blockIdx.x);
  task.image = a.channel_blocks.quotient(rest);
  task.block = static_cast<int>(a.channel_blocks.remainder(rest));
  task.row = static_cast<int>(a.tiles_across.quotient(tile)) * a.tile_height;
  task.column = static_cast<int>(a.tiles_across.remainder(tile)) * a.tile_width;
  return task;
}

// Which filter of the block a row of a fragment has: a lane's sums are of four neighbours.
template <int Lanes>
CONVX_DEVICE constexpr int filter_of(int fragment, int row) {
  return Lanes == 32 ? fragment / 2 * 32 + row % 8 * 4 + fragment % 2 * 2 + row / 8 : fragment * 16 + row;
}

// Filters as fragments, in the order in which lanes read them.
template <int Lanes, int Rows, class T>
CONVX_DEVICE void stage_filters(const Arguments<T>& a, const Task& task, uint32_t* filters) {
  using Cell = Fragment<Lanes>;
  constexpr int kBlock = Rows * 16;
  const T* const weight = a.weight + static_cast<int64_t>(task.block) * a.taps * kBlock;
  CONVX_NO_UNROLL
  for (int i = threadIdx.x; i < Rows * a.steps * 128; i += blockDim.x) {
    const int word = i % Cell::kWordsA, lane = i / Cell::kWordsA % Lanes, fragment = i / 128 % Rows;
    const int step = i / 128 / Rows, filter = filter_of<Lanes>(fragment, Cell::row_of_a(lane, word));
    const RunPair pair(a.runs, step * kStepPairs + 2 * Cell::slot(lane) + Cell::depth_word_of_a(word));
    uint32_t both = 0;
    CONVX_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (!pair.has(a.runs, half)) continue;
      const int column = static_cast<int>(a.by_channels.quotient(pair.first + half));
      const int channel = static_cast<int>(a.by_channels.remainder(pair.first + half));
      const int tap = (channel * a.filter_height + pair.row) * a.filter_width + column;
      both |= static_cast<uint32_t>(load<T, 1>(weight + tap * kBlock + filter).element[0].bits) << 16 * half;
    }
    filters[i] = both;
  }
}

// Of each pair its place behind a pixel's first value, in bytes, and which bits of it count.
template <class T>
CONVX_DEVICE void list_pairs(const Arguments<T>& a, Vector<uint32_t, 2>* table) {
  for (int i = threadIdx.x; i < a.steps * static_cast<int>(kStepPairs); i += blockDim.x) {
    const RunPair pair(a.runs, i);
    table[i] = {{static_cast<uint32_t>(pair.place(a.runs, a.dilation_h * a.pitch)), pair.mask(a.runs)}};
  }
}

// Rows of the image, in pieces that begin where memory's do: each is inside a row or outside. What lies
// outside of the image is zero.
template <class T>
CONVX_DEVICE void stage_window(const Arguments<T>& a, const Task& task, int first, unsigned char* window) {
  const int pieces = static_cast<int>(a.by_pieces.divisor), first_row = task.row * a.stride_h - a.top;
  const T* const image = a.source + task.image * a.source_height * a.source_line;
  CONVX_UNROLL_TWICE
  for (int i = threadIdx.x; i < a.window_height * pieces; i += blockDim.x) {
    const int down = static_cast<int>(a.by_pieces.quotient(i)), piece = i - down * pieces;
    const int y = first_row + down, x = first + piece * static_cast<int>(kPieceValues);
    const bool is_inside = y >= 0 && y < a.source_height && x >= 0 && x < a.source_line;
    const T* const from = is_inside ? image + static_cast<int64_t>(y) * a.source_line + x : a.source;
    copy_async<16>(window + down * a.pitch + piece * 16, from, is_inside ? 16 : 0);
  }
}

template <int Rows>
constexpr int kFragments = fragments_of(Rows * kRowFilters);
template <int Rows>
using Sums = float[Rows][kFragments<Rows>][4];

// A lane's results: four neighbouring filters of a pixel at once.
template <int Lanes, int Rows, class T, class Activate>
CONVX_DEVICE void write(const Arguments<T>& a, const Task& task, int first_fragment, int lane,
                        Sums<Rows>& sum, const Activate& activate) {
  using Cell = Fragment<Lanes>;
  constexpr int kPlaces = Lanes == 32 ? 2 : 1;
  CONVX_UNROLL
  for (int row = 0; row < Rows; ++row) {
    CONVX_UNROLL
    for (int f = 0; f < kFragments<Rows>; ++f) activate(sum[row][f]);
  }
  const int first_filter = task.block * Rows * 16 + filter_of<Lanes>(0, Cell::row(lane, 0));
  CONVX_UNROLL
  for (int f = 0; f < kFragments<Rows>; ++f) {
    const int fragment = first_fragment + f;
    const int down = static_cast<int>(a.by_row_fragments.quotient(fragment));
    const int across = static_cast<int>(a.by_row_fragments.remainder(fragment)) * Cell::kColumns;
    const int y = task.row + down;
    if (fragment >= a.fragments || y >= a.result_height) break;
    CONVX_UNROLL
    for (int place = 0; place < kPlaces; ++place) {
      const int x = task.column + across + Cell::column(lane, place);
      if (x >= a.result_width) continue;
      const int64_t pixel = (task.image * a.result_height + y) * a.result_width + x;
      T* const to = a.result + pixel * a.result_channels + first_filter;
      CONVX_UNROLL
      for (int row = 0; row < Rows; row += kPlaces) {
        const int more = filter_of<Lanes>(row, 0);
        if (first_filter + more >= a.result_channels) continue;
        Vector<T, 4> four;
        CONVX_UNROLL
        for (int k = 0; k < 4; ++k) {
          four.element[k] =
              narrow<T>(Lanes == 32 ? sum[row + k / 2 % kPlaces][f][k % 2 * 2 + place] : sum[row][f][k]);
        }
        store<T, 4>(to + more, four);
      }
    }
  }
}

template <int Lanes, int Rows, class T>
CONVX_KERNEL(kMostWarps* Lanes, 1)
stem_tensor_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  using Cell = Fragment<Lanes>;
  CONVX_DYNAMIC_SHARED(shared);
  uint32_t* const filters = reinterpret_cast<uint32_t*>(shared);
  auto* const table = reinterpret_cast<Vector<uint32_t, 2>*>(shared + a.table_at);
  unsigned char* const window = shared + a.window_at;
  const Task task = task_of(a);
  // The first value of the window's rows, and of the piece of memory that it is in.
  const int begin = task.column * a.pixel_step - a.left * a.channels,
            first = begin & -static_cast<int>(kPieceValues);
  stage_filters<Lanes, Rows>(a, task, filters);  // packed: complete before the kernel before this one begins
  list_pairs(a, table);
  const int warp = static_cast<int>(threadIdx.x) / Lanes, lane = static_cast<int>(threadIdx.x) % Lanes;
  float bias[Rows][4];
  CONVX_UNROLL
  for (int row = 0; row < Rows; ++row) {
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) bias[row][i] = 0;
  }
  take_turn();
  stage_window(a, task, first, window);
  commit_copies();
  if (a.bias != nullptr) {
    CONVX_UNROLL
    for (int row = 0; row < Rows; ++row) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int filter = task.block * Rows * 16 + filter_of<Lanes>(row, Cell::row(lane, i));
        if (filter < a.result_channels) bias[row][i] = widen(load<T, 1>(a.bias + filter).element[0]);
      }
    }
  }
  wait_copies<0>();
  block_barrier();
  const unsigned char* const lanes_window =
      window + (begin - a.runs.lead - first + Cell::column_of_b(lane) * a.pixel_step) * 2;
  const int warps = static_cast<int>(blockDim.x) / Lanes;
  CONVX_NO_UNROLL
  for (int fragment = warp * kFragments<Rows>; fragment < a.fragments; fragment += warps * kFragments<Rows>) {
    const unsigned char* from[kFragments<Rows>];
    CONVX_UNROLL
    for (int f = 0; f < kFragments<Rows>; ++f) {
      const int own = min(fragment + f, a.fragments - 1);
      const int down = static_cast<int>(a.by_row_fragments.quotient(own));
      const int across = static_cast<int>(a.by_row_fragments.remainder(own)) * Cell::kColumns;
      from[f] = lanes_window + down * a.stride_h * a.pitch + across * a.pixel_step * 2;
    }
    Sums<Rows> sum;
    CONVX_UNROLL
    for (int row = 0; row < Rows; ++row) {
      CONVX_UNROLL
      for (int f = 0; f < kFragments<Rows>; ++f) {
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) sum[row][f][i] = bias[row][i];
      }
    }
    CONVX_UNROLL_TWICE
    for (int step = 0; step < a.steps; ++step) {
      // Of the lane's two pairs.
      const auto pairs =
          *reinterpret_cast<const Vector<uint32_t, 4>*>(table + step * kStepPairs + 2 * Cell::slot(lane));
      uint32_t of_filters[Rows][Cell::kWordsA];
      CONVX_UNROLL
      for (int row = 0; row < Rows; ++row) {
        const auto words = *reinterpret_cast<const Vector<uint32_t, Cell::kWordsA>*>(
            filters + (step * Rows + row) * 128 + lane * Cell::kWordsA);
        CONVX_UNROLL
        for (int word = 0; word < Cell::kWordsA; ++word) of_filters[row][word] = words.element[word];
      }
      CONVX_UNROLL
      for (int f = 0; f < kFragments<Rows>; ++f) {
        uint32_t values[2];
        CONVX_UNROLL
        for (int word = 0; word < 2; ++word) {
          values[word] = *reinterpret_cast<const uint32_t*>(from[f] + pairs.element[2 * word]) &
                         pairs.element[2 * word + 1];
        }
        CONVX_UNROLL
        for (int row = 0; row < Rows; ++row) {
          multiply_fragments<Lanes, T>(sum[row][f], of_filters[row], values[0], values[1]);
        }
      }
    }
    // Each of its own: what is not asked for would lie between what is.
    if (a.activation <= Activation::relu6) {
      write<Lanes, Rows>(a, task, fragment, lane, sum, ClampRow(a.activation));
    } else {
      write<Lanes, Rows>(a, task, fragment, lane, sum,
                         [&](float (&row)[4]) { activate_shortly<T>(row, a.activation); });
    }
  }
}

}  // namespace convx::hntmp::stem_tensor
