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

  // Sums grow where the result is, if that can hold them, else in the workspace.
  int64_t sums_pitch = job.workspace == nullptr ? job.channels : round_up(job.channels, L);
  int64_t slice_elements = job.groups * job.filters * sums_pitch;

  struct Memory {
    A *input, *gradient;
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
            {input.values + column, input.step}, depth, depth,
            {sums + first * sums_pitch + column, sums_pitch, add});
      }
    }
  }

  // Of the task's first filter and channel.
  CONVX_INLINE A* sums_of(const Task& task) const {
    A* const slice = job.workspace == nullptr ? reinterpret_cast<A*>(job.result)
                                              : static_cast<A*>(job.workspace) + task.slice * slice_elements;
    return slice + (task.group * job.filters + task.filter) * sums_pitch + task.channel;
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t input_count = job.pixels * job.columns;
    const int64_t gradient_count = maximum(job.rows * pitch, job.pixels * job.rows);
    Scratch scratch((input_count + gradient_count) * static_cast<int64_t>(sizeof(A)) +
                    2 * job.pixels * static_cast<int64_t>(sizeof(int64_t)));
    Memory memory;
    memory.input = scratch.template as<A>();
    memory.gradient = memory.input + input_count;
    memory.lists = reinterpret_cast<int64_t*>(memory.gradient + gradient_count);
    for (int64_t index = begin; index < end; ++index) {
      const Task task = this->task(index);
      A* const sums = sums_of(task);
      const int64_t first = chunks * task.slice / job.slices;
      const int64_t last = chunks * (task.slice + 1) / job.slices;
      for (int64_t chunk = first; chunk < last; ++chunk) {
        const int64_t image = chunk / chunks_each, part = chunk % chunks_each;
        const int64_t pixel = part * job.pixels, count = minimum(job.pixels, grid.pixels() - pixel);
        const Pixels source = pixels_of(grid, grid.source, pixel, count, memory.lists);
        const Pixels result = pixels_of(grid, grid.result, pixel, count, memory.lists + job.pixels);
        const Vectors<A> input = input_of(task, image, source, memory);
        const Rows<A> gradient = gradient_of(task, image, result, memory);
        if (job.channels_last) {
          add_chunk<true>(task, gradient, input, count, chunk > first, sums);
        } else {
          add_chunk<false>(task, gradient, input, count, chunk > first, sums);
        }
      }
    }
  }

  // The slices' sums, in their order, of some filters.
  void add_slices(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      const A* part = static_cast<const A*>(job.workspace) + row * sums_pitch;
      T* const target = static_cast<T*>(job.result) + row * job.channels;
      for (int64_t i = 0; i < job.channels; i += L) {
        Simd<A, L> sum = load<L>(part + i);
        for (int64_t s = 1; s < job.slices; ++s) sum += load<L>(part + s * slice_elements + i);
        const int64_t count = minimum(job.channels - i, L);
        count == L ? store<L>(target + i, sum) : store_some<L>(target + i, sum, count);
      }
    }
  }
};

}  // namespace products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
