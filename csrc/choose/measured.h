// Times measured beforehand, which replace a method's own estimate where there are any.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "plan/method.h"
#include "problem/block_problem.h"
#include "problem/device.h"
#include "problem/excite_problem.h"
#include "problem/filter_problem.h"
#include "problem/problem.h"

namespace convx {

struct Measured {
  double us = 0;       // 0 where nothing like this was measured
  std::string source;  // "measured on NVIDIA H200", "scaled from NVIDIA H200", "extrapolated from ..."
  double doubt = std::numeric_limits<double>::infinity();  // Plan::doubt
  explicit operator bool() const { return us > 0; }
};

// What algorithm ("depthwise/strip", "native") takes without bias and activation, for sizes like those that
// were measured: nothing for other kinds of layer. Kinds differ in operation, precision, layout, filter,
// stride, and whether channels are convolved one by one, all together, or there is one; those that were
// measured have square filters, equal strides, dilation 1 and maps not far from square. On GPUs float16 has
// bfloat16's times. A device that was not measured has those of one of its architecture in the ratio of
// bandwidths and rates. Where TF32 is allowed and an algorithm was not measured with it on layers like this,
// its times without TF32 hold.
//
// Depthwise problems and single channels: times over bytes are interpolated. Dense ones: a sum of what bytes,
// products and waves of tiles take; too far from all measured layers it is an extrapolation, which tells
// plans apart and is not held against torch. Either is corrected by the measured layers around the problem.
Measured measured_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device);
// Other kinds of problem have the method's estimates alone.
template <class Problem>
Measured measured_time(const std::string& /*algorithm*/, const Problem& /*problem*/,
                       const DeviceTraits& /*device*/) {
  return {};
}

// The method's candidates with what was measured, the expected fastest first. Where a candidate was measured
// on problems like this, its best plan is taken to have that time; the method's estimates tell how the other
// plans of the candidate compare. Where nothing like it was measured the model of random layers says the same
// of a candidate's best plan, unless fitted is false. On GPUs the time that packing filters takes is added
// for calls that do so: gradients, and problem.packs_each_call.
template <class Problem>
std::vector<Plan> predict(const MethodOf<Problem>& method, const Problem& problem, const DeviceTraits& device,
                          bool fitted = true);

}  // namespace convx
