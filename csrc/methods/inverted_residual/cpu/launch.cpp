// Describes a problem to the kernels of the instruction set asked for, and packs its filters.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "methods/instruction_set.h"
#include "methods/inverted_residual/cpu/cpu.h"
#include "methods/inverted_residual/cpu/job.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "methods/panels/panels.h"

namespace convx::inverted_residual {
namespace {

using panels::kPanel;

int64_t same(int64_t depth) {
  return depth;
}

struct Matrix {
  int64_t rows, columns, row_step, column_step;
};

// Rows of whole vectors, zeros behind the last column.
void pack_rows(const float* values, const Matrix& m, int64_t lanes, float* packed) {
  for (int64_t row = 0; row < m.rows; ++row) {
    for (int64_t column = 0; column < round_up(m.columns, lanes); ++column, ++packed) {
      *packed = column < m.columns ? values[row * m.row_step + column * m.column_step] : 0.0f;
    }
  }
}

void pack_bias(const void* bias, int64_t channels, int64_t lanes, float* packed) {
  std::memset(packed, 0, static_cast<size_t>(round_up(channels, lanes)) * sizeof(float));
  if (bias != nullptr) std::memcpy(packed, bias, static_cast<size_t>(channels) * sizeof(float));
}

}  // namespace

void pack_weights_cpu(const Plan& plan, const BlockProblem& p, const void* weights, void* packed,
                      const ThreadPool& /*pool*/) {
  const auto& w = *static_cast<const BlockWeights*>(weights);
  const cpu::Tiling t = cpu::tiling_of(plan);
  const cpu::Geometry g = cpu::geometry_of(p, t);
  const auto floats = [](const void* address) { return static_cast<const float*>(address); };
  auto* const to = static_cast<float*>(packed);
  panels::pack(floats(w.expand), p.expanded_channels, p.expand_depth(), t.lanes, kPanel, to, same);
  pack_bias(w.expand_bias, p.expanded_channels, t.lanes, to + g.expand_bias_at);
  panels::pack(floats(w.depthwise), p.expanded_channels, p.filter * p.filter, t.lanes, 1, to + g.depthwise_at,
               same);
  pack_bias(w.depthwise_bias, p.expanded_channels, t.lanes, to + g.depthwise_bias_at);
  panels::pack(floats(w.project), p.out_channels, p.expanded_channels, t.lanes, kPanel, to + g.project_at,
               same);
  pack_bias(w.project_bias, p.out_channels, t.lanes, to + g.project_bias_at);
  const auto is_finite = [](float value) { return std::isfinite(value); };
  const float* const taps = floats(w.depthwise);
  const bool are_finite = std::all_of(taps, taps + p.expanded_channels * p.filter * p.filter, is_finite);
  to[g.is_finite_at] = are_finite ? 1.0f : 0.0f;
  if (p.squeezed_channels == 0) return;
  const ExciteWeights& inner = w.excitation;
  const int64_t channels = p.expanded_channels, squeezed = p.squeezed_channels;
  pack_rows(floats(inner.squeeze), {squeezed, channels, channels, 1}, t.lanes, to + g.squeeze_at);
  pack_bias(inner.squeeze_bias, squeezed, t.lanes, to + g.squeeze_bias_at);
  pack_rows(floats(inner.excite), {squeezed, channels, 1, squeezed}, t.lanes, to + g.excite_at);
  pack_bias(inner.excite_bias, channels, t.lanes, to + g.excite_bias_at);
}

void launch_cpu(const Plan& plan, const BlockProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  cpu::Job job{};
  job.input = static_cast<const float*>(pointers.input);
  job.packed = static_cast<const float*>(pointers.packed_weight);
  job.result = static_cast<float*>(pointers.result);
  job.workspace = static_cast<float*>(pointers.workspace);
  job.problem = problem;
  job.tiling = cpu::tiling_of(plan);
  job.geometry = cpu::geometry_of(problem, job.tiling);
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

}  // namespace convx::inverted_residual
