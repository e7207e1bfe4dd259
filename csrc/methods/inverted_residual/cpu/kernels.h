// Inverted residual blocks on CPUs, by strips of rows that stay in a core's caches: expanded rows are
// filtered as soon as there are enough of them, and projected with all their channels. Included last by each
// cpu_*.cpp.
#pragma once
#include "methods/gates/cpu.h"
#include "methods/inverted_residual/cpu/filter.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace blocks {

using convx::panels::chain_of;
using convx::panels::kPanel;
using inverted_residual::cpu::Geometry;
using inverted_residual::cpu::Job;
using inverted_residual::cpu::Tiling;

template <int Filter, int Stride>
struct Kernel {
  static constexpr int64_t kPadding = Filter / 2;
  static constexpr int64_t kMostRows = (inverted_residual::cpu::kMostHeight - 1) * Stride + Filter;

  const Job& job;
  const BlockProblem& p = job.problem;
  const Geometry& g = job.geometry;
  Ends inside{p.activation}, after{p.output_activation};
  int64_t expand_chain = chain_of(p.expand_depth()), project_chain = chain_of(p.expanded_channels);
  float per_pixel = 1.0f / static_cast<float>(p.out_pixels());

  // What one thread has of its own.
  struct Worker {
    float *expanded, *zeros, *filtered, *lines;
  };
  Worker worker(int64_t index) const {
    float* const own = job.workspace + index * g.worker;
    const Worker found{own, own + g.zeros_at, own + g.filtered_at, own + g.lines_at};
    // Columns of padding, which no row of the ring writes to.
    const int64_t rows = job.tiling.bands > 0 ? g.blocks : minimum(g.blocks, kPanel);
    for (int64_t block = 0; block < rows; ++block) {
      for (int64_t row = 0; row < g.ring_rows; ++row) {
        float* const first = found.expanded + block * g.block_rows + row * g.row;
        zero_over(first, kPadding * L);
        zero_over(first + g.row - kPadding * L, kPadding * L);
      }
    }
    zero_over(found.zeros, g.row);
    return found;
  }

  int64_t panels() const { return ceil_divide(g.blocks, kPanel); }
  int64_t out_panels() const { return ceil_divide(g.out_blocks, kPanel); }
  int64_t vectors(int64_t panel, int64_t blocks) const { return minimum(kPanel, blocks - panel * kPanel); }
  const float* image(int64_t index) const { return job.input + index * p.channels * p.height * p.width; }
  float* result(int64_t index) const { return job.result + index * p.out_channels * p.out_pixels(); }
  // Of the shared tensor.
  float* filtered(int64_t index) const {
    return job.workspace + g.filtered_images_at + index * g.blocks * g.filtered_block;
  }
  float* plane_sums(int64_t task) const { return job.workspace + g.plane_sums_at + task * g.blocks * L; }
  // Of squeezed channels: what one part of the expanded ones adds; and a thread's own, all of them.
  float* part_of_squeezed(int64_t index, int64_t part) const {
    return job.workspace + g.parts_at + (index * g.parts + part) * g.squeezed;
  }
  float* squeezed(int64_t worker) const { return job.workspace + worker * g.worker + g.squeezed_at; }
  float* gates(int64_t index) const { return job.workspace + g.gates_at + index * g.blocks * L; }

  // A first convolution's patches of one expanded row lie in padded rows of each channel.
  void fill_lines(const float* image, int64_t row, float* lines) const {
    const int64_t padding = p.expand_filter / 2;
    const bool is_planar = p.layout == Layout::nchw;
    const int64_t channel_step = is_planar ? p.height * p.width : 1, step = is_planar ? 1 : p.channels;
    for (int64_t c = 0; c < p.channels; ++c) {
      for (int64_t tap = 0; tap < p.expand_filter; ++tap, lines += g.line) {
        const int64_t y = row * p.expand_stride - padding + tap;
        const bool is_inside = y >= 0 && y < p.height;
        const float* const from = image + c * channel_step + y * p.width * step;
        pack_row(Line<float>{is_inside ? from : nullptr, p.width, step}, -padding, lines, g.line);
      }
    }
  }

  Source source_of(const float* image, int64_t row, const Worker& own) const {
    const int64_t depth = p.expand_depth();
    if (p.expand_filter > 1) return {own.lines, 0, p.expand_stride, g.line, p.expand_filter, depth};
    const int64_t row_step = p.width * p.channels;
    return {image + row * row_step, row_step, p.channels, depth, depth, depth};
  }

  // Rows of a panel, to their places behind the padding.
  void expand(const Source& from, int64_t rows, int64_t panel, float* to) const {
    const int64_t first = panel * kPanel * L, count = vectors(panel, g.blocks);
    const Target target{to + kPadding * L, g.row, L, g.block_rows, nullptr, L};
    multiply(from, {rows, p.expanded_width}, expand_chain, job.packed + first * p.expand_depth(),
             job.packed + g.expand_bias_at + first, count, target, inside);
  }

  // Rows of results of one block, from expanded rows where `row_at` has them.
  template <class RowAt>
  void filter(int64_t block, int64_t begin, int64_t count, const float* zeros, const RowAt& row_at,
              float* results) const {
    const float* rows[kMostRows];
    const int64_t first = begin * Stride - kPadding, needed = (count - 1) * Stride + Filter;
    const bool is_finite = job.packed[g.is_finite_at] != 0;
    for (int64_t i = 0; i < needed; ++i) {
      const int64_t row = first + i;
      const bool is_inside = row >= 0 && row < p.expanded_height;
      rows[i] = is_inside ? row_at(row) : is_finite ? zeros : nullptr;
    }
    const float* const filters = job.packed + g.depthwise_at + block * Filter * Filter * L;
    const float* const bias = job.packed + g.depthwise_bias_at + block * L;
    if (is_finite) {
      filter_strip<Filter, Stride>(rows, count, p.out_width, filters, bias, results, p.out_width * L, inside);
    } else {
      filter_inside(rows, Filter, Stride, count, p.out_width, p.expanded_width, filters, bias, results,
                    inside);
    }
  }

  // Pixels of one panel of an image, of which `filtered` has the first.
  void project(int64_t index, int64_t panel, int64_t pixel, int64_t count, const float* filtered) const {
    const int64_t first = panel * kPanel * L, width = vectors(panel, g.out_blocks);
    const int64_t place = pixel * p.out_channels + first;
    const Source from{filtered, 0, L, g.filtered_block, L, p.expanded_channels};
    const float* const residual = p.has_residual ? image(index) + place : nullptr;
    const int64_t last_lanes = minimum(p.out_channels - first - (width - 1) * L, L);
    const Target to{result(index) + place, 0, p.out_channels, L, residual, last_lanes};
    multiply(from, {1, count}, project_chain, job.packed + g.project_at + first * p.expanded_channels,
             job.packed + g.project_bias_at + first, width, to, after);
  }

  void project_all(int64_t index, int64_t pixel, int64_t count, const float* filtered) const {
    for (int64_t panel = 0; panel < out_panels(); ++panel) project(index, panel, pixel, count, filtered);
  }

  // Filters `count` rows from `row` on, of all channels: those of a block to filtered + block *
  // filtered_block. Expands the rows that are missing for that, from `have` on.
  void filter_rows_of(int64_t index, int64_t row, int64_t count, int64_t& have, const Worker& own,
                      float* filtered) const {
    const float* const image = this->image(index);
    const int64_t needed = minimum((row + count - 1) * Stride - kPadding + Filter, p.expanded_height);
    const auto ring = [&](int64_t block, int64_t at) {
      return own.expanded + block * g.block_rows + at % g.ring_rows * g.row;
    };
    if (p.expand_filter > 1) {  // all panels read the same lines
      for (; have < needed; ++have) {
        fill_lines(image, have, own.lines);
        const Source from = source_of(image, have, own);
        for (int64_t panel = 0; panel < panels(); ++panel) {
          expand(from, 1, panel, ring(panel * kPanel, have));
        }
      }
    }
    for (int64_t panel = 0; panel < panels(); ++panel) {
      for (int64_t at = have, rows = 0; at < needed; at += rows) {
        rows = minimum(needed - at, g.ring_rows - at % g.ring_rows);
        expand(source_of(image, at, own), rows, panel, ring(panel * kPanel, at));
      }
      for (int64_t v = 0; v < vectors(panel, g.blocks); ++v) {
        const int64_t block = panel * kPanel + v;
        filter(
            block, row, count, own.zeros, [&](int64_t at) { return ring(block, at); },
            filtered + block * g.filtered_block);
      }
    }
    have = maximum(have, needed);
  }

  // body(row, count, the next row to expand) for each strip of a band.
  template <class Body>
  void walk_strips(int64_t begin, int64_t end, const Body& body) const {
    int64_t have = maximum(begin * Stride - kPadding, 0);
    for (int64_t row = begin; row < end; row += job.tiling.strip_rows) {
      body(row, minimum(job.tiling.strip_rows, end - row), have);
    }
  }

  // Rows of results of an image.
  void run_band(int64_t index, int64_t begin, int64_t end, const Worker& own) const {
    walk_strips(begin, end, [&](int64_t row, int64_t count, int64_t& have) {
      filter_rows_of(index, row, count, have, own, own.filtered);
      project_all(index, row * p.out_width, count * p.out_width, own.filtered);
    });
  }

  // Rows of what is filtered of an image, and their sums.
  void run_excited_band(int64_t index, int64_t begin, int64_t end, const Worker& own, float* filtered,
                        float* sums) const {
    zero_over(sums, g.blocks * L);
    walk_strips(begin, end, [&](int64_t row, int64_t count, int64_t& have) {
      float* const first = filtered + row * p.out_width * L;
      filter_rows_of(index, row, count, have, own, first);
      for (int64_t block = 0; block < g.blocks; ++block) {
        add_to<L>(sums + block * L, sum_of(first + block * g.filtered_block, count * p.out_width));
      }
    });
  }

  static V sum_of(const float* vectors, int64_t count) {
    V sums[4] = {};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (int k = 0; k < 4; ++k) sums[k] += load<L>(vectors + (i + k) * L);
    }
    for (; i < count; ++i) sums[0] += load<L>(vectors + i * L);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // What the means of some blocks add to an image's squeezed channels.
  void squeeze(int64_t index, int64_t part, int64_t begin, int64_t end, const float* means) const {
    float* const to = part_of_squeezed(index, part);
    for (int64_t s = 0; s < p.squeezed_channels; ++s) {
      V sum{};
      const float* const row = job.packed + g.squeeze_at + s * g.blocks * L;
      for (int64_t block = begin; block < end; ++block) {
        const int64_t lanes = minimum(p.expanded_channels - block * L, L);  // behind them may be NaN times 0
        const V mean = lanes == L ? load<L>(means + block * L) : load_lanes(means + block * L, lanes);
        sum += load<L>(row + block * L) * mean;
      }
      to[s] = sum_lanes<float, L>(sum);
    }
  }

  void finish_squeezed(int64_t index, float* to) const {
    for (int64_t s = 0; s < p.squeezed_channels; s += L) {
      V sum = load<L>(job.packed + g.squeeze_bias_at + s);
      for (int64_t part = 0; part < g.parts; ++part) sum += load<L>(part_of_squeezed(index, part) + s);
      store<L>(to + s, activate<float, L>(sum, p.squeeze_activation));
    }
  }

  // Gates of some blocks: row by row of the matrix, as it lies in memory.
  void excite(int64_t index, int64_t begin, int64_t end, const float* squeezed) const {
    float* const to = gates(index);
    const float *const bias = job.packed + g.excite_bias_at, *row = job.packed + g.excite_at;
    for (int64_t i = begin * L; i < end * L; i += L) store<L>(to + i, load<L>(bias + i));
    for (int64_t s = 0; s < p.squeezed_channels; ++s, row += g.blocks * L) {
      const V value = broadcast<V>(squeezed[s]);
      for (int64_t i = begin * L; i < end * L; i += L) {
        store<L>(to + i, load<L>(to + i) + load<L>(row + i) * value);
      }
    }
    for (int64_t i = begin * L; i < end * L; i += L) {
      store<L>(to + i, gate_of<float, L>(load<L>(to + i), p.gate));
    }
  }

  // Of an image, from the sums of its bands.
  void make_gates(int64_t index, int64_t worker) const {
    const int64_t length = g.blocks * L, bands = job.tiling.bands;
    float* const means = plane_sums(index * bands);  // in the place of the first band's
    for (int64_t i = 0; i < length; i += L) {
      V sum = load<L>(means + i);
      for (int64_t band = 1; band < bands; ++band) sum += load<L>(means + band * length + i);
      store<L>(means + i, sum * per_pixel);
    }
    squeeze(index, 0, 0, g.blocks, means);
    finish_squeezed(index, squeezed(worker));
    excite(index, 0, g.blocks, squeezed(worker));
  }

  // Pixels of one block, by its gates.
  void scale(int64_t index, int64_t block, int64_t count, float* values) const {
    const V gate = load<L>(gates(index) + block * L);
    for (int64_t i = 0; i < count; ++i) store<L>(values + i * L, load<L>(values + i * L) * gate);
  }

  // Some pixels of an image, times its gates first.
  void project_excited(int64_t index, int64_t begin, int64_t end, float* filtered) const {
    constexpr int64_t kAtOnce = 4 * kTilePixels;  // which stay in the first cache from one to the other
    for (int64_t pixel = begin; pixel < end; pixel += kAtOnce) {
      const int64_t count = minimum(kAtOnce, end - pixel);
      for (int64_t block = 0; block < g.blocks; ++block) {
        scale(index, block, count, filtered + block * g.filtered_block + pixel * L);
      }
      project_all(index, pixel, count, filtered + pixel * L);
    }
  }

  // All rows of one panel, to the tensor that threads share.
  void run_panel(int64_t index, int64_t panel, const Worker& own) const {
    const float* const image = this->image(index);
    const int64_t at_once = p.expand_filter > 1 ? 1 : p.expanded_height;
    for (int64_t row = 0; row < p.expanded_height; row += at_once) {
      if (p.expand_filter > 1) fill_lines(image, row, own.lines);
      expand(source_of(image, row, own), at_once, panel, own.expanded + row * g.row);
    }
    const int64_t first = panel * kPanel, count = vectors(panel, g.blocks);
    for (int64_t v = 0; v < count; ++v) {
      float* const to = filtered(index) + (first + v) * g.filtered_block;
      filter(
          first + v, 0, p.out_height, own.zeros,
          [&](int64_t at) { return own.expanded + v * g.block_rows + at * g.row; }, to);
      if (p.squeezed_channels == 0) continue;
      store<L>(plane_sums(index) + (first + v) * L, sum_of(to, p.out_pixels()) * per_pixel);
    }
    if (p.squeezed_channels > 0) squeeze(index, panel, first, first + count, plane_sums(index));
  }

  // Of each image, when all of its panels are there: what is filtered, times its gates.
  void scale_panels(const ThreadPool& pool) const {
    pool.share(job.tiling.workers, p.batch * panels(), [&](int64_t index, int64_t begin, int64_t end) {
      walk_runs(begin, end, panels(), [&](int64_t image, int64_t panel, int64_t count) {
        finish_squeezed(image, squeezed(index));
        const int64_t first = panel * kPanel, last = minimum(first + count * kPanel, g.blocks);
        excite(image, first, last, squeezed(index));
        for (int64_t block = first; block < last; ++block) {
          scale(image, block, p.out_pixels(), filtered(image) + block * g.filtered_block);
        }
      });
    });
  }

  void run(const ThreadPool& pool) const {
    if (job.tiling.bands == 0) return run_panels(pool);
    p.squeezed_channels > 0 ? run_excited(pool) : run_bands(pool);
  }

  struct Band {
    int64_t image, begin, end;
  };
  Band band_of(int64_t task) const {
    const int64_t bands = job.tiling.bands, band = task % bands;
    return {task / bands, p.out_height * band / bands, p.out_height * (band + 1) / bands};
  }

  void run_bands(const ThreadPool& pool) const {
    pool.share(job.tiling.workers, p.batch * job.tiling.bands,
               [&](int64_t index, int64_t begin, int64_t end) {
                 const Worker own = worker(index);
                 for (int64_t task = begin; task < end; ++task) {
                   const Band band = band_of(task);
                   run_band(band.image, band.begin, band.end, own);
                 }
               });
  }

  void run_excited(const ThreadPool& pool) const {
    const bool is_whole = job.tiling.bands == 1;  // images, from the first to the last
    pool.share(job.tiling.workers, p.batch * job.tiling.bands,
               [&](int64_t index, int64_t begin, int64_t end) {
                 const Worker own = worker(index);
                 for (int64_t task = begin; task < end; ++task) {
                   const Band band = band_of(task);
                   float* const filtered = is_whole ? own.filtered : this->filtered(band.image);
                   run_excited_band(band.image, band.begin, band.end, own, filtered, plane_sums(task));
                   if (!is_whole) continue;
                   make_gates(task, index);
                   project_excited(task, 0, p.out_pixels(), filtered);
                 }
               });
    if (is_whole) return;
    for (int64_t image = 0; image < p.batch; ++image) make_gates(image, 0);
    const int64_t pixels = p.out_pixels();
    pool.share(job.tiling.workers, p.batch * pixels, [&](int64_t, int64_t begin, int64_t end) {
      walk_runs(begin, end, pixels, [&](int64_t image, int64_t pixel, int64_t count) {
        project_excited(image, pixel, pixel + count, filtered(image));
      });
    });
  }

  // body(run, first, count) for the parts of runs of so many that lie between.
  template <class Body>
  static void walk_runs(int64_t begin, int64_t end, int64_t length, const Body& body) {
    while (begin < end) {
      const int64_t first = begin % length, count = minimum(length - first, end - begin);
      body(begin / length, first, count);
      begin += count;
    }
  }

  void run_panels(const ThreadPool& pool) const {
    pool.share(job.tiling.workers, p.batch * panels(), [&](int64_t index, int64_t begin, int64_t end) {
      const Worker own = worker(index);
      for (int64_t task = begin; task < end; ++task) run_panel(task / panels(), task % panels(), own);
    });
    if (p.squeezed_channels > 0) scale_panels(pool);
    // Pixels times panels, cut anywhere.
    const int64_t pixels = p.out_pixels();
    const auto project_some = [&](int64_t, int64_t begin, int64_t end) {
      walk_runs(begin, end, pixels, [&](int64_t run, int64_t pixel, int64_t count) {
        const int64_t image = run / out_panels();
        project(image, run % out_panels(), pixel, count, filtered(image) + pixel * L);
      });
    };
    pool.share(job.tiling.workers, p.batch * out_panels() * pixels, project_some);
  }
};

template <int Filter>
void run_filter(const Job& job, const ThreadPool& pool) {
  if (job.problem.stride == 1) return Kernel<Filter, 1>{job}.run(pool);
  Kernel<Filter, 2>{job}.run(pool);
}

}  // namespace blocks

void run(const inverted_residual::cpu::Job& job, const ThreadPool& pool) {
  if (job.problem.filter == 3) return blocks::run_filter<3>(job, pool);
  blocks::run_filter<5>(job, pool);
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
