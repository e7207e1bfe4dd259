// How channels_weight spreads channels, columns, rows and images; shared by planner and launcher.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../weight_slices.h"
#include "problem/problem.h"

namespace convx::depthwise {

// Across a block lie `across` threads, each with its own channels (and column tile where the tiles are laid
// side by side), and along it `shares` threads have those in common and take units in turn. A unit is a
// number of input rows of one image (and column tile, where tiles are units).
struct ChannelsWeightGeometry {
  int64_t vectors;       // channel vectors of a pixel
  int64_t tiles;         // column tiles of a row
  int64_t across_tiles;  // tiles that lie side by side: all or one
  int64_t blocks;        // blocks of one slice
  int64_t steps;         // rows of the output gradient with those a shorter tap row reaches: work of a plane
  int64_t chunks;        // pieces of a plane's steps
  int64_t first_step;    // the first step that meets an input row
  int64_t units(const ConvProblem& problem) const { return problem.batch * chunks * (tiles / across_tiles); }
  int64_t partials(int64_t slices) const { return slices * across_tiles; }  // copies of the sums
};

inline ChannelsWeightGeometry channels_weight_geometry(const ConvProblem& problem, int64_t vector,
                                                       int64_t columns, bool tiles_across, int64_t across,
                                                       int64_t steps_of_chunk) {
  ChannelsWeightGeometry geometry{};
  geometry.vectors = problem.in_channels / vector;
  geometry.tiles = divide_up(problem.out_width, columns);
  geometry.across_tiles = tiles_across ? geometry.tiles : 1;
  geometry.blocks = divide_up(geometry.vectors * geometry.across_tiles, across);
  // Step t meets the input rows stride * t - padding_top … + stride - 1 and the output rows up to t.
  geometry.first_step = problem.padding_top / problem.stride_h;
  const int64_t last_row = std::min(problem.in_height - 1 + problem.padding_top,
                                    (problem.out_height - 1) * problem.stride_h + problem.filter_height - 1);
  geometry.steps = std::max<int64_t>(0, last_row / problem.stride_h + 1 - geometry.first_step);
  geometry.chunks = std::max<int64_t>(1, divide_up(geometry.steps, steps_of_chunk));
  return geometry;
}

}  // namespace convx::depthwise
