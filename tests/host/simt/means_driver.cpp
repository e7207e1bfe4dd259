// Runs plane_means on the host executor: a problem per line on the standard input, a verdict per order of
// threads on the standard output, as driver.cpp does for convolutions.
//
//   dtype=float16 layout=nchw batch=2 channels=16 pixels=49
//
// Keys: device dtype layout batch channels pixels orders seed infinite (1: one value of the input is).
#include <cmath>
#include <cstdio>

#include "memory.h"
#include "methods/plane_means/plane_means.h"
#include "runs.h"

namespace simt_test {
namespace {

using namespace convx;

template <class T>
int run(const MeansProblem& p, const std::string& text, Items& items) {
  const DeviceTraits device = known_device(items.take("device", "h200"));
  const std::string orders = items.take("orders", "forward,reverse,shuffled");
  const int64_t seed = items.number("seed", "1");
  Operand<T> input(p.elements(), seed, 40);
  if (items.number("infinite", "0") == 1) input.set(p.elements() / 2, INFINITY);
  items.require_empty();
  const double unit = p.dtype == DType::bfloat16 ? 1.0 / 256 : p.dtype == DType::float16 ? 1.0 / 2048 : 2e-7;
  return run_in_orders(text, orders, device, seed, [&]() -> std::string {
    Buffer<T> result(p.batch * p.channels);
    Pointers pointers;
    pointers.input = input.memory.data, pointers.result = result.data;
    simt::watch_result(result.data, p.batch * p.channels * sizeof(T));
    plane_means::launch_gpu(p, pointers, Stream());
    for (int64_t plane = 0; plane < p.batch * p.channels; ++plane) {
      const int64_t image = plane / p.channels, channel = plane % p.channels;
      double mean = 0;
      for (int64_t i = 0; i < p.pixels; ++i) {
        const bool is_nhwc = p.layout == Layout::nhwc;
        mean += input.values[is_nhwc ? (image * p.pixels + i) * p.channels + channel : plane * p.pixels + i];
      }
      mean /= static_cast<double>(p.pixels);
      const double got = widen(result.data[plane]);
      if (got == mean || std::fabs(got - mean) <= unit * std::fabs(mean)) continue;
      return "plane " + std::to_string(plane) + " is " + std::to_string(got) + " instead of " +
             std::to_string(mean);
    }
    return "";
  });
}

int run_line(const std::string& text) {
  Items items(text);
  MeansProblem p{parse_dtype(items.take("dtype", "float32")), parse_layout(items.take("layout", "nchw"))};
  p.batch = items.number("batch", "1"), p.channels = items.number("channels", "16");
  p.pixels = items.number("pixels", "49");
  std::printf("CASE %s\n", text.c_str());
  if (p.dtype == DType::float32) return run<float>(p, text, items);
  return p.dtype == DType::bfloat16 ? run<bfloat16>(p, text, items) : run<float16>(p, text, items);
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
