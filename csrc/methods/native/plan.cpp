#include <algorithm>
#include <cmath>

#include "methods/native/forms.h"
#include "methods/native/native.h"

namespace convx::native {
namespace {

// Time of torch's convolution as multiples of the times that its bytes and its arithmetic take, the greater
// of them plus what a call costs.
struct Cost {
  double bytes, flops, call_us;
};

// Depthwise layers on CPU, over MobileNet-like layers and filters up to 11x11, strided and dilated (two
// AVX-512 cores, torch 2.13). Tens of times slower than the rest: float64 and float16, the weight gradient
// beyond 3x3, gradients with a dilation, bfloat16's input gradient with a stride.
Cost depthwise_cpu(const ConvProblem& problem) {
  const bool channels_last = problem.layout == Layout::nhwc, brain = problem.dtype == DType::bfloat16;
  const bool strided = problem.stride_h > 1 || problem.stride_w > 1;
  const bool dilated = problem.dilation_h > 1 || problem.dilation_w > 1;
  const double slow = problem.dtype == DType::float64 || problem.dtype == DType::float16 ? 20 : 1;
  switch (problem.operation) {
    case Operation::forward:
      if (!channels_last) return {4.3 * slow, 3.3, 50};
      return brain ? Cost{strided ? 0.9 : 1.4, 0.9, 50} : Cost{1.8 * slow, 1.1, 38};
    case Operation::input_grad:
      if (dilated) return {(channels_last ? 20 : 60) * slow, channels_last ? 15.0 : 45.0, 50};
      if (strided && brain) return {40, 40, 50};
      if (!channels_last) return {6 * slow, strided ? 15.0 : 3.3, 55};
      return {(brain ? 1.9 : 5) * slow, 1.2, 50};
    case Operation::weight_grad:
      if (dilated || problem.filter_height * problem.filter_width > 9) {
        return {10 * slow, channels_last ? 12.0 : 35.0, 50};
      }
      if (!channels_last) return {8 * slow, 3, 50};
      return {(brain ? 1.6 : 3.2) * slow, 1.2, 50};
  }
  return {4.3, 3.3, 50};
}

// How many times the arithmetic of an input gradient with one channel in all oneDNN does: it computes 16
// channels, from outputs in blocks of 16 (3x3 and 7x7, 1 to 32 outputs, both layouts, one AVX-512 core).
double single_channel_padding(const ConvProblem& problem) {
  constexpr double kBlock = 16;
  const double outputs = static_cast<double>(problem.out_channels);
  return kBlock * std::ceil(outputs / kBlock) * kBlock / outputs;
}

// Depthwise layers for which cuDNN has kernels that are bound by arithmetic, in 16 bits others for small
// batches, and without padding others once more (an H200, torch 2.11, 90 layers of 32 to 1024 channels).
bool is_7x7_channels_last(const ConvProblem& problem) {
  const auto [least, most] =
      std::minmax({problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right});
  return least > 0 && most <= 3 && problem.is_depthwise() && problem.out_channels == problem.in_channels &&
         problem.layout == Layout::nhwc && problem.dtype != DType::float64 &&
         problem.operation != Operation::weight_grad && problem.filter_height == 7 &&
         problem.filter_width == 7 && problem.stride_h == 1 && problem.stride_w == 1 &&
         problem.dilation_h == 1 && problem.dilation_w == 1;
}

// Of images, in 16 bits and channels_last: on an H200 such took 1.1 to 11 times the estimate.
bool is_of_images(const ConvProblem& problem) {
  return problem.operation == Operation::forward && problem.groups == 1 && problem.in_channels <= 4 &&
         problem.layout == Layout::nhwc && element_size(problem.dtype) == 2;
}

// Depthwise layers on an H200 (torch 2.11, the better of native and cuDNN), batch 512, 3x3 and 5x5; other
// filters by the line through both, since these kernels read their input once per tap.
Cost depthwise_gpu(const ConvProblem& problem) {
  struct Pair {
    double filter_3x3, filter_5x5;
  };
  const bool half = element_size(problem.dtype) == 2;
  const double taps = static_cast<double>(problem.filter_height * problem.filter_width);
  if (is_7x7_channels_last(problem)) {
    if (!half || problem.operation == Operation::input_grad) return {1.5, 9.6, 4.8};
    return problem.batch >= 8 ? Cost{1.5, 4, 8} : Cost{1.5, 10.8, 9.5};
  }
  const size_t operation = static_cast<size_t>(problem.operation);
  constexpr Pair kFloat[] = {{3.3, 8.6}, {9.0, 9.0}, {9.9, 25}};
  constexpr Pair kHalf[] = {{4.0, 7.1}, {17.7, 20.2}, {20, 52}};
  constexpr Pair kChannelsLast[] = {{1.9, 4.2}, {3.6, 7.6}, {2.6, 4.6}};
  const Pair pair = problem.layout == Layout::nhwc ? kChannelsLast[operation]
                    : half                         ? kHalf[operation]
                                                   : kFloat[operation];
  const double multiple = pair.filter_3x3 + (pair.filter_5x5 - pair.filter_3x3) * (taps - 9) / 16;
  // float64 has no kernel of its own for channels_last: it is as slow as the plain layout, and converted.
  const double slow = problem.dtype == DType::float64 ? 3 : 1;
  return {std::max(multiple, 1.5) * slow, 1, 2.5};
}

// Dense layers on an H200 (torch 2.11, cuDNN 9.19), to 20 % in float32 and 30 % otherwise over P1-P45 at
// batch 1, 8 and 64 and over cuConv's and ResNet's layers at batch 1. Multiples as in Cost, here added up;
// and cycles for every product of a sum, since few of cuDNN's kernels share out the channels of an output,
// however few outputs there are.
double dense_gpu_us(const ConvProblem& problem, const DeviceTraits& device, double bytes_us,
                    double flops_us) {
  struct DenseCost {
    double bytes, flops, cycles, call_us;
  };
  constexpr DenseCost kFloat = {2.1, 1.3, 35, 4.0}, kTf32 = {1.1, 0.4, 7.5, 3.5},
                      kHalf = {0.4, 0.5, 2.1, 3.4};
  const bool tf32 = problem.dtype == DType::float32 && problem.allow_tf32;
  const DenseCost& cost = element_size(problem.dtype) == 2 ? kHalf : tf32 ? kTf32 : kFloat;
  const double taps = static_cast<double>(problem.filter_height * problem.filter_width);
  double sum = static_cast<double>(problem.in_channels_per_group()) * taps;
  if (problem.operation == Operation::input_grad) {
    sum = static_cast<double>(problem.out_channels_per_group()) * taps;
  } else if (problem.operation == Operation::weight_grad) {
    sum = 0;  // over pixels, which its kernels do share out
  }
  const double units = std::max(device.multiprocessors, 1);
  const double cycles_per_us = device.fp32_TFLOPs * 1e6 / (units * 256);  // 128 multiply-adds a cycle
  const double slow = problem.dtype == DType::float64 ? 2 : 1;
  return cost.call_us + cost.bytes * bytes_us +
         slow * (cost.flops * flops_us + cost.cycles * sum / cycles_per_us);
}

// Dense layers on CPUs, P1-P45 and ResNet's among them at batch 1 and 4 (one and two AVX-512 cores,
// torch 2.13), to some 20 %. Multiples as in Cost, added up. float16 runs in one thread, without vectors.
Cost dense_cpu(const ConvProblem& problem, const DeviceTraits& device) {
  const bool nchw = problem.layout == Layout::nchw, many = device.threads > 1;
  const bool one_tap = problem.filter_height * problem.filter_width == 1;
  const Operation operation = problem.operation;
  if (problem.dtype == DType::float64) return {3, 1.5, 20};
  if (problem.dtype == DType::float16) {
    const double slow = operation == Operation::forward      ? (nchw ? 20 : 8)
                        : operation == Operation::input_grad ? (nchw ? 12 : 18)
                                                             : (nchw ? 5 : 12);
    return {6, slow * device.threads, 40};
  }
  // Products of pairs of bfloat16 are for AVX-512 alone.
  if (problem.dtype == DType::bfloat16 && device.isa == CpuIsa::avx512) {
    if (nchw) return {operation == Operation::forward ? 6.2 : 7, 0.35, 55};
    if (operation == Operation::weight_grad) return {one_tap ? 2.0 : 6.0, 0.6, 40};
    return {one_tap ? 0.6 : operation == Operation::forward ? 3.0 : 11.0, one_tap ? 0.45 : 0.3, 40};
  }
  switch (operation) {
    case Operation::forward:
      if (!one_tap) return {2.4, 0.72, nchw ? 60.0 : 30.0};
      if (nchw) return many ? Cost{4, 0.9, 25} : Cost{0.8, 0.9, 5};
      return many ? Cost{0.5, 1, 18} : Cost{1, 0.82, 5};
    case Operation::input_grad:
      if (!one_tap) return {10, 0.5, nchw ? 80.0 : 40.0};
      if (nchw) return many ? Cost{5, 0.8, 30} : Cost{0.9, 1.05, 10};
      return many ? Cost{0.5, 1, 28} : Cost{2.5, 0.72, 10};
    case Operation::weight_grad:
      if (!one_tap) return {2.8, 0.95, 20};
      if (nchw) return many ? Cost{4, 1.1, 18} : Cost{1.7, 0.7, 10};
      return many ? Cost{0.5, 1.3, 18} : Cost{0.8, 0.8, 10};
  }
  return {1.5, 2, 20};
}

double estimate_us(const ConvProblem& problem, const DeviceTraits& device) {
  const bool cpu = device.backend == Backend::cpu;
  double bytes_us = problem.bytes() / (device.bandwidth_GBps * 1e3);
  const double flops_us = problem.flops() / (device.fp32_TFLOPs * 1e6);
  if (!cpu && !problem.is_depthwise()) return dense_gpu_us(problem, device, bytes_us, flops_us);
  if (cpu && !problem.is_depthwise()) {
    const Cost cost = dense_cpu(problem, device);
    const double grouped = problem.groups > 1 && element_size(problem.dtype) != 2 ? 1.3 : 1;
    return (bytes_us * cost.bytes + flops_us * cost.flops) * grouped + cost.call_us;
  }
  // CPUs widen 16 bits to 32 in registers and gain little from the smaller operands.
  if (cpu && element_size(problem.dtype) == 2) bytes_us *= 2;
  Cost cost = cpu ? depthwise_cpu(problem) : depthwise_gpu(problem);
  const bool onednn = cpu && (problem.dtype == DType::float32 || problem.dtype == DType::bfloat16);
  if (onednn && problem.in_channels == 1 && problem.operation == Operation::input_grad) {
    cost = {1.5, 1.3 * single_channel_padding(problem), 20};
  }
  return std::max(bytes_us * cost.bytes, flops_us * cost.flops) + cost.call_us;
}

// The least that it takes where it goes by groups: two cores with AVX2, torch 2.13, for a group of an image
// 10 to 1200 us, for a product 0.13 to 300 ns (depthwise layers and groups of 8 channels, 7x7 to 28x28
// pixels, 3x3 and 7x7 filters, three operations, both types and layouts).
double least_by_groups_us(const ConvProblem& problem) {
  const int64_t groups = std::max<int64_t>(problem.batch, 1) * problem.groups;
  return 10.0 * static_cast<double>(groups) + 0.13e-3 * problem.flops() / 2;
}

// Torch pads both sides alike: with other padding, the input is copied into one that has it.
double padding_us(const ConvProblem& p, const DeviceTraits& device) {
  if (p.padding_top == p.padding_bottom && p.padding_left == p.padding_right) return 0;
  const double padded = static_cast<double>(p.batch * p.in_channels * element_size(p.dtype)) *
                        static_cast<double>(p.padded_height()) * static_cast<double>(p.padded_width());
  return 2 * padded / (device.bandwidth_GBps * 1e3);
}

// What is left of the epilogue when torch's convolution is done.
double left_us(ConvProblem problem, const DeviceTraits& device) {
  Epilogue& epilogue = problem.epilogue;
  if (!epilogue.is_more_than_bias() && adds_bias(problem, device.backend)) epilogue.has_bias = false;
  return finishing_us(problem, device);
}

Support supports(const ConvProblem&, const DeviceTraits&) {
  return Support::yes();
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  Plan plan;
  plan.method = &method;
  plan.kernel = kConvolution;
  plan.predicted_us = estimate_us(problem, device);
  if (is_7x7_channels_last(problem) || is_of_images(problem)) trust(plan, device, 1.3);
  if (goes_by_groups(problem, device)) {
    plan.predicted_us = least_by_groups_us(problem);
    plan.doubt = 1;
    plan.source = "at least, by groups";
  }
  plan.beside_us = left_us(problem, device) + padding_us(problem, device);
  std::vector<Plan> plans = {plan};
  append_forms(problem, device, plan.predicted_us, left_us(problem, device), plans);
  return plans;
}

}  // namespace

const Method method = {
    "native", "torch's own operators: its convolution, which runs everything, products, cuDNN's fused form",
    supports, candidates, why_no_form};

}  // namespace convx::native
