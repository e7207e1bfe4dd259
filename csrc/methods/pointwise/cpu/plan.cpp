// The CPU candidates: the generator's tilings for forward and input_grad, one form for weight_grad.
#include <algorithm>
#include <set>
#include <tuple>

#include "methods/packing/crsk.h"
#include "methods/pointwise/family.h"
#include "methods/pointwise/generator/cpu.h"
#include "methods/pointwise/grid.h"

namespace convx::pointwise {
namespace {

constexpr size_t kMostPlans = 8;

// weight_grad's tasks: filters and channels that stay in caches, with the pixels of a chunk.
constexpr int64_t kWeightRows = 112, kMostWeightRows = 448, kWeightColumns = 128, kWeightPixels = 128;
constexpr int64_t kWeightTasks = 32;  // about so many: threads of any machine, and no matter how many

}  // namespace

void append_cpu(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!generator::supports(problem, device).ok) return;
  const generator::Space space(problem, device);
  // The best of every shape of register tile: the lanes' axis and the vectors along it.
  std::set<std::pair<bool, int>> shapes;
  for (const generator::Tiling& t : generator::cpu::tilings(space, false)) {
    if (!shapes.emplace(t.pixel_lanes, generator::cpu::vectors(t, space)).second) continue;
    Plan plan;
    plan.candidate = t.pixel_lanes ? "pixels" : "filters";
    plan.kernel = t.pixel_lanes ? kCpuPixels : kCpuFilters;
    plan.tiling = {{"wave_w", t.wave_w},     {"wave_c", t.wave_c},     {"wave_n", t.wave_n},
                   {"repeat_w", t.repeat_w}, {"repeat_c", t.repeat_c}, {"block_n", t.block_n},
                   {"group_c", t.group_c},   {"stage_c", t.stage_c},   {"vector_lanes", space.device.lanes}};
    plan.packing = packing::crsk_name(problem, t.wave_c);
    plan.packed_weight_bytes = packing::crsk_bytes(problem, t.wave_c);
    plan.predicted_us = generator::predicted_us(t, space);
    if (problem.operation == Operation::input_grad) {
      plan.predicted_us += packing::crsk_cpu_us(problem, device);
    }
    plans.push_back(std::move(plan));
    if (shapes.size() == kMostPlans) break;
  }
}

void append_cpu_weight(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (problem.operation != Operation::weight_grad) return;
  const int64_t lanes = vector_lanes(device.isa, problem.dtype);
  const int64_t filters = problem.out_channels_per_group(), channels = problem.in_channels_per_group();
  const Grid grid = grid_of(problem);
  const int64_t vectors = divide_up(channels, lanes);
  const int64_t columns = divide_up(vectors, divide_up(vectors * lanes, kWeightColumns)) * lanes;
  // Every task transposes its input anew: many rows share that, where there are tasks enough.
  const int64_t row_tiles =
      std::clamp(divide_up(kWeightTasks / 2, problem.groups * divide_up(channels, columns)),
                 divide_up(filters, kMostWeightRows), divide_up(filters, kWeightRows));
  const int64_t rows = divide_up(filters, row_tiles);
  const int64_t pixels = std::clamp<int64_t>(grid.pixels(), 1, kWeightPixels);
  const int64_t chunks = grid_images(problem) * divide_up(grid.pixels(), pixels);
  const int64_t tasks = problem.groups * divide_up(filters, rows) * divide_up(channels, columns);
  const int64_t slices =
      std::clamp<int64_t>(divide_up(kWeightTasks, tasks), 1, std::max<int64_t>(chunks / 4, 1));
  Plan plan;
  plan.candidate = "weight";
  plan.kernel = kCpuWeight;
  plan.tiling = {
      {"rows", rows}, {"columns", columns}, {"pixels", pixels}, {"slices", slices}, {"vector_lanes", lanes}};
  // Whole vectors of sums of one slice can be where the result will be.
  const int64_t sum_bytes = problem.dtype == DType::float64 ? 8 : 4;
  if (slices > 1 || channels % lanes != 0 || element_size(problem.dtype) != sum_bytes) {
    plan.workspace_bytes = slices * problem.out_channels * vectors * lanes * sum_bytes;
  }
  // Measured on P1-P45 on one AVX-512 core: planes are transposed, 16 bits widened.
  const double slow = (problem.dtype == DType::float64    ? 2
                       : element_size(problem.dtype) == 2 ? 1.12
                                                          : 1) *
                      (problem.layout == Layout::nhwc ? 0.92 : 1);
  plan.predicted_us = std::max(problem.flops() / (device.fp32_TFLOPs * 1e6 * 1.2) * slow,
                               problem.bytes() / (device.bandwidth_GBps * 1e3)) +
                      6;
  plans.push_back(std::move(plan));
}

}  // namespace convx::pointwise
