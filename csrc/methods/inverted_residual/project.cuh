// The last product: sums of all output channels, in registers over all chunks, then the result.
#pragma once
#include "methods/inverted_residual/arguments.cuh"
#include "methods/inverted_residual/exchange.cuh"
#include "methods/inverted_residual/store.cuh"

namespace convx::inverted_residual {

// A warp's tiles: of pixels every warps_down-th, of channels neighbours.
template <class Form>
struct Sums {
  static constexpr int kTiles = Form::kShape.tiles_down, kPairs = Form::kShape.tiles_across / 2;
  PairSums of[kTiles][kPairs];
  int first_tile, first_pair, first_place;
  int row_at[kTiles];  // of the lane's row, bytes from the first

  // The bias, where there is such a channel; of a cluster one block begins with it.
  template <class T>
  CONVX_DEVICE Sums(const Arguments<T>& a, int rank, int warp, int lane)
      : first_tile(warp % a.warps_down),
        first_pair(warp / a.warps_down * kPairs),
        first_place(warp * kTiles * kPairs) {
    CONVX_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int pair = min(first_pair + j, a.out_pairs - 1);
      const PairSums bias(rank == 0 ? load<float, 4>(a.bias + pair * 16 + lane % 4 * 4) : Vector<float, 4>{});
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
    const unsigned char* filters = stage + a.project_at + first_pair * 512 + lane * 16;
    CONVX_NO_UNROLL
    for (int step = 0; step < 1 << a.pair_shift; ++step, filters += a.out_pairs * 512) {
      uint32_t pixels[kTiles][4];
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) load_rows(filtered + row_at[i] + step * 32, pixels[i]);
      CONVX_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        if (first_pair + j >= a.out_pairs) break;
        const PairFilters of_pair(filters + j * 512);
        CONVX_UNROLL
        for (int i = 0; i < kTiles; ++i) of[i][j].template add<Lanes, T>(pixels[i], of_pair);
      }
    }
  }

  template <int Lanes, class T>
  CONVX_DEVICE void exchange(const Arguments<T>& a, const Share& share, unsigned char* shared, int lane) {
    exchange_sums<Lanes>(a, of, first_pair, first_place, share.rank, shared, lane);
  }

  template <int Lanes, class T>
  CONVX_DEVICE void store(const Arguments<T>& a, const Window& window, int rank, const unsigned char* shared,
                          int lane) const {
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
