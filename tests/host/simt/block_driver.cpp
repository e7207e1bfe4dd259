// Runs every candidate of inverted_residual on the host executor: a block per line on the standard input, a
// verdict per plan on the standard output, as driver.cpp does for convolutions.
//
//   dtype=float16 batch=2 channels=16 size=13,17 expanded=40 out=24 filter=5 stride=2 activation=relu6
//
// Keys: device dtype activation output_activation residual bias layout batch channels size=H,W expanded out
// squeezed (0: without squeeze-and-excitation) squeeze_activation gate expand_filter expand_stride filter
// stride only orders seed infinite (1: one value of the input is).
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "memory.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "platform/gpu/platform.h"
#include "reference.h"
#include "runs.h"

namespace simt_test {
namespace {

using namespace convx;
using namespace convx::inverted_residual;

struct Line {
  BlockProblem problem;
  bool has_bias = true, is_infinite = false;
  std::string device = "h200", only, orders = "forward,reverse,shuffled";
  uint64_t seed = 1;
};

Line parse(const std::string& text) {
  Items items(text);
  Line line;
  BlockProblem& p = line.problem;
  line.device = items.take("device", "h200");
  line.only = items.take("only", "");
  line.orders = items.take("orders", "forward,reverse,shuffled");
  line.seed = items.number("seed", "1");
  line.has_bias = items.number("bias", "1") == 1;
  line.is_infinite = items.number("infinite", "0") == 1;
  p.dtype = parse_dtype(items.take("dtype", "bfloat16"));
  p.activation = parse_activation(items.take("activation", "relu6"));
  p.output_activation = parse_activation(items.take("output_activation", "none"));
  p.has_residual = items.number("residual", "0") == 1;
  p.batch = items.number("batch", "1"), p.channels = items.number("channels", "16");
  p.expanded_channels = items.number("expanded", "32"), p.out_channels = items.number("out", "16");
  p.squeezed_channels = items.number("squeezed", "0");
  p.squeeze_activation = parse_activation(items.take("squeeze_activation", "relu"));
  p.gate = parse_gate(items.take("gate", "sigmoid"));
  p.layout = parse_layout(items.take("layout", "channels_last"));
  p.expand_filter = items.number("expand_filter", "1"), p.expand_stride = items.number("expand_stride", "1");
  p.filter = items.number("filter", "3"), p.stride = items.number("stride", "1");
  const std::string size = items.take("size", "8,8");
  p.height = std::stoll(size), p.width = std::stoll(size.substr(size.find(',') + 1));
  items.require_empty();
  validate_and_size(p);
  return line;
}

double activated(double value, Activation activation) {
  return std::isnan(value) ? value : activate(value, activation);
}

template <class T>
double rounded(double value) {
  return widen(narrow<T>(static_cast<float>(value)));
}

// Of small integers sums are exact, so that what is rounded on the way is rounded alike here.
template <class T>
struct Block {
  Block(const Line& line)
      : p(line.problem),
        input(p.input_elements(), line.seed, 1),
        expand(p.expanded_channels * p.expand_depth(), line.seed + 1, 1),
        depthwise(p.expanded_channels * p.filter * p.filter, line.seed + 2, 1),
        project(p.out_channels * p.expanded_channels, line.seed + 3, 1),
        expand_bias(p.expanded_channels, line.seed + 4, 2),
        depthwise_bias(p.expanded_channels, line.seed + 5, 2),
        project_bias(p.out_channels, line.seed + 6, 2),
        squeeze(p.squeezed_channels * p.expanded_channels, line.seed + 7, 1),
        excite(p.squeezed_channels * p.expanded_channels, line.seed + 8, 1),
        squeeze_bias(p.squeezed_channels, line.seed + 9, 2),
        excite_bias(p.expanded_channels, line.seed + 10, 2),
        has_bias(line.has_bias) {
    if (!line.is_infinite) return;
    input.set(p.input_elements() / 2, INFINITY);
    for (Operand<T>* operand : {&expand, &depthwise}) {  // without zeros not all of it is NaN
      for (size_t i = 0; i < operand->values.size(); ++i) {
        if (operand->values[i] == 0) operand->set(static_cast<int64_t>(i), 1);
      }
    }
  }

  // Straight from BlockProblem's definition. reach: what results are off by, in units of the last place,
  // where roundings differ: of each value by itself, so that squares are added.
  void reference(std::vector<double>& results, std::vector<double>& reach) const {
    const auto bias = [&](const Operand<T>& of, int64_t channel) {
      return has_bias ? of.values[channel] : 0;
    };
    const int64_t pixels = p.expanded_height * p.expanded_width;
    for (int64_t n = 0; n < p.batch; ++n) {
      std::vector<double> expanded(pixels * p.expanded_channels);
      for (int64_t i = 0; i < pixels; ++i) {
        for (int64_t e = 0; e < p.expanded_channels; ++e) {
          const double sum = bias(expand_bias, e) + product(n, i / p.expanded_width, i % p.expanded_width, e);
          expanded[i * p.expanded_channels + e] = rounded<T>(activated(sum, p.activation));
        }
      }
      std::vector<double> filtered, sizes;
      for (int64_t y = 0; y < p.out_height; ++y) {
        for (int64_t x = 0; x < p.out_width; ++x) append_filtered(y, x, expanded, filtered, sizes);
      }
      if (p.squeezed_channels > 0) multiply_with_gates(filtered, sizes);
      for (int64_t pixel = 0; pixel < p.out_pixels(); ++pixel) {
        append_pixel(n, pixel, &filtered[pixel * p.expanded_channels], &sizes[pixel * p.expanded_channels],
                     results, reach);
      }
    }
  }

  double product(int64_t n, int64_t y, int64_t x, int64_t e) const {
    double sum = 0;
    const int64_t taps = p.expand_filter, half = taps / 2;
    for (int64_t i = 0; i < p.expand_depth(); ++i) {
      const int64_t c = i / (taps * taps);
      const int64_t row = y * p.expand_stride - half + i / taps % taps;
      const int64_t column = x * p.expand_stride - half + i % taps;
      if (row < 0 || row >= p.height || column < 0 || column >= p.width) continue;
      const int64_t place = p.layout == Layout::nhwc
                                ? ((n * p.height + row) * p.width + column) * p.channels + c
                                : ((n * p.channels + c) * p.height + row) * p.width + column;
      sum += expand.values[e * p.expand_depth() + i] * input.values[place];
    }
    return sum;
  }

  void append_filtered(int64_t y, int64_t x, const std::vector<double>& expanded,
                       std::vector<double>& filtered, std::vector<double>& sizes) const {
    for (int64_t e = 0; e < p.expanded_channels; ++e) {
      double sum = has_bias ? depthwise_bias.values[e] : 0, squares = sum * sum;
      for (int64_t tap = 0; tap < p.filter * p.filter; ++tap) {
        const int64_t row = y * p.stride - p.filter / 2 + tap / p.filter;
        const int64_t column = x * p.stride - p.filter / 2 + tap % p.filter;
        if (row < 0 || row >= p.expanded_height || column < 0 || column >= p.expanded_width) continue;
        const double term = depthwise.values[e * p.filter * p.filter + tap] *
                            expanded[(row * p.expanded_width + column) * p.expanded_channels + e];
        sum += term, squares += term * term;
      }
      filtered.push_back(rounded<T>(activated(sum, p.activation)));
      sizes.push_back(std::sqrt(squares) + std::fabs(filtered.back()));
    }
  }

  // Of an image.
  void multiply_with_gates(std::vector<double>& filtered, std::vector<double>& sizes) const {
    const int64_t pixels = p.out_pixels(), channels = p.expanded_channels;
    std::vector<double> squeezed(p.squeezed_channels);
    for (int64_t s = 0; s < p.squeezed_channels; ++s) {
      squeezed[s] = has_bias ? squeeze_bias.values[s] : 0;
      for (int64_t i = 0; i < pixels * channels; ++i) {
        squeezed[s] +=
            squeeze.values[s * channels + i % channels] * filtered[i] / static_cast<double>(pixels);
      }
      squeezed[s] = activated(squeezed[s], p.squeeze_activation);
    }
    for (int64_t e = 0; e < channels; ++e) {
      double sum = has_bias ? excite_bias.values[e] : 0;
      for (int64_t s = 0; s < p.squeezed_channels; ++s) {
        sum += excite.values[e * p.squeezed_channels + s] * squeezed[s];
      }
      const double gate = p.gate == Gate::sigmoid ? 1 / (1 + std::exp(-sum))
                          : std::isnan(sum)       ? sum
                                                  : std::min(std::max(sum + 3, 0.0), 6.0) / 6;
      for (int64_t i = e; i < pixels * channels; i += channels) {
        filtered[i] = rounded<T>(filtered[i] * rounded<T>(gate)), sizes[i] += std::fabs(filtered[i]);
      }
    }
  }

  void append_pixel(int64_t n, int64_t pixel, const double* filtered, const double* sizes,
                    std::vector<double>& results, std::vector<double>& reach) const {
    for (int64_t k = 0; k < p.out_channels; ++k) {
      double sum = has_bias ? project_bias.values[k] : 0, squares = 1;
      for (int64_t e = 0; e < p.expanded_channels; ++e) {
        const double filter = project.values[k * p.expanded_channels + e];
        sum += filter * filtered[e], squares += filter * filter * sizes[e] * sizes[e];
      }
      sum = activated(sum, p.output_activation);
      const int64_t place = (n * p.out_pixels() + pixel) * p.out_channels + k;
      results.push_back(rounded<T>(p.has_residual ? sum + input.values[place] : sum));
      reach.push_back(std::sqrt(squares) + std::fabs(sum));
    }
  }

  BlockWeights weights() const {
    const auto bias = [&](const Operand<T>& of) { return has_bias ? of.memory.data : nullptr; };
    return {expand.memory.data,
            bias(expand_bias),
            depthwise.memory.data,
            bias(depthwise_bias),
            project.memory.data,
            bias(project_bias),
            {squeeze.memory.data, bias(squeeze_bias), excite.memory.data, bias(excite_bias)}};
  }

  const BlockProblem& p;
  Operand<T> input, expand, depthwise, project, expand_bias, depthwise_bias, project_bias;
  Operand<T> squeeze, excite, squeeze_bias, excite_bias;
  bool has_bias;
};

bool is_exact(Activation activation) {
  return activation == Activation::none || activation == Activation::relu || activation == Activation::relu6;
}

// Packed again into other memory, they are the same bytes.
bool is_whole(const Plan& plan, const BlockProblem& p, const BlockWeights& weights,
              const Buffer<unsigned char>& packed) {
  Buffer<unsigned char> again(plan.packed_weight_bytes);
  for (int64_t i = 0; i < plan.packed_weight_bytes; ++i) {
    again.data[i] = static_cast<unsigned char>(~packed.data[i]);
  }
  pack_weights_gpu(plan, p, &weights, again.data, Stream());
  return std::memcmp(again.data, packed.data, plan.packed_weight_bytes) == 0;
}

template <class T>
int run(const Line& line, const DeviceTraits& device, const std::vector<Plan>& plans) {
  const BlockProblem& p = line.problem;
  const Block<T> block(line);
  std::vector<double> expected, reach;
  block.reference(expected, reach);
  const bool is_all_exact = is_exact(p.activation) && is_exact(p.output_activation);
  const double roundings = is_all_exact && p.squeezed_channels == 0 ? 0 : 1;
  const double unit = p.dtype == DType::float32    ? 0x1p-23
                      : p.dtype == DType::bfloat16 ? 1.0 / 256
                                                   : 1.0 / 2048;
  int failures = 0;
  for (const Plan& plan : plans) {
    const std::string text = describe(plan);
    if (text.find(line.only) == std::string::npos) continue;
    failures += run_in_orders(text, line.orders, device, line.seed, [&]() -> std::string {
      Buffer<unsigned char> packed(plan.packed_weight_bytes);
      const BlockWeights weights = block.weights();
      pack_weights_gpu(plan, p, &weights, packed.data, Stream());
      if (!is_whole(plan, p, weights, packed)) return "not all of the packed filters is written";
      Buffer<T> result(p.result_elements());
      Buffer<unsigned char> workspace(plan.workspace_bytes);
      Pointers pointers;
      pointers.input = block.input.memory.data, pointers.packed_weight = packed.data;
      pointers.result = result.data, pointers.workspace = workspace.data;
      simt::watch_result(result.data, p.result_elements() * sizeof(T));
      launch_gpu(plan, p, pointers, Stream());
      for (size_t i = 0; i < expected.size(); ++i) {
        const double got = widen(result.data[i]);
        if (got == expected[i] || (std::isnan(got) && std::isnan(expected[i]))) continue;
        if (std::fabs(got - expected[i]) <= 2 * roundings * unit * reach[i]) continue;
        return "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " +
               std::to_string(expected[i]);
      }
      return "";
    });
  }
  return failures;
}

int run_line(const std::string& text) {
  const Line line = parse(text);
  const DeviceTraits device = known_device(line.device);
  simt::copies_in_bulk = device.architecture >= 90;
  const Support support = method.supports(line.problem, device);
  if (!support.ok) throw std::invalid_argument(support.reason);
  const std::vector<Plan> plans = method.candidates(line.problem, device);
  std::printf("CASE %zu plans: %s\n", plans.size(), text.c_str());
  const auto run_typed = line.problem.dtype == DType::float32    ? run<float>
                         : line.problem.dtype == DType::bfloat16 ? run<bfloat16>
                                                                 : run<float16>;
  return run_typed(line, device, plans);
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
