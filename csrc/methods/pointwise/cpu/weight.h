// weight_grad: rows are filters of the output's gradient, vectors lie along channels of the input, and the
// depth is the pixels of all images, a chunk of them at a time.
#pragma once
#include "methods/pointwise/cpu/ends.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace products {

constexpr int kWeightVectors = 2;
constexpr int kWeightRows = pointwise::most_rows(kIsa, kWeightVectors);

// A task is `rows` filters, `columns` channels and one slice of the pixels, of one group. Slices don't depend
// on the threads there are, so that the sums don't.
template <class T>
struct WeightSums {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int64_t kTileColumns = kWeightVectors * L;
  static constexpr bool kWidens = sizeof(T) < sizeof(A);

  const WeightJob& job;
  const Grid& grid = job.grid;
  int64_t chunks_each = ceil_divide(grid.pixels(), job.pixels);
  int64_t chunks = job.batch * chunks_each;
  int64_t row_tiles = ceil_divide(job.filters, job.rows);
  int64_t column_tiles = ceil_divide(job.channels, job.columns);
  int64_t pitch = round_up(job.pixels, L);  // of a staged filter's row
  // Gradients lie in memory one pixel after the other unless padding leaves some of them out.
  bool gradient_is_flat = grid.result.first == 0 && grid.result.column_step == 1 &&
                          (grid.height == 1 || grid.result.row_step == grid.width);

  int64_t tasks() const { return job.groups * job.slices * row_tiles * column_tiles; }

  struct Task {
    int64_t group, slice, filter, filters, channel, channels;
  };
  Task task(int64_t index) const {
    const int64_t column = index % column_tiles, row = index / column_tiles % row_tiles;
    const int64_t outer = index / column_tiles / row_tiles;
    return {outer / job.slices,   outer % job.slices,
            row * job.rows,       minimum(job.rows, job.filters - row * job.rows),
            column * job.columns, minimum(job.columns, job.channels - column * job.columns)};
  }

  struct Memory {
    A *input, *gradient, *sums;
    int64_t* lists;
  };

  // Planes of the input to [pixel][columns].
  CONVX_INLINE void transpose_planes(const T* planes, const Pixels& pixels, int64_t channels,
                                     A* staged) const {
    const int64_t plane = grid.source.plane;
    for (int64_t c = 0; c < channels; c += L) {
      const int64_t lanes = minimum(channels - c, L);
      const T* first = planes + c * plane;
      int64_t i = 0;
      if constexpr (L >= 4) {
        for (; pixels.list == nullptr && i + L <= pixels.count; i += L) {
          Simd<A, L> v[L];
          CONVX_UNROLLED
          for (int k = 0; k < L; ++k) {
            v[k] = k < lanes ? load<L>(first + k * plane + pixels.first + i) : Simd<A, L>{};
          }
          transpose<Simd<A, L>, L>(v);
          CONVX_UNROLLED
          for (int p = 0; p < L; ++p) store<L>(staged + (i + p) * job.columns + c, v[p]);
        }
      }
      for (; i < pixels.count; ++i) {
        const int64_t pixel = pixels.list == nullptr ? pixels.first + i : pixels.list[i];
        A* const target = staged + i * job.columns + c;
        store<L>(target, Simd<A, L>{});
        for (int64_t k = 0; k < lanes; ++k) target[k] = widen(first[k * plane + pixel]);
      }
    }
  }

  CONVX_INLINE Vectors<A> input_of(const Task& task, int64_t image, const Pixels& pixels,
                                   const Memory& memory) const {
    const int64_t all = job.groups * job.channels, channel = task.group * job.channels + task.channel;
    const T* first = static_cast<const T*>(job.input) + image * all * grid.source.plane;
    if (!job.channels_last) {
      transpose_planes(first + channel * grid.source.plane, pixels, task.channels, memory.input);
      return {memory.input, job.columns};
    }
    if (!kWidens && pixels.list == nullptr && task.channels % L == 0) {
      return {reinterpret_cast<const A*>(first) + pixels.first * all + channel, all};
    }
    if (task.channels % L != 0) {
      const int64_t last = task.channels / L * L;
      for (int64_t i = 0; i < pixels.count; ++i) {
        store<L>(memory.input + i * job.columns + last, Simd<A, L>{});
      }
    }
    stage_pixels(first + channel, all, task.channels, pixels, job.columns, memory.input);
    return {memory.input, job.columns};
  }

  CONVX_INLINE Rows<A> gradient_of(const Task& task, int64_t image, const Pixels& pixels,
                                   const Memory& memory) const {
    const int64_t all = job.groups * job.filters, filter = task.group * job.filters + task.filter;
    const T* first = static_cast<const T*>(job.output_grad) + image * all * grid.result.plane;
    const bool in_place = !kWidens && pixels.list == nullptr;
    if (job.channels_last) {
      if (in_place) return {reinterpret_cast<const A*>(first) + pixels.first * all + filter, all};
      stage_pixels(first + filter, all, task.filters, pixels, job.rows, memory.gradient);
      return {memory.gradient, job.rows};
    }
    const int64_t plane = grid.result.plane;
    if (in_place) return {reinterpret_cast<const A*>(first) + filter * plane + pixels.first, plane};
    stage_planes(first + filter * plane, plane, task.filters, pixels, pitch, memory.gradient);
    return {memory.gradient, pitch};
  }

  // Neighbours: channels_last has a pixel's filters side by side.
  template <bool Neighbours>
  CONVX_INLINE void add_chunk(const Task& task, const Rows<A>& gradient, const Vectors<A>& input,
                              int64_t depth, bool add, A* sums) const {
    for (int64_t column = 0; column < task.channels; column += kTileColumns) {
      const int64_t width = ceil_divide(minimum(task.channels - column, kTileColumns), L);
      const int64_t tiles = ceil_divide(task.filters, kWeightRows);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t first = task.filters * tile / tiles, end = task.filters * (tile + 1) / tiles;
        add_products_of<A, Neighbours>(end - first, width)(
            {gradient.values + first * (Neighbours ? 1 : gradient.step), gradient.step},
            {input.values + column, input.step}, depth, depth, {sums, width * L, add});
        sums += (end - first) * width * L;
      }
    }
  }

  // To the result, or the slice's part of the workspace.
  template <class Target>
  CONVX_INLINE void store_sums(const Task& task, const A* sums, Target* target) const {
    for (int64_t column = 0; column < task.channels; column += kTileColumns) {
      const int64_t columns = minimum(task.channels - column, kTileColumns);
      const int64_t step = round_up(columns, L);
      for (int64_t row = 0; row < task.filters; ++row, sums += step) {
        Target* const first = target + row * job.channels + column;
        for (int64_t i = 0; i < columns; i += L) {
          const Simd<A, L> value = load<L>(sums + i);
          if (columns - i >= L) {
            store<L>(first + i, value);
          } else {
            for (int64_t k = 0; k < columns - i; ++k) store_one(first + i + k, static_cast<A>(value[k]));
          }
        }
      }
    }
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t input_count = job.pixels * job.columns;
    const int64_t gradient_count = maximum(job.rows * pitch, job.pixels * job.rows);
    const int64_t sums_count = job.rows * job.columns;
    Scratch scratch((input_count + gradient_count + sums_count) * static_cast<int64_t>(sizeof(A)) +
                    2 * job.pixels * static_cast<int64_t>(sizeof(int64_t)));
    Memory memory;
    memory.input = scratch.template as<A>();
    memory.gradient = memory.input + input_count;
    memory.sums = memory.gradient + gradient_count;
    memory.lists = reinterpret_cast<int64_t*>(memory.sums + sums_count);
    for (int64_t index = begin; index < end; ++index) {
      const Task task = this->task(index);
      const int64_t first = chunks * task.slice / job.slices;
      const int64_t last = chunks * (task.slice + 1) / job.slices;
      if (first == last) zero_over(memory.sums, sums_count);  // every output is of padding alone
      for (int64_t chunk = first; chunk < last; ++chunk) {
        const int64_t image = chunk / chunks_each, part = chunk % chunks_each;
        Pixels source{part * job.pixels, minimum(job.pixels, grid.pixels() - part * job.pixels), nullptr};
        Pixels result = source;
        if (!grid.is_flat()) {
          list_pixels(grid, grid.source, source.first, source.count, memory.lists);
          source.list = memory.lists;
          if (!gradient_is_flat) {
            list_pixels(grid, grid.result, result.first, result.count, memory.lists + job.pixels);
            result.list = memory.lists + job.pixels;
          }
        }
        const Vectors<A> input = input_of(task, image, source, memory);
        const Rows<A> gradient = gradient_of(task, image, result, memory);
        if (job.channels_last) {
          add_chunk<true>(task, gradient, input, source.count, chunk > first, memory.sums);
        } else {
          add_chunk<false>(task, gradient, input, source.count, chunk > first, memory.sums);
        }
      }
      const int64_t offset = (task.group * job.filters + task.filter) * job.channels + task.channel;
      if (job.slices == 1) {
        store_sums(task, memory.sums, static_cast<T*>(job.result) + offset);
      } else {
        const int64_t slice = job.groups * job.filters * job.channels;
        store_sums(task, memory.sums, static_cast<A*>(job.workspace) + task.slice * slice + offset);
      }
    }
  }

  // The slices' sums, in their order.
  void add_slices(int64_t begin, int64_t end) const {
    const int64_t slice = job.groups * job.filters * job.channels;
    for (int64_t i = begin; i < end; i += L) {
      const int64_t count = minimum(end - i, L);
      const A* part = static_cast<const A*>(job.workspace) + i;
      T* const target = static_cast<T*>(job.result) + i;
      if (count == L) {
        Simd<A, L> sum = load<L>(part);
        for (int64_t s = 1; s < job.slices; ++s) sum += load<L>(part + s * slice);
        store<L>(target, sum);
        continue;
      }
      for (int64_t k = 0; k < count; ++k) {
        A sum = part[k];
        for (int64_t s = 1; s < job.slices; ++s) sum += part[s * slice + k];
        store_one(target + k, sum);
      }
    }
  }
};

}  // namespace products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
