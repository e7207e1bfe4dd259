// Runs pooling on the host executor: a problem per line on the standard input, a verdict per order of threads
// on the standard output, as driver.cpp does for convolutions.
//
//   dtype=float16 layout=nchw kind=average batch=2 channels=16 size=9,7 filter=3,2 stride=2,1
//
// Keys: device dtype layout kind batch channels, of height and width size filter stride padding dilation,
// ceil counts_padding divisor orders seed nan (1: one value of the input is).
#include <array>
#include <cmath>
#include <cstdio>

#include "memory.h"
#include "methods/pooling/pooling.h"
#include "runs.h"

namespace simt_test {
namespace {

using namespace convx;

// What torch says of a result, of values that the index functions find.
template <class At>
double pooled(const PoolingProblem& p, int64_t row, int64_t column, const At& at) {
  double greatest = -INFINITY, sum = 0;
  for (int64_t y = p.down.begin(row); y < p.down.end(row); ++y) {
    for (int64_t x = p.across.begin(column); x < p.across.end(column); ++x) {
      const double value =
          at(p.down.first(row) + y * p.down.dilation, p.across.first(column) + x * p.across.dilation);
      if (value > greatest || std::isnan(value)) greatest = value;
      sum += value;
    }
  }
  return p.kind == Pooling::max ? greatest : sum / static_cast<double>(p.divisor_of(row, column));
}

template <class T>
int run(const PoolingProblem& p, const std::string& text, Items& items) {
  const DeviceTraits device = known_device(items.take("device", "h200"));
  const std::string orders = items.take("orders", "forward,reverse,shuffled");
  const int64_t seed = items.number("seed", "1"), height = p.down.extent, width = p.across.extent;
  Operand<T> input(p.batch * p.channels * height * width, seed, 40);
  if (items.number("nan", "0") == 1) input.set(p.batch * p.channels * height * width / 2, NAN);
  items.require_empty();
  const double unit = p.dtype == DType::bfloat16 ? 1.0 / 256 : p.dtype == DType::float16 ? 1.0 / 2048 : 2e-7;
  const auto index = [&](int64_t plane, int64_t row, int64_t column, int64_t rows, int64_t columns) {
    if (p.layout == Layout::nchw) return (plane * rows + row) * columns + column;
    return ((plane / p.channels * rows + row) * columns + column) * p.channels + plane % p.channels;
  };
  return run_in_orders(text, orders, device, seed, [&]() -> std::string {
    const int64_t rows = p.down.results, columns = p.across.results, planes = p.batch * p.channels;
    Buffer<T> result(planes * rows * columns);
    Pointers pointers;
    pointers.input = input.memory.data, pointers.result = result.data;
    simt::watch_result(result.data, planes * rows * columns * sizeof(T));
    pooling::launch_gpu(p, pointers, Stream());
    for (int64_t i = 0; i < planes * rows * columns; ++i) {
      const int64_t plane = i / (rows * columns), row = i / columns % rows, column = i % columns;
      const double expected = pooled(p, row, column, [&](int64_t y, int64_t x) -> double {
        return input.values[index(plane, y, x, height, width)];
      });
      const double got = widen(result.data[index(plane, row, column, rows, columns)]);
      if (std::isnan(expected) ? std::isnan(got) : got == expected) continue;
      const bool is_average = p.kind == Pooling::average;
      if (is_average && std::fabs(got - expected) <= unit * std::fabs(expected)) continue;
      return "plane " + std::to_string(plane) + ", row " + std::to_string(row) + ", column " +
             std::to_string(column) + " is " + std::to_string(got) + " instead of " +
             std::to_string(expected);
    }
    return "";
  });
}

// "3,2": of one dimension each.
std::array<int64_t, 2> pair(Items& items, const char* key, const char* otherwise) {
  const std::string both = items.take(key, otherwise);
  return {std::stoll(both), std::stoll(both.substr(both.find(',') + 1))};
}

int run_line(const std::string& text) {
  Items items(text);
  PoolingProblem p;
  p.kind = items.take("kind", "max") == "max" ? Pooling::max : Pooling::average;
  p.dtype = parse_dtype(items.take("dtype", "float32"));
  p.layout = parse_layout(items.take("layout", "nchw"));
  p.batch = items.number("batch", "1"), p.channels = items.number("channels", "16");
  const auto size = pair(items, "size", "9,7"), filter = pair(items, "filter", "3,3");
  const auto stride = pair(items, "stride", "2,2"), padding = pair(items, "padding", "1,1");
  const auto dilation = pair(items, "dilation", "1,1");
  const bool ceil_mode = items.number("ceil", "0") == 1;
  for (const int i : {0, 1}) {
    PoolingWindow& window = i == 0 ? p.down : p.across;
    window = {size[i], 0, filter[i], stride[i], padding[i], dilation[i]};
    window.results = results_of(window, ceil_mode);
  }
  p.counts_padding = items.number("counts_padding", "1") == 1, p.divisor = items.number("divisor", "0");
  std::printf("CASE %s\n", text.c_str());
  if (p.dtype == DType::float32) return run<float>(p, text, items);
  return p.dtype == DType::bfloat16 ? run<bfloat16>(p, text, items) : run<float16>(p, text, items);
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
