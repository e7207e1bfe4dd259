#include <algorithm>

#include "methods/depthwise/channels_rolling/tiles.h"
#include "methods/depthwise/channels_support.h"
#include "methods/depthwise/family.h"
#include "methods/short_epilogue.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::depthwise {
namespace {

using channels_rolling::kColumns;

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support support = supports_channels(problem, device); !support.ok) return support;
  const int64_t filter = problem.filter_height;
  if (filter != problem.filter_width || (filter != 5 && filter != 7)) {
    return Support::no("filter must be 5x5 or 7x7");
  }
  if (problem.stride_h != 1 || problem.stride_w != 1) return Support::no("stride must be 1");
  if (!has_short_epilogue(problem))
    return Support::no("no epilogue but a bias and an activation other than gelu");
  return Support::yes();
}

// A lane's way down one unit.
struct Work {
  int64_t source_rows;  // read
  int64_t products;     // of a source row with a row of taps
  int64_t rows;         // written
};

// Of the unit in the middle of the image, which has the most source rows.
Work work_of(const Sweep& sweep, int64_t rows) {
  const int64_t filter = sweep.filter_height, groups = divide_up(sweep.result_height, rows);
  const int64_t first = (groups - 1) / 2 * rows, top = first - sweep.top;
  const int64_t count = std::min(rows, sweep.result_height - first), all = count + filter - 1;
  const int64_t begin = std::max<int64_t>(0, -top), end = std::min(all, sweep.source_height - top);
  const auto products_of = [&](int64_t i) {
    return std::min(i, count - 1) - std::max<int64_t>(0, i - filter + 1) + 1;
  };
  Work work = {end - begin, count * filter, count};
  for (int64_t i = 0; i < begin; ++i) work.products -= products_of(i);  // in the padding, less than a filter
  for (int64_t i = end; i < all; ++i) work.products -= products_of(i);
  return work;
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const Sweep sweep = sweep_of(problem);
  const int64_t filter = sweep.filter_height;
  const int64_t channels = problem.dtype != DType::float32 && problem.in_channels % 2 == 0 ? 2 : 1;
  const bool whole = sweep.source_width == sweep.result_width && sweep.result_width <= kColumns &&
                     sweep.left == filter / 2 && (channels == 2 || problem.dtype == DType::float32);
  const int64_t lanes = problem.in_channels / channels * divide_up(sweep.result_width, kColumns);
  const int64_t blocks = divide_up(lanes, channels_rolling::kThreads);
  const int64_t resident = channels_rolling::blocks_of(static_cast<int>(filter), static_cast<int>(channels),
                                                       problem.dtype == DType::float16);
  const int64_t multiprocessors = std::max(1, device.multiprocessors);
  const double cycles_per_us = device.busy_cycles_per_us();

  // Instructions of a warp, as in the compiler's code for an H200.
  const int64_t sources = whole ? kColumns : kColumns + filter - 1;
  const double taps = whole ? static_cast<double>(kColumns * filter - filter / 2 * (filter / 2 + 1))
                            : static_cast<double>(kColumns * filter);
  const double per_product = static_cast<double>(channels) * taps + static_cast<double>(filter) + 4;
  const double per_source = 6 + static_cast<double>(sources) * (4.4 + 2 * static_cast<double>(channels));
  const double per_row = 6.5 * kColumns;

  Plan best;
  for (int64_t rows = sweep.result_height, groups = 1; rows > 0;
       rows = rows > 1 ? divide_up(sweep.result_height, groups) : 0) {
    // The next have an eighth less.
    groups = std::max(groups + 1, divide_up(sweep.result_height, std::max<int64_t>(1, rows * 7 / 8)));
    const Work work = work_of(sweep, rows);
    const double instructions = static_cast<double>(work.source_rows) * per_source +
                                static_cast<double>(work.products) * per_product +
                                static_cast<double>(work.rows) * per_row;
    const int64_t units = problem.batch * divide_up(sweep.result_height, rows);
    const int64_t slices = std::clamp<int64_t>(resident * multiprocessors / blocks, 1, units);
    const int64_t beside = std::min(resident, divide_up(blocks * slices, multiprocessors));
    const int64_t waves = divide_up(blocks * slices, resident * multiprocessors);
    // A scheduler issues 0.76 instructions a cycle of several warps, half of one; that with the most warps is
    // the last.
    const int64_t warps = divide_up(beside * channels_rolling::kThreads / device.lanes, 4);
    const double cycles = instructions * std::max(static_cast<double>(warps) / 0.76, 2.0);
    // Filters come by way of shared memory, a tap after the other.
    const double prologue = 1.2 + 0.011 * static_cast<double>(filter * filter * channels);
    const double compute =
        static_cast<double>(waves) *
        (prologue + static_cast<double>(divide_up(units, slices)) * cycles / cycles_per_us);
    const double memory = problem.bytes() / 0.8 / (device.bandwidth_GBps * 1e3);
    const double us = std::max(memory, compute) + 0.25 * std::min(memory, compute) + 1.5;
    if (!best.tiling.empty() && us >= best.predicted_us) continue;
    best.tiling = {{"lanes", device.lanes},
                   {"channels", channels},
                   {"rows", rows},
                   {"slices", slices},
                   {"whole", whole}};
    best.predicted_us = us;
  }
  trust(best, device, 1.3);
  best.kernel = kChannelsRolling;
  best.candidate = "channels_rolling";
  plans.push_back(std::move(best));
}

}  // namespace

const Family channels_rolling_family = {"channels_rolling", supports, append};

}  // namespace convx::depthwise
