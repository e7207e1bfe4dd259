// The last product: sums of all output channels, in registers over all chunks, then the result.
#pragma once
#include "methods/inverted_residual/arguments.cuh"
#include "methods/inverted_residual/exact.cuh"
#include "methods/inverted_residual/exchange.cuh"
#include "methods/inverted_residual/store.cuh"

namespace convx::inverted_residual {

// A warp's tiles: of pixels every warps_down-th, of channels neighbours.
template <class Form>
struct Sums {
  static constexpr int kTiles = Form::kShape.tiles_down, kPairs = Form::kShape.tiles_across / 2;
  PairSums of[kTiles][kPairs];
  int first_tile, first_pair, first_place;
  int split;           // of the depth; no part of it, where there are fewer
  int row_at[kTiles];  // of the lane's row, bytes from the first

  // The bias, where there is such a channel; of a cluster one block begins with it.
  template <class T>
  CONVX_DEVICE Sums(const Arguments<T>& a, int rank, int warp, int lane) : first_tile(warp % a.warps_down) {
    const int across = warp / a.warps_down, split_size = static_cast<int>(a.by_project_across.divisor);
    split = static_cast<int>(a.by_project_across.quotient(across));
    first_pair = (across - split * split_size) * kPairs;
    first_place = ((across - split * split_size) * a.warps_down + first_tile) * kTiles * kPairs;
    if (split >= a.splits) first_pair = a.out_pairs;
    CONVX_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int pair = min(first_pair + j, a.out_pairs - 1);
      const PairSums bias(rank == 0 && split == 0 ? load<float, 4>(a.bias + pair * 16 + lane % 4 * 4)
                                                  : Vector<float, 4>{});
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) of[i][j] = bias;
    }
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int tile = min(first_tile + i * a.warps_down, a.result_tiles - 1);
      row_at[i] = (tile * 16 + lane % 16) * a.filtered_pitch + lane / 16 * 16;
    }
  }

  template <int Lanes, class T>
  CONVX_DEVICE void add(const Arguments<T>& a, const unsigned char* stage, const unsigned char* filtered,
                        int lane) {
    if (first_pair >= a.out_pairs) return;
    const unsigned char* filters[kPairs];
    CONVX_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      // A warp's last pairs may be none: products with another one's filters, which nobody asks for, don't
      // keep others waiting as a branch would.
      const int pair = min(first_pair + j, a.out_pairs - 1);
      filters[j] = stage + a.project_at + (split * a.out_pairs + pair) * 512 + lane * 16;
    }
    CONVX_UNROLL_TWICE
    for (int step = split; step < a.chunk_steps; step += a.splits) {
      uint32_t pixels[kTiles][4];
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) load_rows(filtered + row_at[i] + step * 32, pixels[i]);
      CONVX_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        const PairFilters words(filters[j]);
        const Parts<T> of_pair(words.word);
        CONVX_UNROLL
        for (int i = 0; i < kTiles; ++i) of[i][j].template add<Lanes, T>(Parts<T>(pixels[i]), of_pair);
        filters[j] += a.splits * a.out_pairs * 512;
      }
    }
  }

  // Of a chunk that has values, or filters, that are not finite.
  template <class T>
  CONVX_DEVICE void add_exact(const Arguments<T>& a, const unsigned char* stage,
                              const unsigned char* filtered, int lane) {
    CONVX_UNROLL
    for (int i = 0; i < kTiles * kPairs; ++i) {
      const int pair = first_pair + i % kPairs;
      if (pair >= a.out_pairs || split > 0) continue;
      const int at = row_at[i / kPairs] - lane / 16 * 16 + (lane / 4 - lane % 16) * a.filtered_pitch;
      add_exactly(of[i / kPairs][i % kPairs], filtered + at, a.filtered_pitch,
                  stage + a.project_at + pair * 512, a.out_pairs * 512, a.chunk_steps, lane);
    }
  }

  template <int Lanes, class T>
  CONVX_DEVICE void add_chunk(const Arguments<T>& a, const unsigned char* stage,
                              const unsigned char* filtered, bool is_non_finite, int lane) {
    if constexpr (sizeof(T) == 4) {
      if (is_non_finite || *reinterpret_cast<const int*>(stage + a.non_finite_at) != 0) {
        return add_exact(a, stage, filtered, lane);
      }
    }
    add<Lanes>(a, stage, filtered, lane);
  }

  template <int Lanes, class T>
  CONVX_DEVICE void exchange(const Arguments<T>& a, const Share& share, unsigned char* shared, int lane) {
    exchange_sums<Lanes>(a, of, first_pair, first_place, Giver{share.rank, split, a.splits}, shared, lane);
  }

  template <int Lanes, class T>
  CONVX_DEVICE void store(const Arguments<T>& a, const Window& window, int rank, const unsigned char* shared,
                          int lane) const {
    if (split > 0) return;
    const Bound<T> bound(a.output_activation);
    const int64_t first_row = static_cast<int64_t>(window.image) * a.out_height;
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pixel = (first_tile + i * a.warps_down) * 16 + half * 8 + lane / 4;
        const int down = static_cast<int>(a.by_tile_width.quotient(pixel));
        const int row = window.tile_row + down, column = window.tile_column + pixel - down * a.tile_width;
        if (down >= a.tile_height || row >= a.out_height || column >= a.out_width) continue;
        const int64_t place = ((first_row + row) * a.out_width + column) * a.out_channels;
        // A residual is the source, whose pixels are here.
        const int pixel_of_source = (row - window.row) * window.columns + column - window.column;
        const T* const residual = reinterpret_cast<const T*>(shared + pixel_of_source * a.source_pitch);
        const int first_channel = first_pair * 16 + lane % 4 * 4;
        CONVX_UNROLL
        for (int j = 0; j < kPairs; ++j) {
          if (first_channel + j * 16 >= a.out_channels) break;
          if (Form::kShape.shares && !has_sums(a, rank, first_place + i * kPairs + j)) continue;
          const int channel = first_channel + j * 16;
          store_four(a, bound, of[i][j], half, residual + channel, a.result + place + channel);
        }
      }
    }
  }
};

}  // namespace convx::inverted_residual
