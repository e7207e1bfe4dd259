// convx::remember_kernel_gpu: a generated kernel's binary (uint8, on the CPU) becomes a candidate.
#if defined(CONVX_GPU)
#include <torch/csrc/stable/library.h>

#include "methods/pointwise/generator/kernels.h"
#include "torch/tensor.h"
#include "torch/text.h"

namespace convx {
namespace {

void remember_kernel(const Text& record, const Tensor& image) {
  const TensorView view(image);
  if (view.device_type != aoti_torch_device_type_cpu() || view.dtype != aoti_torch_dtype_uint8() ||
      view.dimensions != 1 || !view.is_contiguous()) {
    throw InvalidArgument("image must be a contiguous uint8 vector on the CPU, got " +
                          dtype_name(view.dtype) + " of shape " + view.shape() + " on " +
                          device_name(view.device_type, view.device_index));
  }
  std::string bytes(static_cast<const char*>(image.const_data_ptr()), static_cast<size_t>(view.sizes[0]));
  pointwise::generator::remember_kernel(record, std::move(bytes));
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CompositeExplicitAutograd, library) {
  library.impl("remember_kernel_gpu", TORCH_BOX(&convx::remember_kernel));
}
#endif
