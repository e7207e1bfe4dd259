// The fused form on the matrix units of sm_90: a tile's filters times its places' channels, one tap after
// another, all summed in registers.
#pragma once
#include "methods/cuconv/tensor/finish.cuh"
#include "methods/cuconv/tensor/window.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/stage.h"
#include "platform/gpu/warpgroup.h"

namespace convx::cuconv::tensor {

template <Precision Kind, class Tile, int Together>
class Block {
 public:
  using Source = Window<Kind, Tile, Together>;
  using T = typename Source::T;

  CONVX_DEVICE Block(const Arguments<T>& a, unsigned char* shared)
      : a_(a), task_(a), entries_(reinterpret_cast<Entry*>(shared)) {
    sources_ = shared + a.table_words * 4;
    filters_ = sources_ + (a.buffers * a.source_bytes + 127) / 128 * 128;
    group_ = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
    const int first = static_cast<int>(task_.plane) * a.plane_stages;
    first_channel_ = first * a.depth * step_channels(Kind);
    stages_ = min(first + a.plane_stages, a.stages) - first;
    const int64_t first_step = static_cast<int64_t>(task_.group) * a.steps + first * a.depth;
    const int64_t tap = first_step * a.taps;
    taps_ = min(stages_ * a.depth, a.steps - first * a.depth) * a.taps;
    ahead_ = a.filters + (tap * a.m_tiles + task_.row_tile * Tile::kGroups) * filter_tile_bytes(Kind);
    ahead_taps_ = taps_;
  }

  // Packed filters are complete before the kernel before this one begins, so they are fetched while it runs.
  CONVX_DEVICE void run() {
    CONVX_SHARED(uint64_t, barriers, [kFilterStages]);
    Filters filters(barriers);
    load_filters(filters, 0);
    load_filters(filters, 1);
    fill_tables();
    block_barrier();
    Source source(a_, task_, entries_);
    take_turn();
    const int thread = static_cast<int>(threadIdx.x);
    CONVX_NO_UNROLL
    for (int item = thread; item < a_.depth * a_.items; item += Tile::kThreads * Source::kEach) {
      source.load(first_channel_, item, Tile::kThreads);
      source.store(sources_);
    }
    publish_to_products();
    if (thread < Tile::kMultipliers) {
      multiply(filters);
    } else {
      feed(filters, source);
    }
    block_barrier();
    Finish<Kind, Tile, T>(a_, task_, reinterpret_cast<const float*>(sources_)).write();
  }

 private:
  using Entry = typename Source::Entry;
  using Filters = BlockStages<kFilterStages>;
  static_assert(kSegmentTaps[4] <= kMostPending, "products of a segment are waited for by their number");

  // Between segments, of both parts of the block.
  CONVX_DEVICE static void meet() { block_barrier(); }

  CONVX_DEVICE void multiply(Filters& filters) const {
    float sum[Tile::kSums], part[Kind == matrix::kSplit ? Tile::kSums : 1];
    CONVX_UNROLL
    for (int i = 0; i < Tile::kSums; ++i) sum[i] = 0;
    CONVX_UNROLL
    for (float& value : part) value = 0;
    int slot = 0, buffer = 0, left = taps_;
    uint32_t phase = 0;
    CONVX_NO_UNROLL
    for (int stage = 0; stage < stages_; ++stage) {
      CONVX_NO_UNROLL
      for (int tap = 0; tap < a_.stage_taps; tap += a_.segment_taps) {
        meet();
        filters.wait(slot, phase);
        const int end = tap + min(min(a_.segment_taps, a_.stage_taps - tap), left);
        left -= end - tap;
        add_taps(sum, part, sources_ + buffer * a_.source_bytes, filters_ + slot * a_.filter_bytes, tap, end);
        if constexpr (Kind != matrix::kSplit) wait_products(end - tap);  // those of the segment before
        if (++slot == kFilterStages) slot = 0, phase ^= 1;
      }
      buffer = buffer + 1 == a_.buffers ? 0 : buffer + 1;
    }
    wait_products<0>();
    meet();  // the stages' memory is used anew
    put(sum, reinterpret_cast<float*>(sources_));
  }

  // Brings the filters of two segments later, and the source of the next stage or two: a batch is stored a
  // segment after it was loaded, a stage's last in the last segment before it.
  CONVX_DEVICE void feed(Filters& filters, Source& source) {
    const int loader = static_cast<int>(threadIdx.x) - Tile::kMultipliers;
    int loaded = 0;  // what is not stored yet: as many stages later
    if (a_.batches == a_.segments && stages_ > 1) {
      source.load(first_channel_ + a_.depth * step_channels(Kind), loader, Tile::kLoaders);
      loaded = 1;
    }
    int slot = 2, buffer = 0;
    CONVX_NO_UNROLL
    for (int stage = 0; stage < stages_; ++stage) {
      CONVX_NO_UNROLL
      for (int segment = 0; segment < a_.segments; ++segment) {
        // After it only products of the segment before may not be complete.
        meet();
        load_filters(filters, slot);
        slot = slot + 1 == kFilterStages ? 0 : slot + 1;
        if (loaded != 0) {
          source.store(sources_ + (buffer + loaded) % a_.buffers * a_.source_bytes);
          publish_to_products();  // before loads that it would wait for
        }
        loaded = 0;
        int batch = segment + 1 + a_.batches - a_.segments, later = 1;
        if (batch >= a_.batches) batch -= a_.segments, later = 2;
        if (batch >= 0 && stage + later < stages_) {
          const int channel = first_channel_ + (stage + later) * a_.depth * step_channels(Kind);
          source.load(channel, batch * Tile::kLoaders * Source::kEach + loader, Tile::kLoaders);
          loaded = segment + 1 == a_.segments ? later - 1 : later;
        }
      }
      buffer = buffer + 1 == a_.buffers ? 0 : buffer + 1;
    }
    meet();
  }

  CONVX_DEVICE int* tap_offsets() const { return reinterpret_cast<int*>(entries_ + a_.items); }
  CONVX_DEVICE int* result_indices() const { return tap_offsets() + a_.stage_taps; }

  CONVX_DEVICE void fill_tables() const {
    const int thread = static_cast<int>(threadIdx.x);
    Source::prepare(a_, task_, entries_, sources_, thread);
    // How far a tap's source lies from a result's place, in bytes.
    CONVX_NO_UNROLL
    for (int i = thread; i < a_.stage_taps; i += Tile::kThreads) {
      const int step = i / a_.taps, tap = i - step * a_.taps;
      const int row = tap / a_.filter_width, down = row * a_.step_h;
      const int across = (tap - row * a_.filter_width) * a_.step_w;
      const int lines = down / a_.stride_h, columns = across / a_.stride_w;
      const int residue = (down - lines * a_.stride_h) * a_.residues_across + across - columns * a_.stride_w;
      tap_offsets()[i] = (step * (kPieces * matrix::parts(Kind)) * a_.places + residue * a_.class_places +
                          lines * static_cast<int>(a_.divide_pitch.divisor) + columns) *
                         kPieceBytes;
    }
    CONVX_NO_UNROLL
    for (int i = thread; i < Tile::kColumns; i += Tile::kThreads) {
      result_indices()[i] = task_.result_index(a_, i);
    }
  }

  // The filters of the next segment, where there is one.
  CONVX_DEVICE void load_filters(Filters& filters, int slot) {
    const int count = min(min(a_.segment_taps, a_.stage_taps - ahead_tap_), ahead_taps_);
    if (count == 0) return;
    ahead_taps_ -= count;
    if (threadIdx.x == Tile::kMultipliers) {
      const int tiles = min(Tile::kGroups, a_.m_tiles - static_cast<int>(task_.row_tile) * Tile::kGroups);
      const uint32_t bytes = tiles * filter_tile_bytes(Kind);
      filters.begin(slot, count * bytes);
      CONVX_NO_UNROLL
      for (int tap = 0; tap < count; ++tap) {
        filters.load(slot,
                     filters_ + slot * a_.filter_bytes + tap * (Tile::kGroups * filter_tile_bytes(Kind)),
                     ahead_ + static_cast<int64_t>(tap) * a_.m_tiles * filter_tile_bytes(Kind), bytes);
      }
    }
    ahead_ += static_cast<int64_t>(count) * a_.m_tiles * filter_tile_bytes(Kind);
    ahead_tap_ = ahead_tap_ + count == a_.stage_taps ? 0 : ahead_tap_ + count;
  }

  // Matrix units drop digits of long sums: of the split precision each tap of a step is summed by itself, in
  // part, and added in float32.
  template <int Parts>
  CONVX_DEVICE void add_taps(float (&sum)[Tile::kSums], [[maybe_unused]] float (&part)[Parts],
                             const unsigned char* source, const unsigned char* filters, int tap,
                             int end) const {
    filters += group_ * filter_tile_bytes(Kind);
    CONVX_NO_UNROLL
    for (; tap < end; ++tap) {
      begin_products();
      const unsigned char* const at = source + tap_offsets()[tap];
      if constexpr (Kind == matrix::kSplit) {
        const unsigned char *const low = filters + kPieces * kFilterStep, *low_at = at + kPieces * step();
        add_half<false>(part, filters, low_at);
        add_half(part, filters + 2 * kFilterStep, low_at + 2 * step());
        add_half(part, low, at);
        add_half(part, low + 2 * kFilterStep, at + 2 * step());
        add_half(part, filters, at);
        add_half(part, filters + 2 * kFilterStep, at + 2 * step());
        commit_products();
        wait_products<0>();
        CONVX_UNROLL
        for (int i = 0; i < Tile::kSums; ++i) sum[i] += part[i];
      } else {
        add_half(sum, filters, at);
        add_half(sum, filters + 2 * kFilterStep, at + 2 * step());
        commit_products();
      }
      filters += Tile::kGroups * filter_tile_bytes(Kind);
    }
  }

  // Bytes from a piece of the source to the next.
  CONVX_DEVICE int step() const { return a_.places * kPieceBytes; }

  // Of half a step's channels.
  template <bool Adds = true>
  CONVX_DEVICE void add_half(float (&sum)[Tile::kSums], const unsigned char* filters,
                             const unsigned char* source) const {
    using Product = typename matrix::Types<Kind>::Product;
    multiply_warpgroup<Tile::kColumns, Product, Adds>(sum, {filters, kFilterStep}, {source, step()});
  }

  // Sums go through shared memory, where rows of results lie side by side.
  CONVX_DEVICE void put(const float (&sum)[Tile::kSums], float* sums) const {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    float* const own = sums + (thread / 32 * 16 + lane / 4) * Tile::kSumPitch;
    const int* const indices = result_indices() + lane % 4 * 2;
    CONVX_UNROLL
    for (int i = 0; i < Tile::kSums; i += 4) {
      CONVX_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int index = indices[i / 4 * 8 + j];
        if (index == kNothing) continue;
        own[index] = sum[i + j];
        own[8 * Tile::kSumPitch + index] = sum[i + 2 + j];
      }
    }
  }

  const Arguments<T>& a_;
  const Task<Tile, T> task_;
  Entry* entries_;  // of the window's items; then by tap, then by column
  unsigned char *sources_, *filters_;
  int group_, first_channel_, stages_, taps_;
  const unsigned char* ahead_;      // the filters to load
  int ahead_taps_, ahead_tap_ = 0;  // how many there are still; the next one's, within its stage
};

template <Precision Kind, class Tile, int Together, class T>
CONVX_KERNEL(Tile::kThreads, Tile::kBlocks)
tensor_kernel(Arguments<T> arguments) {
  CONVX_SKIP_OTHER_WARPS(32);
#if defined(CONVX_WARPGROUP_PRODUCTS) || defined(CONVX_SIMT)
  CONVX_DYNAMIC_SHARED(shared);
  Block<Kind, Tile, Together>(arguments, shared).run();
#endif
}

}  // namespace convx::cuconv::tensor
