// Quotients of sizes, for planners and launchers.
#pragma once
#include <cstdint>

namespace convx {

constexpr int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}
constexpr int64_t round_up(int64_t value, int64_t by) {
  return divide_up(value, by) * by;
}

}  // namespace convx
