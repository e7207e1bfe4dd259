#include "choose/measured_dense.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "choose/measured_layers.h"
#include "choose/measured_machine.h"

namespace convx {
namespace {

constexpr size_t kParts = 9;

// One algorithm's times; benchmarks/dense_model.py fits them.
struct Series {
  const char* algorithm;
  Operation operation;
  DType dtype;
  bool tf32;
  Layout layout;
  double coefficients[kParts];
  int first, count;  // of its points
};

#include "choose/measured/cpu_2_cores_avx2_dense.inc"
#include "choose/measured/cpu_2_cores_avx512_dense.inc"
#include "choose/measured/nvidia_h200_dense.inc"

using Parts = std::array<double, kParts>;

// The operation as a product of matrices.
struct Product {
  double rows, columns, depth;
};

Product product_of(const ConvProblem& p) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const double in = static_cast<double>(p.in_channels), out = static_cast<double>(p.out_channels);
  const double in_pixels = static_cast<double>(p.batch * p.in_height * p.in_width);
  const double out_pixels = static_cast<double>(p.batch * p.out_height * p.out_width);
  switch (p.operation) {
    case Operation::forward:
      return {out, out_pixels, in * taps};
    case Operation::input_grad:
      return {in, in_pixels, out * taps};
    case Operation::weight_grad:
      return {out, in * taps, out_pixels};
  }
  return {};
}

// Microseconds, but for the first: what the device at hand would take at its full rates. Sums of products are
// serial, and a wave of tiles takes as long as one tile.
Parts parts_of(const ConvProblem& p, const DeviceTraits& device) {
  const Product product = product_of(p);
  const double bandwidth = device.bandwidth_GBps * 1e3, rate = device.fp32_TFLOPs * 1e6;
  const double units = std::max(1, device.backend == Backend::cpu ? device.threads : device.multiprocessors);
  const double bytes = static_cast<double>(element_size(p.dtype));
  const auto tiles = [&](double side) {
    const double waves =
        std::ceil(std::ceil(product.rows / side) * std::ceil(product.columns / side) / units);
    return waves * 2 * side * side * product.depth * units / rate;
  };
  constexpr double kLane = 8;  // sums that a unit adds to at once, however few there are
  return {1,
          static_cast<double>(p.input_elements()) * bytes / bandwidth,
          static_cast<double>(p.output_elements()) * bytes / bandwidth,
          static_cast<double>(p.weight_elements()) * bytes / bandwidth,
          p.flops() / rate,
          2 * kLane * kLane * product.depth * units / rate,
          tiles(32),
          tiles(64),
          tiles(128)};
}

struct Machine {
  MeasuredMachine machine;
  MeasuredLayers layers;
  const Series *begin, *end;
};

// One line for each file that benchmarks/fit_dense.py wrote.
const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {{"NVIDIA H200", Backend::cuda, CpuIsa::baseline, nvidia_h200_dense_GBps},
       {nvidia_h200_dense_reach, nvidia_h200_dense_layers, nvidia_h200_dense_points},
       std::begin(nvidia_h200_dense),
       std::end(nvidia_h200_dense)},
      {{"2 cores with AVX-512", Backend::cpu, CpuIsa::avx512, cpu_2_cores_avx512_dense_GBps},
       {cpu_2_cores_avx512_dense_reach, cpu_2_cores_avx512_dense_layers, cpu_2_cores_avx512_dense_points},
       std::begin(cpu_2_cores_avx512_dense),
       std::end(cpu_2_cores_avx512_dense)},
      {{"2 cores with AVX2", Backend::cpu, CpuIsa::avx2, cpu_2_cores_avx2_dense_GBps},
       {cpu_2_cores_avx2_dense_reach, cpu_2_cores_avx2_dense_layers, cpu_2_cores_avx2_dense_points},
       std::begin(cpu_2_cores_avx2_dense),
       std::end(cpu_2_cores_avx2_dense)},
  };
  return all;
}

const Series* find_series(const Machine& machine, const std::string& algorithm, const ConvProblem& problem,
                          bool tf32) {
  const DType dtype = measured_dtype(problem.dtype, machine.machine.backend);
  const Series* found = std::find_if(machine.begin, machine.end, [&](const Series& series) {
    return series.operation == problem.operation && series.dtype == dtype && series.tf32 == tf32 &&
           series.layout == problem.layout && algorithm == series.algorithm;
  });
  return found == machine.end ? nullptr : found;
}

// Squares alone: a filter of 1x9 is no filter of 3x3.
bool is_like_measured(const ConvProblem& p) {
  return p.groups == 1 && p.batch > 0 && p.dilation_h == 1 && p.dilation_w == 1 && p.stride_h == p.stride_w &&
         p.filter_height == p.filter_width && p.has_maps_near_square();
}

// What a few layers have in common can't be told apart: their coefficients hold near them alone.
double farthest(const Series& series) {
  constexpr int kFew = 30;
  return series.count < kFew ? 2.0 : 3.5;
}

// Nothing where no layer like this was measured.
Measured time_of(const Machine& machine, const Series* series, const ConvProblem& problem,
                 const DeviceTraits& device) {
  if (series == nullptr) return {};
  const auto [nearest, correction] = machine.layers.around(problem, series->first, series->count);
  if (nearest > farthest(*series)) return {};
  const Parts parts = parts_of(problem, device);
  double us = 0;
  for (size_t part = 0; part < kParts; ++part) us += series->coefficients[part] * parts[part];
  us *= correction;
  // Libraries change kernels within an octave or two: past that the sum tells plans apart, and no more. Of an
  // H200's 6444 problems, each predicted without its layer's own measurements (python -m benchmarks.fit),
  // what auto takes by these is slower than torch's convolution by more than 2 % on 0.92 %, by more than 10 %
  // on 0.48 %.
  constexpr double kMeasured = 1.0;
  if (nearest > kMeasured) return {us, "extrapolated from " + std::string(machine.machine.name)};
  return {us, source_of(machine.machine, device), doubt_of(nearest, machine.machine, device)};
}

}  // namespace

Measured dense_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device) {
  if (!is_like_measured(problem)) return {};
  const Machine* machine = find_machine(machines(), device);
  if (machine == nullptr) return {};
  const bool tf32 = problem.allow_tf32 && problem.dtype == DType::float32 && device.backend != Backend::cpu;
  const Measured own = time_of(*machine, find_series(*machine, algorithm, problem, tf32), problem, device);
  // A kernel that was measured without TF32 products has none where they are allowed either.
  if (own || !tf32) return own;
  return time_of(*machine, find_series(*machine, algorithm, problem, false), problem, device);
}

}  // namespace convx
