// Runs every GPU candidate of filter2d on the host executor, with all borders and image types: a filtering
// per line on the standard input, a verdict per plan on the standard output, as driver.cpp does for
// convolutions.
//
//   device=mi250 dtype=uint8 border=reflect images=2 size=13,17 filters=3 filter=5 padding=2
//
// Keys: device dtype border activation bias images size=H,W filters filter=R,S stride dilation
// padding=top,left output=H,W (default: as many as the image has) only=PART (of a plan's description, + for a
// space) orders seed offset=ELEMENTS (where images and result start, for tensors that are not aligned)
// traffic=1 (also prints the loads and stores of warps and their sectors).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "methods/filter2d/kernels.h"
#include "methods/filter2d/pixel.cuh"
#include "runs.h"
#include "simt.h"

namespace simt_test {
namespace {

using namespace convx;
using namespace convx::filter2d;

struct Line {
  FilterProblem problem;
  std::string device = "h200", only, orders = "forward,reverse,shuffled";
  uint64_t seed = 1;
  int64_t offset = 0;
  bool traffic = false;
};

void pair(const std::string& text, int64_t& first, int64_t& second) {
  const size_t comma = text.find(',');
  first = std::stoll(text);
  second = comma == std::string::npos ? first : std::stoll(text.substr(comma + 1));
}

Line parse(const std::string& text) {
  Items items(text);
  Line line;
  FilterProblem& p = line.problem;
  line.device = items.take("device", "h200");
  line.only = items.take("only", "");
  std::replace(line.only.begin(), line.only.end(), '+', ' ');
  line.traffic = items.number("traffic", "0") != 0;
  line.orders = items.take("orders", "forward,reverse,shuffled");
  line.seed = std::stoull(items.take("seed", "1"));
  line.offset = std::stoll(items.take("offset", "0"));
  p.dtype = parse_image_type(items.take("dtype", "float32"));
  p.border = parse_border(items.take("border", "zero"));
  p.epilogue.activation = parse_activation(items.take("activation", "none"));
  p.epilogue.has_bias = items.take("bias", "0") == "1";
  p.images = std::stoll(items.take("images", "1"));
  p.filters = std::stoll(items.take("filters", "1"));
  pair(items.take("size", "8"), p.height, p.width);
  pair(items.take("filter", "3"), p.filter_height, p.filter_width);
  pair(items.take("stride", "1"), p.stride_h, p.stride_w);
  pair(items.take("dilation", "1"), p.dilation_h, p.dilation_w);
  pair(items.take("padding", "0"), p.padding_top, p.padding_left);
  pair(items.take("output", "-1"), p.out_height, p.out_width);
  if (p.out_height < 0) p.out_height = p.height, p.out_width = p.width;
  items.require_empty();
  return line;
}

// Memory of exactly the elements asked for after `offset` others, filled with NaN.
template <class T>
struct Buffer {
  Buffer(int64_t count, int64_t offset) : memory(new T[count + offset]), data(memory.get() + offset) {
    std::memset(static_cast<void*>(memory.get()), 0xFF, (count + offset) * sizeof(T));
  }
  std::unique_ptr<T[]> memory;
  T* data;
};

template <class T>
double value_of(T element) {
  if constexpr (sizeof(T) == 1) {
    return element;
  } else {
    return widen(element);
  }
}
template <class T>
T element_of(double value) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<uint8_t>(value);
  } else {
    return narrow<T>(static_cast<Accumulator<T>>(value));
  }
}

// Values whose products and sums are exact in every type: small integers, and quarters as the filters of
// bytes, whose results then fall between integers and outside 0 to 255 too.
template <class T>
Buffer<T> fill(int64_t count, int64_t offset, uint64_t seed, double low, double high, double unit,
               std::vector<double>& values) {
  Buffer<T> buffer(count, offset);
  uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
  values.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int steps = static_cast<int>((high - low) / unit) + 1;
    values[i] = low + unit * static_cast<int>((state >> 33) % steps);
    buffer.data[i] = element_of<T>(values[i]);
  }
  return buffer;
}

// Straight from FilterProblem's definition.
std::vector<double> reference(const FilterProblem& p, const std::vector<double>& images,
                              const std::vector<double>& filters, const std::vector<double>& bias) {
  std::vector<double> result;
  result.reserve(p.result_elements());
  for (int64_t n = 0; n < p.images; ++n) {
    for (int64_t f = 0; f < p.filters; ++f) {
      for (int64_t y = 0; y < p.out_height; ++y) {
        for (int64_t x = 0; x < p.out_width; ++x) {
          double sum = bias.empty() ? 0 : bias[f];
          for (int64_t r = 0; r < p.filter_height; ++r) {
            for (int64_t s = 0; s < p.filter_width; ++s) {
              const int64_t row =
                  border_index(y * p.stride_h - p.padding_top + r * p.dilation_h, p.height, p.border);
              const int64_t column =
                  border_index(x * p.stride_w - p.padding_left + s * p.dilation_w, p.width, p.border);
              if (row < 0 || column < 0) continue;
              sum += filters[(f * p.filter_height + r) * p.filter_width + s] *
                     images[(n * p.height + row) * p.width + column];
            }
          }
          const Activation activation = p.epilogue.activation;
          if (activation == Activation::relu || activation == Activation::relu6) sum = std::fmax(sum, 0);
          if (activation == Activation::relu6) sum = std::fmin(sum, 6);
          if (p.dtype == ImageType::uint8) sum = std::fmin(std::fmax(std::nearbyint(sum), 0), 255);
          result.push_back(sum);
        }
      }
    }
  }
  return result;
}

template <class T>
std::string compare(const std::vector<double>& expected, const T* result) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double want = value_of(element_of<T>(expected[i])), got = value_of(result[i]);
    if (got == want) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " +
           std::to_string(want);
  }
  return "";
}

template <class T>
int run(const Line& line, const DeviceTraits& device, const std::vector<Plan>& plans) {
  const FilterProblem& p = line.problem;
  using F = FilterElement<T>;
  const bool bytes = sizeof(T) == 1;
  const double most = sizeof(T) == 2 ? 3 : 8;
  std::vector<double> image_values, filter_values, bias_values;
  const auto images = fill<T>(p.image_elements(), line.offset, line.seed, bytes ? 0 : -most,
                              bytes ? 255 : most, 1, image_values);
  const auto filters = fill<F>(p.filter_elements(), 0, line.seed + 1, bytes ? -1 : -most, bytes ? 1 : most,
                               bytes ? 0.25 : 1, filter_values);
  const auto bias = fill<F>(p.epilogue.has_bias ? p.filters : 0, 0, line.seed + 2, -most, most,
                            bytes ? 0.5 : 1, bias_values);
  const std::vector<double> expected = reference(p, image_values, filter_values, bias_values);
  int failures = 0;
  for (const Plan& plan : plans) {
    const std::string text = describe(plan);
    if (text.find(line.only) == std::string::npos) continue;
    failures += run_in_orders(text, line.orders, device, line.seed, [&] {
      Buffer<T> result(p.result_elements(), line.offset);
      Pointers pointers;
      pointers.input = images.data, pointers.weight = filters.data, pointers.result = result.data;
      if (p.epilogue.has_bias) pointers.epilogue.bias = bias.data;
      simt::watch_result(result.data, p.result_elements() * sizeof(T));
      const auto launch = [&] { launch_gpu(plan, p, pointers, Stream()); };
      if (line.traffic) {
        launch_and_count({{images.data, p.image_elements() * sizeof(T)},
                          {filters.data, p.filter_elements() * sizeof(F)},
                          {result.data, p.result_elements() * sizeof(T)}},
                         launch);
      } else {
        launch();
      }
      return compare<T>(expected, result.data);
    });
  }
  return failures;
}

// The paper's forms have a kernel for all result rows of a warp: of those one, another on another line.
void keep_one_chunk(const std::string& text, std::vector<Plan>& plans) {
  const int64_t wanted = int64_t{16} >> (std::hash<std::string>()(text) % 4);
  const auto is_another = [&](const Plan& plan) {
    return plan.kernel == kReuse && plan["chunk_rows"] != std::max(wanted, plan["rows"]);
  };
  plans.erase(std::remove_if(plans.begin(), plans.end(), is_another), plans.end());
}

int run_line(const std::string& text) {
  const Line line = parse(text);
  const DeviceTraits device = known_device(line.device);
  const Support support = filtering.supports(line.problem, device);
  if (!support.ok) throw std::invalid_argument(support.reason);
  std::vector<Plan> plans = filtering.candidates(line.problem, device);
  if (line.only.empty()) keep_one_chunk(text, plans);
  std::printf("CASE %zu plans: %s\n", plans.size(), text.c_str());
  switch (line.problem.dtype) {
    case ImageType::float32:
      return run<float>(line, device, plans);
    case ImageType::float64:
      return run<double>(line, device, plans);
    case ImageType::float16:
      return run<float16>(line, device, plans);
    case ImageType::bfloat16:
      return run<bfloat16>(line, device, plans);
    case ImageType::uint8:
      return run<uint8_t>(line, device, plans);
  }
  return 0;
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
