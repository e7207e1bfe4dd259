#include "methods/pointwise/generator/tiling.h"

#include <algorithm>
#include <tuple>

#include "methods/pointwise/generator/constraint.h"
#include "methods/pointwise/generator/cpu.h"

namespace convx::pointwise::generator {
namespace {

constexpr int kMostThreads = 1024;                  // of a block, on every device
constexpr int kCompilerRegisters = 30;              // section 5.1.3
constexpr int kSharedReserve = 1024;                // CUDA keeps a KiB of every block's share to itself
constexpr int kMostThreadRegisters[] = {255, 256};  // NVIDIA, AMD

const std::vector<Constraint> kConstraints = {
    {"parameters",
     [](const Tiling& t, const Space&, bool) { return has_parameters_in_range(t) && !t.pixel_lanes; },
     [](const Tiling& t, const Space&, bool) {
       return "lanes along pixels are for CPUs, and " + parameters_range(t);
     }},
    // The paper asks for factors of the output width and channels, so that no lane diverges. Tiles that stick
    // out are allowed unless exact: their loads and stores are masked by selects, and no lane leaves.
    {"Wave_W",
     [](const Tiling& t, const Space& s, bool exact) { return !exact || s.pixels % t.tile_w() == 0; },
     [](const Tiling& t, const Space& s, bool exact) {
       return tiles("Wave_W x Repeat_W", t.tile_w(), "pixels", s.pixels, exact);
     }},
    {"Wave_C",
     [](const Tiling& t, const Space& s, bool exact) { return !exact || s.out_channels % t.tile_c() == 0; },
     [](const Tiling& t, const Space& s, bool exact) {
       return tiles("Wave_C x Repeat_C", t.tile_c(), "output channels of a group", s.out_channels, exact);
     }},
    {"Wave_N",
     [](const Tiling& t, const Space& s, bool) {
       return t.wave_n == t.repeat_w * t.repeat_c && t.threads(s.device.lanes) <= kMostThreads;
     },
     [](const Tiling& t, const Space& s, bool) {
       return "Wave_N = " + text(t.wave_n) + " must be Repeat_W x Repeat_C = " + text(t.repeat_w) + " x " +
              text(t.repeat_c) + ", and " + text(t.wave_n) + " x " + text(s.device.lanes) + " = " +
              text(t.threads(s.device.lanes)) + " threads at most " + text(kMostThreads);
     }},
    {"Block_N",
     [](const Tiling& t, const Space& s, bool) {
       return t.block_n * t.threads(s.device.lanes) <= s.device.threads_per_multiprocessor;
     },
     [](const Tiling& t, const Space& s, bool) {
       return "Block_N x Wave_N = " + text(t.block_n) + " x " + text(t.wave_n) +
              " waves; a multiprocessor holds " + text(s.device.threads_per_multiprocessor / s.device.lanes);
     }},
    {"Group_C",
     [](const Tiling& t, const Space& s, bool) {
       return is_power_of_two(t.group_c) && t.group_c <= s.device.lanes &&
              t.wave_c % t.rows(s.device.lanes) == 0;
     },
     [](const Tiling& t, const Space& s, bool) {
       if (!is_power_of_two(t.group_c) || t.group_c > s.device.lanes) {
         return "Group_C = " + text(t.group_c) + " must be a power of two up to the " + text(s.device.lanes) +
                " lanes of a wave";
       }
       return "Thread_C = Wave_C / (lanes / Group_C) = " + text(t.wave_c) + " / (" + text(s.device.lanes) +
              " / " + text(t.group_c) + ") must be whole";
     }},
    // Not in the paper, whose buffers hold Group_C channels. Its exact form needs I_C to be a multiple of
    // those.
    {"Stage_C",
     [](const Tiling& t, const Space& s, bool exact) {
       return t.stage_c % t.group_c == 0 && (!exact || s.in_channels % t.stage_c == 0);
     },
     [](const Tiling& t, const Space& s, bool exact) {
       return "Stage_C = " + text(t.stage_c) + " must be a multiple of Group_C = " + text(t.group_c) + "; " +
              tiles("Stage_C", t.stage_c, "input channels of a group", s.in_channels, exact);
     }},
    {"Eq. 1", [](const Tiling& t, const Space& s, bool) { return shared_limit(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "LimitS = " + text(s.device.shared_bytes_per_multiprocessor) +
              " B of a multiprocessor / Block_N " + text(t.block_n) + " = " + text(shared_limit(t, s)) +
              " B for a block, at most " + text(s.device.shared_bytes_per_block);
     }},
    {"Eq. 2", [](const Tiling& t, const Space& s, bool) { return register_limit(t, s) > kCompilerRegisters; },
     [](const Tiling& t, const Space& s, bool) {
       return "LimitR = " + text(s.device.registers_per_multiprocessor) + " registers / (Block_N " +
              text(t.block_n) + " x Wave_N " + text(t.wave_n) + " x " + text(s.device.lanes) +
              " lanes) = " + text(register_limit(t, s)) + " for a thread; the compiler alone takes " +
              text(kCompilerRegisters);
     }},
    {"Eq. 3", [](const Tiling& t, const Space& s, bool) { return used_shared(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedS = " + text(s.element_bytes) + " B x Stage_C " + text(t.stage_c) + " x (pixels " +
              text(t.tile_w()) + " padded to " + text(row_pitch(t.tile_w(), s.element_bytes)) +
              " + filters " + text(t.tile_c()) + " padded to " +
              text(row_pitch(t.tile_c(), s.element_bytes)) + ") x 2 buffers = " + text(used_shared(t, s)) +
              " B";
     }},
    {"Eq. 4", [](const Tiling& t, const Space& s, bool) { return used_shared(t, s) <= shared_limit(t, s); },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedS = " + text(used_shared(t, s)) +
              " B must be at most LimitS = " + text(shared_limit(t, s)) + " B";
     }},
    // A thread that moves more than this at a time keeps its sums waiting for loads.
    {"Eq. 5", [](const Tiling& t, const Space& s, bool) { return temporary_registers(t, s) <= 64; },
     [](const Tiling& t, const Space& s, bool) {
       const int threads = t.threads(s.device.lanes);
       return "tempR = ceil(" + text(t.tile_w() * t.stage_c) + " / " + text(threads) + ") + ceil(" +
              text(t.tile_c() * t.stage_c) + " / " + text(threads) +
              ") = " + text(temporary_registers(t, s)) + " registers, at most 64";
     }},
    {"Eq. 6", [](const Tiling& t, const Space& s, bool) { return used_registers(t, s) > kCompilerRegisters; },
     [](const Tiling& t, const Space& s, bool) {
       const int thread_c = t.thread_c(s.device.lanes);
       return "UsedR = (Wave_W " + text(t.wave_w) + " x Thread_C " + text(thread_c) +
              " + Wave_W + Thread_C) x " + text(s.accumulator_registers) + " + tempR " +
              text(temporary_registers(t, s)) + " + " + text(kCompilerRegisters) + " = " +
              text(used_registers(t, s)) + " registers";
     }},
    {"Eq. 7",
     [](const Tiling& t, const Space& s, bool) { return used_registers(t, s) <= register_limit(t, s); },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedR = " + text(used_registers(t, s)) +
              " must be at most LimitR = " + text(register_limit(t, s));
     }},
};

bool is_cpu(const Space& space) {
  return space.device.backend == Backend::cpu;
}

const std::vector<Constraint>& constraints_of(const Space& space) {
  return is_cpu(space) ? cpu::constraints() : kConstraints;
}

}  // namespace

bool Tiling::operator==(const Tiling& other) const {
  const auto fields = [](const Tiling& t) {
    return std::tie(t.wave_w, t.wave_c, t.wave_n, t.repeat_w, t.repeat_c, t.block_n, t.group_c, t.stage_c,
                    t.pixel_lanes);
  };
  return fields(*this) == fields(other);
}

std::string describe(const Tiling& t) {
  return "wave_w=" + text(t.wave_w) + " wave_c=" + text(t.wave_c) + " wave_n=" + text(t.wave_n) +
         " repeat_w=" + text(t.repeat_w) + " repeat_c=" + text(t.repeat_c) + " block_n=" + text(t.block_n) +
         " group_c=" + text(t.group_c) + " stage_c=" + text(t.stage_c) +
         (t.pixel_lanes ? " pixel_lanes=1" : "");
}

Space::Space(const ConvProblem& problem, const DeviceTraits& of)
    : pixels(problem.out_height * problem.out_width),
      in_channels(problem.in_channels_per_group()),
      out_channels(problem.out_channels_per_group()),
      groups(problem.groups),
      batch(problem.batch),
      element_bytes(static_cast<int>(element_size(problem.dtype))),
      accumulator_registers(problem.dtype == DType::float64 ? 2 : 1),
      channels_last(problem.layout == Layout::nhwc),
      device(of) {
  if (of.backend == Backend::cpu) cpu::complete(*this, problem);
}

Space gpu_space(const ConvProblem& problem) {
  DeviceTraits gpu;
  gpu.backend = Backend::cuda;
  return Space(problem, gpu);
}

int row_pitch(int elements, int element_bytes) {
  const int pieces = static_cast<int>(ceil_divide(int64_t(elements) * element_bytes, 16)) | 1;
  return pieces * 16 / element_bytes;
}

int64_t shared_limit(const Tiling& t, const Space& s) {
  if (is_cpu(s)) return cpu::shared_limit(t, s);
  const int reserve = s.device.backend == Backend::cuda ? kSharedReserve : 0;
  const int64_t share = s.device.shared_bytes_per_multiprocessor / t.block_n - reserve;
  return std::min<int64_t>(share, s.device.shared_bytes_per_block);
}

int64_t register_limit(const Tiling& t, const Space& s) {
  if (is_cpu(s)) return cpu::register_limit(t, s);
  const int64_t threads = static_cast<int64_t>(t.block_n) * t.threads(s.device.lanes);
  const int most = kMostThreadRegisters[s.device.backend == Backend::hip];
  return std::min<int64_t>(s.device.registers_per_multiprocessor / threads, most);
}

int64_t used_shared(const Tiling& t, const Space& s) {
  if (is_cpu(s)) return cpu::used_shared(t, s);
  const int64_t pitches = row_pitch(t.tile_w(), s.element_bytes) + row_pitch(t.tile_c(), s.element_bytes);
  return s.element_bytes * t.stage_c * pitches * 2;
}

int64_t temporary_registers(const Tiling& t, const Space& s) {
  if (is_cpu(s)) return cpu::temporary_registers(t, s);
  const int64_t threads = t.threads(s.device.lanes);
  return (ceil_divide(int64_t(t.tile_w()) * t.stage_c, threads) +
          ceil_divide(int64_t(t.tile_c()) * t.stage_c, threads)) *
         s.accumulator_registers;
}

int64_t used_registers(const Tiling& t, const Space& s) {
  if (is_cpu(s)) return cpu::used_registers(t, s);
  const int64_t thread_c = t.thread_c(s.device.lanes);
  const int64_t sums_and_operands = t.wave_w * thread_c + t.wave_w + thread_c;
  return sums_and_operands * s.accumulator_registers + temporary_registers(t, s) + kCompilerRegisters;
}

std::vector<Check> check(const Tiling& tiling, const Space& space, bool exact) {
  std::vector<Check> checks;
  for (const Constraint& constraint : constraints_of(space)) {
    checks.push_back(
        {constraint.name, constraint.holds(tiling, space, exact), constraint.reason(tiling, space, exact)});
    // What these make sure of is divided by below.
    const bool is_basic = checks.size() == 1 || checks.back().constraint == "Group_C";
    if (is_basic && !checks.back().holds) break;
  }
  return checks;
}

bool is_allowed(const Tiling& tiling, const Space& space, bool exact) {
  const std::vector<Constraint>& all = constraints_of(space);
  return std::all_of(all.begin(), all.end(),
                     [&](const Constraint& constraint) { return constraint.holds(tiling, space, exact); });
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return cpu::supports(problem);
  if (problem.operation != Operation::forward) return Support::no("kernels are generated for forward alone");
  if (problem.filter_height != 1 || problem.filter_width != 1) {
    return Support::no("the filter is " + text(problem.filter_height) + "x" + text(problem.filter_width) +
                       ", not 1x1");
  }
  if (problem.padding_top != 0 || problem.padding_bottom != 0 || problem.padding_left != 0 ||
      problem.padding_right != 0) {
    return Support::no("padding is not 0");
  }
  if (problem.batch == 0) return Support::no("the batch is empty");
  // Offsets within an image have 32 bits in the kernels.
  constexpr int64_t kMost = int64_t(1) << 31;
  const int64_t in_elements = problem.in_channels * problem.in_height * problem.in_width;
  const int64_t out_elements = problem.out_channels * problem.out_height * problem.out_width;
  if (in_elements >= kMost || out_elements >= kMost) {
    return Support::no("an image has " + text(std::max(in_elements, out_elements)) +
                       " elements; kernels are generated for less than " + text(kMost));
  }
  return Support::yes();
}

}  // namespace convx::pointwise::generator
