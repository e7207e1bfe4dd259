// What the constraints of GPUs and CPUs are made of.
#pragma once
#include <string>

#include "methods/pointwise/generator/tiling.h"

namespace convx::pointwise::generator {

struct Constraint {
  const char* name;
  bool (*holds)(const Tiling&, const Space&, bool exact);
  std::string (*reason)(const Tiling&, const Space&, bool exact);
};

inline int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline bool is_power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

inline std::string text(int64_t value) {
  return std::to_string(value);
}

inline std::string tiles(const char* what, int64_t tile, const char* extent_name, int64_t extent,
                         bool exact) {
  const std::string numbers =
      std::string(what) + " = " + text(tile) + " over " + text(extent) + " " + extent_name;
  if (extent % tile == 0) return numbers + ": every tile is whole";
  return numbers + ": the last tile has " + text(extent % tile) +
         (exact ? ", and exact tiles were asked for" : ", the rest of it is masked");
}

// Where a constraint before it fails, a later one may divide by zero: each looks at its own numbers first.
// An int holds the product of three numbers of a tile, and of the waves and lanes of a block.
constexpr int kMostOfTile = 1024, kMostWavesAndBlocks = 1 << 20;
inline bool has_parameters_in_range(const Tiling& t) {
  for (const int each : {t.wave_w, t.wave_c, t.repeat_w, t.repeat_c, t.group_c, t.stage_c}) {
    if (each < 1 || each > kMostOfTile) return false;
  }
  return t.wave_n > 0 && t.wave_n <= kMostWavesAndBlocks && t.block_n > 0 && t.block_n <= kMostWavesAndBlocks;
}
inline std::string parameters_range(const Tiling& t) {
  return "each must be from 1 to " + text(kMostOfTile) + ", and Wave_N and Block_N to " +
         text(kMostWavesAndBlocks) + ": " + describe(t);
}

}  // namespace convx::pointwise::generator
