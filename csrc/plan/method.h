// What a method is to the rest of convx: four functions and a name.
#pragma once
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "problem/device.h"
#include "problem/problem.h"

namespace convx {

// Whether a method can run a problem; where it can't, reason is the exact condition that fails.
struct Support {
  bool ok = true;
  std::string reason;
  static Support yes() { return {}; }
  static Support no(std::string why) { return {false, std::move(why)}; }
};

// Whether kernels can take the problem that keep places in the padded input in 32 bits (on GPUs), and rows
// and columns of it in memory: not where nearly all of it is padding, as with enormous dilations.
Support supports_padding(const ConvProblem& problem, const DeviceTraits& device);

// Of kernels that took longer for every call, or spilled, where they could add more than a bias. What they
// make of such a problem is the sums, to be finished apart.
constexpr const char* kAddsBiasAlone = "adds neither scales nor residuals";
// Whether kernels can take its scale and residual, where it has any: not on AMD.
Support supports_epilogue(const ConvProblem& problem, const DeviceTraits& device);
// Microseconds of a pass over the output that finishes sums; 0 without an epilogue.
double finishing_us(const ConvProblem& problem, const DeviceTraits& device);

// What is told of a method, whatever the problems are that it solves.
struct MethodFacts {
  const char* name;     // as users select it
  const char* summary;  // one line: the idea and its paper
};

// One way to run one problem on one device: a kernel of the method and its tiling.
struct Plan {
  const MethodFacts* method = nullptr;
  std::string candidate;  // the kernel family, selectable as "method/candidate"
  std::string variant;    // of the family, where a problem's has times unlike the others'
  int kernel = 0;         // the method's own index of that family
  // Tiling parameters by name, in the order the launcher reads them.
  std::vector<std::pair<const char*, int64_t>> tiling;
  int64_t workspace_bytes = 0;
  // The order in which the kernel reads its filters, "" for torch's own. Together with the weight's shape,
  // groups, dtype and the operation it determines the packed bytes, so that a layer can keep them.
  std::string packing;
  int64_t packed_weight_bytes = 0;
  bool reads_both = false;  // packed filters, and the weight in torch's order
  double predicted_us = 0;
  double beside_us = 0;  // of passes of their own over the result, which no measured time of the kernel has
  // For those who name it: a paper's own kernel, or a form that it compares its idea with, slower by intent,
  // or that is no faster than another where this was measured. auto and the method's name alone never mean
  // it.
  bool by_name_only = false;
  // The kernel makes sums alone; scale, bias, residual and activation are a pass of its own over them.
  bool finishes_apart = false;
  bool exact = false;                // its products are not rounded to TF32, whatever the problem allows
  std::string source = "estimated";  // of the prediction; or "measured on NVIDIA H200", "modelled on ..."
  // What the time may be, in predicted_us, and still be no surprise: an estimate may be anything. auto takes
  // what is ahead of torch's convolution in spite of it.
  double doubt = std::numeric_limits<double>::infinity();

  int64_t operator[](const char* parameter) const;  // value of a tiling parameter; throws if there is none
};

// Lets an estimate count, on GPUs of an H200's architecture: an H200's times of layers that the model was not
// made with were seldom more than `doubt` times as long.
void trust(Plan& plan, const DeviceTraits& device, double doubt);

// A method for one kind of problem: ConvProblem, FilterProblem, BlockProblem or ExciteProblem. A kind has a
// description, equality, a hash and as_tuned (csrc/problem), a table of methods (choose/registry.cpp) and one
// of launchers (methods/cpu.cpp and gpu.cpp), and what was measured of it (measured_time in
// choose/measured.h).
template <class Problem>
struct MethodOf : MethodFacts {
  Support (*supports)(const Problem&, const DeviceTraits&);
  // Every way the method could run a problem that it supports, as it estimates their times. Never empty, and
  // never without a plan that may be taken unnamed.
  std::vector<Plan> (*candidates)(const Problem&, const DeviceTraits&);
  // Why there is no candidate of that name for a problem that the method supports; "" where it has none such.
  std::string (*why_absent)(const Problem&, const DeviceTraits&, const std::string& candidate) = nullptr;
};

using Method = MethodOf<ConvProblem>;

// "depthwise/strip", "native": what selects the best plan of this kernel as an algorithm.
std::string algorithm_of(const Plan& plan);
// "depthwise/strip rows=4 columns=4": what selects this very plan as an algorithm.
std::string name_of(const Plan& plan);
std::string describe(
    const Plan& plan);  // "depthwise/strip rows=4 columns=4 …, workspace 0 B, predicted 3.1 us, estimated"

}  // namespace convx
