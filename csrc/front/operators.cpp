#include "front/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

namespace convx::front {
namespace {

using Ints = at::IntArrayRef;
using Forward = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, Ints, Ints, Ints, int64_t,
                       std::string_view, std::string_view, int64_t, const std::optional<Tensor>&,
                       const std::optional<Tensor>&, const std::optional<Tensor>&, bool);
using Gradient = Tensor(const Tensor&, const Tensor&, c10::SymIntArrayRef, Ints, Ints, Ints, int64_t,
                        std::string_view, int64_t);

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Of a gradient: matrix products may have been let round since the call.
int64_t tf32_now(const Prepared& prepared) {
  return prepared.tf32 | products_setting();
}

// Rows are images of height one to the operators.
Tensor as_image(const Tensor& tensor) {
  return tensor.dim() == 4 ? tensor : tensor.unsqueeze(-2);
}

c10::SymDimVector sizes_as_image(const c10::DimVector& sizes) {
  c10::SymDimVector found(sizes.begin(), sizes.end());
  if (found.size() == 3) found.insert(found.begin() + 2, 1);
  return found;
}

// The gradient of those sizes, from the two operands that it has.
Tensor gradient(const c10::TypedOperatorHandle<Gradient>& operation, const Prepared& prepared,
                const Tensor& first, const Tensor& second, const c10::DimVector& sizes) {
  const Geometry& g = prepared.geometry;
  const Tensor image =
      operation.call(as_image(first), as_image(second), sizes_as_image(sizes), g.stride, g.padding,
                     g.dilation, g.groups, prepared.algorithm_of_gradients, tf32_now(prepared));
  return sizes.size() == 4 ? image : image.squeeze(-2);
}

}  // namespace

Tensor conv2d(const Prepared& prepared, const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias) {
  static const auto operation = find<Forward>("convx::conv2d");
  const Geometry& g = prepared.geometry;
  return operation.call(input, weight, bias, g.stride, g.padding, g.dilation, g.groups,
                        to_string(prepared.activation), prepared.algorithm, prepared.tf32, std::nullopt,
                        std::nullopt, std::nullopt, false);
}

Tensor conv2d_input_grad(const Prepared& prepared, const Tensor& output_grad, const Tensor& weight) {
  static const auto operation = find<Gradient>("convx::conv2d_input_grad");
  return gradient(operation, prepared, output_grad, weight, prepared.input_sizes);
}

Tensor conv2d_weight_grad(const Prepared& prepared, const Tensor& input, const Tensor& output_grad) {
  static const auto operation = find<Gradient>("convx::conv2d_weight_grad");
  return gradient(operation, prepared, input, output_grad, prepared.weight_sizes);
}

}  // namespace convx::front
