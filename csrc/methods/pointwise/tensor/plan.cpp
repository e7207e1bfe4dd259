#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/tiles.h"

namespace convx::pointwise {
namespace {

using tensor::Access;
using tensor::Precision;

// Microseconds of a launch: fitted on some sixty tiles of each precision over P1-P45 at batch 1, 8 and 64 on
// an H200 (plain launches; 5 to 8 % above the best tile of each layer).
struct Cost {
  double launch, in, out, products, reads, wave, chunk, step, memory, exchange, rows;
};
constexpr Cost kHalfCost = {1.95, .48, .64, 1.19, .96, .13, .06, .04, .30, .59, .04};
constexpr Cost kTf32Cost = {2.14, .41, .50, 1.40, 1.50, .15, .07, .02, .34, .30, .02};
constexpr Cost kSplitCost = {2.24, .20, .52, 1.15, 4.0, .08, .12, .05, .17, .62, .02};
constexpr double kOverlapUs = 0.7;  // of launches that begin while the kernel before them drains

// Sizes of a tile for a warp width that is known at run time.
struct TileSizes {
  int64_t columns, pixels, threads, stage_steps, sums, shared_bytes;
  bool exchange;
};

template <Precision Kind, int Lanes, Access How, class Tile>
TileSizes sizes_of(int64_t plane, int64_t steps) {
  using Size = tensor::Sizes<Kind, Lanes, How, Tile>;
  return {Size::kColumns,       How == tensor::kPlanes ? Size::kColumns * plane : Size::kColumns,
          Size::kThreads,       Tile::kStageSteps,
          Size::kSums,          Size::shared_bytes(plane, steps),
          Tile::kWarpDepths > 1};
}

template <Precision Kind, Access How, class Tile>
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Product& product,
                    const TileSizes& size, int64_t blocks) {
  const Cost& cost = Kind == tensor::kSplit ? kSplitCost : Kind == tensor::kTf32 ? kTf32Cost : kHalfCost;
  const double units = std::max(1, device.multiprocessors);
  // Rates of an H200's multiprocessor, in bytes and instructions a microsecond.
  const double clock = 1980 * (device.fp32_TFLOPs / units) / (51.0 / 132), fill = 26 * clock;
  const int64_t registers =
      std::min<int64_t>(255, size.sums + (Kind == tensor::kSplit ? 95 : 70)) * size.threads;
  const int64_t resident =
      std::clamp<int64_t>(std::min({device.shared_bytes_per_multiprocessor / (size.shared_bytes + 1024),
                                    device.threads_per_multiprocessor / size.threads,
                                    device.registers_per_multiprocessor / registers}),
                          1, 32);
  const double count = std::ceil(static_cast<double>(blocks) / units);
  const double waves = std::ceil(count / static_cast<double>(resident));
  const double depth = static_cast<double>(product.depth), pixels = static_cast<double>(size.pixels);
  const double bytes = tensor::element_bytes(Kind), rows = Tile::kRows;
  // Elements alone take as many instructions as pieces of several.
  const bool elements = How == tensor::kElements ||
                        (How == tensor::kChannels && product.depth % (16 / tensor::element_bytes(Kind)) != 0);
  const double single = !elements ? 1 : bytes == 2 ? 4 : 2;
  const double in = count * depth * (pixels * single + rows * tensor::parts(Kind)) * bytes / fill;
  const double out = count * rows * pixels * single * bytes / fill;
  const double products = count * (rows / 16) * (pixels / 8) * (depth / tensor::step_depth(Kind)) *
                          (Kind == tensor::kSplit ? 3 : 1) * 2 / clock;
  const double taken = How == tensor::kPlanes ? 1 : How == tensor::kShortRows ? 4 : 16 / bytes;
  const double reads = count * Tile::kWarpRows * pixels * depth / 32 / taken / clock;
  const double chunks = std::ceil(depth / static_cast<double>(size.stage_steps * tensor::step_depth(Kind)));
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  const double us = cost.launch + cost.in * in + cost.out * out + cost.products * products +
                    cost.reads * reads +
                    waves * (cost.wave + cost.chunk * chunks + cost.step * chunks * Tile::kSteps +
                             (size.exchange ? cost.exchange : 0)) +
                    cost.memory * memory + cost.rows * count * Tile::kRowsEach;
  return std::max(us - (device.has_bulk_copy() ? kOverlapUs : 0), 1.5 + memory);
}

template <Precision Kind, Access How>
void append_access(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  const bool gradient = problem.operation == Operation::input_grad;
  const int64_t plane =
      gradient ? problem.in_height * problem.in_width : problem.out_height * problem.out_width;
  const int64_t steps = tensor::steps_of(Kind, How, product.depth);
  constexpr const char* kOrders[] = {"rows", "short rows", "planes", "rows", "channels"};
  for (int index = 0;; ++index) {
    const bool found = tensor::with_tile<Kind, How>(index, [&](auto tile) {
      using Tile = decltype(tile);
      const TileSizes size = device.lanes == 64 ? sizes_of<Kind, 64, How, Tile>(plane, steps)
                                                : sizes_of<Kind, 32, How, Tile>(plane, steps);
      const int64_t column_tiles =
          divide_up(How == tensor::kPlanes ? problem.batch : product.columns, size.columns);
      const int64_t blocks = divide_up(product.rows, Tile::kRows) * column_tiles * problem.groups;
      if (size.shared_bytes > device.shared_bytes_per_block || blocks > INT32_MAX) return;
      Plan plan;
      plan.candidate = Kind == tensor::kSplit ? "tensor3" : "tensor";
      plan.kernel = kTensor;
      plan.tiling = {{"precision", Kind},
                     {"access", How},
                     {"tile", index},
                     {"rows", Tile::kRows},
                     {"columns", size.columns},
                     {"lanes", device.lanes},
                     {"overlap", device.has_bulk_copy()}};
      plan.packing = "fragments of " + std::to_string(device.lanes) + " lanes, " + kOrders[How] +
                     (Kind == tensor::kSplit ? ", split" : "");
      plan.packed_weight_bytes =
          problem.groups * tensor::row_tiles_of(How, product.rows) * steps * 512 * tensor::parts(Kind);
      plan.predicted_us = predicted_us<Kind, How, Tile>(problem, device, product, size, blocks);
      plans.push_back(std::move(plan));
    });
    if (!found) return;
  }
}

template <Precision Kind>
void append_precision(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  const bool gradient = problem.operation == Operation::input_grad;
  const int64_t plane =
      gradient ? problem.in_height * problem.in_width : problem.out_height * problem.out_width;
  constexpr int64_t kPiece = 16 / tensor::element_bytes(Kind);
  if (problem.layout == Layout::nhwc) {
    if (device.backend == Backend::hip && !tensor::planned_on_amd(Kind, tensor::kChannels)) return;
    append_access<Kind, tensor::kChannels>(problem, device, plans);
  } else if (product.same_pixels && plane % kPiece == 0) {
    append_access<Kind, tensor::kRows>(problem, device, plans);
  } else if (product.same_pixels && plane >= tensor::kFewestPlanePixels &&
             plane <= tensor::kMostPlanePixels && product.depth * plane % kPiece == 0 &&
             product.rows * plane % kPiece == 0) {
    append_access<Kind, tensor::kPlanes>(problem, device, plans);
  } else if (product.same_pixels && kPiece == 8 && plane % 4 == 0) {
    if constexpr (kPiece == 8) append_access<Kind, tensor::kShortRows>(problem, device, plans);
  } else {
    append_access<Kind, tensor::kElements>(problem, device, plans);
  }
}

bool has_matrix_units(const DeviceTraits& device) {
  if (device.backend == Backend::cuda) return device.architecture >= 80;
  return device.lanes == 64 && (device.architecture == 0x90a || device.architecture == 0x942);
}

}  // namespace

void append_tensor(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const bool images_countable = problem.in_channels * problem.in_height * problem.in_width < INT32_MAX / 2 &&
                                problem.out_channels * problem.out_height * problem.out_width < INT32_MAX / 2;
  if (problem.operation == Operation::weight_grad || !has_matrix_units(device) || !images_countable) {
    return;
  }
  switch (problem.dtype) {
    case DType::float64:
      return;
    case DType::bfloat16:
      return append_precision<tensor::kBfloat16>(problem, device, plans);
    case DType::float16:
      return append_precision<tensor::kFloat16>(problem, device, plans);
    case DType::float32:
      // CDNA's matrix units take float32 as it is.
      if (problem.allow_tf32 || device.backend == Backend::hip) {
        append_precision<tensor::kTf32>(problem, device, plans);
      } else {
        append_precision<tensor::kSplit>(problem, device, plans);
      }
  }
}

}  // namespace convx::pointwise
