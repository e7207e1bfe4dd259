// What is done before the plan of a new problem is chosen, in programs that ask for measured choices.
#pragma once
#include <functional>

#include "problem/problem.h"

namespace convx {

// Measures a problem's likely plans and remembers the fastest (choose/tuned.h). device_index: a CPU's is -1.
using MeasureFirst = std::function<void(const ConvProblem&, int device_index)>;

void set_measure_first(MeasureFirst measure);  // before any call; without one nothing is measured
void measure_first(const ConvProblem& problem, int device_index);

}  // namespace convx
