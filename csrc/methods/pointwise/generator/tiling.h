// First stage of the pointwise pipeline (Liu et al. 2024, section 5.1, Table 1, Eq. 1-7): the tilings that a
// problem and a device allow.
//
// Where the paper needs exact divisors, ragged tiles are allowed here: a part of a tile that sticks out of
// the plane or of the channels is loaded as zeros and not stored. exact = true asks for the paper's own
// candidates. The paper tiles rows of the output; pixels of a 1x1 filter are independent, so that a whole
// plane is one row here, and a 7x7 map has 49 pixels to tile rather than seven times 7.
//
// A CPU is such a device too: a wave is the vector unit of a core, whose lanes hold neighbouring output
// channels or neighbouring pixels, Repeat_W x Repeat_C tiles are the work of one task of its threads,
// registers are those of vectors, and what shared memory is to a block the first-level cache is to a tile.
#pragma once
#include <string>
#include <vector>

#include "plan/method.h"
#include "problem/device.h"
#include "problem/problem.h"

namespace convx::pointwise::generator {

// A wave is a warp on NVIDIA: device.lanes threads. On a CPU it is one thread, and lanes those of a vector.
struct Tiling {
  int wave_w = 1;    // output pixels of a wave
  int wave_c = 1;    // output channels of a wave
  int wave_n = 1;    // waves of a block
  int repeat_w = 1;  // of those, side by side along pixels
  int repeat_c = 1;  // and along output channels
  int block_n = 1;   // blocks that a multiprocessor holds at a time
  int group_c = 1;   // input channels spread over neighbouring lanes; 1 is the direct form, without reduction
  // Input channels that one of the two buffers holds, a multiple of group_c. The paper has group_c itself,
  // which leaves the direct form a barrier per channel.
  // On a CPU: how many products are summed apart, in registers.
  int stage_c = 1;
  // CPUs alone: lanes lie along pixels, so that Wave_W is vectors of them and Wave_C single filters.
  bool pixel_lanes = false;

  int tile_w() const { return wave_w * repeat_w; }
  int tile_c() const { return wave_c * repeat_c; }
  int threads(int lanes) const { return wave_n * lanes; }
  // Filters that the lanes of a wave read side by side, and the filters of one lane.
  int rows(int lanes) const { return lanes / group_c; }
  int thread_c(int lanes) const { return wave_c / rows(lanes); }
  bool operator==(const Tiling& other) const;
};

// "wave_w=8 wave_c=64 …", in the order of the struct.
std::string describe(const Tiling& tiling);

// What the constraints look at. input_grad, which CPUs have tilings for, is a product of transposed filters:
// its channels are those of that product. The device of a CPU has what it is in the terms of waves.
struct Space {
  Space(const ConvProblem& problem, const DeviceTraits& device);
  int64_t pixels, in_channels, out_channels;  // of an image's plane; of one group
  int64_t groups, batch;
  int element_bytes;          // of what is staged in shared memory
  int accumulator_registers;  // 32-bit registers of one sum or operand; vectors of one on a CPU
  bool channels_last;
  // On a CPU: operands of 16 bits, which are widened, and a source that is no row of pixels, which is
  // gathered.
  bool is_widened = false, is_gathered = false;
  DeviceTraits device;
};

// As generated kernels see a problem, whichever GPU runs them.
Space gpu_space(const ConvProblem& problem);

// Eq. 1, 2: what a block, and a thread, may use when block_n blocks share a multiprocessor.
int64_t shared_limit(const Tiling& tiling, const Space& space);
int64_t register_limit(const Tiling& tiling, const Space& space);
// Eq. 3: bytes of both buffers, with the padding that keeps rows off each other's banks.
int64_t used_shared(const Tiling& tiling, const Space& space);
// Eq. 5: registers that hold the next buffer's elements on their way from global to shared memory; on a CPU
// the operands of one step.
int64_t temporary_registers(const Tiling& tiling, const Space& space);
// Eq. 6: sums, operands, temporaries and 30 for addresses and the compiler.
int64_t used_registers(const Tiling& tiling, const Space& space);

// Elements between the rows of a staged tile: an odd number of 16-byte pieces, so that the same column of
// eight rows lies in eight different quarters of the banks.
int row_pitch(int elements, int element_bytes);

// One constraint: whether it holds, and the numbers that say so.
struct Check {
  std::string constraint;  // "Wave_W", "Eq. 4", …
  bool holds;
  std::string reason;
};

// Every constraint for one tiling, in the order of the paper.
std::vector<Check> check(const Tiling& tiling, const Space& space, bool exact);
bool is_allowed(const Tiling& tiling, const Space& space, bool exact);

// Whether there are tilings for a problem at all.
Support supports(const ConvProblem& problem, const DeviceTraits& device);

// The allowed tilings, the fastest expected first, at most `most` of them. With exact none may be left: a
// prime channel count has no divisors to tile by.
std::vector<Tiling> tilings(const ConvProblem& problem, const DeviceTraits& device, bool exact, size_t most);

// Microseconds by a model of multiply-adds, shared and global loads and latency: good for ranking alone.
double predicted_us(const Tiling& tiling, const Space& space);

}  // namespace convx::pointwise::generator
