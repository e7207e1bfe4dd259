#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "methods/depthwise/shared_rows/kernel.cuh"

namespace convx::depthwise {
namespace {

shared_rows::Arguments arguments_of(const shared_rows::Geometry& geometry, const ConvProblem& problem,
                                    const Pointers& pointers) {
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  shared_rows::Arguments a{};
  a.source = static_cast<const float*>(pointers.input);
  a.weight = static_cast<const float*>(pointers.weight);
  a.bias = initial_bias<float>(problem, pointers);
  a.result = static_cast<float*>(pointers.result);
  a.source_height = narrow_int(problem.in_height), a.source_width = narrow_int(problem.in_width);
  a.result_height = narrow_int(problem.out_height), a.result_width = narrow_int(problem.out_width);
  a.top = narrow_int(problem.padding_top), a.left = narrow_int(problem.padding_left);
  a.groups = narrow_int(geometry.groups), a.row_elements = narrow_int(geometry.row_elements);
  a.columns = divide_by(geometry.columns), a.segments = divide_by(geometry.segments);
  a.channels = divide_by(problem.out_channels);
  a.units = static_cast<uint32_t>(geometry.units);
  a.activation = problem.epilogue.activation;
  return a;
}

}  // namespace

void launch_shared_rows(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  const shared_rows::Geometry geometry = shared_rows::geometry_of(problem, static_cast<int>(plan["lanes"]));
  const shared_rows::Arguments a = arguments_of(geometry, problem, pointers);
  Grid grid;
  grid.x = static_cast<uint32_t>(geometry.blocks());
  with_filter_and_stride(problem, [&](auto filter, auto stride) {
    with_lanes(plan["lanes"], [&](auto width) {
      launch_in_turn(shared_rows::shared_rows_kernel<width.value, filter.value, stride.value>,
                     "depthwise shared_rows", grid, static_cast<uint32_t>(geometry.threads),
                     static_cast<uint32_t>(geometry.shared_bytes()), stream, a);
    });
  });
}

}  // namespace convx::depthwise
