// Which tilings there are for a block, and what they should cost.
#include <algorithm>
#include <cmath>

#include "methods/inverted_residual/banded/banded.h"
#include "methods/inverted_residual/cpu/cpu.h"
#include "methods/inverted_residual/excited/excited.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "methods/inverted_residual/ranks.h"
#include "methods/inverted_residual/shape.h"
#include "plan/append_fastest.h"

namespace convx::inverted_residual {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks, and of places in 32 bits
constexpr int64_t kMostTileSide = 32;         // results
constexpr size_t kMostOfShape = 3;            // plans
constexpr size_t kMostBanded = 6;

Support supports(const BlockProblem& p, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return cpu::supports(p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (device.backend != Backend::cuda || device.architecture < 80) {
    return Support::no("it needs an NVIDIA GPU with mma.sync of 16 bits (sm_80 and later), or a CPU, not " +
                       device.name);
  }
  if (p.dtype == DType::float64) {
    return Support::no("it takes float32, bfloat16 and float16, not float64");
  }
  if (p.filter != 3 && p.filter != 5) {
    return Support::no("it takes filters of 3x3 and 5x5, not " + number(p.filter) + "x" + number(p.filter));
  }
  if (p.stride != 1 && p.stride != 2) {
    return Support::no("it takes strides of 1 and 2, not " + number(p.stride));
  }
  if (p.expanded_channels % 2 != 0) {
    return Support::no("it expands to an even number of channels, not " + number(p.expanded_channels));
  }
  const bool is_of_patches = p.expand_filter > 1;
  if ((p.channels % 8 != 0 && !is_of_patches) || p.out_channels % 8 != 0) {
    return Support::no("its input and result have multiples of 8 channels, not " + number(p.channels) +
                       " and " + number(p.out_channels));
  }
  if (is_of_patches ? p.expand_depth() > kMostOfPatch || p.has_residual : p.expand_stride != 1) {
    return Support::no("it expands pixels, or patches of up to " + number(kMostOfPatch) +
                       " values without a residual, not " + describe(p));
  }
  if (p.layout != Layout::nhwc && !is_of_patches)
    return Support::no("it expands pixels of channels_last alone");
  const auto is_relu = [](Activation activation) {
    return activation == Activation::relu || activation == Activation::relu6;
  };
  const bool is_excited = p.squeezed_channels > 0;
  if (is_excited && p.dtype == DType::float32) {
    return Support::no("with squeeze-and-excitation it takes bfloat16 and float16, not float32");
  }
  if (!is_relu(p.activation) && p.activation != Activation::hardswish &&
      !(is_excited && p.activation == Activation::silu)) {
    return Support::no(std::string("it has relu, relu6") +
                       (is_excited ? ", hardswish and silu" : " and hardswish") + " inside, not " +
                       to_string(p.activation));
  }
  const bool is_linear = p.output_activation == Activation::none;
  if (!is_linear && (!is_relu(p.output_activation) || p.has_residual)) {
    return Support::no("its result has relu, relu6 or a residual, not " + describe(p));
  }
  if (p.batch == 0) return Support::no("the batch is empty");
  if (p.height * p.width * p.channels >= kLimit || p.batch * p.out_height * p.out_width >= kLimit ||
      p.expanded_height * p.expanded_width >= kLimit || p.expanded_channels * p.filter * p.filter >= kLimit) {
    return Support::no("places in an image, or in the filters, need more than 31 bits");
  }
  return is_excited ? excited::supports(p, device) : Support::yes();
}

// Blocks on a multiprocessor; 0 where one is too large.
int64_t fitting(const DeviceTraits& device, const Tiling& t, const Geometry& g) {
  constexpr int64_t kRegisters = 128;  // of a thread
  if (g.shared_bytes > device.shared_bytes_per_block) return 0;
  const int64_t threads = t.warps() * 32;
  return std::max<int64_t>(
      1, std::min(device.registers_per_multiprocessor / (kRegisters * threads),
                  device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve)));
}

// Of the depthwise stage: strips of a tile, and a warp's instructions for one strip of each lane.
int64_t strips_of(const BlockProblem& p, const Tiling& t, const Shape& shape) {
  return divide_up(t.tile_height, strip_rows(shape, static_cast<int>(p.filter))) *
         divide_up(t.tile_width, shape.strip_columns);
}

bool is_float(const BlockProblem& p) {
  return p.dtype == DType::float32;
}

double strip_instructions(const BlockProblem& p, const Shape& shape) {
  const double rows = strip_rows(shape, static_cast<int>(p.filter)), columns = shape.strip_columns;
  const double filter = static_cast<double>(p.filter), stride = static_cast<double>(p.stride);
  const double loads = ((rows - 1) * stride + filter) * ((columns - 1) * stride + filter);
  return rows * columns * (2 * filter * filter + 8) + (is_float(p) ? 1 : 3) * loads + filter * filter + 40;
}

// Instructions that all warps of a block issue, for one step.
double step_instructions(const BlockProblem& p, const Tiling& t, const Geometry& g, const Shape& shape) {
  const double pairs = static_cast<double>(t.chunk) / 16, warps = static_cast<double>(t.warps());
  const double depth_steps = static_cast<double>(g.depth_steps);
  const double window_tiles = static_cast<double>(round_up(g.window_tiles, shape.expand_tiles));
  const double expand = window_tiles * pairs * (depth_steps * (is_float(p) ? 20 : 3.2) + 38);
  const double items = static_cast<double>(strips_of(p, t, shape) * t.chunk) / 2;
  const double turns = std::ceil(items / (warps * 32)) * warps;
  const double tiles = static_cast<double>(t.warps_down * shape.tiles_down * g.project_across) *
                       std::ceil(shape.tiles_across / 2.0);
  const double project = tiles * static_cast<double>(g.chunk_steps) * (is_float(p) ? 22 : 3.5);
  return expand + turns * strip_instructions(p, shape) + project + warps * 60;
}

// Of blocks that each have a multiprocessor: what the warp with the most to do does in each stage, one after
// the other, and what is between them. Fitted to 9500 plans of MobileNetV2's, MnasNet's and EfficientNet's
// blocks at batch 1 on an H200, float32 and bfloat16, to 8 % in the mean.
double lone_block_cycles(const BlockProblem& p, const DeviceTraits& device, const Tiling& t,
                         const Geometry& g, const Shape& shape) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const int64_t pairs = t.chunk / kMatrix, warps = t.warps(), threads = warps * 32;
  const double tiles = shape.expand_tiles, depth_steps = number(g.depth_steps);
  const int64_t jobs = divide_up(g.window_tiles, int64_t{shape.expand_tiles}) * pairs;
  // Of float32, products of parts and what parts them; each waits for the one before.
  const double of_step = is_float(p) ? tiles * 44 + 26 : tiles * 3 + 7, waits = is_float(p) ? 130 : 60;
  const double issue = number(divide_up(jobs, 4)) * (depth_steps * of_step + 40 + 20 * tiles);
  const double expand = number(divide_up(jobs, warps)) * (depth_steps * waits + 300) + 0.3 * issue;
  const double strip = strip_instructions(p, shape);
  const double depthwise = number(divide_up(strips_of(p, t, shape), threads / (t.chunk / 2))) * strip;
  const double depthwise_issue = number(divide_up(strips_of(p, t, shape) * t.chunk / 2, 128)) * strip;
  const double down = shape.tiles_down, across = shape.tiles_across / 2;
  const double project =
      number(divide_up(g.chunk_steps, g.splits)) *
      (is_float(p) ? down * across * 28 + (down + across) * 16 + 88 : down * across * 2 + 48);
  const double fetch = number(g.window_tiles * g.depth_steps * kStepBytes) / number(threads);
  const double slower = is_float(p) ? 1.4 : 1;
  constexpr int64_t kHalf = 113 << 10;  // of a multiprocessor's shared memory: the next kernel has to wait
  return slower * (1400 * number(g.rank_chunks + 2) + 209 * number(warps)) + 0.66 * expand +
         4.36 * depthwise + 0.43 * project +
         1.31 * number(g.rank_chunks - 1) * std::max({issue, depthwise_issue, project}) +
         92 * number(t.ranks * g.splits - 1) + 307 * fetch + 382 * down * across +
         561 * std::min(number(g.blocks) / std::max(device.multiprocessors, 1), 1.0) +
         0.029 * number(std::max<int64_t>(g.shared_bytes - kHalf, 0));
}

double predicted_us(const BlockProblem& p, const DeviceTraits& device, const Tiling& t, const Geometry& g,
                    const Shape& shape) {
  const double of_processor = std::ceil(static_cast<double>(g.blocks) / std::max(device.multiprocessors, 1));
  const double resident = std::min(static_cast<double>(fitting(device, t, g)), of_processor);
  const double rounds = std::ceil(of_processor / resident);
  if (of_processor <= 4) {
    return lone_block_cycles(p, device, t, g, shape) * rounds * (0.9 + 0.1 * resident) /
           device.busy_cycles_per_us();
  }
  const double steps = static_cast<double>(g.rank_chunks + 2);
  const double pieces = static_cast<double>(g.window_tiles * 16 * g.depth_steps * 2);
  const double fetch = p.expand_filter > 1 ? 100 : 25;  // instructions for 16 bytes
  const double outside = pieces / 32 * fetch + static_cast<double>(2 * g.window_bytes) / 512 * 3 +
                         static_cast<double>(g.result_tiles * g.out_pairs * kMatrix) * 4;
  const double issue = (steps * step_instructions(p, t, g, shape) + outside) / 4;
  // What one block waits for by itself: barriers, and in each step the longest chain of a warp.
  const double alone = 3000 + steps * 500 + issue * 1.2;
  const double cycles = rounds * std::max(alone, resident * issue * 1.4);
  return std::max(1.5 + cycles / device.busy_cycles_per_us(), p.bytes() / (device.bandwidth_GBps * 1e3) + 2);
}

// Of an axis: whole, or cut into equal parts, in whole strips.
std::vector<int64_t> tile_sides(int64_t size, int64_t strip) {
  std::vector<int64_t> sides;
  for (const int64_t parts : {1, 2, 3, 4, 6, 7, 8, 14, 16, 28, 32}) {
    const int64_t side = round_up(divide_up(size, parts), strip);
    if (side <= kMostTileSide && (sides.empty() || sides.back() != side)) sides.push_back(side);
  }
  if (sides.empty()) sides.push_back(round_up(kMostTileSide / 2, strip));
  return sides;
}

void append_plan(const BlockProblem& p, const DeviceTraits& device, Tiling t, std::vector<Plan>& plans) {
  // Two chunks ahead, unless that much memory has fewer blocks on a multiprocessor.
  t.ahead = 2;
  Geometry g = geometry_of(p, t);
  t.ahead = 1;
  if (const Geometry smaller = geometry_of(p, t); fitting(device, t, smaller) > fitting(device, t, g)) {
    g = smaller;
  } else {
    t.ahead = 2;
  }
  if (fitting(device, t, g) < 1 || g.blocks >= kLimit) return;
  Plan plan;
  plan.tiling = {{"shape", t.shape},           {"tile_height", t.tile_height},
                 {"tile_width", t.tile_width}, {"chunk", t.chunk},
                 {"warps_down", t.warps_down}, {"warps_across", t.warps_across},
                 {"ahead", t.ahead},           {"ranks", t.ranks}};
  plan.packing = "chunks of " + std::to_string(t.chunk);
  plan.packed_weight_bytes = g.packed_bytes;
  plan.predicted_us = predicted_us(p, device, t, g, kShapes[p.stride - 1][t.shape]);
  plans.push_back(std::move(plan));
}

void append_tile(const BlockProblem& p, const DeviceTraits& device, Tiling t, std::vector<Plan>& plans) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int64_t out_pairs = divide_up(p.out_channels, kMatrix);
  const int64_t tiles = divide_up(t.tile_height * t.tile_width, kMatrix);
  t.warps_down = divide_up(tiles, shape.tiles_down);
  const int64_t least_across = divide_up(out_pairs, shape.tiles_across / 2);
  for (t.warps_across = least_across; t.warps() * 32 <= shape.threads; t.warps_across *= 2) {
    if (t.warps() < 4) continue;
    for (const int64_t chunk : {16, 32, 48, 64, 80, 96, 128}) {
      t.chunk = chunk;
      if (t.chunk / 2 >= p.expanded_channels && t.chunk > 16) continue;
      t.ranks = 1;
      const Geometry of_one = geometry_of(p, t);
      for (const int64_t ranks :
           possible_ranks(device, of_one.chunks, shape.shares ? of_one.blocks : kLimit)) {
        t.ranks = ranks;
        // What is rounded up is work too.
        if (3 * divide_up(of_one.chunks, ranks) * ranks * chunk > 4 * round_up(p.expanded_channels, kMatrix))
          continue;
        append_plan(p, device, t, plans);
      }
    }
  }
}

// Of blocks without squeeze-and-excitation, for any tile.
void append_unbanded(const BlockProblem& p, const DeviceTraits& device, std::vector<Plan>& plans) {
  for (int64_t at = 0; at < kShapeCount; ++at) {
    const Shape& shape = kShapes[p.stride - 1][at];
    if ((p.expand_filter > 1 && !shape.patches) || (is_float(p) && !shape.takes_float)) continue;
    std::vector<Plan> some;
    for (const int64_t tile_height :
         tile_sides(p.out_height, strip_rows(shape, static_cast<int>(p.filter)))) {
      for (const int64_t tile_width : tile_sides(p.out_width, shape.strip_columns)) {
        Tiling t;
        t.shape = at, t.tile_height = tile_height, t.tile_width = tile_width;
        append_tile(p, device, t, some);
      }
    }
    append_fastest(plans, std::move(some), kMostOfShape);
  }
}

std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  std::vector<Plan> plans;
  if (device.backend == Backend::cpu) {
    plans = cpu::candidates(p, device);
  } else if (p.squeezed_channels > 0) {
    plans = excited::candidates(p, device);
  } else {
    append_unbanded(p, device, plans);
    if (!is_float(p)) append_fastest(plans, banded::candidates(p, device), kMostBanded);
  }
  for (Plan& plan : plans) plan.method = &method;
  return plans;
}

}  // namespace

Tiling tiling_of(const Plan& plan) {
  return {plan["shape"],      plan["tile_height"],  plan["tile_width"], plan["chunk"],
          plan["warps_down"], plan["warps_across"], plan["ahead"],      plan["ranks"]};
}

const MethodOf<BlockProblem> method = {
    "inverted_residual", "an inverted residual block, its expanded tensor in caches or shared memory alone",
    supports, candidates};

}  // namespace convx::inverted_residual
