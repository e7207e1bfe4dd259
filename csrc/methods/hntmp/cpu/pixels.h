// HNTMP for pixels of channels_last, which are read where they lie: what a filter's row meets is one run of
// neighbours. Rows are copied for their padding alone.
#pragma once
#include "methods/hntmp/cpu/job.h"
#include "methods/panels/product.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace owning_pixels {

using convx::panels::chain_of;
using panels::Ends;
using panels::L;
using panels::Source;
using panels::Target;

struct Kernel {
  const hntmp::PixelsJob& job;
  const Sweep& s = job.sweep;
  const hntmp::PixelsGeometry& g = job.geometry;
  // What tiles can't do themselves goes over their sums: a scale, what follows the activation.
  bool ends_apart = (job.epilogue.more & (kScale | kResidualAfter)) != 0;
  Ends ends{ends_apart ? Activation::none : job.epilogue.activation};
  int64_t chain = chain_of(s.source_channels * s.taps());

  // Rows that the results of a strip meet, zeros around.
  void fill_rows(const float* image, int64_t first, int64_t count, float* rows) const {
    const int64_t length = s.source_width * s.source_channels, left = s.left * s.source_channels;
    for (int64_t i = 0; i < count; ++i, rows += g.row) {
      const int64_t row = first + i;
      const bool is_inside = row >= 0 && row < s.source_height;
      pack_row(Line<float>{is_inside ? image + row * length : nullptr, length, 1}, -left, rows, g.row);
    }
  }

  void run_task(int64_t task, float* rows, const float* biases) const {
    const int64_t part = task % job.parts, band = task / job.parts % job.bands;
    const int64_t index = task / (job.parts * job.bands);
    const float* const image = job.source + index * s.source_plane() * s.source_channels;
    float* const result = job.result + index * s.result_plane() * s.result_channels;
    const int64_t begin = s.result_height * band / job.bands, end = s.result_height * (band + 1) / job.bands;
    const int64_t panels = ceil_divide(g.blocks, panels::kPanel);
    for (int64_t row = begin; row < end; row += job.strip_rows) {
      const int64_t count = minimum(job.strip_rows, end - row);
      fill_rows(image, row * s.stride_h - s.top, (count - 1) * s.stride_h + s.filter_height, rows);
      for (int64_t panel = panels * part / job.parts; panel < panels * (part + 1) / job.parts; ++panel) {
        multiply_rows(rows, count, panel, biases, result + row * s.result_width * s.result_channels);
      }
    }
  }

  // Rows of results, of a panel's channels.
  void multiply_rows(const float* rows, int64_t count, int64_t panel, const float* biases,
                     float* result) const {
    const int64_t first = panel * panels::kPanel * L, run = s.filter_width * s.source_channels;
    const int64_t depth = run * s.filter_height;
    const int64_t vectors = minimum(panels::kPanel, g.blocks - panel * panels::kPanel);
    const Source from{rows, s.stride_h * g.row, s.stride_w * s.source_channels, g.row, run, depth};
    float* const to = result + first;
    const bool adds = (job.epilogue.more & kResidualBefore) != 0 && !ends_apart;
    const float* const residual = adds ? residual_of(to, job.epilogue.residual_distance) : nullptr;
    const int64_t last_lanes = minimum(s.result_channels - first - (vectors - 1) * L, L);
    const Target target{to, s.result_width * s.result_channels, s.result_channels, L, residual, last_lanes};
    panels::multiply(from, {count, s.result_width}, chain, job.filters + first * depth, biases + first,
                     vectors, target, ends);
    if (!ends_apart) return;
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t lanes = v + 1 == vectors ? last_lanes : L;
      const LaneEpilogue<float, L> epilogue(job.epilogue, first + v * L, lanes);
      for (int64_t x = 0; x < count * s.result_width; ++x) {
        float* const place = to + x * s.result_channels + v * L;
        panels::store_lanes(place, epilogue(panels::load_lanes(place, lanes), place, lanes), lanes);
      }
    }
  }

  // What sums begin with: where a scale comes before the bias, zeros.
  void fill_biases(float* biases) const {
    zero_over(biases, g.blocks * L);
    if (job.epilogue.bias == nullptr || ends_apart) return;
    const auto* const bias = static_cast<const float*>(job.epilogue.bias);
    for (int64_t c = 0; c < s.result_channels; ++c) biases[c] = bias[c];
  }

  void run(const ThreadPool& pool) const {
    const int64_t tasks = s.batch * job.bands * job.parts;
    pool.share(job.workers, tasks, [&](int64_t worker, int64_t begin, int64_t end) {
      float* const own = job.workspace + worker * g.worker;
      fill_biases(own + g.biases_at);
      for (int64_t task = begin; task < end; ++task) run_task(task, own, own + g.biases_at);
    });
  }
};

}  // namespace owning_pixels

void run(const hntmp::PixelsJob& job, const ThreadPool& pool) {
  owning_pixels::Kernel{job}.run(pool);
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
