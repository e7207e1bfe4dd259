#include "choose/measured.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "choose/fitted.h"
#include "choose/measured_dense.h"
#include "choose/measured_layers.h"
#include "choose/measured_machine.h"
#include "choose/offers.h"
#include "methods/native/native.h"

namespace convx {
namespace {

// One kernel's times over the bytes of a problem, at whole octaves, and the points that correct them;
// benchmarks/depthwise_model.py fits both.
struct Curve {
  const char* algorithm;
  Operation operation;
  DType dtype;
  Layout layout;
  int filter, stride;
  int64_t widest;    // serves maps up to this wide, down to the next smaller curve's
  int first, count;  // of its points, which curves of other widths share
  int first_octave, octaves;
  float us[24];
};

#include "choose/measured/cpu_2_cores_avx2.inc"
#include "choose/measured/cpu_2_cores_avx512.inc"
#include "choose/measured/cpu_2_cores_avx512_images.inc"
#include "choose/measured/nvidia_h200.inc"
#include "choose/measured/nvidia_h200_images.inc"

struct Machine {
  MeasuredMachine machine;
  MeasuredLayers layers;
  const Curve *begin, *end;
};

// One line for each file that benchmarks/fit.py wrote.
const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {{"NVIDIA H200", Backend::cuda, CpuIsa::baseline, nvidia_h200_GBps},
       {nvidia_h200_reach, nvidia_h200_layers, nvidia_h200_points},
       std::begin(nvidia_h200),
       std::end(nvidia_h200)},
      {{"2 cores with AVX-512", Backend::cpu, CpuIsa::avx512, cpu_2_cores_avx512_GBps},
       {cpu_2_cores_avx512_reach, cpu_2_cores_avx512_layers, cpu_2_cores_avx512_points},
       std::begin(cpu_2_cores_avx512),
       std::end(cpu_2_cores_avx512)},
      {{"2 cores with AVX2", Backend::cpu, CpuIsa::avx2, cpu_2_cores_avx2_GBps},
       {cpu_2_cores_avx2_reach, cpu_2_cores_avx2_layers, cpu_2_cores_avx2_points},
       std::begin(cpu_2_cores_avx2),
       std::end(cpu_2_cores_avx2)},
  };
  return all;
}

const std::vector<Machine>& machines_with_images() {
  static const std::vector<Machine> all = {
      {{"NVIDIA H200", Backend::cuda, CpuIsa::baseline, nvidia_h200_images_GBps},
       {nvidia_h200_images_reach, nvidia_h200_images_layers, nvidia_h200_images_points},
       std::begin(nvidia_h200_images),
       std::end(nvidia_h200_images)},
      {{"2 cores with AVX-512", Backend::cpu, CpuIsa::avx512, cpu_2_cores_avx512_images_GBps},
       {cpu_2_cores_avx512_images_reach, cpu_2_cores_avx512_images_layers, cpu_2_cores_avx512_images_points},
       std::begin(cpu_2_cores_avx512_images),
       std::end(cpu_2_cores_avx512_images)},
  };
  return all;
}

bool is_like_measured(const ConvProblem& problem) {
  return problem.batch > 0 && problem.is_depthwise() && problem.out_channels == problem.in_channels &&
         problem.filter_height == problem.filter_width && problem.stride_h == problem.stride_w &&
         problem.dilation_h == 1 && problem.dilation_w == 1 && problem.has_maps_near_square();
}

// What shares a curve, but for the width.
using Key = std::tuple<std::string_view, Operation, DType, Layout, int64_t, int64_t>;

Key key_of(const Curve& curve) {
  return {curve.algorithm, curve.operation, curve.dtype, curve.layout, curve.filter, curve.stride};
}

// The files are sorted by key and width.
const Curve* find_curve(const Machine& machine, const std::string& algorithm, const ConvProblem& problem) {
  const DType dtype = measured_dtype(problem.dtype, machine.machine.backend);
  const Key key{algorithm, problem.operation, dtype, problem.layout, problem.filter_height, problem.stride_h};
  const Curve* found = std::lower_bound(
      machine.begin, machine.end, std::pair(key, problem.in_width),
      [](const Curve& curve, const auto& wanted) { return std::pair(key_of(curve), curve.widest) < wanted; });
  return found != machine.end && key_of(*found) == key ? found : nullptr;
}

// Level below the first octave, where launches and latency are what counts; proportional past the last.
double read(const Curve& curve, double bytes) {
  const double octave = std::log2(bytes) - curve.first_octave;
  const int last = curve.octaves - 1;
  if (octave <= 0 || last == 0) return curve.us[0];
  if (octave >= last) return curve.us[last] * std::exp2(octave - last);
  const int index = static_cast<int>(octave);
  const double low = curve.us[index], high = curve.us[index + 1];
  return low * std::pow(high / low, octave - index);
}

Measured depthwise_time(const std::string& algorithm, const ConvProblem& problem,
                        const DeviceTraits& device) {
  if (!is_like_measured(problem)) return {};
  // One channel is another kind: torch has other kernels for it, and convx a method.
  const Machine* found = find_machine(problem.in_channels == 1 ? machines_with_images() : machines(), device);
  if (found == nullptr) return {};
  const MeasuredMachine& machine = found->machine;
  const Curve* curve = find_curve(*found, algorithm, problem);
  if (curve == nullptr) return {};
  ConvProblem plain = problem;
  plain.epilogue = {};
  // Also for machines that were not measured: what a shape does to a kernel, whole tiles or not, aligned
  // planes or not, it does there too.
  const auto [nearest, correction] = found->layers.around(problem, curve->first, curve->count);
  double us = read(*curve, plain.bytes()) * correction;
  if (!is_same(machine, device)) {
    // What a launch takes is much the same everywhere.
    const double launch_us = std::min(us, device.backend == Backend::cpu ? 0.0 : 2.0);
    us = launch_us + (us - launch_us) * machine.bandwidth_GBps / device.bandwidth_GBps;
  }
  // Planes that don't begin at multiples of 16 bytes are two octaves from those that do: GPU kernels load
  // otherwise there. Of random layers on an H200 that were further than this and predicted ahead of torch's
  // convolution, 3 of 56 were slower; in channels_last none was, at any distance.
  constexpr double kMeasured = 2;
  if (device.backend != Backend::cpu && problem.layout == Layout::nchw && nearest > kMeasured) {
    return {us, "extrapolated from " + std::string(machine.name)};
  }
  return {us, source_of(machine, device), doubt_of(nearest, machine, device)};
}

// A launch that nothing overlaps, its fence, and the bytes: what packing took of the calls of 12 dense layers
// on an H200, 2.2 to 4.5 us where filters are small, 7 to 15 us where they are of 5 to 10 MB.
void add_packing_times(std::vector<Plan>& plans) {
  constexpr double kLaunchUs = 3, kBytesPerUs = 1e6;
  for (Plan& plan : plans) {
    if (plan.packed_weight_bytes == 0) continue;
    plan.predicted_us += kLaunchUs + static_cast<double>(plan.packed_weight_bytes) / kBytesPerUs;
  }
}

// Of the series of times that a plan's estimate is held against.
std::string measured_name(const Plan& plan) {
  return plan.variant.empty() ? algorithm_of(plan) : algorithm_of(plan) + ", " + plan.variant;
}

// Of the time that packing filters takes: a call has none, it is a part of measured times, or it comes on
// top.
enum class Packing { kept, measured, added };

Packing packing_of(const ConvProblem& problem) {
  if (problem.packs_each_call) return Packing::added;
  return problem.operation == Operation::input_grad ? Packing::measured : Packing::kept;
}

template <class Problem>
Packing packing_of(const Problem& /*problem*/) {
  return Packing::kept;
}

// The problem that plans with exact products were measured on.
ConvProblem exact(ConvProblem problem) {
  problem.allow_tf32 = false;
  return problem;
}

template <class Problem>
Problem exact(const Problem& problem) {
  return problem;
}

Plan* likeliest_of(const std::vector<Plan*>& plans) {
  const auto is_less = [](const Plan* a, const Plan* b) { return a->predicted_us < b->predicted_us; };
  return *std::min_element(plans.begin(), plans.end(), is_less);
}

// The likeliest of these plans is to take as long; the others' estimates tell how they compare.
void expect(const std::vector<Plan*>& plans, const Measured& time) {
  if (!time) return;
  const double least = likeliest_of(plans)->predicted_us;
  for (Plan* const plan : plans) {
    if (plan->predicted_us == least) plan->source = time.source, plan->doubt = time.doubt;
    plan->predicted_us *= time.us / least;
  }
}

// Where torch's convolution is slow beyond all doubt, kernels of CPUs count by their estimates.
void count_estimates(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  constexpr double kDoubt = 4;
  if (!native::goes_by_groups(problem, device)) return;
  for (Plan& plan : plans) {
    if (plan.method != &native::method) plan.doubt = std::min(plan.doubt, kDoubt);
  }
}

template <class Problem>
void count_estimates(const Problem& /*problem*/, const DeviceTraits& /*device*/,
                     std::vector<Plan>& /*plans*/) {}

}  // namespace

Measured measured_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device) {
  return problem.is_depthwise() ? depthwise_time(algorithm, problem, device)
                                : dense_time(algorithm, problem, device);
}

template <class Problem>
std::vector<Plan> predict(const MethodOf<Problem>& method, const Problem& problem, const DeviceTraits& device,
                          bool fitted) {
  std::vector<Plan> plans = candidates(method, problem, device);
  const Packing packing = device.backend == Backend::cpu ? Packing::kept : packing_of(problem);
  if (packing == Packing::measured) add_packing_times(plans);
  std::map<std::string, std::vector<Plan*>> by_name;
  for (Plan& plan : plans) by_name[measured_name(plan)].push_back(&plan);
  for (const auto& [name, meant] : by_name) {
    const bool is_exact = meant.front()->exact;
    expect(meant, measured_time(name, is_exact ? exact(problem) : problem, device));
    const Plan& likeliest = *likeliest_of(meant);
    if (!fitted || std::isfinite(likeliest.doubt)) continue;
    expect(meant, fitted_time(algorithm_of(likeliest), problem, device, likeliest.predicted_us));
  }
  count_estimates(problem, device, plans);
  if (packing == Packing::added) add_packing_times(plans);
  for (Plan& plan : plans) plan.predicted_us += plan.beside_us;
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  return plans;
}

template std::vector<Plan> predict(const MethodOf<ConvProblem>&, const ConvProblem&, const DeviceTraits&,
                                   bool);
template std::vector<Plan> predict(const MethodOf<FilterProblem>&, const FilterProblem&, const DeviceTraits&,
                                   bool);
template std::vector<Plan> predict(const MethodOf<BlockProblem>&, const BlockProblem&, const DeviceTraits&,
                                   bool);
template std::vector<Plan> predict(const MethodOf<ExciteProblem>&, const ExciteProblem&, const DeviceTraits&,
                                   bool);

}  // namespace convx
