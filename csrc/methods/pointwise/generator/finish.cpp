// How a block's sums become results in global memory.
#include "methods/pointwise/generator/pieces.h"

namespace convx::pointwise::generator {
namespace {

// What a lane writes: all its values, or after the reduction of group_c lanes a contiguous share of them.
// Values that can't be shared so are kept by all of the group, of which each writes every group_c-th.
struct Values {
  Values(const Tiling& t, int lanes)
      : all(t.wave_w * t.thread_c(lanes)),
        shared_out(all % t.group_c == 0),
        kept(shared_out ? all / t.group_c : all) {}
  int all;
  bool shared_out;
  int kept;
};

// Neighbouring pixels of a filter that are written at once: as many as 16 bytes hold, where their addresses
// are multiples of them. Of channels_last, neighbouring lanes have neighbouring filters.
int results_at_once(const ConvProblem& p, const Tiling& t, int lanes) {
  const Space s = gpu_space(p);
  const Values values(t, lanes);
  if (p.layout == Layout::nhwc || !values.shared_out) return 1;
  int count = 16 / s.element_bytes;
  while (count > 1 && (t.wave_w % count != 0 || s.pixels % count != 0 || values.kept % count != 0))
    count /= 2;
  return count;
}

// The sums of the group's lanes, each exchange halving what a lane keeps where the values can be divided so.
std::string reduction(const Tiling& t, int lanes) {
  const int values = Values(t, lanes).all;
  std::string text = "    // Segmented reduction: the " + number(t.group_c) +
                     " lanes of a group hold parts of the same " + number(values) + " sums.\n";
  if (values % t.group_c != 0) {
    for (int mask = t.group_c / 2; mask > 0; mask /= 2) {
      text += "#pragma unroll\n    for (int i = 0; i < " + number(values) +
              "; ++i) sums[i] += lane_xor<kLanes>(sums[i], " + number(mask) + ");\n";
    }
    return text;
  }
  text += "    // Each exchange halves what a lane keeps; lane g of a group ends with those from g * " +
          number(values / t.group_c) + " on.\n";
  int kept = values;
  for (int mask = t.group_c / 2; mask > 0; mask /= 2) {
    kept /= 2;
    text +=
        "    {\n      const bool keeps_upper = (group_lane & " + number(mask) + ") != 0;\n#pragma unroll\n";
    text += "      for (int i = 0; i < " + number(kept) +
            "; ++i) {\n        const Sum sent = keeps_upper ? sums[i] : sums[i + " + number(kept) +
            "];\n        sums[i] = (keeps_upper ? sums[i + " + number(kept) +
            "] : sums[i]) + lane_xor<kLanes>(sent, " + number(mask) + ");\n      }\n    }\n";
  }
  return text;
}

// piece: of the sums from i on of a filter, whose results go to tile_output + offset.
std::string finished_piece(const Epilogue& epilogue, const std::string& offset) {
  const std::string channel = "[group * kOutChannels + first_filter + filter])";
  const std::string bias = "widen(bias" + channel;
  std::string sum = "sums[i + j]", text = "        ResultPiece piece;\n";
  if (epilogue.has_scale) {
    sum = "multiply_add(" + sum + ", widen(scale" + channel + ", " + (epilogue.has_bias ? bias : "Sum(0)") +
          ")";
  } else if (epilogue.has_bias) {
    sum += " + " + bias;
  }
  std::string result = "activate(" + sum + ")";
  if (epilogue.has_residual) {
    text +=
        "        const ResultPiece added =\n            *reinterpret_cast<const ResultPiece*>(residual + "
        "(tile_output - output) + " +
        offset + ");\n";
    const std::string added = " + widen(added.element[j])";
    result = epilogue.residual_after_activation ? result + added : "activate(" + sum + added + ")";
  }
  return text + "#pragma unroll\n        for (int j = 0; j < kResults; ++j) piece.element[j] = narrow(" +
         result + ");\n";
}

std::string write_back(const ConvProblem& p, const Tiling& t, int lanes) {
  const Space s = gpu_space(p);
  const Values values(t, lanes);
  std::vector<std::string> inside;
  std::string value = "i";
  if (t.group_c > 1 && values.shared_out) value = "group_lane * " + number(values.kept) + " + i";
  if (!values.shared_out) inside.push_back("i % kGroupC == group_lane");
  if (s.out_channels % t.tile_c() != 0) inside.push_back("first_filter + filter < kOutChannels");
  if (s.pixels % t.tile_w() != 0) inside.push_back("first_pixel + pixel < kPixels");
  const std::string condition = all_of(inside);
  const std::string offset = p.layout == Layout::nhwc
                                 ? "(first_pixel + pixel) * (kGroups * kOutChannels) + first_filter + filter"
                                 : "(first_filter + filter) * kPixels + first_pixel + pixel";
  return "#pragma unroll\n    for (int i = 0; i < " + number(values.kept) +
         "; i += kResults) {\n      const int value = " + value +
         ";\n      const int filter = wave_filter + row + value / kWaveW * kRows;\n"
         "      const int pixel = wave_pixel + value % kWaveW;\n      " +
         (condition.empty() ? "" : "if (" + condition + ") ") + "{\n" + finished_piece(p.epilogue, offset) +
         "        store(tile_output + " + offset + ", piece);\n      }\n    }\n";
}

}  // namespace

std::string result_piece(const ConvProblem& p, const Tiling& t, int lanes) {
  const int count = results_at_once(p, t, lanes);
  const int words = count * static_cast<int>(element_size(p.dtype)) / 4;
  std::string text = "\nconstexpr int kResults = " + number(count) +
                     ";  // pixels that are written at once\n" +
                     R"(struct alignas(kResults * sizeof(Element)) ResultPiece {
  Element element[kResults];
};
CONVX_DEVICE void store(Element* to, const ResultPiece& piece) {
)";
  if (count > 1 && words > 1) {
    const std::string width = number(words);
    std::string places, operands;
    for (int i = 0; i < words; ++i) {
      places += (i == 0 ? "%" : ", %") + number(i + 1);
      operands += ", \"r\"(all.word[" + number(i) + "])";
    }
    // The compiler would take a conditional store apart.
    text += R"(#if defined(__CUDACC_RTC__)
  union {
    ResultPiece piece;
    unsigned int word[)" +
            width + R"(];
  } all;
  all.piece = piece;
  asm volatile("st.global.v)" +
            width + ".b32 [%0], {" + places + "};\" ::\"l\"(__cvta_generic_to_global(to))" + operands +
            R"( : "memory");
#else
  *reinterpret_cast<ResultPiece*>(to) = piece;
#endif
)";
  } else {
    text += "  *reinterpret_cast<ResultPiece*>(to) = piece;\n";
  }
  return text + "}\n";
}

std::string finish(const ConvProblem& p, const Tiling& t, int lanes) {
  return (t.group_c > 1 ? reduction(t, lanes) : "") + write_back(p, t, lanes);
}

}  // namespace convx::pointwise::generator
