// Filters times pixels on matrix units. Filters come packed in fragment order and are read as fragments;
// pixels are read straight from the rows in which they lie: a lane takes 16 bytes of neighbouring pixels of
// each of its channels, element t of which belongs to its column of fragment t. So a lane ends with
// neighbouring pixels of a filter, and neither operand nor result is transposed. Of planes and of shifted
// rows, which begin anywhere, it takes single pixels, and their results pass through shared memory.
#pragma once
#include "methods/pointwise/tensor/copies.cuh"
#include "platform/gpu/overlap.h"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, Access How, class Tile>
class Block : public Copies<Kind, Lanes, How, Tile> {
 public:
  using Loads = Copies<Kind, Lanes, How, Tile>;
  using Loads::kNeighbours, Loads::kPieces;
  using Loads::row_tile, Loads::column_tile, Loads::group;
  using typename Loads::Size;
  using typename Loads::T;
  using Cell = Fragment<Lanes>;
  static constexpr int kFragments = Size::kFragments;

  CONVX_DEVICE Block(const uint32_t* filters, const T* source, const Shape& shape, unsigned char* shared)
      : Loads(filters, source, shape), shared_(shared) {
    lane = thread_ % Lanes;
    const int warp = thread_ / Lanes;
    warp_row = warp % Tile::kWarpRows;
    warp_column = warp / Tile::kWarpRows % Tile::kWarpColumns;
    warp_depth = warp / (Tile::kWarpRows * Tile::kWarpColumns);
  }

  // Multiplies the block's tiles, one column tile after another, and calls finish() after each; the next
  // stages are under way meanwhile. Packed filters are complete before the kernel before this one begins, so
  // they are fetched while it runs.
  template <class Finish>
  CONVX_DEVICE void run(const Finish& finish) {
    if constexpr (How == kPlanes && kBlockStagesCopy) {
      run_planes();
      return finish();
    }
    constexpr int kStages = Size::kStages;
    const bool stay = kPersistent<Lanes, How, Tile> && shape_.filters_stay;
    const int stage_bytes = shape_.source_stage_bytes + (stay ? 0 : Size::kFilterBytes);
    const int chunks = this->chunks();
    unsigned char* const stages = shared_ + (stay ? chunks * Size::kFilterBytes : 0);
    int ahead = 0;  // the chunk to load
    if (stay) {
      CONVX_NO_UNROLL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        this->load_filters(shared_ + chunk * Size::kFilterBytes, chunk);
      }
    } else {
      uint32_t column = column_tile;
      CONVX_NO_UNROLL
      for (int stage = 0; stage < kStages - 1 && column < shape_.column_tiles; ++stage) {
        this->load_filters(filters_of(stages + stage * stage_bytes), ahead);
        if (++ahead == chunks) ahead = 0, column += shape_.column_blocks;
      }
    }
    take_turn();
    ahead = 0;
    CONVX_NO_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) {
      load_next(stages + stage * stage_bytes, ahead, chunks, false);
      commit_copies();
    }
    int stage = 0, next = kStages - 1;
    for (;;) {
      clear_sums();
      CONVX_NO_UNROLL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        wait_copies<kStages - 2>();
        block_barrier();
        load_next(stages + next * stage_bytes, ahead, chunks, !stay);
        commit_copies();
        unsigned char* const now = stages + stage * stage_bytes;
        add_stage(now, stay ? shared_ + chunk * Size::kFilterBytes : filters_of(now),
                  shape_.steps - chunk * Tile::kStageSteps);
        stage = stage + 1 == kStages ? 0 : stage + 1;
        next = next + 1 == kStages ? 0 : next + 1;
      }
      finish();
      if constexpr (!kPersistent<Lanes, How, Tile>) return;
      column_tile += shape_.column_blocks;
      if (column_tile >= shape_.column_tiles) return;
    }
  }

  // The pixel, within the warp's, of a sum's first fragment.
  CONVX_DEVICE static int group_of_column(int column) {
    return Lanes == 32 ? (column >> 1) + 4 * (column & 1) : column;
  }
  CONVX_DEVICE int first_row() const {
    return (row_tile * Tile::kRowTiles + warp_row * Tile::kRowsEach) * 16;
  }
  // Of all images; How is not kPlanes.
  CONVX_DEVICE uint32_t first_pixel(int i) const {
    const int column = Cell::column(lane, i);
    const int of_lane = How == kShifted || How == kChannels ? column : group_of_column(column) * kNeighbours;
    return this->first_of_tile() + warp_column * Size::kWarpPixels + of_lane;
  }

  // Fragments last: a row of neighbouring pixels; of planes, channels and shifted rows one of pixels
  // kFragmentColumns apart.
  float sum[Tile::kRowsEach][4][kFragments];
  int lane, warp_row, warp_column, warp_depth;

 private:
  using Loads::shape_, Loads::thread_;

  CONVX_DEVICE int chunks() const { return (shape_.steps + Tile::kStageSteps - 1) / Tile::kStageSteps; }
  CONVX_DEVICE unsigned char* filters_of(unsigned char* stage) const {
    return stage + shape_.source_stage_bytes;
  }

  CONVX_DEVICE void clear_sums() {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) sum[m][i][t] = 0;
      }
    }
  }

  // Images that lie in pieces of 16 bytes: a few large copies bring a stage, and no thread waits to issue
  // copies while it could multiply.
  CONVX_DEVICE void run_planes() {
    constexpr int kStages = Size::kStages;
    CONVX_SHARED(uint64_t, barriers, [kStages]);
    BlockStages<kStages> stages(barriers);
    const int stage_bytes = shape_.source_stage_bytes + Size::kFilterBytes;
    const int chunks = this->chunks();
    const int ahead = chunks < kStages - 1 ? chunks : kStages - 1;
    if (thread_ == 0) {
      CONVX_NO_UNROLL
      for (int chunk = 0; chunk < ahead; ++chunk) {
        this->load_filters(stages, chunk, filters_of(shared_ + chunk * stage_bytes), chunk);
      }
    }
    take_turn();
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < ahead; ++chunk) {
      T* const to = reinterpret_cast<T*>(shared_ + chunk * stage_bytes);
      if (thread_ == 0) this->load_source(stages, chunk, to, chunk);
      if (chunk == chunks - 1) this->clear_rest(to, chunk);
    }
    clear_sums();
    int stage = 0, next = kStages - 1;
    uint32_t phase = 0;
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      stages.wait(stage, phase);
      block_barrier();
      const int later = chunk + kStages - 1;
      if (later < chunks) {
        unsigned char* const to = shared_ + next * stage_bytes;
        if (thread_ == 0) {
          this->load_filters(stages, next, filters_of(to), later);
          this->load_source(stages, next, reinterpret_cast<T*>(to), later);
        }
        if (later == chunks - 1) this->clear_rest(reinterpret_cast<T*>(to), later);
      }
      unsigned char* const now = shared_ + stage * stage_bytes;
      add_stage(now, filters_of(now), shape_.steps - chunk * Tile::kStageSteps);
      if (++stage == kStages) stage = 0, phase ^= 1;
      next = next + 1 == kStages ? 0 : next + 1;
    }
  }

  // The stage after those that are under way, of this column tile or the block's next; none after the last.
  CONVX_DEVICE void load_next(unsigned char* stage, int& chunk, int chunks, bool filters) {
    if (chunk == chunks) {
      if constexpr (!kPersistent<Lanes, How, Tile>) return;
      const uint32_t column = this->ahead_column_ + shape_.column_blocks;
      if (column >= shape_.column_tiles) return;
      this->begin_source(column);
      chunk = 0;
    }
    if (filters) this->load_filters(filters_of(stage), chunk);
    this->load_source(reinterpret_cast<T*>(stage), chunk);
    ++chunk;
  }

  CONVX_DEVICE void add_stage(const unsigned char* stage, const unsigned char* filters, int steps_left) {
    CONVX_UNROLL
    for (int i = 0; i < Tile::kSteps; i += How == kChannels ? 2 : 1) {
      const int step = warp_depth * Tile::kSteps + i;
      if (step < steps_left) {
        add_steps(reinterpret_cast<const T*>(stage), reinterpret_cast<const uint32_t*>(filters), step);
      }
    }
  }

  using Words = uint32_t[Tile::kRowsEach][Cell::kWordsA];

  // The filters' fragments of a step; low is the split's second part.
  CONVX_DEVICE void take_filters(const uint32_t* filters, int step, Words& a, Words& low) {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      const uint32_t* const fragment =
          filters + ((warp_row * Tile::kRowsEach + m) * Tile::kStageSteps + step) * (kPieces * 4);
      take_words(fragment + lane * Cell::kWordsA, a[m]);
      if constexpr (Kind == kSplit) take_words(fragment + 128 + lane * Cell::kWordsA, low[m]);
    }
  }

  // One step of channels, or the two that a lane takes at once from rows of channels.
  CONVX_DEVICE void add_steps(const T* source, const uint32_t* filters, int step) {
    Words a, low;
    take_filters(filters, step, a, low);
    if constexpr (How == kChannels) {
      Words next, next_low;
      take_filters(filters, step + 1, next, next_low);
      const T* const first = source +
                             (warp_column * Size::kWarpPixels + Cell::column_of_b(lane)) * Size::kPitch +
                             channel_of_slot<Size::kBytes>(kChannels, step, Cell::slot(lane), 0);
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        uint32_t b[4];
        take_words(reinterpret_cast<const uint32_t*>(first + t * Size::kFragmentColumns * Size::kPitch), b);
        if constexpr (Size::kBytes == 2) {
          add_pairs(t, a, b[0], b[1]);
          add_pairs(t, next, b[2], b[3]);
        } else {
          add_floats(t, a, low, bits_to_float(b[0]), bits_to_float(b[1]));
          add_floats(t, next, next_low, bits_to_float(b[2]), bits_to_float(b[3]));
        }
      }
    } else {
      add_step(source, step, a, low);
    }
  }

  template <int Count>
  CONVX_DEVICE static void take_words(const uint32_t* from, uint32_t (&words)[Count]) {
    const Vector<uint32_t, Count> all = *reinterpret_cast<const Vector<uint32_t, Count>*>(from);
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) words[i] = all.element[i];
  }

  CONVX_DEVICE void add_product(int m, int t, const uint32_t (&a)[Cell::kWordsA], uint32_t b0, uint32_t b1) {
    float four[4];
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = sum[m][i][t];
    multiply_fragments<Lanes, typename Types<Kind>::Product>(four, a, b0, b1);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) sum[m][i][t] = four[i];
  }

  CONVX_DEVICE void add_step(const T* source, int step, const Words& a, const Words& low) {
    constexpr int kValues = Size::kBytes == 2 ? 4 : 2;  // channels of a lane
    const int slot = Cell::slot(lane), column = Cell::column_of_b(lane);
    if constexpr (How == kPlanes) {
      const int plane = shape_.plane;
      const T* rows[kValues];
      CONVX_UNROLL
      for (int i = 0; i < kValues; ++i) {
        rows[i] = source +
                  (warp_column * Size::kStageDepth + channel_of_slot<Size::kBytes>(kPlanes, step, slot, i)) *
                      plane +
                  column;
      }
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int at = t * Size::kFragmentColumns;
        if constexpr (Size::kBytes == 2) {
          add_pairs(t, a, rows[0][at].bits | static_cast<uint32_t>(rows[1][at].bits) << 16,
                    rows[2][at].bits | static_cast<uint32_t>(rows[3][at].bits) << 16);
        } else {
          add_floats(t, a, low, rows[0][at], rows[1][at]);
        }
      }
    } else if constexpr (How == kShifted) {
      const T* const first = source + (step * step_depth(Kind) + slot) * Size::kPitch + this->shift_of(slot) +
                             warp_column * Size::kWarpPixels + column;
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int at = t * Size::kFragmentColumns;
        add_floats(t, a, low, first[at], first[4 * Size::kPitch + at]);
      }
    } else {
      const T* const first = source + warp_column * Size::kWarpPixels + group_of_column(column) * kNeighbours;
      // Of a row of elements the channel was chosen when it was copied.
      constexpr Access kOrder = How == kElements ? kRows : How;
      if constexpr (Size::kBytes == 2) {
        uint32_t values[4][kNeighbours / 2];
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) {
          const T* const row = first + channel_of_slot<2>(kOrder, step, slot, i) * Size::kPitch;
          take_words(reinterpret_cast<const uint32_t*>(row), values[i]);
        }
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          add_pairs(t, a, pair_halves(values[0][t / 2], values[1][t / 2], t % 2),
                    pair_halves(values[2][t / 2], values[3][t / 2], t % 2));
        }
      } else {
        Vector<float, 4> values[2];
        CONVX_UNROLL
        for (int i = 0; i < 2; ++i) {
          values[i] = *reinterpret_cast<const Vector<float, 4>*>(
              first + channel_of_slot<4>(kOrder, step, slot, i) * Size::kPitch);
        }
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          add_floats(t, a, low, values[0].element[t], values[1].element[t]);
        }
      }
    }
  }

  CONVX_DEVICE void add_pairs(int t, const Words& a, uint32_t b0, uint32_t b1) {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) add_product(m, t, a[m], b0, b1);
  }

  CONVX_DEVICE void add_floats(int t, const Words& a, const Words& low, float x0, float x1) {
    const uint32_t b0 = round_to_tf32(x0), b1 = round_to_tf32(x1);
    if constexpr (Kind == kSplit) {
      const uint32_t low0 = round_to_tf32(x0 - bits_to_float(b0)),
                     low1 = round_to_tf32(x1 - bits_to_float(b1));
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        // Matrix units drop digits of long sums: each step is summed by itself, and added in float32.
        float part[4] = {0, 0, 0, 0};
        multiply_fragments<Lanes, tf32>(part, a[m], low0, low1);
        multiply_fragments<Lanes, tf32>(part, low[m], b0, b1);
        multiply_fragments<Lanes, tf32>(part, a[m], b0, b1);
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) sum[m][i][t] += part[i];
      }
    } else {
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) add_product(m, t, a[m], b0, b1);
    }
  }

  unsigned char* shared_;
};

}  // namespace convx::pointwise::tensor
