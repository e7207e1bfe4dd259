#include "problem/problem.h"

#include <algorithm>
#include <array>
#include <functional>

namespace convx {
namespace {

constexpr std::array<const char*, 3> kOperations = {"forward", "input_grad", "weight_grad"};
constexpr std::array<const char*, 4> kDTypes = {"float32", "float64", "float16", "bfloat16"};
constexpr std::array<const char*, 2> kLayouts = {"nchw", "channels_last"};
constexpr std::array<const char*, 6> kActivations = {"none", "relu", "relu6", "silu", "hardswish", "gelu"};

template <class Enum, size_t Count>
Enum parse(const char* argument, const std::string& name, const std::array<const char*, Count>& names) {
  for (size_t i = 0; i < Count; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  std::string supported;
  for (const char* each : names) supported += supported.empty() ? each : std::string(", ") + each;
  throw InvalidArgument(std::string(argument) + " must be one of " + supported + "; got '" + name + "'");
}

std::string number(int64_t value) {
  return std::to_string(value);
}

std::string pair(int64_t height, int64_t width) {
  return "(" + number(height) + ", " + number(width) + ")";
}

void require_at_least(const char* argument, int64_t least, int64_t value, const char* way_out) {
  if (value >= least) return;
  throw InvalidArgument(std::string(argument) + " must be at least " + number(least) + ", got " +
                        number(value) + "; " + way_out);
}

void require_pair_at_least(const char* argument, int64_t least, int64_t height, int64_t width,
                           const char* way_out) {
  if (height >= least && width >= least) return;
  throw InvalidArgument(std::string(argument) + " must be at least " + number(least) + ", got " +
                        pair(height, width) + "; " + way_out);
}

// Output positions along one axis. Every sum is checked: sizes come from users.
int64_t output_size(const char* axis, int64_t input, int64_t filter, int64_t stride, int64_t padding_before,
                    int64_t padding_after, int64_t dilation) {
  int64_t padded = 0, reach = 0;
  if (__builtin_add_overflow(input, padding_before, &padded) ||
      __builtin_add_overflow(padded, padding_after, &padded) ||
      __builtin_mul_overflow(dilation, filter - 1, &reach) || __builtin_add_overflow(reach, 1, &reach)) {
    throw InvalidArgument(std::string("the ") + axis + " of the padded input or of the dilated filter " +
                          "overflows 64 bits; padding or dilation is too large");
  }
  if (reach > padded) {
    throw InvalidArgument(std::string("weight: the filter spans ") + number(reach) + " in " + axis +
                          " (size " + number(filter) + ", dilation " + number(dilation) +
                          ") but the padded input has only " + number(padded) + " (size " + number(input) +
                          ", padding " + number(padding_before) + " + " + number(padding_after) +
                          "); use more padding, less dilation or a smaller filter");
  }
  return (padded - reach) / stride + 1;
}

// A step beyond the padded input, between outputs or taps, is never taken: there is one of them.
void limit_steps(int64_t padded, int64_t& stride, int64_t& dilation) {
  stride = std::min(stride, padded);
  dilation = std::min(dilation, padded);
}

}  // namespace

double ConvProblem::bytes() const {
  const double elements = static_cast<double>(input_elements()) + static_cast<double>(output_elements()) +
                          static_cast<double>(weight_elements()) +
                          epilogue.elements(out_channels, output_elements());
  return elements * static_cast<double>(element_size(dtype));
}

double ConvProblem::flops() const {
  return 2.0 * static_cast<double>(output_elements()) *
         static_cast<double>(in_channels_per_group() * filter_height * filter_width);
}

ConvProblem ConvProblem::as_tuned() const {
  ConvProblem problem = *this;
  problem.packs_each_call = problem.exact_products = false;
  return problem;
}

bool ConvProblem::operator==(const ConvProblem& other) const {
  return operation == other.operation && dtype == other.dtype && layout == other.layout &&
         epilogue == other.epilogue && allow_tf32 == other.allow_tf32 &&
         exact_products == other.exact_products && packs_each_call == other.packs_each_call &&
         batch == other.batch && in_channels == other.in_channels && in_height == other.in_height &&
         in_width == other.in_width && out_channels == other.out_channels && out_height == other.out_height &&
         out_width == other.out_width && filter_height == other.filter_height &&
         filter_width == other.filter_width && stride_h == other.stride_h && stride_w == other.stride_w &&
         padding_top == other.padding_top && padding_bottom == other.padding_bottom &&
         padding_left == other.padding_left && padding_right == other.padding_right &&
         dilation_h == other.dilation_h && dilation_w == other.dilation_w && groups == other.groups;
}

size_t hash_of(uint64_t kinds, std::initializer_list<int64_t> sizes) {
  uint64_t state = kinds;
  for (const int64_t size : sizes) {
    state = (state ^ static_cast<uint64_t>(size)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
    state ^= state >> 29;
  }
  return static_cast<size_t>(state);
}

void require_least(const char* what, int64_t value, int64_t least) {
  if (value >= least) return;
  throw InvalidArgument(std::string(what) + " must be at least " + number(least) + ", got " + number(value));
}

void require_countable(const char* tensor, std::initializer_list<int64_t> sizes) {
  int64_t bytes = static_cast<int64_t>(sizeof(double));
  bool countable = true;
  for (const int64_t size : sizes) countable = countable && !__builtin_mul_overflow(bytes, size, &bytes);
  if (countable) return;
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + number(size);
  throw InvalidArgument(std::string("the ") + tensor + " of size (" + text +
                        ") has more elements than 64 bits can address");
}

size_t ConvProblem::hash() const {
  const uint64_t kinds =
      static_cast<uint64_t>(operation) | static_cast<uint64_t>(dtype) << 8 |
      static_cast<uint64_t>(layout) << 16 | epilogue.bits() << 24 | static_cast<uint64_t>(allow_tf32) << 40 |
      static_cast<uint64_t>(packs_each_call) << 41 | static_cast<uint64_t>(exact_products) << 42;
  return hash_of(kinds, {batch, in_channels, in_height, in_width, out_channels, filter_height, filter_width,
                         stride_h, stride_w, padding_top, padding_bottom, padding_left, padding_right,
                         dilation_h, dilation_w, groups});
}

void set_sizes(ConvProblem& problem, const Sizes& input, const Sizes& weight, const int64_t* stride,
               const int64_t* padding, const int64_t* dilation, int64_t groups) {
  ConvProblem& p = problem;
  p.batch = input[0];
  p.in_channels = input[1];
  p.in_height = input[2];
  p.in_width = input[3];
  p.out_channels = weight[0];
  p.filter_height = weight[2];
  p.filter_width = weight[3];
  p.stride_h = stride[0];
  p.stride_w = stride[1];
  p.padding_top = padding[0];
  p.padding_bottom = padding[1];
  p.padding_left = padding[2];
  p.padding_right = padding[3];
  p.dilation_h = dilation[0];
  p.dilation_w = dilation[1];
  p.groups = groups;
  validate_and_size(p);
  if (weight[1] != p.in_channels_per_group()) {
    throw InvalidArgument("weight must have input channels / groups = " + number(input[1]) + " / " +
                          number(groups) + " = " + number(p.in_channels_per_group()) +
                          " in dimension 1, got " + number(weight[1]) + ": shape (" + number(weight[0]) +
                          ", " + number(weight[1]) + ", " + number(weight[2]) + ", " + number(weight[3]) +
                          ")");
  }
}

void set_tf32(ConvProblem& problem, int64_t tf32) {
  if (tf32 < 0 || tf32 > 3) {
    throw InvalidArgument(
        "tf32 must be 0 (nothing rounds to TF32), 1 (convolutions may), 2 (matrix products may) "
        "or 3 (both), got " +
        number(tf32));
  }
  problem.allow_tf32 = (tf32 & 1) != 0;
  problem.exact_products = (tf32 & 2) == 0;
}

void validate_and_size(ConvProblem& problem) {
  ConvProblem& p = problem;
  require_at_least("input: the batch", 0, p.batch, "sizes can't be negative");
  require_at_least("input: the channels", 1, p.in_channels, "a convolution without channels has no meaning");
  require_pair_at_least("input: height and width", 1, p.in_height, p.in_width, "only the batch may be empty");
  require_at_least("weight: the output channels", 1, p.out_channels,
                   "a convolution without output channels has no meaning");
  require_pair_at_least("weight: the filter's height and width", 1, p.filter_height, p.filter_width,
                        "use a 1x1 filter to pass values through");
  require_pair_at_least("stride", 1, p.stride_h, p.stride_w, "use 1 to compute every position");
  require_pair_at_least("dilation", 1, p.dilation_h, p.dilation_w, "use 1 for a dense filter");
  if (p.padding_top < 0 || p.padding_bottom < 0 || p.padding_left < 0 || p.padding_right < 0) {
    throw InvalidArgument("padding must be at least 0, got (top " + number(p.padding_top) + ", bottom " +
                          number(p.padding_bottom) + ", left " + number(p.padding_left) + ", right " +
                          number(p.padding_right) + "); slice the input to crop it");
  }
  require_at_least("groups", 1, p.groups, "use 1 for a dense convolution");
  if (p.in_channels % p.groups != 0 || p.out_channels % p.groups != 0) {
    throw InvalidArgument("groups must divide both channel counts, got groups " + number(p.groups) +
                          " with " + number(p.in_channels) + " input channels and " + number(p.out_channels) +
                          " output channels");
  }
  p.out_height = output_size("height", p.in_height, p.filter_height, p.stride_h, p.padding_top,
                             p.padding_bottom, p.dilation_h);
  p.out_width = output_size("width", p.in_width, p.filter_width, p.stride_w, p.padding_left, p.padding_right,
                            p.dilation_w);
  limit_steps(p.padded_height(), p.stride_h, p.dilation_h);
  limit_steps(p.padded_width(), p.stride_w, p.dilation_w);
  require_countable("input", {p.batch, p.in_channels, p.in_height, p.in_width});
  require_countable("weight", {p.out_channels, p.in_channels_per_group(), p.filter_height, p.filter_width});
  require_countable("output", {p.batch, p.out_channels, p.out_height, p.out_width});
  normalize(p.epilogue);
  // One pixel or one channel on both sides: the memory is the same in either layout, and so is the problem.
  if ((p.in_channels == 1 || p.in_height * p.in_width == 1) &&
      (p.out_channels == 1 || p.out_height * p.out_width == 1)) {
    p.layout = Layout::nchw;
  }
}

int64_t element_size(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 8;
    case DType::float32:
      return 4;
    case DType::float16:
    case DType::bfloat16:
      return 2;
  }
  return 0;
}

const char* to_string(Operation value) {
  return kOperations[static_cast<size_t>(value)];
}
const char* to_string(DType value) {
  return kDTypes[static_cast<size_t>(value)];
}
const char* to_string(Layout value) {
  return kLayouts[static_cast<size_t>(value)];
}
const char* to_string(Activation value) {
  return kActivations[static_cast<size_t>(value)];
}

Operation parse_operation(const std::string& name) {
  return parse<Operation>("operation", name, kOperations);
}
DType parse_dtype(const std::string& name) {
  return parse<DType>("dtype", name, kDTypes);
}
Layout parse_layout(const std::string& name) {
  return parse<Layout>("layout", name, kLayouts);
}
Activation parse_activation(const std::string& name) {
  return parse<Activation>("activation", name, kActivations);
}

std::string describe(const Epilogue& epilogue) {
  std::string text;
  if (epilogue.has_scale) text += ", scale";
  if (epilogue.has_bias) text += ", bias";
  const bool after = epilogue.has_residual && epilogue.residual_after_activation;
  if (epilogue.has_residual && !after) text += ", residual";
  if (epilogue.activation != Activation::none) text += std::string(", ") + to_string(epilogue.activation);
  if (after) text += ", residual after activation";
  return text;
}

std::string describe(const ConvProblem& p) {
  std::string text =
      std::string(to_string(p.operation)) + " " + to_string(p.dtype) + " " + to_string(p.layout) + " " +
      number(p.batch) + "x" + number(p.in_channels) + "x" + number(p.in_height) + "x" + number(p.in_width) +
      " -> " + number(p.out_channels) + "x" + number(p.out_height) + "x" + number(p.out_width) + ", filter " +
      number(p.filter_height) + "x" + number(p.filter_width) + ", stride " + pair(p.stride_h, p.stride_w);
  if (p.padding_top == p.padding_bottom && p.padding_left == p.padding_right) {
    text += ", padding " + pair(p.padding_top, p.padding_left);
  } else {
    text += ", padding (top " + number(p.padding_top) + ", bottom " + number(p.padding_bottom) + ", left " +
            number(p.padding_left) + ", right " + number(p.padding_right) + ")";
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) text += ", dilation " + pair(p.dilation_h, p.dilation_w);
  text += ", groups " + number(p.groups);
  if (p.allow_tf32 && p.dtype == DType::float32) text += ", TF32 allowed";
  text += describe(p.epilogue);
  return text;
}

}  // namespace convx
