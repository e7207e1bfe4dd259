// A block of the tensor family: it goes from stage to stage, whose copies are under way while it multiplies.
#pragma once
#include "methods/pointwise/tensor/products.cuh"
#include "platform/gpu/overlap.h"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, Access How, class Tile>
class Block : public Products<Kind, Lanes, How, Tile> {
 public:
  using Base = Products<Kind, Lanes, How, Tile>;
  using Base::column_tile;
  using typename Base::Size;
  using typename Base::T;

  CONVX_DEVICE Block(const uint32_t* filters, const T* source, const Shape& shape, unsigned char* shared)
      : Base(filters, source, shape), shared_(shared) {}

  // Multiplies the block's tiles, one column tile after another, and calls finish() after each; the next
  // stages are under way meanwhile. Packed filters are complete before the kernel before this one begins, so
  // they are fetched while it runs.
  template <class Finish>
  CONVX_DEVICE void run(const Finish& finish) {
    if constexpr (How == kPlanes) {
      if (block_stages_copy()) {
        run_planes();
        return finish();
      }
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
      this->clear_sums();
      CONVX_NO_UNROLL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        wait_copies<kStages - 2>();
        block_barrier();
        load_next(stages + next * stage_bytes, ahead, chunks, !stay);
        commit_copies();
        unsigned char* const now = stages + stage * stage_bytes;
        this->add_stage(now, stay ? shared_ + chunk * Size::kFilterBytes : filters_of(now),
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

 private:
  using Base::shape_, Base::thread_;

  CONVX_DEVICE int chunks() const { return (shape_.steps + Tile::kStageSteps - 1) / Tile::kStageSteps; }
  CONVX_DEVICE unsigned char* filters_of(unsigned char* stage) const {
    return stage + shape_.source_stage_bytes;
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
    this->clear_sums();
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
      this->add_stage(now, filters_of(now), shape_.steps - chunk * Tile::kStageSteps);
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

  unsigned char* shared_;
};

}  // namespace convx::pointwise::tensor
