// convx::remember_tuned_{cpu,gpu} and forget_tuned_{cpu,gpu}: this library's table of tuned choices.
#include "select/tuned.h"

#include <torch/csrc/stable/library.h>

#include "torch/tensor.h"
#include "torch/text.h"

namespace convx {
namespace {

void remember_tuned_record(const Text& record) {
  remember_tuned(record);
}

void forget_all_tuned() {
  forget_tuned();
}

}  // namespace
}  // namespace convx

// Without tensors there is no backend to dispatch on, hence the names.
STABLE_TORCH_LIBRARY_IMPL(convx, CompositeExplicitAutograd, library) {
#if defined(CONVX_GPU)
  library.impl("remember_tuned_gpu", TORCH_BOX(&convx::remember_tuned_record));
  library.impl("forget_tuned_gpu", TORCH_BOX(&convx::forget_all_tuned));
#else
  library.impl("remember_tuned_cpu", TORCH_BOX(&convx::remember_tuned_record));
  library.impl("forget_tuned_cpu", TORCH_BOX(&convx::forget_all_tuned));
#endif
}
