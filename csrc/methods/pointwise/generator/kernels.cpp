#include "methods/pointwise/generator/kernels.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "methods/pointwise/family.h"
#include "methods/pointwise/generator/source.h"
#include "problem/record.h"

namespace convx::pointwise {
namespace generator {
namespace {

constexpr size_t kMostKernels = 4096;

struct Hash {
  size_t operator()(const ConvProblem& problem) const { return problem.hash(); }
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<ConvProblem, std::vector<std::shared_ptr<const CompiledKernel>>, Hash> kernels;
  size_t count = 0;
};

Table& table() {
  static Table& instance = *new Table();
  return instance;
}

}  // namespace

void remember_kernel(CompiledKernel kernel) {
  Table& all = table();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  auto& kernels = all.kernels[kernel.problem];
  for (auto& known : kernels) {
    if (known->tiling == kernel.tiling && known->architecture == kernel.architecture) return;
  }
  if (all.count >= kMostKernels) {
    throw InvalidArgument("kernel: there are " + std::to_string(all.count) + " generated kernels already");
  }
  ++all.count;
  kernels.push_back(std::make_shared<const CompiledKernel>(std::move(kernel)));
}

std::vector<std::shared_ptr<const CompiledKernel>> kernels_for(const ConvProblem& problem, int architecture) {
  Table& all = table();
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  std::vector<std::shared_ptr<const CompiledKernel>> found;
  const auto kernels = all.kernels.find(problem.as_tuned());
  if (kernels == all.kernels.end()) return found;
  for (const auto& kernel : kernels->second) {
    if (kernel->architecture == architecture) found.push_back(kernel);
  }
  return found;
}

std::shared_ptr<const CompiledKernel> kernel_of(const Plan& plan, const ConvProblem& problem) {
  Tiling tiling;
  tiling.wave_w = static_cast<int>(plan["wave_w"]);
  tiling.wave_c = static_cast<int>(plan["wave_c"]);
  tiling.wave_n = static_cast<int>(plan["wave_n"]);
  tiling.repeat_w = static_cast<int>(plan["repeat_w"]);
  tiling.repeat_c = static_cast<int>(plan["repeat_c"]);
  tiling.block_n = static_cast<int>(plan["block_n"]);
  tiling.group_c = static_cast<int>(plan["group_c"]);
  tiling.stage_c = static_cast<int>(plan["stage_c"]);
  for (const auto& kernel : kernels_for(problem, static_cast<int>(plan["architecture"]))) {
    if (kernel->tiling == tiling) return kernel;
  }
  throw InvalidArgument("kernel: none was generated for " + describe(plan));
}

void remember_kernel(const std::string& record, std::string image) {
  RecordFields fields(record);
  CompiledKernel kernel;
  kernel.problem = read_problem<ConvProblem>(fields);
  Tiling& t = kernel.tiling;
  const std::pair<const char*, int*> parameters[] = {
      {"wave_w", &t.wave_w},     {"wave_c", &t.wave_c},   {"wave_n", &t.wave_n},   {"repeat_w", &t.repeat_w},
      {"repeat_c", &t.repeat_c}, {"block_n", &t.block_n}, {"group_c", &t.group_c}, {"stage_c", &t.stage_c}};
  for (const auto& [name, value] : parameters) *value = static_cast<int>(fields.integer(name));
  kernel.architecture = static_cast<int>(fields.integer("architecture"));
  kernel.name = fields.text("name");
  fields.require_empty();
  kernel.image = std::move(image);
  remember_kernel(std::move(kernel));
}

}  // namespace generator

void append_generated(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  using namespace generator;
  if (!generator::supports(problem, device).ok) return;
  const Space space(problem, device);
  for (const auto& kernel : kernels_for(problem, device.architecture)) {
    const Tiling& t = kernel->tiling;
    if (!is_allowed(t, space, false)) continue;
    Plan plan;
    plan.candidate = "generated";
    plan.kernel = kGenerated;
    plan.tiling = {{"wave_w", t.wave_w},
                   {"wave_c", t.wave_c},
                   {"wave_n", t.wave_n},
                   {"repeat_w", t.repeat_w},
                   {"repeat_c", t.repeat_c},
                   {"block_n", t.block_n},
                   {"group_c", t.group_c},
                   {"stage_c", t.stage_c},
                   {"lanes", device.lanes},
                   {"blocks", launch_shape(t, space).blocks},
                   {"architecture", device.architecture}};
    plan.predicted_us = generator::predicted_us(t, space);
    plans.push_back(std::move(plan));
  }
}

}  // namespace convx::pointwise
