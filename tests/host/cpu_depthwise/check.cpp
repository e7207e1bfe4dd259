// Randomized comparison of the depthwise CPU kernels with a direct sum in double. Needs no torch:
//   pytest tests/host/test_cpu_depthwise.py
// Every tensor lies at the end of its own allocation, so that the sanitizer sees reads and writes past it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "methods/depthwise/cpu/job.h"
#include "methods/depthwise/depthwise.h"
#include "methods/depthwise/family.h"

using namespace convx;

// The launcher names the kernels of every instruction set; of the others there are none here.
#define CONVX_ABSENT(isa)                                                                \
  __attribute__((weak)) void convx::isa::run(const depthwise::Job&, const ThreadPool&) { \
    std::abort();                                                                        \
  }
CONVX_ABSENT(avx512)
CONVX_ABSENT(avx2)
CONVX_ABSENT(baseline)
#undef CONVX_ABSENT

namespace {

std::mt19937 random_engine(1);
int64_t pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_engine);
}

float widen_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * std::numeric_limits<float>::infinity();
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25));
}
float widen_brain(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// A tensor in its storage format, exactly as long as it is, and its values as double.
struct Tensor {
  std::vector<unsigned char> storage;
  std::vector<double> values;
  DType dtype;

  Tensor(DType type, int64_t elements)
      : storage(elements * element_size(type)), values(elements), dtype(type) {}
  void randomize() {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = uniform(random_engine);
      if (dtype == DType::float64) std::memcpy(&storage[8 * i], &(values[i] = value), 8);
      if (dtype == DType::float32) std::memcpy(&storage[4 * i], &value, 4), values[i] = value;
      if (dtype == DType::bfloat16 || dtype == DType::float16) {
        const uint16_t bits = dtype == DType::bfloat16
                                  ? static_cast<uint16_t>(pick(0, 1) << 15 | pick(0x3e00, 0x3f80))
                                  : static_cast<uint16_t>(pick(0, 1) << 15 | pick(0x0000, 0x3c00));
        std::memcpy(&storage[2 * i], &bits, 2);
        values[i] = dtype == DType::bfloat16 ? widen_brain(bits) : widen_half(bits);
      }
    }
  }
  void read_back() {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      float single;
      if (dtype == DType::float64) std::memcpy(&values[i], &storage[8 * i], 8);
      if (dtype == DType::float32) std::memcpy(&single, &storage[4 * i], 4), values[i] = single;
      if (dtype == DType::bfloat16) std::memcpy(&bits, &storage[2 * i], 2), values[i] = widen_brain(bits);
      if (dtype == DType::float16) std::memcpy(&bits, &storage[2 * i], 2), values[i] = widen_half(bits);
    }
  }
  void poison() {
    std::fill(storage.begin(), storage.end(), static_cast<unsigned char>(0xff));
  }  // NaN everywhere
};

double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::relu6:
      return std::min(std::max(x, 0.0), 6.0);
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::hardswish:
      return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
  return x;
}

int64_t place(const ConvProblem& p, int64_t n, int64_t c, int64_t y, int64_t x, int64_t channels,
              int64_t height, int64_t width) {
  return p.layout == Layout::nhwc ? ((n * height + y) * width + x) * channels + c
                                  : ((n * channels + c) * height + y) * width + x;
}

// Expected result, and the sum of magnitudes that bounds the rounding error.
void reference(const ConvProblem& p, const Tensor& input, const Tensor& weight, const Tensor& bias,
               const Tensor& scale, const Tensor& residual, const Tensor& output_grad,
               std::vector<double>& result, std::vector<double>& magnitude) {
  const int64_t multiplier = p.out_channels_per_group();
  std::fill(result.begin(), result.end(), 0.0);
  std::fill(magnitude.begin(), magnitude.end(), 0.0);
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t k = 0; k < p.out_channels; ++k)
      for (int64_t oy = 0; oy < p.out_height; ++oy)
        for (int64_t ox = 0; ox < p.out_width; ++ox) {
          const int64_t out = place(p, n, k, oy, ox, p.out_channels, p.out_height, p.out_width);
          for (int64_t f = 0; f < p.filter_height; ++f)
            for (int64_t g = 0; g < p.filter_width; ++g) {
              const int64_t y = oy * p.stride_h - p.padding_top + f * p.dilation_h;
              const int64_t x = ox * p.stride_w - p.padding_left + g * p.dilation_w;
              if (y < 0 || y >= p.in_height || x < 0 || x >= p.in_width) continue;
              const int64_t in = place(p, n, k / multiplier, y, x, p.in_channels, p.in_height, p.in_width);
              const int64_t tap = (k * p.filter_height + f) * p.filter_width + g;
              int64_t target = out;
              double product = 0;
              if (p.operation == Operation::forward) product = input.values[in] * weight.values[tap];
              if (p.operation == Operation::input_grad)
                target = in, product = output_grad.values[out] * weight.values[tap];
              if (p.operation == Operation::weight_grad)
                target = tap, product = output_grad.values[out] * input.values[in];
              result[target] += product;
              magnitude[target] += std::fabs(product);
            }
          if (p.operation == Operation::forward) {
            const Epilogue& epilogue = p.epilogue;
            double& sum = result[out];
            if (epilogue.has_scale) sum *= scale.values[k], magnitude[out] *= std::fabs(scale.values[k]);
            if (epilogue.has_bias) sum += bias.values[k], magnitude[out] += std::fabs(bias.values[k]);
            const double added = epilogue.has_residual ? residual.values[out] : 0;
            magnitude[out] += std::fabs(added);
            sum = epilogue.residual_after_activation ? activate(sum, epilogue.activation) + added
                                                     : activate(sum + added, epilogue.activation);
          }
        }
}

// Cuts the range as a pool of `threads` would; some runs use real threads.
int pool_threads = 1;
void run_pool(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  const int64_t pieces = std::min<int64_t>(pool_threads, (count + grain - 1) / grain);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < pieces; ++i) {
    threads.emplace_back(body, context, count * i / pieces, count * (i + 1) / pieces);
  }
  for (std::thread& thread : threads) thread.join();
}

// Any stride and dilation of one axis, with the padding that makes a few outputs of them, and some of those
// meet the image.
void scatter(int64_t size, int64_t filter, int64_t& stride, int64_t& dilation, int64_t& before,
             int64_t& after) {
  stride = pick(1, int64_t{1} << pick(0, 50));
  dilation = pick(1, int64_t{1} << pick(0, 50));
  const int64_t outputs = pick(1, 5);
  const int64_t padding = std::max<int64_t>((outputs - 1) * stride + (filter - 1) * dilation + 1 - size, 0);
  const int64_t place = pick(0, outputs - 1) * stride + pick(0, filter - 1) * dilation - pick(0, size - 1);
  before = std::clamp<int64_t>(place, 0, padding);
  after = padding - before;
}

ConvProblem random_problem() {
  ConvProblem p;
  while (true) {
    p = ConvProblem{};
    p.operation = static_cast<Operation>(pick(0, 2));
    p.dtype = static_cast<DType>(pick(0, 9) < 5 ? 0 : pick(1, 3));
    p.layout = static_cast<Layout>(pick(0, 1));
    const bool has_bias = pick(0, 1), has_scale = pick(0, 2) == 0, has_residual = pick(0, 2) == 0;
    p.epilogue = {has_bias, has_scale, has_residual, pick(0, 1) == 1, static_cast<Activation>(pick(0, 5))};
    p.batch = pick(1, 3);
    p.in_channels = pick(0, 3) == 0 ? pick(1, 5) : pick(4, 70);
    if (pick(0, 9) == 0) p.in_channels = pick(190, 300);  // several threads share a pixel, and the rows too
    p.in_height = pick(0, 9) == 0 ? pick(60, 140) : pick(1, 40);  // several bands of rows too
    p.in_width = pick(0, 3) == 0 ? 7 * pick(1, 8) : pick(1, 70);
    const bool common = pick(0, 2) != 0;
    const int64_t multiplier = pick(0, 3) == 0 ? pick(2, 4) : 1;
    p.out_channels = p.in_channels * multiplier;
    p.groups = p.in_channels;
    if (common) {
      p.filter_height = p.filter_width = 3 + 2 * pick(0, 2);
      p.stride_h = p.stride_w = p.filter_height == 7 ? 1 : pick(1, 2);
      p.padding_top = p.padding_bottom = p.padding_left = p.padding_right = p.filter_height / 2;
      if (pick(0, 2) == 0) {
        p.padding_top = pick(0, 9), p.padding_bottom = pick(0, 4);
        p.padding_left = pick(0, 9), p.padding_right = pick(0, 4);
      }
    } else {
      p.filter_height = pick(1, 9), p.filter_width = pick(1, 9);
      p.stride_h = pick(1, 4), p.stride_w = pick(1, 4);
      p.dilation_h = pick(1, 3), p.dilation_w = pick(1, 3);
      p.padding_top = pick(0, 5), p.padding_bottom = pick(0, 5);
      p.padding_left = pick(0, 5), p.padding_right = pick(0, 5);
      if (pick(0, 3) == 0) {
        scatter(p.in_height, p.filter_height, p.stride_h, p.dilation_h, p.padding_top, p.padding_bottom);
      }
      if (pick(0, 3) == 0) {
        scatter(p.in_width, p.filter_width, p.stride_w, p.dilation_w, p.padding_left, p.padding_right);
      }
    }
    try {
      validate_and_size(p);
    } catch (const InvalidArgument&) {
      continue;
    }
    if (p.operation != Operation::forward) p.epilogue = {};
    if (p.output_elements() * p.filter_height * p.filter_width < 4000000) return p;
  }
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-15;
    case DType::float32:
      return 2e-7;
    case DType::float16:
      return 1e-3;
    default:
      return 8e-3;
  }
}

const char* check(const ConvProblem& p, const Plan& plan, CpuIsa isa, int64_t& compared) {
  static char message[200];
  Tensor input(p.dtype, p.input_elements()), weight(p.dtype, p.weight_elements()),
      bias(p.dtype, p.out_channels), scale(p.dtype, p.out_channels), residual(p.dtype, p.output_elements()),
      output_grad(p.dtype, p.output_elements());
  for (Tensor* tensor : {&input, &weight, &bias, &scale, &residual, &output_grad}) tensor->randomize();
  Tensor result(p.dtype, p.operation == Operation::forward      ? p.output_elements()
                         : p.operation == Operation::input_grad ? p.input_elements()
                                                                : p.weight_elements());
  result.poison();
  std::vector<unsigned char> workspace(plan.workspace_bytes, 0xff);
  Pointers pointers;
  pointers.weight = weight.storage.data();
  if (p.operation != Operation::input_grad) pointers.input = input.storage.data();
  if (p.operation != Operation::forward) pointers.output_grad = output_grad.storage.data();
  if (p.epilogue.has_bias) pointers.epilogue.bias = bias.storage.data();
  if (p.epilogue.has_scale) pointers.epilogue.scale = scale.storage.data();
  if (p.epilogue.has_residual) pointers.epilogue.residual = residual.storage.data();
  pointers.result = result.storage.data();
  pointers.workspace = workspace.data();
  ThreadPool pool;
  pool.threads = pool_threads;
  pool.run = run_pool;
  depthwise::launch_cpu(plan, p, pointers, pool, isa);
  result.read_back();
  std::vector<double> expected(result.values.size()), magnitude(result.values.size());
  reference(p, input, weight, bias, scale, residual, output_grad, expected, magnitude);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double accumulated = (p.dtype == DType::float64 ? 1e-14 : 2e-6) * (magnitude[i] + 1e-3);
    const double tolerance =
        accumulated + epsilon(p.dtype) * std::fabs(expected[i]) + 1e-7 * (p.dtype == DType::float16);
    if (!(std::fabs(result.values[i] - expected[i]) <= tolerance)) {
      std::snprintf(message, sizeof message, "element %zu of %zu: %.9g, expected %.9g", i, expected.size(),
                    result.values[i], expected[i]);
      return message;
    }
  }
  compared += static_cast<int64_t>(expected.size());
  return nullptr;
}

}  // namespace

// check [rounds]
int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 400;
  constexpr CpuIsa isa = CpuIsa::CONVX_CHECKED_ISA;
  int failures = 0;
  int64_t compared = 0, plans_run = 0;
  for (int round = 0; round < rounds; ++round) {
    const ConvProblem problem = random_problem();
    DeviceTraits device = host_cpu(1);
    device.isa = isa;
    device.threads = pool_threads = static_cast<int>(pick(1, 4));
    std::vector<Plan> plans;
    depthwise::cpu_family.append(problem, device, plans);
    for (const Plan& plan : plans) {
      ++plans_run;
      if (const char* error = check(problem, plan, isa, compared)) {
        if (++failures <= 20) {
          std::printf("FAILED %s, %s, %s, %s\n", to_string(isa), describe(problem).c_str(),
                      describe(plan).c_str(), error);
        }
      }
    }
  }
  std::printf("%s: %d problems, %lld plans, %lld elements compared\n", to_string(isa), rounds,
              static_cast<long long>(plans_run), static_cast<long long>(compared));
  std::printf(failures == 0 ? "all agree\n" : "%d FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}
