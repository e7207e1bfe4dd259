// Convolution in float64 straight from its definition, any groups, both layouts.
#pragma once
#include <cstdint>
#include <vector>

#include "problem/problem.h"

namespace simt_test {

struct Operands {
  std::vector<double> input, weight, bias, scale, residual, output_grad;  // those that the operation reads
};

// The result of problem.operation, before it is rounded to the problem's dtype.
std::vector<double> reference(const convx::ConvProblem& problem, const Operands& operands);

// Of a number.
double activate(double value, convx::Activation activation);

int64_t result_elements(const convx::ConvProblem& problem);

}  // namespace simt_test
