#include "methods/pointwise/generator/cpu.h"
#include "methods/pointwise/grid.h"

namespace convx::pointwise::generator::cpu {
namespace {

constexpr int kFirstLevelBytes = 32 * 1024;  // of the data cache that every x86-64 with vectors has

int wave_vectors(const Tiling& t, const Space& s) {
  return t.pixel_lanes ? t.wave_w / s.device.lanes : t.wave_c / s.device.lanes;
}

bool are_vectors(int extent, const Space& s) {
  return extent % s.device.lanes == 0 && extent <= kMostVectors * s.device.lanes;
}

std::string vectors_text(const char* name, int extent, const Space& s) {
  return std::string(name) + " = " + text(extent) + " must be up to " + text(kMostVectors) + " vectors of " +
         text(s.device.lanes) + " lanes; ";
}

const std::vector<Constraint> kConstraints = {
    {"parameters", [](const Tiling& t, const Space&, bool) { return has_parameters_in_range(t); },
     [](const Tiling& t, const Space&, bool) { return parameters_range(t); }},
    {"Wave_W",
     [](const Tiling& t, const Space& s, bool exact) {
       if (t.pixel_lanes && (s.channels_last || !are_vectors(t.wave_w, s))) return false;
       return !exact || s.pixels % t.tile_w() == 0;
     },
     [](const Tiling& t, const Space& s, bool exact) {
       if (t.pixel_lanes && s.channels_last) {
         return std::string("channels_last has neighbouring channels for the lanes, not pixels");
       }
       return (t.pixel_lanes ? vectors_text("Wave_W", t.wave_w, s) : "") +
              tiles("Wave_W x Repeat_W", t.tile_w(), "pixels", s.pixels, exact);
     }},
    {"Wave_C",
     [](const Tiling& t, const Space& s, bool exact) {
       if (!t.pixel_lanes && !are_vectors(t.wave_c, s)) return false;
       return !exact || s.out_channels % t.tile_c() == 0;
     },
     [](const Tiling& t, const Space& s, bool exact) {
       return (t.pixel_lanes ? "" : vectors_text("Wave_C", t.wave_c, s)) +
              tiles("Wave_C x Repeat_C", t.tile_c(), "output channels of a group", s.out_channels, exact);
     }},
    {"Wave_N", [](const Tiling& t, const Space&, bool) { return t.wave_n == t.repeat_w * t.repeat_c; },
     [](const Tiling& t, const Space&, bool) {
       return "Wave_N = " + text(t.wave_n) + " must be Repeat_W x Repeat_C = " + text(t.repeat_w) + " x " +
              text(t.repeat_c) + ", the tiles that a task computes one after another";
     }},
    {"Block_N", [](const Tiling& t, const Space&, bool) { return t.block_n == 1; },
     [](const Tiling& t, const Space&, bool) {
       return "Block_N = " + text(t.block_n) + "; a core computes one block at a time";
     }},
    {"Group_C", [](const Tiling& t, const Space&, bool) { return t.group_c == 1; },
     [](const Tiling& t, const Space&, bool) {
       return "Group_C = " + text(t.group_c) +
              " must be 1: lanes of a vector that shared a sum would add up in shuffles, and there are "
              "neighbouring results for all lanes";
     }},
    {"Stage_C",
     [](const Tiling& t, const Space& s, bool exact) {
       return t.stage_c <= most_products_apart(s.device.isa) && (!exact || s.in_channels % t.stage_c == 0);
     },
     [](const Tiling& t, const Space& s, bool exact) {
       return "Stage_C = " + text(t.stage_c) + " products summed apart, at most " +
              text(most_products_apart(s.device.isa)) + " for the sake of rounding; " +
              tiles("Stage_C", t.stage_c, "input channels of a group", s.in_channels, exact);
     }},
    {"Eq. 1", [](const Tiling& t, const Space& s, bool) { return cpu::shared_limit(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "LimitS = " + text(s.device.shared_bytes_per_multiprocessor) +
              " B of a core's first-level cache / Block_N " + text(t.block_n) + " = " +
              text(cpu::shared_limit(t, s)) + " B";
     }},
    {"Eq. 2", [](const Tiling& t, const Space& s, bool) { return cpu::register_limit(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "LimitR = " + text(s.device.registers_per_multiprocessor) + " vector registers / Block_N " +
              text(t.block_n) + " = " + text(cpu::register_limit(t, s)) +
              "; scalars and addresses have others";
     }},
    {"Eq. 3", [](const Tiling& t, const Space& s, bool) { return cpu::used_shared(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedS = " + text(s.element_bytes) + " B x Stage_C " + text(t.stage_c) + " x (pixels " +
              text(t.wave_w) + " + filters " + text(t.wave_c) + ") = " + text(cpu::used_shared(t, s)) +
              " B that a tile reads of a stage";
     }},
    {"Eq. 4",
     [](const Tiling& t, const Space& s, bool) { return cpu::used_shared(t, s) <= cpu::shared_limit(t, s); },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedS = " + text(cpu::used_shared(t, s)) +
              " B must be at most LimitS = " + text(cpu::shared_limit(t, s)) + " B";
     }},
    {"Eq. 5",
     [](const Tiling& t, const Space& s, bool) {
       return cpu::temporary_registers(t, s) <= cpu::register_limit(t, s);
     },
     [](const Tiling& t, const Space& s, bool) {
       return "tempR = " + text(wave_vectors(t, s)) +
              " vectors and what all lanes share = " + text(cpu::temporary_registers(t, s)) +
              " registers for the operands of a step";
     }},
    {"Eq. 6", [](const Tiling& t, const Space& s, bool) { return cpu::used_registers(t, s) > 0; },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedR = " + text(rows(t)) + " rows x " + text(wave_vectors(t, s)) + " vectors + tempR " +
              text(cpu::temporary_registers(t, s)) + " = " + text(cpu::used_registers(t, s)) +
              " vector registers";
     }},
    {"Eq. 7",
     [](const Tiling& t, const Space& s, bool) {
       return cpu::used_registers(t, s) <= cpu::register_limit(t, s);
     },
     [](const Tiling& t, const Space& s, bool) {
       return "UsedR = " + text(cpu::used_registers(t, s)) +
              " must be at most LimitR = " + text(cpu::register_limit(t, s));
     }},
};

}  // namespace

void complete(Space& space, const ConvProblem& problem) {
  const Product product = product_of(problem);
  const Grid grid = grid_of(problem);
  space.pixels = std::max<int64_t>(grid.pixels(), 1);  // none where all is padding
  space.batch = grid_images(problem);
  space.in_channels = product.depth;
  space.out_channels = product.rows;
  space.element_bytes = problem.dtype == DType::float64 ? 8 : 4;  // 16 bits are widened before
  space.accumulator_registers = 1;
  space.is_widened = element_size(problem.dtype) == 2;
  space.is_gathered = !grid.is_flat(grid.source);
  DeviceTraits& device = space.device;
  device.lanes = vector_lanes(device.isa, problem.dtype);
  device.registers_per_multiprocessor = vector_registers(device.isa);
  device.shared_bytes_per_multiprocessor = device.shared_bytes_per_block = kFirstLevelBytes;
}

Support supports(const ConvProblem& problem) {
  if (problem.operation == Operation::weight_grad) {
    return Support::no("weight_grad sums over pixels, which these tilings don't");
  }
  if (problem.filter_height != 1 || problem.filter_width != 1) {
    return Support::no("the filter is " + text(problem.filter_height) + "x" + text(problem.filter_width) +
                       ", not 1x1");
  }
  if (problem.batch == 0) return Support::no("the batch is empty");
  return Support::yes();
}

const std::vector<Constraint>& constraints() {
  return kConstraints;
}

int rows(const Tiling& t) {
  return t.pixel_lanes ? t.wave_c : t.wave_w;
}
int vectors(const Tiling& t, const Space& s) {
  return wave_vectors(t, s);
}

int64_t shared_limit(const Tiling& t, const Space& s) {
  return s.device.shared_bytes_per_multiprocessor / t.block_n;
}

int64_t register_limit(const Tiling& t, const Space& s) {
  return s.device.registers_per_multiprocessor / t.block_n;
}

int64_t used_shared(const Tiling& t, const Space& s) {
  return int64_t(s.element_bytes) * t.stage_c * (int64_t(t.wave_w) + t.wave_c);
}

int64_t temporary_registers(const Tiling& t, const Space& s) {
  return operand_registers(s.device.isa, wave_vectors(t, s));
}

int64_t used_registers(const Tiling& t, const Space& s) {
  return int64_t(rows(t)) * wave_vectors(t, s) + cpu::temporary_registers(t, s);
}

}  // namespace convx::pointwise::generator::cpu
