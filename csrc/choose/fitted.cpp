#include "choose/fitted.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "choose/measured_machine.h"
#include "methods/native/native.h"
#include "problem/native_halves.h"

namespace convx {
namespace {

enum class Kind { dense, grouped, depthwise };
enum class Products { full, tf32, half };

constexpr const char* kSource = "fitted on ";

constexpr size_t kAxes = 11;
constexpr std::array<size_t, 5> kCurved = {0, 1, 3, 4, 9};  // batch, channels, pixels, taps and width
constexpr size_t kTerms = 1 + kAxes + kCurved.size() * (kCurved.size() + 1) / 2 + 1;

// One kernel's times on a kind of layers; benchmarks/random_model.py fits them and computes the same.
struct FittedTimes {
  std::string_view algorithm;
  Kind kind;
  Operation operation;
  Products products;
  Layout layout;
  double doubt;
  double least_us;  // of what it was fitted to: launches and latency, which no layer goes below
  float least[kAxes], most[kAxes];  // of the layers that it was fitted to
  double coefficients[kTerms];
};

#include "choose/measured/cpu_2_cores_avx2_random.inc"
#include "choose/measured/cpu_2_cores_avx512_random.inc"
#include "choose/measured/nvidia_h200_random.inc"

struct Machine {
  MeasuredMachine machine;
  const FittedTimes *begin, *end;
};

// One line for each file that benchmarks/random_layers.py wrote.
const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {{"NVIDIA H200", Backend::cuda, CpuIsa::baseline, nvidia_h200_random_GBps},
       std::begin(nvidia_h200_random),
       std::end(nvidia_h200_random)},
      {{"2 cores with AVX2", Backend::cpu, CpuIsa::avx2, cpu_2_cores_avx2_random_GBps},
       std::begin(cpu_2_cores_avx2_random),
       std::end(cpu_2_cores_avx2_random)},
      {{"2 cores with AVX-512", Backend::cpu, CpuIsa::avx512, cpu_2_cores_avx512_random_GBps},
       std::begin(cpu_2_cores_avx512_random),
       std::end(cpu_2_cores_avx512_random)},
  };
  return all;
}

using Axes = std::array<double, kAxes>;

Axes axes_of(const ConvProblem& p) {
  const auto octaves = [](int64_t value) { return std::log2(static_cast<double>(value)); };
  return {octaves(p.batch),
          octaves(p.in_channels),
          octaves(p.out_channels),
          octaves(p.out_height * p.out_width),
          octaves(p.filter_height * p.filter_width),
          octaves(p.stride_h),
          p.dilation_h > 1 ? 1.0 : 0.0,
          octaves(std::min(p.filter_height, p.filter_width)),
          octaves(p.in_channels / p.groups),
          octaves(p.out_width),
          p.in_channels % 8 > 0 || p.out_channels % 8 > 0 ? 1.0 : 0.0};
}

std::optional<Products> products_of(const ConvProblem& p, const DeviceTraits& device) {
  if (p.dtype == DType::float64) return std::nullopt;
  if (p.dtype != DType::float32) return Products::half;
  const bool rounds = p.allow_tf32 && device.backend != Backend::cpu;
  return rounds && !p.is_depthwise() ? Products::tf32 : Products::full;
}

Kind kind_of(const ConvProblem& p) {
  return p.groups == 1 ? Kind::dense : p.is_depthwise() ? Kind::depthwise : Kind::grouped;
}

bool is_like_fitted(const ConvProblem& p) {
  const bool is_empty = p.batch == 0 || p.out_height == 0 || p.out_width == 0;
  return !is_empty && p.in_channels > 1 && p.stride_h == p.stride_w && p.dilation_h == p.dilation_w;
}

// A kernel's gradient by input is a convolution as the forward is.
Operation operation_of(const std::string& algorithm, const ConvProblem& p) {
  const bool is_forward = p.operation == Operation::input_grad && algorithm != native::method.name;
  return is_forward ? Operation::forward : p.operation;
}

// The files are sorted by it.
std::pair<const FittedTimes*, const FittedTimes*> of_algorithm(const Machine& machine,
                                                               std::string_view algorithm) {
  const auto* begin = std::lower_bound(machine.begin, machine.end, algorithm,
                                       [](const auto& each, auto name) { return each.algorithm < name; });
  const auto* end = std::upper_bound(begin, machine.end, algorithm,
                                     [](auto name, const auto& each) { return name < each.algorithm; });
  return {begin, end};
}

// Half an octave around what it was fitted to counts as seen.
bool has_seen(const FittedTimes& times, const Axes& axes) {
  constexpr double kAround = 0.5;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (axes[axis] < static_cast<double>(times.least[axis]) - kAround) return false;
    if (axes[axis] > static_cast<double>(times.most[axis]) + kAround) return false;
  }
  return true;
}

double read(const FittedTimes& times, const Axes& axes, double estimate_us) {
  const double* coefficient = times.coefficients;
  double sum = *coefficient++;
  for (const double axis : axes) sum += *coefficient++ * axis;
  for (size_t i = 0; i < kCurved.size(); ++i) {
    for (size_t j = i; j < kCurved.size(); ++j) {
      sum += *coefficient++ * axes[kCurved[i]] * axes[kCurved[j]] / 10;
    }
  }
  return std::max(times.least_us, std::exp(sum + *coefficient * std::log(estimate_us)));
}

}  // namespace

Measured fitted_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device,
                     double estimate_us) {
  const std::optional<Products> products = products_of(problem, device);
  if (!is_like_fitted(problem) || !products.has_value() || !(estimate_us > 0)) return {};
  // The machines that were measured have no such instructions.
  const bool is_cpu = device.backend == Backend::cpu;
  if (is_cpu && *products == Products::half && has_native_halves()) return {};
  const Machine* machine = find_machine(machines(), device);
  if (machine == nullptr) return {};
  // Other GPUs of NVIDIA's have other kernels of cuDNN's; CPUs more of the same cores, or fewer.
  if (!is_cpu && !is_same(machine->machine, device)) return {};
  const Kind kind = kind_of(problem);
  const Operation operation = operation_of(algorithm, problem);
  const auto [begin, end] = of_algorithm(*machine, algorithm);
  const FittedTimes* times = std::find_if(begin, end, [&](const FittedTimes& each) {
    return each.kind == kind && each.operation == operation && each.products == *products &&
           each.layout == problem.layout;
  });
  if (times == end) return {};
  const Axes axes = axes_of(problem);
  if (!has_seen(*times, axes)) return {};
  const double slower = machine->machine.bandwidth_GBps / device.bandwidth_GBps;
  const double us = slower * read(*times, axes, estimate_us / slower);
  return {us, kSource + std::string(machine->machine.name), times->doubt};
}

bool is_fitted(const Plan& plan) {
  return plan.source.rfind(kSource, 0) == 0;
}

}  // namespace convx
