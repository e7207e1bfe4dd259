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
inline bool has_positive_parameters(const Tiling& t) {
  return t.wave_w > 0 && t.wave_c > 0 && t.wave_n > 0 && t.repeat_w > 0 && t.repeat_c > 0 && t.block_n > 0 &&
         t.group_c > 0 && t.stage_c > 0;
}

}  // namespace convx::pointwise::generator
