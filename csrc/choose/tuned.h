// Choices that were measured on this very machine for one problem (convx.tune), which come before
// predictions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "plan/method.h"
#include "problem/device.h"
#include "problem/problem.h"

namespace convx {

struct Tuned {
  std::string algorithm;  // a plan's name with its tiling: "depthwise/strip rows=4 columns=8"
  double us = 0;          // as measured
  std::string by;         // who measured it, in words
};

// What tells the devices of a machine apart: a GPU's name; a CPU's instruction set and threads.
std::string tuning_key(const DeviceTraits& device);

// Each kind of problem has a table, thread-safe and bounded: where it is full, some choice makes room for the
// new one.
template <class Problem>
void remember_tuned(const Problem& problem, const std::string& device_key, Tuned choice);
template <class Problem>
std::optional<Tuned> find_tuned(const Problem& problem, const DeviceTraits& device);
void forget_tuned();

// Grows with each change of a table; what was chosen under a smaller number may have changed.
uint64_t tuned_generation();

// remember_tuned from text, one "name = value" a line: every field of _core.Problem or _core.FilterProblem by
// its name there (pairs and paddings as numbers with spaces between), device, algorithm, us and by. Throws
// InvalidArgument for a name that is missing, unknown or given twice, and for values that mean nothing.
void remember_tuned(const std::string& record);

}  // namespace convx
