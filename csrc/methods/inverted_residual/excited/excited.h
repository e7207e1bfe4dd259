// Inverted residual blocks with squeeze-and-excitation, three kernels: what is expanded is filtered where it
// is made (banded/) and goes to memory once, with sums of its planes; gates are made of those
// (methods/gates); the last product multiplies pixels with them as it reads them (methods/shallow).
#pragma once
#include <vector>

#include "methods/inverted_residual/excited/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::inverted_residual::excited {

constexpr const char* kCandidate = "excited";

// Beside what all kernels of the method ask for.
Support supports(const BlockProblem& problem, const DeviceTraits& device);
// Of a problem that it supports.
std::vector<Plan> candidates(const BlockProblem& problem, const DeviceTraits& device);

inline Tiling tiling_of(const Plan& plan) {
  return {{plan["shape"], plan["tile_height"], plan["ahead"], plan["ranks"]},
          {32, plan["block_pairs"], plan["pixel_blocks"]}};
}

template <class T>
void launch_typed(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream);
template <class T>
void pack_typed(const Plan& plan, const BlockProblem& problem, const BlockWeights& weights, void* packed,
                Stream stream);

}  // namespace convx::inverted_residual::excited
