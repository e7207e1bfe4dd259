// The last product: sums of all output channels, in registers over all chunks, then the result.
#pragma once
#include "methods/inverted_residual/banded/arguments.cuh"
#include "methods/inverted_residual/exchange.cuh"
#include "methods/inverted_residual/store.cuh"
#include "platform/gpu/fragments.h"

namespace convx::inverted_residual::banded {

// A warp's tiles: of results every warps_down-th, of channels neighbours. A tile's 16 results are neighbours
// in the shared memory of a channel: rows of 16 or eight, or columns of eight (FormOf::kNear).
template <class T, class Form>
class Project {
 public:
  static constexpr int kTiles = Form::kShape.tiles_down, kPairs = Form::kShape.pairs;

  CONVX_DEVICE Project(const Arguments<T>& a, const Window& /*w*/, unsigned char* filtered, int rank,
                       int warp, int lane)
      : first_pair_(warp / a.warps_down * kPairs) {
    CONVX_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      const int pair = min(first_pair_ + j, a.out_pairs - 1);
      const PairSums bias(rank == 0 ? load<float, 4>(a.bias + pair * 16 + lane % 4 * 4) : Vector<float, 4>{});
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) of_[i][j] = bias;
    }
    const int channel = lane / 16 * 8 + lane % 8, eight = lane / 8 & 1;
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int tile = min(warp % a.warps_down + i * a.warps_down, a.result_tiles - 1);
      const int place = Form::kNear == 16 ? half_of(tile, eight) : tile * kRowBytes + eight * 16;
      from_[i] = shared_place(filtered + channel * Form::kFilteredPitch + place);
    }
  }

  // stage: of the lane's 16 bytes. filtered_at: bytes behind the first results.
  CONVX_DEVICE void add(const Arguments<T>& a, SharedPlace stage, int filtered_at, int /*first_channel*/) {
    if (first_pair_ >= a.out_pairs) return;
    SharedPlace filters = stage + a.project_at + first_pair_ * static_cast<int>(kPairBytes);
    CONVX_UNROLL
    for (int step = 0; step < Form::kChunkPairs; ++step) {
      uint32_t results[kTiles][4];
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        load_columns(from_[i] + filtered_at + step * 16 * Form::kFilteredPitch, results[i]);
      }
      CONVX_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        if (first_pair_ + j >= a.out_pairs) break;
        PairFilters of_pair;
        load_piece(filters + j * static_cast<int>(kPairBytes), of_pair.word);
        CONVX_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          of_[i][j].template add<32, T>(Parts<T>(results[i]), Parts<T>(of_pair.word));
        }
      }
      filters += a.out_pairs * static_cast<int>(kPairBytes);
    }
  }

  CONVX_DEVICE void exchange(const Arguments<T>& a, int rank, unsigned char* shared, int warp, int lane) {
    exchange_sums<32>(a, of_, first_pair_, warp * kTiles * kPairs, BlockGiver{rank}, shared, lane);
  }

  CONVX_DEVICE void store(const Arguments<T>& a, const Window& w, int rank, int warp, int lane) const {
    const Bound<T> bound(a.output_activation);
    const int64_t first_row = static_cast<int64_t>(w.image) * a.out_height;
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int tile = warp % a.warps_down + i * a.warps_down;
      if (tile >= a.result_tiles) continue;
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int result = tile * 16 + half * 8 + lane / 4;
        const int far = result / Form::kNear, near = result % Form::kNear;
        const int down = Form::kIsFlat ? near : far, across = Form::kIsFlat ? far : near;
        const int row = w.tile_row + down, column = w.tile_column + across;
        if (down >= a.tile_height || across >= Form::kTileWidth || row >= a.out_height ||
            column >= a.out_width) {
          continue;
        }
        const int64_t place = ((first_row + row) * a.out_width + column) * a.out_channels;
        const int first_channel = first_pair_ * 16 + lane % 4 * 4;
        CONVX_UNROLL
        for (int j = 0; j < kPairs; ++j) {
          const int channel = first_channel + j * 16;
          if (channel >= a.out_channels) break;
          if (!has_sums(a, rank, (warp * kTiles + i) * kPairs + j)) continue;
          store_four(a, bound, of_[i][j], half, a.source + place + channel, a.result + place + channel);
        }
      }
    }
  }

 private:
  PairSums of_[kTiles][kPairs];
  int first_pair_;
  SharedPlace from_[kTiles];
};

}  // namespace convx::inverted_residual::banded
