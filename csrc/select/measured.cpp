#include "select/measured.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

namespace convx {
namespace {

// One kernel's times over the bytes of a problem, at whole octaves; benchmarks/curves.py fits them.
struct Curve {
  const char* algorithm;
  Operation operation;
  DType dtype;
  Layout layout;
  int filter, stride;
  int64_t widest;  // serves maps up to this wide, down to the next smaller curve's
  int first_octave, octaves;
  float us[24];
};

#include "select/measured/nvidia_h200.inc"

struct Machine {
  const char* name;
  Backend backend;
  CpuIsa isa;
  double bandwidth_GBps;  // as DeviceTraits has it there
  const Curve *begin, *end;
};

// One line for each file that benchmarks/fit.py wrote.
const Machine kMachines[] = {
    {"NVIDIA H200", Backend::cuda, CpuIsa::baseline, nvidia_h200_GBps, std::begin(nvidia_h200),
     std::end(nvidia_h200)},
};

bool is_same(const Machine& machine, const DeviceTraits& device) {
  return machine.bandwidth_GBps == device.bandwidth_GBps &&
         (device.backend == Backend::cpu || device.name.rfind(machine.name, 0) == 0);
}

// The device itself, or else the first of its kind.
const Machine* find_machine(const DeviceTraits& device) {
  const Machine* similar = nullptr;
  for (const Machine& machine : kMachines) {
    if (machine.backend != device.backend) continue;
    if (machine.backend == Backend::cpu && machine.isa != device.isa) continue;
    if (is_same(machine, device)) return &machine;
    if (similar == nullptr) similar = &machine;
  }
  return similar;
}

bool is_like_measured(const ConvProblem& problem) {
  const int64_t height = problem.in_height, width = problem.in_width;
  return problem.batch > 0 && problem.is_depthwise() && problem.out_channels == problem.in_channels &&
         problem.filter_height == problem.filter_width && problem.stride_h == problem.stride_w &&
         problem.dilation_h == 1 && problem.dilation_w == 1 && height <= 4 * width && width <= 4 * height;
}

// What shares a curve, but for the width.
using Key = std::tuple<std::string_view, Operation, DType, Layout, int64_t, int64_t>;

Key key_of(const Curve& curve) {
  return {curve.algorithm, curve.operation, curve.dtype, curve.layout, curve.filter, curve.stride};
}

// The files are sorted by key and width.
const Curve* find_curve(const Machine& machine, const std::string& algorithm, const ConvProblem& problem) {
  const DType dtype = problem.dtype == DType::float16 ? DType::bfloat16 : problem.dtype;
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

}  // namespace

Measured measured_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device) {
  if (!is_like_measured(problem)) return {};
  const Machine* machine = find_machine(device);
  if (machine == nullptr) return {};
  const Curve* curve = find_curve(*machine, algorithm, problem);
  if (curve == nullptr) return {};
  ConvProblem plain = problem;
  plain.has_bias = false;
  const double us = read(*curve, plain.bytes());
  if (is_same(*machine, device)) return {us, std::string("measured on ") + machine->name};
  // What a launch takes is much the same everywhere.
  const double launch_us = std::min(us, device.backend == Backend::cpu ? 0.0 : 2.0);
  const double ratio = machine->bandwidth_GBps / device.bandwidth_GBps;
  return {launch_us + (us - launch_us) * ratio, std::string("scaled from ") + machine->name};
}

}  // namespace convx
