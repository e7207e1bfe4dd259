// From operator arguments to a ConvProblem: every check that needs tensors. Throws InvalidArgument.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/method.h"
#include "problem/problem.h"
#include "torch/tensor.h"

namespace convx {

struct Geometry {
  const std::vector<int64_t>& stride;    // height, width
  const std::vector<int64_t>& padding;   // top, bottom, left, right
  const std::vector<int64_t>& dilation;  // height, width
  int64_t groups;
  int64_t tf32;  // as the schemas have it
};

// The fields that all operations share; input and weight by their sizes.
ConvProblem describe_problem(Operation operation, int32_t dtype, Layout layout, const Sizes& input,
                             const Sizes& weight, const Geometry& geometry);

// Four dimensions and a floating type, which is returned.
DType require_image(const char* name, const TensorView& tensor);
// Same dtype and device as the first argument.
void require_like(const char* name, const TensorView& tensor, const char* first_name,
                  const TensorView& first);
void require_same_device(const char* name, const TensorView& tensor, const char* first_name,
                         const TensorView& first);
// A tensor that goes with others whose sizes ask for this one.
void require_size(const char* name, const TensorView& tensor, const std::vector<int64_t>& sizes);
// One value per output channel, where it is given.
void require_per_channel(const char* name, const std::optional<Tensor>& tensor, const TensorView& input,
                         int64_t channels);
// "input_size", as a list of four integers.
Sizes sizes_argument(const char* name, const std::vector<int64_t>& values);
Sizes sizes_of(const TensorView& tensor);
void require_output_shape(const char* name, const TensorView& tensor, const ConvProblem& problem);
// As pack_weight returns it: so many bytes of that order, or for this plan.
void require_packed(const TensorView& packed, int64_t bytes, const std::string& order,
                    const TensorView& input);
void require_packed(const TensorView& packed, const Plan& plan, const TensorView& input);

}  // namespace convx
