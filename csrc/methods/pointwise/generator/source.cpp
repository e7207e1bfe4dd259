#include "methods/pointwise/generator/source.h"

#include <algorithm>
#include <cstdio>

#include "methods/pointwise/generator/pieces.h"

namespace convx::pointwise::generator {
namespace {

std::string head(const ConvProblem& p, const Tiling& t, int lanes) {
  const Space space = gpu_space(p);
  std::string text = "// Pointwise convolution, generated for\n";
  text += "//   " + std::string(to_string(p.dtype)) + " " + to_string(p.layout) + ", any batch of " +
          number(p.in_channels) + "x" + number(p.in_height) + "x" + number(p.in_width) + " -> " +
          number(p.out_channels) + "x" + number(p.out_height) + "x" + number(p.out_width) + ", stride (" +
          number(p.stride_h) + ", " + number(p.stride_w) + "), groups " + number(p.groups) +
          describe(p.epilogue) + "\n";
  text += "// with the tiling\n//   wave_w=" + number(t.wave_w) + " wave_c=" + number(t.wave_c) +
          " wave_n=" + number(t.wave_n) + " repeat_w=" + number(t.repeat_w) +
          " repeat_c=" + number(t.repeat_c) + " group_c=" + number(t.group_c) +
          " stage_c=" + number(t.stage_c) + ", waves of " + number(lanes) + " lanes\n";
  text += "// A block has " + number(t.threads(lanes)) + " threads and computes " + number(t.tile_w()) +
          " pixels of " + number(t.tile_c()) + " channels, a lane " + number(t.wave_w) + " pixels of " +
          number(t.thread_c(lanes)) + " channels";
  text +=
      t.group_c == 1 ? ".\n" : ",\n// of which it sums every " + number(t.group_c) + "th input channel.\n";
  return text;
}

std::string constants(const ConvProblem& p, const Tiling& t, int lanes) {
  const Space s = gpu_space(p);
  std::string text;
  const auto define = [&](const char* name, int64_t value, const char* comment = "") {
    text += std::string("constexpr int ") + name + " = " + number(value) + ";" +
            (*comment == 0 ? "" : std::string("  // ") + comment) + "\n";
  };
  define("kLanes", lanes);
  define("kGroups", s.groups);
  define("kInChannels", s.in_channels, "of a group");
  define("kOutChannels", s.out_channels, "of a group");
  define("kInPixels", p.in_height * p.in_width, "of an image's plane");
  define("kPixels", s.pixels, "of an image's output plane");
  define("kWaveW", t.wave_w, "pixels of a wave");
  define("kWaveC", t.wave_c, "output channels of a wave");
  define("kRepeatW", t.repeat_w, "waves along pixels");
  define("kRepeatC", t.repeat_c, "waves along output channels");
  define("kGroupC", t.group_c, "input channels spread over neighbouring lanes");
  define("kStageC", t.stage_c, "input channels of a buffer");
  text +=
      R"(constexpr int kRows = kLanes / kGroupC;     // output channels that a wave's lanes hold side by side
constexpr int kThreadC = kWaveC / kRows;    // output channels of a lane
constexpr int kThreads = kRepeatW * kRepeatC * kLanes;
constexpr int kTileW = kWaveW * kRepeatW, kTileC = kWaveC * kRepeatC;
constexpr int kTilesW = (kPixels + kTileW - 1) / kTileW, kTilesC = (kOutChannels + kTileC - 1) / kTileC;
constexpr int kChunks = (kInChannels + kStageC - 1) / kStageC;
)";
  define("kInputPitch", row_pitch(t.tile_w(), s.element_bytes),
         "odd in 16-byte pieces, against bank conflicts");
  define("kFilterPitch", row_pitch(t.tile_c(), s.element_bytes));
  return text;
}

// Full unrolling of large tiles would fill the instruction cache.
int unrolled_steps(const Tiling& t, int lanes) {
  const int products = std::max(1, t.wave_w * t.thread_c(lanes));
  return std::clamp(256 / products, 1, std::min(8, t.stage_c / t.group_c));
}

std::string multiply(const ConvProblem& p, const Tiling& t, int lanes) {
  const int wave_bytes = t.wave_w * static_cast<int>(element_size(p.dtype));
  const int piece_bytes = wave_bytes % 16 == 0  ? 16
                          : wave_bytes % 8 == 0 ? 8
                                                : static_cast<int>(element_size(p.dtype));
  return R"(
// Neighbouring pixels of a staged row, read at once.
struct alignas()" +
         number(piece_bytes) + R"() Piece {
  Element element[)" +
         number(piece_bytes / element_size(p.dtype)) + R"(];
};
constexpr int kPiece = sizeof(Piece) / sizeof(Element);

// One chunk: every lane multiplies its kWaveW pixels by its kThreadC filters, for its input channels.
CONVX_DEVICE void multiply(Sum (&sums)[kThreadC * kWaveW], const Element* inputs, const Element* filters,
                           int group_lane) {
#pragma unroll )" +
         number(unrolled_steps(t, lanes)) + R"(
  for (int step = 0; step < kStageC; step += kGroupC) {
    const Element* const pixels = inputs + (step + group_lane) * kInputPitch;
    const Element* const row_filters = filters + (step + group_lane) * kFilterPitch;
    Sum pixel_operands[kWaveW], filter_operands[kThreadC];
#pragma unroll
    for (int i = 0; i < kWaveW; i += kPiece) {
      const Piece piece = *reinterpret_cast<const Piece*>(pixels + i);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) pixel_operands[i + j] = widen(piece.element[j]);
    }
#pragma unroll
    for (int j = 0; j < kThreadC; ++j) filter_operands[j] = widen(row_filters[j * kRows]);
#pragma unroll
    for (int j = 0; j < kThreadC; ++j) {
#pragma unroll
      for (int i = 0; i < kWaveW; ++i) {
        sums[j * kWaveW + i] = multiply_add(filter_operands[j], pixel_operands[i], sums[j * kWaveW + i]);
      }
    }
  }
}
)";
}

std::string kernel(const ConvProblem& p, const Tiling& t, int lanes, const std::string& name) {
  const bool last = p.layout == Layout::nhwc;
  std::string text = R"(
CONVX_KERNEL(kThreads) )" +
                     name + R"((const Element* CONVX_RESTRICT input, const Element* CONVX_RESTRICT weight,
    const Element* CONVX_RESTRICT bias, const Element* CONVX_RESTRICT scale,
    const Element* CONVX_RESTRICT residual, Element* CONVX_RESTRICT output, long long batch) {
  CONVX_DYNAMIC_SHARED(shared);
  Element* const inputs = reinterpret_cast<Element*>(shared);     // [2][kStageC][kInputPitch]
  Element* const filters = inputs + 2 * kStageC * kInputPitch;    // [2][kStageC][kFilterPitch]
  const int lane = static_cast<int>(threadIdx.x) % kLanes, wave = static_cast<int>(threadIdx.x) / kLanes;
  const int group_lane = lane % kGroupC, row = lane / kGroupC;
  const int wave_pixel = wave % kRepeatW * kWaveW, wave_filter = wave / kRepeatW * kWaveC;
)";
  const Epilogue& epilogue = p.epilogue;
  if (!epilogue.has_bias) text += "  (void)bias;\n";
  if (!epilogue.has_scale) text += "  (void)scale;\n";
  if (!epilogue.has_residual) text += "  (void)residual;\n";
  text += R"(
  // As many blocks as the device holds take the tiles in turns.
  const long long tiles = batch * kGroups * kTilesC * kTilesW;
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_pixel = static_cast<int>(tile % kTilesW) * kTileW;
    const int first_filter = static_cast<int>(tile / kTilesW % kTilesC) * kTileC;
    const long long plane = tile / (kTilesW * kTilesC);    // image * kGroups + group
)";
  if (last) {
    text += R"(    const int group = static_cast<int>(plane % kGroups);
    const Element* const tile_input =
        input + plane / kGroups * kInPixels * (kGroups * kInChannels) + group * kInChannels;
    Element* const tile_output =
        output + plane / kGroups * kPixels * (kGroups * kOutChannels) + group * kOutChannels;
    const Element* const tile_weight =
        weight + (static_cast<long long>(group) * kOutChannels + first_filter) * kInChannels;
)";
  } else {
    text += R"(    const int group = static_cast<int>(plane % kGroups);
    const Element* const tile_input = input + plane * kInChannels * kInPixels;
    Element* const tile_output = output + plane * kOutChannels * kPixels;
    const Element* const tile_weight =
        weight + (static_cast<long long>(group) * kOutChannels + first_filter) * kInChannels;
)";
  }
  text += R"(
    Sum sums[kThreadC * kWaveW];
#pragma unroll
    for (int i = 0; i < kThreadC * kWaveW; ++i) sums[i] = Sum(0);
    Fetched fetched;
    fetch(fetched, tile_input, tile_weight, first_pixel, first_filter, 0);
    put(fetched, inputs, filters);
    CONVX_BARRIER();
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      // Double buffer: the next chunk is loaded while this one is multiplied, and put into the other half.
      const int buffer = chunk % 2;
      const bool has_next = chunk + 1 < kChunks;
      if (has_next) fetch(fetched, tile_input, tile_weight, first_pixel, first_filter, (chunk + 1) * kStageC);
      multiply(sums, inputs + buffer * kStageC * kInputPitch + wave_pixel,
               filters + buffer * kStageC * kFilterPitch + wave_filter + row, group_lane);
      if (has_next) {
        put(fetched, inputs + (1 - buffer) * kStageC * kInputPitch, filters + (1 - buffer) * kStageC * kFilterPitch);
      }
      CONVX_BARRIER();
    }

)";
  return text + finish(p, t, lanes) + "  }\n}\n";
}

// 64 bits of FNV-1a: tells kernels apart by name.
std::string digest(const std::string& text) {
  uint64_t state = 0xcbf29ce484222325u;
  for (const char each : text) state = (state ^ static_cast<unsigned char>(each)) * 0x100000001b3u;
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(state));
  return digits;
}

}  // namespace

Support has_source(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) {
    return Support::no("kernels are generated for GPUs alone; a CPU's are compiled beforehand");
  }
  return supports(problem, device);
}

Source source(const ConvProblem& problem, const Tiling& tiling, int lanes) {
  const std::string parts =
      element_type(problem.dtype) + activation(problem.epilogue.activation, problem.dtype) + "\n" +
      constants(problem, tiling, lanes) + input_pixel(problem) + staging(problem, tiling, lanes) +
      multiply(problem, tiling, lanes) + result_piece(problem, tiling, lanes);
  const std::string name = "convx_pointwise_" + digest(parts + kernel(problem, tiling, lanes, ""));
  // A namespace of its own, so that several can be compiled together; the kernel's name is plain C.
  return {name, head(problem, tiling, lanes) + prologue() + "\nnamespace " + name + "_parts {\n\n" + parts +
                    kernel(problem, tiling, lanes, name) + "\n}  // namespace " + name + "_parts\n"};
}

LaunchShape launch_shape(const Tiling& t, const Space& s) {
  const auto count = [](int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; };
  const int64_t tiles = count(s.pixels, t.tile_w()) * count(s.out_channels, t.tile_c()) * s.groups * s.batch;
  const int64_t resident = static_cast<int64_t>(s.device.multiprocessors) * t.block_n;
  return {std::min(tiles, resident), t.threads(s.device.lanes), used_shared(t, s)};
}

}  // namespace convx::pointwise::generator
