// How a block brings a chunk of input channels from global to shared memory.
#include "methods/pointwise/generator/pieces.h"

namespace convx::pointwise::generator {
namespace {

// Not a conditional operator, whose operands of several elements clang keeps in memory.
std::string guarded(const std::string& condition, const std::string& target, const std::string& value) {
  if (condition.empty()) return "    " + target + " = " + value + ";\n";
  return "    " + target + " = {};\n    if (" + condition + ") {\n      " + target + " =\n          " +
         value + ";\n    }\n";
}

// Elements that one load brings: as many as 16 bytes hold, where their addresses are multiples of them.
struct Loads {
  int input, filter;
};

Loads loads(const ConvProblem& p, const Tiling& t) {
  const Space s = gpu_space(p);
  const auto widest = [&](const auto& fits) {
    int count = 16 / s.element_bytes;
    while (count > 1 && !fits(count)) count /= 2;
    return count;
  };
  const auto along_channels = [&](int count) { return s.in_channels % count == 0 && t.stage_c % count == 0; };
  const auto along_pixels = [&](int count) {
    return p.stride_h == 1 && p.stride_w == 1 && s.pixels % count == 0 && t.tile_w() % count == 0;
  };
  return {p.layout == Layout::nhwc ? widest(along_channels) : widest(along_pixels), widest(along_channels)};
}

}  // namespace

std::string staging(const ConvProblem& p, const Tiling& t, int lanes) {
  const Space s = gpu_space(p);
  const bool last = p.layout == Layout::nhwc;
  const Loads pieces = loads(p, t);
  std::vector<std::string> input_inside, filter_inside;
  if (t.tile_w() * t.stage_c / pieces.input % t.threads(lanes) != 0)
    input_inside.push_back("piece < kInputPieces");
  if (s.pixels % t.tile_w() != 0) input_inside.push_back("first_pixel + pixel < kPixels");
  if (t.tile_c() * t.stage_c / pieces.filter % t.threads(lanes) != 0)
    filter_inside.push_back("piece < kFilterPieces");
  if (s.out_channels % t.tile_c() != 0) filter_inside.push_back("first_filter + filter < kOutChannels");
  if (s.in_channels % t.stage_c != 0) {
    input_inside.push_back("first_channel + channel < kInChannels");
    filter_inside.push_back("first_channel + channel < kInChannels");
  }
  const std::string offset =
      last ? "input_pixel(first_pixel + pixel) * (kGroups * kInChannels) + first_channel + channel"
           : "(first_channel + channel) * kInPixels + input_pixel(first_pixel + pixel)";
  const std::string input_place = last ? "    const int pixel = piece / (kStageC / kInputLoad), channel = "
                                         "piece % (kStageC / kInputLoad) * kInputLoad;\n"
                                       : "    const int channel = piece / (kTileW / kInputLoad), pixel = "
                                         "piece % (kTileW / kInputLoad) * kInputLoad;\n";
  const std::string filter_place =
      "    const int filter = piece / (kStageC / kFilterLoad), channel = piece % (kStageC / kFilterLoad) * "
      "kFilterLoad;\n";
  const std::string each_piece = "    const int piece = static_cast<int>(threadIdx.x) + i * kThreads;\n";
  std::string text = "\nconstexpr int kInputLoad = " + number(pieces.input) +
                     ", kFilterLoad = " + number(pieces.filter) + ";  // elements that a load brings\n";
  text +=
      R"(constexpr int kInputPieces = kTileW * kStageC / kInputLoad, kFilterPieces = kTileC * kStageC / kFilterLoad;
constexpr int kInputLoads = (kInputPieces + kThreads - 1) / kThreads;    // of a thread
constexpr int kFilterLoads = (kFilterPieces + kThreads - 1) / kThreads;
struct alignas(kInputLoad * sizeof(Element)) InputPiece {
  Element element[kInputLoad];
};
struct alignas(kFilterLoad * sizeof(Element)) FilterPiece {
  Element element[kFilterLoad];
};

// The next chunk's elements on their way: in registers while the present chunk is multiplied.
struct Fetched {
  InputPiece input[kInputLoads];
  FilterPiece filter[kFilterLoads];
};

CONVX_DEVICE void fetch(Fetched& fetched, const Element* input, const Element* weight, int first_pixel,
                        int first_filter, int first_channel) {
#pragma unroll
  for (int i = 0; i < kInputLoads; ++i) {
)";
  text += each_piece + input_place +
          guarded(all_of(input_inside), "fetched.input[i]",
                  "*reinterpret_cast<const InputPiece*>(input + " + offset + ")");
  text += R"(  }
#pragma unroll
  for (int i = 0; i < kFilterLoads; ++i) {
)";
  text +=
      each_piece + filter_place +
      guarded(
          all_of(filter_inside), "fetched.filter[i]",
          "*reinterpret_cast<const FilterPiece*>(weight + filter * kInChannels + first_channel + channel)");
  text += R"(  }
}

CONVX_DEVICE void put(const Fetched& fetched, Element* inputs, Element* filters) {
#pragma unroll
  for (int i = 0; i < kInputLoads; ++i) {
)";
  text += each_piece + input_place;
  text += last ? R"(    if (piece < kInputPieces) {
#pragma unroll
      for (int j = 0; j < kInputLoad; ++j) {
        inputs[(channel + j) * kInputPitch + pixel] = fetched.input[i].element[j];
      }
    }
)"
               : R"(    if (piece < kInputPieces) {
      InputPiece moved;  // element by element: clang keeps a whole piece in memory
#pragma unroll
      for (int j = 0; j < kInputLoad; ++j) moved.element[j] = fetched.input[i].element[j];
      *reinterpret_cast<InputPiece*>(inputs + channel * kInputPitch + pixel) = moved;
    }
)";
  text += R"(  }
#pragma unroll
  for (int i = 0; i < kFilterLoads; ++i) {
)";
  text += each_piece + filter_place;
  text += R"(    if (piece < kFilterPieces) {
#pragma unroll
      for (int j = 0; j < kFilterLoad; ++j) {
        filters[(channel + j) * kFilterPitch + filter] = fetched.filter[i].element[j];
      }
    }
  }
}
)";
  return text;
}

}  // namespace convx::pointwise::generator
