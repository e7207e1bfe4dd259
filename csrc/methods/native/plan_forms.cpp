#include "methods/native/forms.h"
#include "methods/native/native.h"

namespace convx::native {
namespace {

// torch's matrix products have a TF32 setting of their own.
Support supports_products(const ConvProblem& p, const DeviceTraits& device) {
  if (p.dtype == DType::float32 && device.backend != Backend::cpu && !p.exact_products && !p.allow_tf32) {
    return Support::no(
        "torch's matrix products may round float32 to TF32, convolutions may not "
        "(torch.backends.cuda.matmul.allow_tf32; taken as set where calls are recorded, as by "
        "torch.compile)");
  }
  if (p.groups != 1) return Support::no("it needs one group");
  return Support::yes();
}

Support supports_im2col(const ConvProblem& p, const DeviceTraits& device) {
  const Support support = supports_products(p, device);
  if (!support.ok) return support;
  if (p.batch != 1) return Support::no("it needs a batch of one: torch takes images one by one there");
  if (p.dilation_h != 1 || p.dilation_w != 1) return Support::no("it needs dilation 1");
  if (p.padding_top != p.padding_bottom || p.padding_left != p.padding_right) {
    return Support::no("it needs as much padding on both sides");
  }
  return Support::yes();
}

Support supports_matmul(const ConvProblem& p, const DeviceTraits& device) {
  const Support support = supports_products(p, device);
  if (!support.ok) return support;
  const bool one_tap = p.filter_height == 1 && p.filter_width == 1 && p.stride_h == 1 && p.stride_w == 1;
  if (!one_tap || p.out_height != p.in_height || p.out_width != p.in_width) {
    return Support::no("it needs filters of one tap, stride 1 and no padding");
  }
  // A pass over the result adds the bias where there has to be one.
  if (p.epilogue.has_bias && !p.epilogue.is_more_than_bias() && adds_bias(p, device.backend)) {
    return Support::no("it adds no bias");
  }
  if (p.layout == Layout::nchw && p.batch != 1 && p.operation == Operation::weight_grad) {
    return Support::no("it computes weight_grad of several images in channels_last alone");
  }
  return Support::yes();
}

Support supports_fused(const ConvProblem& p, const DeviceTraits& device) {
  const Epilogue& epilogue = p.epilogue;
  if (device.backend != Backend::cuda) return Support::no("it is cuDNN's");
  if (p.operation != Operation::forward || epilogue.activation != Activation::relu || !epilogue.has_bias ||
      epilogue.has_scale || epilogue.residual_after_activation) {
    return Support::no("it adds a bias, and before relu a residual: no more and no less");
  }
  if (p.dtype == DType::float64) return Support::no("it does not compute float64");
  if (p.padding_top != p.padding_bottom || p.padding_left != p.padding_right) {
    return Support::no("it needs as much padding on both sides");
  }
  return Support::yes();
}

// What torch unfolds the image into; nothing where the image has that form already.
int64_t column_bytes(const ConvProblem& p) {
  const int64_t taps = p.filter_height * p.filter_width;
  if (taps == 1 && p.out_height == p.in_height && p.out_width == p.in_width) return 0;
  return p.in_channels * taps * p.out_height * p.out_width * element_size(p.dtype);
}

// cuDNN's convolution is the same product there, in a call that costs the host less: of 90 layers at batch 1
// and 64 on an H200 (benchmarks, suite pointwise) the product is 3 % faster on none.
bool is_convolution_again(Kernel kernel, const ConvProblem& p, const DeviceTraits& device) {
  return kernel == kMatmul && p.operation == Operation::forward && p.layout == Layout::nhwc &&
         element_size(p.dtype) == 2 && device.backend == Backend::cuda;
}

struct Form {
  const char* candidate;
  Kernel kernel;
  Support (*supports)(const ConvProblem&, const DeviceTraits&);
};
constexpr Form kForms[] = {{"im2col", kIm2col, supports_im2col},
                           {"matmul", kMatmul, supports_matmul},
                           {"fused", kFused, supports_fused}};

}  // namespace

void append_forms(const ConvProblem& problem, const DeviceTraits& device, double convolution_us,
                  double epilogue_us, std::vector<Plan>& plans) {
  constexpr double kUnmeasured = 1.25;
  for (const Form& form : kForms) {
    if (!form.supports(problem, device).ok) continue;
    Plan plan;
    plan.method = &method;
    plan.candidate = form.candidate;
    plan.kernel = form.kernel;
    if (form.kernel == kIm2col) plan.workspace_bytes = column_bytes(problem);
    plan.by_name_only = is_convolution_again(form.kernel, problem, device);
    plan.exact = form.kernel != kFused && problem.exact_products;
    plan.predicted_us = convolution_us * kUnmeasured;
    if (form.kernel != kFused) plan.beside_us = epilogue_us;
    plans.push_back(std::move(plan));
  }
}

std::string why_no_form(const ConvProblem& problem, const DeviceTraits& device,
                        const std::string& candidate) {
  for (const Form& form : kForms) {
    if (candidate == form.candidate) return form.supports(problem, device).reason;
  }
  return "";
}

}  // namespace convx::native
