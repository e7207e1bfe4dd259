// One convolution, described without tensors: what every method plans from.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "problem/epilogue.h"

namespace convx {

enum class Operation : uint8_t { forward, input_grad, weight_grad };
enum class DType : uint8_t { float32, float64, float16, bfloat16 };
enum class Layout : uint8_t { nchw, nhwc };  // nhwc is torch's channels_last

// Bad input; the message names the argument, what was given, what is supported and the way out.
struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Sizes are in elements. For every operation the fields describe the forward convolution: input (batch,
// in_channels, in_height, in_width), weight (out_channels, in_channels / groups, filter_height,
// filter_width), output (batch, out_channels, out_height, out_width).
struct ConvProblem {
  Operation operation = Operation::forward;
  DType dtype = DType::float32;
  Layout layout = Layout::nchw;  // of both images in memory
  Epilogue epilogue;             // of the forward operation; gradients have none
  bool allow_tf32 = false;       // float32 products may be rounded to TF32 before they are added
  bool exact_products = false;   // and torch's matrix products are known not to round them
  // Nobody keeps this forward call's filters in the order that a kernel reads: to pack them is part of it.
  bool packs_each_call = false;
  int64_t batch = 0, in_channels = 0, in_height = 0, in_width = 0;
  int64_t out_channels = 0, out_height = 0, out_width = 0;
  int64_t filter_height = 1, filter_width = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t padding_top = 0, padding_bottom = 0, padding_left = 0, padding_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;

  int64_t in_channels_per_group() const { return in_channels / groups; }
  int64_t out_channels_per_group() const { return out_channels / groups; }
  // Depthwise: every group reads one input channel; out_channels_per_group() is the channel multiplier.
  bool is_depthwise() const { return groups == in_channels; }
  bool has_maps_near_square() const { return in_height <= 4 * in_width && in_width <= 4 * in_height; }
  int64_t padded_height() const { return in_height + padding_top + padding_bottom; }
  int64_t padded_width() const { return in_width + padding_left + padding_right; }
  int64_t input_elements() const { return batch * in_channels * in_height * in_width; }
  int64_t output_elements() const { return batch * out_channels * out_height * out_width; }
  int64_t weight_elements() const {
    return out_channels * in_channels_per_group() * filter_height * filter_width;
  }
  // Fewest bytes the operation moves (each operand read once, the result written once) and its multiply-adds
  // counted as two operations each.
  double bytes() const;
  double flops() const;
  // The same call where its filters are kept packed, whatever torch does with matrix products: tuning and
  // generated kernels know no other.
  ConvProblem as_tuned() const;
  bool operator==(const ConvProblem& other) const;
  size_t hash() const;
};

using Sizes = std::array<int64_t, 4>;  // batch, channels, height, width, in this order in every layout

// Fills the sizes, and the geometry of the forward convolution, from those of its input and weight, stride
// and dilation (height, width) and padding (top, bottom, left, right), and validates as below; the weight's
// second size has to be the input channels of a group.
void set_sizes(ConvProblem& problem, const Sizes& input, const Sizes& weight, const int64_t* stride,
               const int64_t* padding, const int64_t* dilation, int64_t groups);

// What torch's settings let be rounded to TF32: 1 convolutions, 2 matrix products, 3 both.
void set_tf32(ConvProblem& problem, int64_t tf32);

// Fills out_height and out_width from the other fields, and calls a layout nchw that may as well be; throws
// InvalidArgument for anything no convolution can mean: groups that do not divide, stride or dilation below
// 1, negative padding, an empty filter, a filter larger than the padded input, sizes whose element count
// overflows 64 bits. Strides and dilations larger than the padded input become its size, which is as good.
void validate_and_size(ConvProblem& problem);

int64_t element_size(DType dtype);  // bytes

// What every kind of problem is told from others by: what its enumerations and flags make, and its sizes.
size_t hash_of(uint64_t kinds, std::initializer_list<int64_t> sizes);
// Throws InvalidArgument for a number below the least that it may be.
void require_least(const char* what, int64_t value, int64_t least);
// Throws InvalidArgument where the elements of a tensor of that size can't be addressed.
void require_countable(const char* tensor, std::initializer_list<int64_t> sizes);

// Names used in Python, in messages and in results files.
const char* to_string(Operation value);
const char* to_string(DType value);
const char* to_string(Layout value);                 // "nchw", "channels_last"
Operation parse_operation(const std::string& name);  // these throw InvalidArgument listing what is supported
DType parse_dtype(const std::string& name);
Layout parse_layout(const std::string& name);
std::string describe(const ConvProblem& problem);  // one line for messages and explain()

}  // namespace convx
