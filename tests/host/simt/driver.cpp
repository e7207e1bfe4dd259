// Runs the candidates of one depthwise kernel family, or of one whole method, on the host executor: a problem
// per line on the standard input, a verdict per plan on the standard output. Compiled once per family or
// method, named by CONVX_FAMILY or CONVX_METHOD.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "case.h"
#include "platform/gpu/platform.h"
#include "reference.h"
#include "runs.h"
#include "tested.h"

namespace simt_test {
namespace {

using namespace convx;

// Memory of exactly the size asked for, so that the address sanitizer sees every overrun, filled with NaN.
struct Buffer {
  explicit Buffer(int64_t count) : bytes(count), memory(new unsigned char[count]) {
    std::memset(memory.get(), 0xFF, count);
  }
  int64_t bytes;
  std::unique_ptr<unsigned char[]> memory;
};

template <class T>
void put(Buffer& buffer, int64_t index, double value) {
  const T element = narrow<T>(static_cast<Accumulator<T>>(value));
  std::memcpy(buffer.memory.get() + index * sizeof(T), &element, sizeof(T));
}
template <class T>
double get(const Buffer& buffer, int64_t index) {
  T element;
  std::memcpy(&element, buffer.memory.get() + index * sizeof(T), sizeof(T));
  return widen(element);
}

// Small integers other than zero: every product and sum is exact in every dtype, so that any order of
// summation gives the same result and one wrong, missing or repeated product shows.
template <class T>
Buffer fill(int64_t count, uint64_t seed, std::vector<double>& values) {
  const int range = sizeof(T) == 2 ? 3 : 8;
  uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
  Buffer buffer(count * sizeof(T));
  values.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int magnitude = 1 + static_cast<int>((state >> 33) % range);
    values[i] = (state >> 63) ? magnitude : -magnitude;
    put<T>(buffer, i, values[i]);
  }
  return buffer;
}

bool is_exact(Activation activation) {
  return activation == Activation::none || activation == Activation::relu || activation == Activation::relu6;
}

template <class T>
double relative_tolerance(Activation activation) {
  if (is_exact(activation)) return 0;
  if (std::is_same<T, double>::value) return 1e-14;
  if (std::is_same<T, float>::value) return 2e-6;
  return std::is_same<T, float16>::value ? 2e-3 : 1.6e-2;
}

// Empty where the result is right.
template <class T>
std::string compare(const ConvProblem& problem, const Buffer& result, const std::vector<double>& expected) {
  const double tolerance = relative_tolerance<T>(problem.epilogue.activation);
  int64_t wrong = 0, first = -1;
  Buffer rounded(sizeof(T));
  for (size_t i = 0; i < expected.size(); ++i) {
    put<T>(rounded, 0, expected[i]);
    const double want = get<T>(rounded, 0), got = get<T>(result, i);
    const double allowed = tolerance * std::fmax(std::fabs(want), 1);
    const bool both_nan = std::isnan(got) && std::isnan(want);
    const bool right = got == want || both_nan || std::fabs(got - want) <= allowed;
    if (right) continue;
    if (wrong++ == 0) first = static_cast<int64_t>(i);
  }
  if (!wrong) return "";
  put<T>(rounded, 0, expected[first]);
  std::ostringstream text;
  text << wrong << " of " << expected.size() << " elements are wrong, the first at " << first << ": "
       << get<T>(result, first) << " instead of " << get<T>(rounded, 0);
  return text.str();
}

// As convx::describe, which needs the plan's method: this program is linked with one family alone.
std::string text_of(const Plan& plan) {
  std::ostringstream text;
  text << plan.candidate;
  for (const auto& [name, value] : plan.tiling) text << ' ' << name << '=' << value;
  return text.str();
}

// Puts the case's special value into a pixel of each channel, elsewhere in each, of one of the images.
template <class T>
void put_special(const Case& it, int64_t channels, int64_t plane, Buffer& buffer,
                 std::vector<double>& values) {
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t image = (it.special_turn + c) % it.problem.batch;
    const int64_t pixel = (it.special_turn * channels + c) % plane;
    const int64_t index = it.problem.layout == Layout::nhwc ? (image * plane + pixel) * channels + c
                                                            : (image * channels + c) * plane + pixel;
    values[index] = it.special_value;
    put<T>(buffer, index, it.special_value);
  }
}

template <class T>
int run(const Case& it, const DeviceTraits& device, const std::vector<Plan>& plans) {
  const ConvProblem& problem = it.problem;
  Operands operands;
  const bool forward = problem.operation == Operation::forward;
  const int64_t none = 0;
  Buffer input = fill<T>(problem.operation == Operation::input_grad ? none : problem.input_elements(),
                         it.seed, operands.input);
  Buffer weight = fill<T>(problem.operation == Operation::weight_grad ? none : problem.weight_elements(),
                          it.seed + 1, operands.weight);
  const Epilogue& epilogue = problem.epilogue;
  Buffer bias = fill<T>(epilogue.has_bias ? problem.out_channels : none, it.seed + 2, operands.bias);
  Buffer scale = fill<T>(epilogue.has_scale ? problem.out_channels : none, it.seed + 4, operands.scale);
  Buffer residual =
      fill<T>(epilogue.has_residual ? problem.output_elements() : none, it.seed + 5, operands.residual);
  Buffer output_grad = fill<T>(forward ? none : problem.output_elements(), it.seed + 3, operands.output_grad);
  if (it.special_operand == "input") {
    put_special<T>(it, problem.in_channels, problem.in_height * problem.in_width, input, operands.input);
  } else if (it.special_operand == "output_grad") {
    put_special<T>(it, problem.out_channels, problem.out_height * problem.out_width, output_grad,
                   operands.output_grad);
  }
  const std::vector<double> expected = reference(problem, operands);
  int failures = 0;
  for (const Plan& plan : plans) {
    const std::string text = text_of(plan);
    if (text.find(it.only) == std::string::npos) continue;
    failures += run_in_orders(text, it.orders, device, it.seed, [&] {
      Buffer result(result_elements(problem) * sizeof(T));
      Buffer workspace(plan.workspace_bytes);
      Buffer packed(plan.packed_weight_bytes);
      Pointers pointers;
      if (!operands.input.empty()) pointers.input = input.memory.get();
      if (!operands.weight.empty()) pointers.weight = weight.memory.get();
      if (epilogue.has_bias) pointers.epilogue.bias = bias.memory.get();
      if (epilogue.has_scale) pointers.epilogue.scale = scale.memory.get();
      if (epilogue.has_residual) pointers.epilogue.residual = residual.memory.get();
      if (!operands.output_grad.empty()) pointers.output_grad = output_grad.memory.get();
      pointers.result = result.memory.get();
      pointers.workspace = workspace.memory.get();
      if (!plan.packing.empty()) {
        simt::watch_result(packed.memory.get(), packed.bytes);
        pack_tested(plan, problem, pointers.weight, packed.memory.get());
        pointers.packed_weight = packed.memory.get();
      }
      simt::watch_result(pointers.result, result.bytes);
      const auto launch = [&] { launch_tested(plan, problem, pointers); };
      if (it.traffic) {
        launch_and_count({{pointers.input, static_cast<size_t>(input.bytes)},
                          {pointers.weight, static_cast<size_t>(weight.bytes)},
                          {packed.memory.get(), static_cast<size_t>(packed.bytes)},
                          {pointers.result, static_cast<size_t>(result.bytes)}},
                         launch);
      } else {
        launch();
      }
      return compare<T>(problem, result, expected);
    });
  }
  return failures;
}

int run_line(const std::string& line) {
  const Case it = parse_case(line);
  DeviceTraits device = known_device(it.device);
  if (it.multiprocessors != 0) device.multiprocessors = it.multiprocessors;
  const Support support = tested_supports(it.problem, device);
  std::vector<Plan> plans;
  if (support.ok) plans = tested_plans(it.problem, device);
  if (static_cast<int64_t>(plans.size()) > it.max_plans) plans.resize(it.max_plans);
  std::printf("CASE %zu plans, %s: %s\n", plans.size(), kTested, line.c_str());
  if (plans.empty()) {
    std::printf("NONE %s\n", support.reason.c_str());
    return 0;
  }
  switch (it.problem.dtype) {
    case DType::float32:
      return run<float>(it, device, plans);
    case DType::float64:
      return run<double>(it, device, plans);
    case DType::float16:
      return run<float16>(it, device, plans);
    case DType::bfloat16:
      return run<bfloat16>(it, device, plans);
  }
  return 0;
}

}  // namespace
}  // namespace simt_test

int main() {
  return simt_test::run_lines(simt_test::run_line);
}
