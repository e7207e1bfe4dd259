#include "reference.h"

#include <cmath>

namespace simt_test {
namespace {

using convx::Activation;
using convx::ConvProblem;
using convx::Layout;
using convx::Operation;

int64_t offset(Layout layout, int64_t channels, int64_t height, int64_t width, int64_t n, int64_t c,
               int64_t y, int64_t x) {
  if (layout == Layout::nhwc) return ((n * height + y) * width + x) * channels + c;
  return ((n * channels + c) * height + y) * width + x;
}

// Calls body(input offset, weight offset, output offset) for each multiplication of the forward convolution.
template <class Body>
void for_each_product(const ConvProblem& p, const Body& body) {
  const int64_t multiplier = p.out_channels_per_group(), depth = p.in_channels_per_group();
  for (int64_t n = 0; n < p.batch; ++n) {
    for (int64_t k = 0; k < p.out_channels; ++k) {
      for (int64_t y = 0; y < p.out_height; ++y) {
        for (int64_t x = 0; x < p.out_width; ++x) {
          const int64_t output = offset(p.layout, p.out_channels, p.out_height, p.out_width, n, k, y, x);
          for (int64_t d = 0; d < depth; ++d) {
            const int64_t c = k / multiplier * depth + d;
            for (int64_t r = 0; r < p.filter_height; ++r) {
              const int64_t in_y = y * p.stride_h - p.padding_top + r * p.dilation_h;
              if (in_y < 0 || in_y >= p.in_height) continue;
              for (int64_t s = 0; s < p.filter_width; ++s) {
                const int64_t in_x = x * p.stride_w - p.padding_left + s * p.dilation_w;
                if (in_x < 0 || in_x >= p.in_width) continue;
                body(offset(p.layout, p.in_channels, p.in_height, p.in_width, n, c, in_y, in_x),
                     ((k * depth + d) * p.filter_height + r) * p.filter_width + s, output);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

double activate(double value, Activation activation) {
  switch (activation) {
    case Activation::none:
      return value;
    case Activation::relu:
      return std::fmax(value, 0);
    case Activation::relu6:
      return std::fmin(std::fmax(value, 0), 6);
    case Activation::silu:
      return value / (1 + std::exp(-value));
    case Activation::hardswish:
      return value * std::fmin(std::fmax(value + 3, 0), 6) / 6;
    case Activation::gelu:
      return value * 0.5 * std::erfc(-value / std::sqrt(2.0));
  }
  return value;
}

int64_t result_elements(const ConvProblem& problem) {
  switch (problem.operation) {
    case Operation::forward:
      return problem.output_elements();
    case Operation::input_grad:
      return problem.input_elements();
    case Operation::weight_grad:
      return problem.weight_elements();
  }
  return 0;
}

std::vector<double> reference(const ConvProblem& problem, const Operands& operands) {
  std::vector<double> result(result_elements(problem), 0);
  switch (problem.operation) {
    case Operation::forward: {
      for_each_product(problem, [&](int64_t input, int64_t weight, int64_t output) {
        result[output] += operands.input[input] * operands.weight[weight];
      });
      const int64_t plane = problem.out_height * problem.out_width;
      for (int64_t i = 0; i < problem.output_elements(); ++i) {
        const int64_t channel =
            problem.layout == Layout::nhwc ? i % problem.out_channels : i / plane % problem.out_channels;
        const convx::Epilogue& epilogue = problem.epilogue;
        const double scaled = result[i] * (epilogue.has_scale ? operands.scale[channel] : 1) +
                              (epilogue.has_bias ? operands.bias[channel] : 0);
        const double residual = epilogue.has_residual ? operands.residual[i] : 0;
        result[i] = epilogue.residual_after_activation ? activate(scaled, epilogue.activation) + residual
                                                       : activate(scaled + residual, epilogue.activation);
      }
      break;
    }
    case Operation::input_grad:
      for_each_product(problem, [&](int64_t input, int64_t weight, int64_t output) {
        result[input] += operands.output_grad[output] * operands.weight[weight];
      });
      break;
    case Operation::weight_grad:
      for_each_product(problem, [&](int64_t input, int64_t weight, int64_t output) {
        result[weight] += operands.output_grad[output] * operands.input[input];
      });
      break;
  }
  return result;
}

}  // namespace simt_test
