// Row products (cuConv on a CPU): vector lanes along positions of the packed planes, threads over images,
// blocks of filters and ranges of positions. Included last by each cpu_*.cpp.
#pragma once
#include "methods/cuconv/cpu/strip.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace row_products {

// S: T where the source itself is read, else accumulators.
template <class T, class S>
struct RowProducts {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;

  const Job& job;
  const Sweep& s = job.sweep;
  PackedPlane plane = cuconv::packed_plane(s);
  int64_t first_image, images;
  int64_t blocks = ceil_divide(s.result_channels, kFilters);
  int64_t positions = (s.result_height - 1) * plane.pitch + s.result_width;
  int64_t ranges = ceil_divide(positions, job.positions);

  int64_t tasks() const { return images * s.groups * blocks * ranges; }

  void list_taps(int64_t* offsets) const {
    for (int64_t row = 0; row < s.filter_height; ++row) {
      for (int64_t column = 0; column < s.filter_width; ++column) {
        const int64_t down = row * s.dilation_h, across = column * s.dilation_w;
        const int64_t column_residues = s.filter_width == 1 ? 1 : s.stride_w;
        *offsets++ = (down % s.stride_h * column_residues + across % s.stride_w) * plane.residue_plane +
                     down / s.stride_h * plane.pitch + across / s.stride_w;
      }
    }
  }

  // The block's filter values as accumulators.
  const A* widened(const T* packed, A* memory) const {
    if constexpr (sizeof(T) == sizeof(A)) {
      return packed;
    } else {
      const int64_t count = s.source_channels * s.taps() * kFilters;
      for (int64_t i = 0; i < count; ++i) memory[i] = widen(packed[i]);
      return memory;
    }
  }

  // Positions begin to begin + count of one filter's sums to memory: runs of a row, without what lies
  // between.
  CONVX_INLINE void store_positions(const A* sums, int64_t begin, int64_t count, int64_t channel,
                                    T* target) const {
    const ChannelEpilogue<T> epilogue(job.epilogue, channel);
    for (int64_t i = 0; i < count;) {
      const int64_t row = (begin + i) / plane.pitch, column = begin + i - row * plane.pitch;
      const int64_t run = minimum(s.result_width - column, count - i);
      if (run > 0) store_row<T>(sums + i, target + row * s.result_width + column, run, 1, epilogue);
      i += minimum(plane.pitch - column, count - i);
    }
  }

  // Results [position, position + count) of a block's filters, count up to Vectors vectors.
  template <int Vectors>
  CONVX_INLINE void strip(const StripSource<S>& source, const A* weight, int64_t position, int64_t count,
                          int64_t channel, int64_t filters, T* target, A* sums) const {
    // The source itself has nothing behind its end: its last strip begins earlier.
    const int64_t start = job.workspace == nullptr ? minimum(position, positions - Vectors * L) : position;
    add_strip<A, S, Vectors>(source, weight, start, sums);
    for (int64_t k = 0; k < filters; ++k) {
      store_positions(sums + k * Vectors * L + position - start, position, minimum(count, Vectors * L),
                      channel + k, target + k * s.result_plane());
    }
  }

  void run(int64_t begin, int64_t end) const {
    Scratch offset_memory(s.taps() * static_cast<int64_t>(sizeof(int64_t)));
    Scratch weight_memory(sizeof(T) == sizeof(A)
                              ? 0
                              : s.source_channels * s.taps() * kFilters * static_cast<int64_t>(sizeof(A)));
    alignas(64) A sums[(kFilters * kVectors + 1) * L];
    int64_t* const offsets = offset_memory.as<int64_t>();
    list_taps(offsets);
    const int64_t block_elements = s.source_channels * s.taps() * kFilters;
    int64_t widened_block = -1;
    const A* weight = nullptr;
    // Ranges of one block follow one another, so that its filters stay in the cache.
    for (int64_t task = begin; task < end; ++task) {
      const int64_t range = task % ranges, block = task / ranges % blocks;
      const int64_t group = task / ranges / blocks % s.groups, image = task / ranges / blocks / s.groups;
      if (widened_block != group * blocks + block) {
        widened_block = group * blocks + block;
        weight = widened(static_cast<const T*>(job.weight) + widened_block * block_elements,
                         weight_memory.as<A>());
      }
      const int64_t channel_step = job.workspace == nullptr ? s.source_plane() : plane.elements;
      StripSource<S> source{nullptr, s.source_channels, channel_step, s.taps(), offsets};
      const int64_t first_channel = s.source_channels * group;
      source.first =
          job.workspace == nullptr
              ? static_cast<const S*>(job.source) +
                    ((first_image + image) * s.groups * s.source_channels + first_channel) * channel_step
              : static_cast<const S*>(job.workspace) +
                    (image * s.groups * s.source_channels + first_channel) * channel_step;
      const int64_t channel = group * s.result_channels + block * kFilters;
      T* const target = static_cast<T*>(job.result) +
                        ((first_image + image) * s.groups * s.result_channels + channel) * s.result_plane();
      run_range(source, weight, range * job.positions, minimum((range + 1) * job.positions, positions),
                channel, minimum(kFilters, s.result_channels - block * kFilters), target, sums);
    }
  }

  void run_range(const StripSource<S>& source, const A* weight, int64_t begin, int64_t end, int64_t channel,
                 int64_t filters, T* target, A* sums) const {
    int64_t position = begin;
    for (; position + (kVectors - 1) * L < end; position += kVectors * L) {
      strip<kVectors>(source, weight, position, end - position, channel, filters, target, sums);
    }
    for (; position < end; position += L) {
      strip<1>(source, weight, position, end - position, channel, filters, target, sums);
    }
  }
};

template <class T>
void pack_images(const Job& job, int64_t first_image, int64_t images, const ThreadPool& pool) {
  using A = Accumulator<T>;
  const Sweep& s = job.sweep;
  const PackedPlane plane = cuconv::packed_plane(s);
  const int64_t channels = images * s.groups * s.source_channels;
  const T* const source =
      static_cast<const T*>(job.source) + first_image * s.groups * s.source_channels * s.source_plane();
  A* const packed = static_cast<A*>(job.workspace);
  pool.parallel_for(channels, ceil_divide(channels, pool.threads), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      pack_channel(s, plane, source + c * s.source_plane(), packed + c * plane.elements);
    }
  });
  for (int64_t i = 0; i < cuconv::kOverread; ++i) packed[channels * plane.elements + i] = A(0);
}

template <class T, class S>
void run_products(const Job& job, int64_t first_image, int64_t images, const ThreadPool& pool) {
  const RowProducts<T, S> products{job, job.sweep, cuconv::packed_plane(job.sweep), first_image, images};
  const int64_t tasks = products.tasks();
  const double work =
      static_cast<double>(images * job.sweep.groups * job.sweep.result_channels * products.positions) *
      static_cast<double>(job.sweep.source_channels * job.sweep.taps());
  const bool tiny = work < 1e6;  // some ten microseconds: not worth waking threads
  pool.parallel_for(tasks, tiny ? tasks : ceil_divide(tasks, pool.threads),
                    [&products](int64_t begin, int64_t end) { products.run(begin, end); });
}

template <class T>
void run_typed(const Job& job, const ThreadPool& pool) {
  if (job.workspace == nullptr) return run_products<T, T>(job, 0, job.sweep.batch, pool);
  for (int64_t image = 0; image < job.sweep.batch; image += job.images) {
    const int64_t images = minimum(job.images, job.sweep.batch - image);
    pack_images<T>(job, image, images, pool);
    run_products<T, Accumulator<T>>(job, image, images, pool);
  }
}

}  // namespace row_products

void run(const cuconv::Job& job, const ThreadPool& pool) {
  with_element(job.dtype, [&](auto element) { row_products::run_typed<decltype(element)>(job, pool); });
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
