// One line of the driver's input: a problem, the device to plan for, and how to run it.
#pragma once
#include <istream>
#include <string>

#include "problem/device.h"
#include "problem/problem.h"
#include "simt.h"

namespace simt_test {

struct Case {
  convx::ConvProblem problem;
  std::string device = "h200";
  int multiprocessors = 0;  // instead of the device's; 0: those
  std::string only;         // candidates whose description contains this, + for a space; all where empty
  bool traffic = false;     // also prints the loads and stores of warps and their sectors
  std::string orders = "forward,reverse,shuffled";
  uint64_t seed = 1;
  int64_t max_plans = 1000;
  // "input,nan,3": one pixel of each channel of this operand is so, others at each turn.
  std::string special_operand;
  double special_value = 0;
  int64_t special_turn = 0;
};

// "key=value key=value …"; case.cpp lists the keys. Throws std::invalid_argument for an unknown one.
Case parse_case(const std::string& line);

}  // namespace simt_test
