// How plane_weight spreads channels and images; shared by planner and launcher.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../weight_slices.h"
#include "problem/problem.h"

namespace convx::depthwise {

constexpr int kPlaneWeightThreads = 256;  // of a block at most
constexpr int kPlaneWeightStages = 2;     // images a warp has in shared memory

// Planes that a warp takes of one image: one a lane at 7x7, one per four lanes at 14x14.
inline int64_t planes_of_warp(int64_t side, int64_t lanes) {
  return side == 14 ? lanes / 4 : lanes;
}

inline int64_t plane_weight_shared_bytes(const ConvProblem& problem, int64_t lanes, int64_t warps) {
  const int64_t side = problem.in_width, planes = planes_of_warp(side, lanes);
  const int64_t staged = kPlaneWeightStages * 2 * planes * side * side * element_size(problem.dtype);
  const int64_t sums = lanes * problem.filter_height * problem.filter_width * 4;
  return warps * std::max(staged, sums);
}

}  // namespace convx::depthwise
