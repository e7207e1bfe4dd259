// Third stage of the pointwise pipeline: generated kernels that were compiled at run time for one problem
// each, which makes them candidates for it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "methods/pointwise/generator/tiling.h"

namespace convx::pointwise::generator {

struct CompiledKernel {
  ConvProblem problem;
  Tiling tiling;
  int architecture;  // that the image is for
  std::string name;  // of the function in it
  std::string image;
};

// Thread-safe. Kernels stay for the process's life, since plans refer to them; a few thousand at most, then
// InvalidArgument.
void remember_kernel(CompiledKernel kernel);
std::vector<std::shared_ptr<const CompiledKernel>> kernels_for(const ConvProblem& problem, int architecture);
// What append_generated made a plan of.
std::shared_ptr<const CompiledKernel> kernel_of(const Plan& plan, const ConvProblem& problem);

// From text as csrc/problem/record.h reads it: the problem's fields, the tiling's, architecture and name.
void remember_kernel(const std::string& record, std::string image);

}  // namespace convx::pointwise::generator
