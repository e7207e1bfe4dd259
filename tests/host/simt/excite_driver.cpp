// Runs every candidate of squeeze_excite on the host executor: a problem per line on the standard input, a
// verdict per plan on the standard output, as driver.cpp does for convolutions.
//
//   dtype=float16 layout=nchw batch=2 channels=16 size=13,17 squeezed=5 activation=silu gate=hardsigmoid
//
// Keys: device dtype layout activation gate bias batch channels size=H,W squeezed only orders seed infinite
// (1: one value of the input is).
#include <cmath>
#include <cstdio>
#include <vector>

#include "memory.h"
#include "methods/squeeze_excite/squeeze_excite.h"
#include "platform/gpu/platform.h"
#include "reference.h"
#include "runs.h"

namespace simt_test {
namespace {

using namespace convx;
using namespace convx::squeeze_excite;

struct Line {
  ExciteProblem problem;
  bool has_bias = true, is_infinite = false;
  std::string device = "h200", only, orders = "forward,reverse,shuffled";
  uint64_t seed = 1;
};

Line parse(const std::string& text) {
  Items items(text);
  Line line;
  ExciteProblem& p = line.problem;
  line.device = items.take("device", "h200");
  line.only = items.take("only", "");
  line.orders = items.take("orders", "forward,reverse,shuffled");
  line.seed = items.number("seed", "1");
  line.has_bias = items.number("bias", "1") == 1;
  line.is_infinite = items.number("infinite", "0") == 1;
  p.dtype = parse_dtype(items.take("dtype", "bfloat16"));
  p.layout = parse_layout(items.take("layout", "nchw"));
  p.activation = parse_activation(items.take("activation", "relu"));
  p.gate = parse_gate(items.take("gate", "sigmoid"));
  p.batch = items.number("batch", "1"), p.channels = items.number("channels", "16");
  p.squeezed_channels = items.number("squeezed", "4");
  const std::string size = items.take("size", "8,8");
  p.height = std::stoll(size), p.width = std::stoll(size.substr(size.find(',') + 1));
  items.require_empty();
  validate(p);
  return line;
}

template <class T>
struct Excite {
  explicit Excite(const Line& line)
      : p(line.problem),
        input(p.elements(), line.seed, 8),
        squeeze(p.squeezed_channels * p.channels, line.seed + 1, 2),
        excite(p.channels * p.squeezed_channels, line.seed + 2, 2),
        squeeze_bias(p.squeezed_channels, line.seed + 3, 2),
        excite_bias(p.channels, line.seed + 4, 2),
        has_bias(line.has_bias) {
    if (line.is_infinite) input.set(p.elements() / 2, INFINITY);
  }

  int64_t place(int64_t image, int64_t channel, int64_t pixel) const {
    return p.layout == Layout::nhwc ? (image * p.pixels() + pixel) * p.channels + channel
                                    : (image * p.channels + channel) * p.pixels() + pixel;
  }

  // Straight from ExciteProblem's definition. reach: what results may be off by, in units of float.
  void reference(std::vector<double>& results, std::vector<double>& reach) const {
    results.resize(p.elements()), reach.resize(p.elements());
    for (int64_t n = 0; n < p.batch; ++n) {
      std::vector<double> mean(p.channels), squeezed(p.squeezed_channels), sizes(p.squeezed_channels);
      for (int64_t c = 0; c < p.channels; ++c) {
        for (int64_t i = 0; i < p.pixels(); ++i) mean[c] += input.values[place(n, c, i)];
        mean[c] /= static_cast<double>(p.pixels());
      }
      for (int64_t s = 0; s < p.squeezed_channels; ++s) {
        double sum = has_bias ? squeeze_bias.values[s] : 0;
        for (int64_t c = 0; c < p.channels; ++c) {
          const double term = squeeze.values[s * p.channels + c] * mean[c];
          sum += term, sizes[s] += std::isfinite(term) ? std::fabs(term) : 0;
        }
        squeezed[s] = std::isnan(sum) ? sum : activate(sum, p.activation);
      }
      for (int64_t c = 0; c < p.channels; ++c) {
        double sum = has_bias ? excite_bias.values[c] : 0, size = 1;
        for (int64_t s = 0; s < p.squeezed_channels; ++s) {
          const double factor = excite.values[c * p.squeezed_channels + s];
          sum += factor * squeezed[s],
              size +=
              std::fabs(factor) * (sizes[s] + (std::isfinite(squeezed[s]) ? std::fabs(squeezed[s]) : 0));
        }
        const double gate = p.gate == Gate::sigmoid ? 1 / (1 + std::exp(-sum))
                            : std::isnan(sum)       ? sum
                                                    : std::fmin(std::fmax(sum + 3, 0), 6) / 6;
        for (int64_t i = 0; i < p.pixels(); ++i) {
          const double value = input.values[place(n, c, i)];
          results[place(n, c, i)] = value * gate, reach[place(n, c, i)] = std::fabs(value) * (size + 8);
        }
      }
    }
  }

  ExciteWeights weights() const {
    const auto bias = [&](const Operand<T>& of) { return has_bias ? of.memory.data : nullptr; };
    return {squeeze.memory.data, bias(squeeze_bias), excite.memory.data, bias(excite_bias)};
  }

  const ExciteProblem& p;
  Operand<T> input, squeeze, excite, squeeze_bias, excite_bias;
  bool has_bias;
};

template <class T>
int run(const Line& line, const DeviceTraits& device, const std::vector<Plan>& plans) {
  const ExciteProblem& p = line.problem;
  const Excite<T> excite(line);
  std::vector<double> expected, reach;
  excite.reference(expected, reach);
  const double unit = p.dtype == DType::bfloat16 ? 1.0 / 256 : p.dtype == DType::float16 ? 1.0 / 2048 : 0;
  int failures = 0;
  for (const Plan& plan : plans) {
    const std::string text = describe(plan);
    if (text.find(line.only) == std::string::npos) continue;
    failures += run_in_orders(text, line.orders, device, line.seed, [&]() -> std::string {
      Buffer<T> result(p.elements());
      const ExciteWeights weights = excite.weights();
      Pointers pointers;
      pointers.input = excite.input.memory.data, pointers.weight = &weights;
      pointers.result = result.data;
      simt::watch_result(result.data, p.elements() * sizeof(T));
      launch_gpu(plan, p, pointers, Stream());
      for (size_t i = 0; i < expected.size(); ++i) {
        const double got = widen(result.data[i]);
        if (got == expected[i] || (std::isnan(got) && std::isnan(expected[i]))) continue;
        if (std::fabs(got - expected[i]) <= unit * std::fabs(expected[i]) + 1e-6 * reach[i]) continue;
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
  const Support support = method.supports(line.problem, device);
  if (!support.ok) throw std::invalid_argument(support.reason);
  const std::vector<Plan> plans = method.candidates(line.problem, device);
  std::printf("CASE %zu plans: %s\n", plans.size(), text.c_str());
  if (line.problem.dtype == DType::float32) return run<float>(line, device, plans);
  return line.problem.dtype == DType::bfloat16 ? run<bfloat16>(line, device, plans)
                                               : run<float16>(line, device, plans);
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
