// An inverted residual block, described without tensors: MobileNetV2's and those that came after it.
#pragma once
#include <cstdint>
#include <string>

#include "problem/excite_problem.h"

namespace convx {

// result = output_activation(project(filtered) + bias) + input if has_residual, where
//     expanded = activation(expand(input) + bias), a convolution to expanded_channels: 1x1, or a network's
//                first one, of expand_filter x expand_filter with zero padding of expand_filter / 2
//     filtered = activation(depthwise(expanded) + bias), of filter x filter with zero padding of filter / 2
//                and, where squeezed_channels are not 0, times the gates of an ExciteProblem of it
// for a dense tensor of (batch, channels, height, width) in the layout and a channels_last one of (batch,
// out_channels, out_height, out_width). What is between is rounded as convolutions of that dtype would round
// it.
struct BlockProblem {
  DType dtype = DType::bfloat16;
  Activation activation = Activation::relu6, output_activation = Activation::none;
  bool has_residual = false;
  Layout layout = Layout::nhwc;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t expanded_channels = 0, out_channels = 0;
  int64_t squeezed_channels = 0;  // of squeeze-and-excitation; 0 without
  Activation squeeze_activation = Activation::relu;
  Gate gate = Gate::sigmoid;
  int64_t expand_filter = 1, expand_stride = 1;
  int64_t filter = 3, stride = 1;
  int64_t expanded_height = 0, expanded_width = 0, out_height = 0, out_width = 0;

  int64_t input_elements() const { return batch * channels * height * width; }
  int64_t result_elements() const { return batch * out_channels * out_height * out_width; }
  int64_t expand_depth() const { return channels * expand_filter * expand_filter; }  // of its products
  int64_t weight_elements() const {
    return expanded_channels * (expand_depth() + filter * filter + out_channels + 2 * squeezed_channels);
  }
  int64_t out_pixels() const { return out_height * out_width; }
  int64_t filtered_elements() const { return batch * out_pixels() * expanded_channels; }
  // Of what is filtered, in channels_last; where squeezed_channels are not 0.
  ExciteProblem excitation() const;
  // Fewest bytes that move, each once, and multiply-adds counted as two.
  double bytes() const;
  double flops() const;
  BlockProblem as_tuned() const { return *this; }
  bool operator==(const BlockProblem& other) const;
  size_t hash() const;
};

// The filters of a block: each convolution's as torch has it, dense, with its bias or null. The pointers are
// to elements of the problem's dtype.
struct BlockWeights {
  const void *expand = nullptr, *expand_bias = nullptr;        // (expanded_channels, expand_depth)
  const void *depthwise = nullptr, *depthwise_bias = nullptr;  // (expanded_channels, filter, filter)
  const void *project = nullptr, *project_bias = nullptr;      // (out_channels, expanded_channels)
  ExciteWeights excitation;
};

// Its name where a convolution's is forward, input_grad or weight_grad.
constexpr const char* kBlockOperation = "inverted_residual";
// Of a capsule with one, by which modules of Python hand it over.
constexpr const char* kBlockCapsule = "convx::BlockProblem";

// Fills the sizes of the expanded tensor and the result; what is told of squeeze-and-excitation is as it was
// made where there is none. Throws InvalidArgument for sizes below 1 (a batch
// below 0), even filters, a residual of another size and more elements than 64 bits can address.
void validate_and_size(BlockProblem& problem);

std::string describe(const BlockProblem& problem);  // one line for messages

}  // namespace convx
