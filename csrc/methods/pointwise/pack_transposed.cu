// Filters with their two channel axes exchanged, group by group: what the input gradient multiplies by.
#include "methods/pointwise/family.h"
#include "platform/gpu/launch.h"

namespace convx::pointwise {
namespace {

constexpr int kThreads = 256;

template <class T>
CONVX_KERNEL(kThreads, 1)
transpose_kernel(const T* weight, T* packed, int64_t elements, int64_t filters, int64_t depth) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= elements) return;
  const int64_t filter = index % filters, rest = index / filters;
  const int64_t channel = rest % depth, group = rest / depth;
  packed[index] = weight[(group * filters + filter) * depth + channel];
}

template <class T>
void transpose(const ConvProblem& problem, const void* weight, void* packed, Stream stream) {
  const int64_t elements = problem.weight_elements();
  launch_kernel(transpose_kernel<T>, "pointwise transpose",
                Grid{static_cast<uint32_t>((elements + kThreads - 1) / kThreads)}, kThreads, 0, stream,
                static_cast<const T*>(weight), static_cast<T*>(packed), elements,
                problem.out_channels_per_group(), problem.in_channels_per_group());
}

}  // namespace

void pack_transposed(const Plan&, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream) {
  switch (element_size(problem.dtype)) {
    case 8:
      return transpose<double>(problem, weight, packed, stream);
    case 4:
      return transpose<float>(problem, weight, packed, stream);
    default:
      return transpose<uint16_t>(problem, weight, packed, stream);
  }
}

}  // namespace convx::pointwise
