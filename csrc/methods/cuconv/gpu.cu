#include <stdexcept>

#include "methods/cuconv/cuconv.h"
#include "methods/cuconv/launch.h"
#include "methods/cuconv/stages/products.cuh"
#include "methods/cuconv/stages/sum.cuh"
#include "methods/deep/geometry.h"
#include "methods/packing/crsk.cuh"
#include "platform/gpu/overlap.h"
#include "problem/divide.h"

namespace convx::cuconv {
namespace {

template <class T>
void launch_products(const Plan& plan, const Sweep& s, const Operands& operands, Stream stream) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const int64_t threads = plan["threads"], pixels = s.batch * s.result_plane();
  const int64_t pixel_blocks = divide_up(pixels, threads);
  stages::ProductArguments<T> a{};
  a.source = static_cast<const T*>(operands.source);
  a.weight = static_cast<const T*>(operands.weight);
  a.result = static_cast<T*>(operands.result);
  a.partial = static_cast<Accumulator<T>*>(operands.partial);
  a.results = s.results();
  a.groups = number(s.groups), a.channels = number(s.source_channels), a.filters = number(s.result_channels);
  a.all_filters = number(s.all_result_channels()), a.pixels = number(pixels);
  a.source_height = number(s.source_height), a.source_width = number(s.source_width);
  a.result_width = number(s.result_width), a.result_plane = number(s.result_plane());
  a.filter_width = number(s.filter_width), a.taps = number(s.taps());
  a.stride_h = number(s.stride_h), a.stride_w = number(s.stride_w);
  a.dilation_h = number(s.dilation_h), a.dilation_w = number(s.dilation_w);
  a.top = number(s.top), a.left = number(s.left);
  a.pixel_blocks = divide_by(pixel_blocks);
  a.divide_taps = divide_by(s.taps());
  a.divide_result_plane = divide_by(s.result_plane());
  a.bias = operands.bias<T>();
  a.finishing = operands.finishing<T>();
  const int64_t blocks = s.all_result_channels() * s.taps() * pixel_blocks;
  launch_in_turn(stages::products_kernel<T>, "cuconv scalar_prods", Grid{static_cast<uint32_t>(blocks)},
                 static_cast<uint32_t>(threads), 0, stream, a);
}

template <class T>
void launch_sum(const Plan& plan, const Sweep& s, const Operands& operands, Stream stream) {
  const Grid grid{static_cast<uint32_t>(divide_up(s.results(), stages::kSumThreads))};
  launch_in_turn(stages::sum_kernel<T>, "cuconv sum", grid, stages::kSumThreads, 0, stream,
                 static_cast<const Accumulator<T>*>(operands.partial), operands.bias<T>(),
                 static_cast<T*>(operands.result), s.results(), static_cast<int>(plan["planes"]),
                 static_cast<int>(s.result_plane()), static_cast<int>(s.all_result_channels()),
                 operands.finishing<T>());
}

// Kernels of matrix units, and what packs their filters.
struct OnUnits {
  Launch* launch;
  Pack* pack;
};

template <matrix::Precision Kind>
OnUnits units_of_precision(int kernel) {
  if (kernel == kDeep) return {deep::launch_precision<Kind>, deep::pack_precision<Kind>};
  return {tensor::launch_precision<Kind>, tensor::pack_precision<Kind>};
}

OnUnits units_of(const Plan& plan) {
  switch (plan["precision"]) {
    case matrix::kBfloat16:
      return units_of_precision<matrix::kBfloat16>(plan.kernel);
    case matrix::kFloat16:
      return units_of_precision<matrix::kFloat16>(plan.kernel);
    case matrix::kTf32:
      return units_of_precision<matrix::kTf32>(plan.kernel);
    default:
      return units_of_precision<matrix::kSplit>(plan.kernel);
  }
}

bool is_on_units(const Plan& plan) {
  return plan.kernel == kTensor || plan.kernel == kDeep;
}

// packed: the filters were packed by the kernel before.
template <class T>
void launch_stages(const Plan& plan, const Sweep& sweep, const Operands& operands, bool packed,
                   Stream stream) {
  if (plan.kernel == kTile) {
    tile::launch_typed<T>(plan, sweep, operands, stream);
  } else if (is_on_units(plan)) {
    units_of(plan).launch(plan, sweep, operands, packed ? stream.without_overlap() : stream);
  } else if (plan.kernel == kProducts) {
    launch_products<T>(plan, sweep, operands, stream);
  } else {
    throw std::logic_error("convx: no cuconv GPU kernel for " + describe(plan));
  }
  if (operands.partial != nullptr) launch_sum<T>(plan, sweep, operands, stream);
}

}  // namespace

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep sweep = sweep_of(problem);
  const bool forward = problem.operation == Operation::forward;
  Operands operands{};
  operands.source = forward ? pointers.input : pointers.output_grad;
  operands.weight = plan.packing.empty() ? pointers.weight : pointers.packed_weight;
  operands.plain_weight = pointers.weight;
  operands.result = pointers.result;
  operands.partial = plan.workspace_bytes > 0 ? pointers.workspace : nullptr;
  operands.planes = convx::deep::has_planes(problem);
  if (forward) {
    operands.epilogue = problem.epilogue;
    operands.epilogue_pointers = pointers.epilogue;
  }
  const bool packed = pointers.packed_just_now;
  switch (problem.dtype) {
    case DType::float32:
      return launch_stages<float>(plan, sweep, operands, packed, stream);
    case DType::float64:
      return launch_stages<double>(plan, sweep, operands, packed, stream);
    case DType::float16:
      return launch_stages<float16>(plan, sweep, operands, packed, stream);
    case DType::bfloat16:
      return launch_stages<bfloat16>(plan, sweep, operands, packed, stream);
  }
}

// Matrix units read fragments. Else filters are read as they are; flipped ones, their channel axes exchanged,
// are packed in blocks of one.
void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream) {
  if (!is_on_units(plan)) return packing::pack_crsk_gpu(problem, 1, weight, packed, stream);
  units_of(plan).pack(plan, sweep_of(problem), weight, packed, stream);
}

}  // namespace convx::cuconv
