#include <algorithm>
#include <cmath>
#include <cstdint>

#include "methods/pointwise/family.h"
#include "methods/pointwise/fma/tiles.h"
#include "methods/pointwise/product.h"

namespace convx::pointwise {
namespace {

using fma::Role;

struct Candidate {
  int tile;
  int64_t rows, columns, threads, shared_bytes;
  double efficiency;  // of the device's float32 rate, with blocks enough
};

template <int ElementBytes, Role Kind>
std::vector<Candidate> candidates_of() {
  std::vector<Candidate> all;
  for (int index = 0;; ++index) {
    const bool found = fma::with_tile<ElementBytes, Kind>(index, [&](auto tile) {
      using Tile = decltype(tile);
      constexpr int kPerThread = Tile::kRowsEach * Tile::kColumnsEach;
      const int64_t stage =
          (Tile::kRows + Tile::kColumns) * (fma::depth_of(ElementBytes) + 16 / ElementBytes);
      // float32 with 64 sums a thread on an H200, over P1-P45 at batch 64; small tiles wait for shared
      // memory.
      const double efficiency = kPerThread >= 64 ? 0.65 : kPerThread >= 32 ? 0.55 : 0.35;
      all.push_back({index, Tile::kRows, Tile::kColumns, Tile::kThreads, fma::kStages * stage * ElementBytes,
                     ElementBytes == 2   ? efficiency * 0.8
                     : ElementBytes == 8 ? efficiency * 0.5
                                         : efficiency});
    });
    if (!found) return all;
  }
}

template <Role Kind>
std::vector<Candidate> candidates_for(DType dtype) {
  switch (element_size(dtype)) {
    case 8:
      return candidates_of<8, Kind>();
    case 2:
      return candidates_of<2, Kind>();
    default:
      return candidates_of<4, Kind>();
  }
}

int64_t resident_blocks(const Candidate& tile, const DeviceTraits& device) {
  const int64_t by_shared =
      device.shared_bytes_per_multiprocessor / (tile.shared_bytes + DeviceTraits::kSharedReserve);
  const int64_t by_registers = device.registers_per_multiprocessor / (tile.threads * 128);
  return std::clamp<int64_t>(std::min(by_shared, by_registers), 1, 16);
}

// Bytes and arithmetic overlap in part; a block alone waits for each stage. Constants are those of an H200.
double product_us(const Candidate& tile, const DeviceTraits& device, int64_t blocks, int64_t depth,
                  double bytes) {
  constexpr double kStageUs = 0.3, kFillUs = 0.9;
  const double per_unit = static_cast<double>(divide_up(blocks, std::max(1, device.multiprocessors)));
  const double waves = std::ceil(per_unit / static_cast<double>(resident_blocks(tile, device)));
  const double block_flops = 2.0 * static_cast<double>(tile.rows * tile.columns * depth);
  const double arithmetic =
      per_unit * device.multiprocessors * block_flops / (device.fp32_TFLOPs * 1e6 * tile.efficiency);
  const double latency = waves * (kFillUs + kStageUs * static_cast<double>(depth) / 16);
  const double memory = bytes / (device.bandwidth_GBps * 1e3);
  const double busy = std::max(arithmetic, latency);
  return std::max(busy, memory) + 0.4 * std::min(busy, memory);
}

double launch_us(const DeviceTraits& device) {
  return device.has_bulk_copy() ? 1.5 : 2.3;
}

template <Role Kind>
void append_products(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  for (const Candidate& tile : candidates_for<Kind>(problem.dtype)) {
    const int64_t blocks =
        divide_up(product.rows, tile.rows) * divide_up(product.columns, tile.columns) * problem.groups;
    if (blocks > INT32_MAX) continue;
    Plan plan;
    plan.candidate = "fma";
    plan.kernel = kFma;
    plan.tiling = {{"tile", tile.tile}, {"rows", tile.rows}, {"columns", tile.columns}};
    if (problem.operation == Operation::input_grad) {
      plan.packing = "transposed";
      plan.packed_weight_bytes = problem.weight_elements() * element_size(problem.dtype);
    }
    plan.predicted_us = launch_us(device) + product_us(tile, device, blocks, product.depth, problem.bytes());
    plans.push_back(std::move(plan));
  }
}

template <Role Kind>
void append_weight(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  constexpr int64_t kLongestSum = 4096;  // pixels: longer sums lose digits
  constexpr double kSumUs = 1.5;         // the second kernel, behind the first
  const Product product = product_of(problem);
  const int64_t step = fma::depth_of(static_cast<int>(element_size(problem.dtype)));
  const double results = static_cast<double>(problem.weight_elements());
  for (const Candidate& tile : candidates_for<Kind>(problem.dtype)) {
    const int64_t tiles =
        divide_up(product.rows, tile.rows) * divide_up(product.columns, tile.columns) * problem.groups;
    const int64_t resident = std::max(1, device.multiprocessors) * resident_blocks(tile, device);
    const int64_t wanted = std::max(resident / tiles, divide_up(product.depth, kLongestSum));
    const int64_t slice =
        divide_up(divide_up(product.depth, std::clamp<int64_t>(wanted, 1, product.depth)), step) * step;
    const int64_t slices = divide_up(product.depth, slice);
    if (tiles * slices > INT32_MAX) continue;
    const int64_t sum_bytes = problem.dtype == DType::float64 ? 8 : 4;
    Plan plan;
    plan.candidate = "fma";
    plan.kernel = kFmaWeight;
    plan.tiling = {{"tile", tile.tile}, {"rows", tile.rows}, {"columns", tile.columns}, {"slice", slice}};
    plan.workspace_bytes = slices * problem.weight_elements() * sum_bytes;
    const double partial_us = 2 * static_cast<double>(plan.workspace_bytes) / (device.bandwidth_GBps * 1e3);
    plan.predicted_us = 2.3 + kSumUs + partial_us + 1e-6 * results +
                        product_us(tile, device, tiles * slices, slice, problem.bytes());
    plans.push_back(std::move(plan));
  }
}

}  // namespace

void append_fma(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (problem.operation == Operation::weight_grad) return;
  if (problem.layout == Layout::nhwc) {
    append_products<fma::kNhwc>(problem, device, plans);
  } else {
    append_products<fma::kNchw>(problem, device, plans);
  }
}

void append_fma_weight(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (problem.operation != Operation::weight_grad) return;
  if (problem.layout == Layout::nhwc) {
    append_weight<fma::kNhwcWeight>(problem, device, plans);
  } else {
    append_weight<fma::kNchwWeight>(problem, device, plans);
  }
}

}  // namespace convx::pointwise
