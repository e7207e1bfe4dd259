// The two forms of a product of filters and pixels: vector lanes along pixels, which planes have side by
// side, and along filters, which are packed so.
#pragma once
#include "methods/pointwise/cpu/ends.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace products {

// A strip of planes that so many blocks of filters read is staged first: it lies closer together there.
constexpr int64_t kBlocksThatStage = 8;

// A result that a register tile can finish itself: the bias is added and the value kept between these.
template <class A>
struct Clamp {
  A low, high;
  bool is_all;  // of the activation

  explicit Clamp(Activation activation)
      : low(activation == Activation::none ? -A(INFINITY) : A(0)),
        high(activation == Activation::relu6 ? A(6) : A(INFINITY)),
        is_all(activation == Activation::none || activation == Activation::relu ||
               activation == Activation::relu6) {}
};

// How a job's results are shared out: a task is tile_w pixels and tile_c filters of one group of one image.
template <class T>
struct Share {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;

  const ProductJob& job;
  const Grid& grid = job.grid;
  int64_t pixels = grid.pixels();
  int64_t blocks = ceil_divide(job.channels, job.wave_c);
  int64_t tile_w = job.wave_w * job.repeat_w;
  int64_t pixel_tiles = ceil_divide(pixels, tile_w);
  int64_t block_tiles = ceil_divide(blocks, job.repeat_c);
  // The threads share out what is read more of: filters, or pixels.
  bool blocks_outside = job.channels > pixels;
  Clamp<A> clamp{job.epilogue.activation};

  int64_t tasks() const { return job.batch * job.groups * pixel_tiles * block_tiles; }
  bool in_place() const { return sizeof(T) == sizeof(A) && grid.is_flat(grid.source); }

  struct Task {
    int64_t image, group, first_pixel, end_pixel, first_block, end_block;
  };
  Task task(int64_t index) const {
    const int64_t tiles = pixel_tiles * block_tiles, tile = index % tiles;
    const int64_t across = blocks_outside ? tile % pixel_tiles : tile / block_tiles;
    const int64_t down = blocks_outside ? tile / pixel_tiles : tile % block_tiles;
    return {index / tiles / job.groups,
            index / tiles % job.groups,
            across * tile_w,
            minimum((across + 1) * tile_w, pixels),
            down * job.repeat_c,
            minimum((down + 1) * job.repeat_c, blocks)};
  }
  // First element of a group of an image.
  const T* source(const Task& task) const {
    const int64_t plane = grid.source.plane, channel = task.group * job.depth;
    return static_cast<const T*>(job.source) + task.image * job.groups * job.depth * plane +
           channel * (job.channels_last ? 1 : plane);
  }
  T* result(const Task& task, int64_t block) const {
    const int64_t plane = grid.result.plane, channel = task.group * job.channels + block * job.wave_c;
    return static_cast<T*>(job.result) + task.image * job.groups * job.channels * plane +
           channel * (job.channels_last ? 1 : plane);
  }
  const T* weight(const Task& task, int64_t block) const {
    return static_cast<const T*>(job.weight) + (task.group * blocks + block) * job.depth * job.wave_c;
  }
  int64_t first_channel(const Task& task, int64_t block) const {
    return task.group * job.channels + block * job.wave_c;
  }
  // Whether register tiles without ragged ends write results themselves.
  bool finishes() const {
    const bool is_all = clamp.is_all && job.epilogue.more == 0;
    return sizeof(T) == sizeof(A) && grid.is_flat(grid.result) && is_all;
  }
  // Where a finished register tile goes. zeros: as many as it has rows or lanes, for the lack of a bias.
  Target<A> finished(const Task& task, int64_t block, T* target, int64_t row_step, const A* zeros) const {
    const A* bias = static_cast<const A*>(job.epilogue.bias);
    bias = bias == nullptr ? zeros : bias + first_channel(task, block);
    return {reinterpret_cast<A*>(target), row_step, false, true, bias, clamp.low, clamp.high};
  }

  int64_t filters(int64_t block) const { return minimum(job.channels - block * job.wave_c, job.wave_c); }
};

// Lanes along pixels. For planes alone.
template <class T>
struct PixelLanes : Share<T> {
  using Base = Share<T>;
  using A = Accumulator<T>;
  using Base::grid, Base::job, Base::L;

  void run(int64_t begin, int64_t end) const {
    const int64_t staged_count = job.depth * job.wave_w;
    const int64_t widened_count =
        sizeof(T) < sizeof(A) ? round_up(job.depth * job.wave_c * job.repeat_c, L) : 0;
    Scratch memory((staged_count + widened_count) * static_cast<int64_t>(sizeof(A)) +
                   2 * job.wave_w * static_cast<int64_t>(sizeof(int64_t)));
    A* const staged = memory.template as<A>();
    A* const widened_filters = staged + staged_count;
    int64_t* const lists = reinterpret_cast<int64_t*>(widened_filters + widened_count);
    for (int64_t index = begin; index < end; ++index) {
      const typename Base::Task task = this->task(index);
      // Blocks of filters follow one another.
      const A* filters =
          widened(this->weight(task, task.first_block),
                  (task.end_block - task.first_block) * job.depth * job.wave_c, widened_filters);
      const int64_t vectors = ceil_divide(task.end_pixel - task.first_pixel, L);
      const int64_t strips = ceil_divide(vectors * L, job.wave_w);
      for (int64_t strip = 0; strip < strips; ++strip) {
        const int64_t first = vectors * strip / strips, last = vectors * (strip + 1) / strips;
        const int64_t pixel = task.first_pixel + first * L;
        run_strip(task, pixel, minimum(task.end_pixel - pixel, (last - first) * L), last - first, filters,
                  staged, lists);
      }
    }
  }

  CONVX_INLINE void run_strip(const typename Base::Task& task, int64_t first, int64_t count, int64_t width,
                              const A* weight, A* staged, int64_t* lists) const {
    alignas(64) A sums[kMostTile * L + L];
    const A zeros[kMostTile] = {};
    const T* source = this->source(task);
    const int64_t plane = grid.source.plane;
    const Pixels from = pixels_of(grid, grid.source, first, count, lists);
    const Pixels pixels = pixels_of(grid, grid.result, first, count, lists + count);
    Vectors<A> vectors{staged, width * L};
    int64_t skipped = 0;
    if (this->in_place() && plane >= width * L && task.end_block - task.first_block < kBlocksThatStage) {
      // The last strip begins earlier: behind it there may be no memory.
      skipped = maximum(first + width * L - plane, 0);
      vectors = {reinterpret_cast<const A*>(source) + first - skipped, plane};
    } else {
      stage_planes(source, plane, job.depth, from, width * L, staged);
    }
    const bool is_whole = this->finishes() && count == width * L;
    for (int64_t block = task.first_block; block < task.end_block;
         ++block, weight += job.depth * job.wave_c) {
      const int64_t filters = this->filters(block);
      const Rows<A> rows{weight, job.wave_c};
      const AddProducts<A> add = add_products_of<A, true>(filters, width);
      if (is_whole) {
        add(rows, vectors, job.depth, job.stage_c,
            this->finished(task, block, this->result(task, block) + first, grid.result.plane, zeros));
        continue;
      }
      add(rows, vectors, job.depth, job.stage_c, {sums, width * L});
      T* target = this->result(task, block);
      for (int64_t k = 0; k < filters; ++k, target += grid.result.plane) {
        const ChannelEpilogue<T> epilogue(job.epilogue, this->first_channel(task, block) + k);
        finish_row<T>(sums + k * width * L + skipped, epilogue, pixels, target);
      }
    }
  }
};

// Lanes along filters, in either layout.
template <class T>
struct FilterLanes : Share<T> {
  using Base = Share<T>;
  using A = Accumulator<T>;
  using Base::grid, Base::job, Base::L, Base::tile_w;
  int64_t staged_pixels = round_up(tile_w, L);
  int64_t finished_pixels = job.channels_last ? job.wave_w : tile_w;  // whose sums wait for the others

  void run(int64_t begin, int64_t end) const {
    const int64_t staged_count = this->in_place() ? 0 : round_up(job.depth * staged_pixels, L);
    const int64_t widened_count = sizeof(T) < sizeof(A) ? job.depth * job.wave_c : 0;
    const int64_t sums_count = finished_pixels * job.wave_c;
    const int64_t lists_count = 2 * tile_w;
    Scratch memory((staged_count + widened_count + sums_count) * static_cast<int64_t>(sizeof(A)) +
                   lists_count * static_cast<int64_t>(sizeof(int64_t)));
    A* const staged = memory.template as<A>();
    A* const widened_filters = staged + staged_count;
    A* const sums = widened_filters + widened_count;
    int64_t* const lists = reinterpret_cast<int64_t*>(sums + sums_count);
    for (int64_t index = begin; index < end; ++index) {
      const typename Base::Task task = this->task(index);
      const int64_t count = task.end_pixel - task.first_pixel;
      const Pixels pixels = pixels_of(grid, grid.result, task.first_pixel, count, lists + count);
      const Rows<A> rows =
          source_rows(task, pixels_of(grid, grid.source, task.first_pixel, count, lists), staged);
      for (int64_t block = task.first_block; block < task.end_block; ++block) {
        const A* weight = widened(this->weight(task, block), job.depth * job.wave_c, widened_filters);
        job.channels_last ? run_block<false>(task, block, pixels, rows, {weight, job.wave_c}, sums)
                          : run_block<true>(task, block, pixels, rows, {weight, job.wave_c}, sums);
      }
    }
  }

  // The task's source pixels, in place or staged.
  CONVX_INLINE Rows<A> source_rows(const typename Base::Task& task, const Pixels& pixels, A* staged) const {
    const T* source = this->source(task);
    const int64_t step = job.channels_last ? job.groups * job.depth : grid.source.plane;
    if (this->in_place()) {
      const A* first = reinterpret_cast<const A*>(source);
      return {first + pixels.first * (job.channels_last ? step : 1), step};
    }
    if (job.channels_last) {
      stage_pixels(source, step, job.depth, pixels, job.depth, staged);
      return {staged, job.depth};
    }
    stage_planes(source, step, job.depth, pixels, staged_pixels, staged);
    return {staged, staged_pixels};
  }

  template <bool Planes>
  CONVX_INLINE void run_block(const typename Base::Task& task, int64_t block, const Pixels& pixels,
                              const Rows<A>& rows, const Vectors<A>& weight, A* sums) const {
    const int64_t filters = this->filters(block), width = ceil_divide(filters, L);
    const int64_t tiles = ceil_divide(pixels.count, job.wave_w);
    const int64_t pixel_step = job.groups * job.channels;
    const bool is_whole = this->finishes() && filters % L == 0;
    alignas(64) const A zeros[pointwise::kMostVectors * L] = {};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = pixels.count * tile / tiles, end = pixels.count * (tile + 1) / tiles;
      const Rows<A> from{rows.values + first * (Planes ? 1 : rows.step), rows.step};
      const AddProducts<A> add = add_products_of<A, Planes>(end - first, width);
      if constexpr (Planes) {
        add(from, weight, job.depth, job.stage_c, {sums + first * width * L, width * L});
      } else if (is_whole) {
        T* const target = this->result(task, block) + (pixels.first + first) * pixel_step;
        add(from, weight, job.depth, job.stage_c, this->finished(task, block, target, pixel_step, zeros));
      } else {
        add(from, weight, job.depth, job.stage_c, {sums, width * L});
        finish(task, block, filters, width, sums,
               {pixels.first + first, end - first, pixels.list == nullptr ? nullptr : pixels.list + first});
      }
    }
    if constexpr (Planes) finish(task, block, filters, width, sums, pixels);
  }

  CONVX_INLINE void finish(const typename Base::Task& task, int64_t block, int64_t filters, int64_t width,
                           const A* sums, const Pixels& pixels) const {
    T* const target = this->result(task, block);
    for (int64_t v = 0; v < width; ++v) {
      const int64_t channels = minimum(filters - v * L, L);
      const LaneEpilogue<T, L> epilogue(job.epilogue, this->first_channel(task, block) + v * L, channels);
      const ChannelSums<T> lanes{sums + v * L, width * L, epilogue, channels};
      if (job.channels_last) {
        lanes.to_channels_last(pixels, target + v * L, job.groups * job.channels);
      } else {
        lanes.to_planes(pixels, target + v * L * grid.result.plane, grid.result.plane);
      }
    }
  }
};

}  // namespace products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
