// The CPU form of HNTMP: a task stages its input rows once, then goes through its blocks of result channels.
#pragma once
#include "methods/hntmp/cpu/ends.h"
#include "methods/hntmp/cpu/pixels.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace owning_channels {

template <class T>
struct Kernel {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int64_t kBlock = 2 * L;  // result channels of a block

  const hntmp::Job& job;
  const Sweep& s = job.sweep;
  int64_t taps = s.taps();
  int64_t blocks = ceil_divide(s.result_channels, kBlock);
  int64_t row_parts = ceil_divide(s.result_height, job.rows);
  int64_t block_parts = ceil_divide(blocks, job.blocks);
  const hntmp::ThreadMemory<int64_t>& own = job.memory;

  int64_t tasks() const { return s.batch * s.groups * row_parts * block_parts; }

  void stage(const T* group, int64_t first_row, A* staged) const {
    const int64_t channels = s.groups * s.source_channels;
    const int64_t pixel_step = job.channels_last ? channels : 1;
    const int64_t channel_distance = job.channels_last ? 1 : s.source_height * s.source_width;
    for (int64_t c = 0; c < s.source_channels; ++c) {
      for (int64_t r = 0; r < own.window_rows; ++r) {
        const int64_t y = first_row + r;
        if (y < 0 || y >= s.source_height) {
          for (int64_t i = 0; i < own.row_step; ++i) *staged++ = A(0);
          continue;
        }
        const T* row = group + c * channel_distance + y * s.source_width * pixel_step;
        for (int64_t phase = 0; phase < own.phases; ++phase, staged += own.pitch) {
          stage_columns(row, pixel_step, s.source_width, phase - s.left, s.stride_w, own.pitch, staged);
        }
      }
    }
  }

  // Filters as accumulators: those of 16 bits are widened once for all pixels that meet them.
  static const A* widen_filters(const T* weight, int64_t count, A* widened) {
    if constexpr (sizeof(T) == sizeof(A)) {
      return weight;
    } else {
      for (int64_t i = 0; i < count; i += L) store<L>(widened + i, load<L>(weight + i));
      return widened;
    }
  }

  // Sums of one block of result channels over all source channels, a few at a time: their filters stay in the
  // first-level cache while all pixels meet them.
  void add_block(const A* staged, const int64_t* offsets, const T* weight, int64_t rows, A* sums,
                 A* widened) const {
    const int64_t vector_step = job.rows * s.result_width * L;
    const int64_t tiles = ceil_divide(s.result_width, kMostPixels);
    for (int64_t c = 0; c < s.source_channels; c += job.source_channels) {
      const int64_t products = minimum(job.source_channels, s.source_channels - c) * taps;
      const int64_t chains = ceil_divide(products, job.chain);
      const A* filters = widen_filters(weight + c * taps * kBlock, products * kBlock, widened);
      for (int64_t y = 0; y < rows; ++y) {
        const A* row = staged + c * own.channel_step + y * s.stride_h * own.row_step;
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t x = s.result_width * tile / tiles, end = s.result_width * (tile + 1) / tiles;
          const auto add = add_products_of<A>(end - x, std::make_integer_sequence<int, kMostPixels>());
          for (int64_t chain = 0; chain < chains; ++chain) {
            const int64_t first = products * chain / chains, beyond = products * (chain + 1) / chains;
            const Window<A> window{row + x, offsets + first, beyond - first};
            add(window, filters + first * kBlock, c == 0 && chain == 0, sums + (y * s.result_width + x) * L,
                vector_step);
          }
        }
      }
    }
  }

  void finish_block(const A* sums, int64_t image, int64_t group, int64_t block, int64_t first_row,
                    int64_t rows) const {
    const int64_t plane = s.result_height * s.result_width, all = s.groups * s.result_channels;
    for (int64_t vector = 0; vector < 2; ++vector) {
      const int64_t first = block * kBlock + vector * L, left = s.result_channels - first;
      if (left <= 0) return;
      const int64_t channel = group * s.result_channels + first;
      Finish<T> finish{sums + vector * job.rows * s.result_width * L,
                       {job.epilogue, channel, minimum(left, L)},
                       rows * s.result_width,
                       minimum(left, L)};
      T* const result = static_cast<T*>(job.result);
      const int64_t pixel = first_row * s.result_width;
      if (job.channels_last) {
        finish.to_channels_last(result + (image * plane + pixel) * all + channel, all);
      } else {
        finish.to_planes(result + (image * all + channel) * plane + pixel, plane);
      }
    }
  }

  // Tasks of one thread, whose part of the workspace is `memory`.
  void run(int64_t begin, int64_t end, void* memory) const {
    A* const sums = static_cast<A*>(memory);
    A* const widened = sums + own.sums;
    int64_t* const offsets = reinterpret_cast<int64_t*>(widened + own.widened);
    A* const staged = reinterpret_cast<A*>(offsets + own.offsets);
    for (int64_t f = 0; f < s.filter_height; ++f) {
      for (int64_t g = 0; g < s.filter_width; ++g) {
        const int64_t across = g * s.dilation_w;
        offsets[f * s.filter_width + g] =
            f * s.dilation_h * own.row_step + across % s.stride_w * own.pitch + across / s.stride_w;
      }
    }
    for (int64_t i = taps; i < own.offsets; ++i) offsets[i] = offsets[i - taps] + own.channel_step;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % block_parts, row_part = task / block_parts % row_parts;
      const int64_t image_group = task / (block_parts * row_parts);
      const int64_t image = image_group / s.groups, group = image_group % s.groups;
      const int64_t first_row = row_part * job.rows, rows = minimum(job.rows, s.result_height - first_row);
      const int64_t plane = s.source_height * s.source_width;
      const T* source = static_cast<const T*>(job.source) + image * s.groups * s.source_channels * plane +
                        group * s.source_channels * (job.channels_last ? 1 : plane);
      stage(source, first_row * s.stride_h - s.top, staged);
      const int64_t last = minimum(blocks, (part + 1) * job.blocks);
      for (int64_t block = part * job.blocks; block < last; ++block) {
        const T* weight =
            static_cast<const T*>(job.weight) + (group * blocks + block) * s.source_channels * taps * kBlock;
        add_block(staged, offsets, weight, rows, sums, widened);
        finish_block(sums, image, group, block, first_row, rows);
      }
    }
  }
};

template <class T>
void run_typed(const hntmp::Job& job, const ThreadPool& pool) {
  const Kernel<T> kernel{job};
  const int64_t tasks = kernel.tasks();
  const double products =
      static_cast<double>(job.sweep.batch * job.sweep.groups * job.sweep.result_channels) *
      static_cast<double>(job.sweep.result_height * job.sweep.result_width) *
      static_cast<double>(job.sweep.source_channels * kernel.taps);
  // Less than some ten microseconds of work stays in this thread.
  if (job.threads <= 1 || tasks <= 1 || products < 4e5) {
    kernel.run(0, tasks, job.workspace);
    return;
  }
  const int64_t grain = ceil_divide(tasks, job.threads);
  pool.parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    // Pieces are no smaller than the grain: no two begin in the same one.
    kernel.run(begin, end, static_cast<char*>(job.workspace) + begin / grain * job.memory.bytes);
  });
}

}  // namespace owning_channels

void run(const hntmp::Job& job, const ThreadPool& pool) {
  with_element(job.dtype, [&](auto element) { owning_channels::run_typed<decltype(element)>(job, pool); });
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
