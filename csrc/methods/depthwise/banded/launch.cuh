// The launchers of the banded family for one element type.
#pragma once
#include "methods/depthwise/banded/correlate.cuh"
#include "methods/depthwise/banded/geometry.h"
#include "methods/depthwise/banded/weight_grad.cuh"
#include "methods/depthwise/family.h"
#include "methods/sums.cuh"

namespace convx::depthwise::banded {

inline Planes planes_of(const ConvProblem& problem, const void* data, bool of_input) {
  Planes planes;
  planes.data = static_cast<const uint16_t*>(data);
  planes.height = static_cast<int>(of_input ? problem.in_height : problem.out_height);
  planes.width = static_cast<int>(of_input ? problem.in_width : problem.out_width);
  planes.channels = static_cast<int>(problem.in_channels);
  planes.image = problem.in_channels * planes.height * planes.width;
  planes.has_octets = problem.in_channels % kChannels == 0 && is_aligned(data, 16);
  return planes;
}

// Calls body(std::integral_constant<int, Count>()) for the one of Counts that `count` is.
template <int... Counts, class Body>
void with_count(int64_t count, const Body& body) {
  if (!((count == Counts && (body(std::integral_constant<int, Counts>()), true)) || ...)) {
    throw std::logic_error("convx: no banded kernel for " + std::to_string(count));
  }
}

template <class T>
void launch_product(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad, last = is_channels_last(problem);
  const int64_t stack = plan["stack"];
  const Geometry g = product_geometry(problem, plan["lanes"], stack, plan["side"]);
  Arguments a;
  a.source = planes_of(problem, gradient ? pointers.output_grad : pointers.input, !gradient);
  a.filters.data = static_cast<const uint16_t*>(pointers.weight);
  a.filters.image = 0;
  a.filters.height = static_cast<int>(problem.filter_height);
  a.filters.width = static_cast<int>(problem.filter_width);
  a.filters.channels = a.source.channels;
  a.filters.has_octets = false;
  a.result_height = static_cast<int>(gradient ? problem.in_height : problem.out_height);
  a.result_width = static_cast<int>(gradient ? problem.in_width : problem.out_width);
  a.result_image = problem.in_channels * a.result_height * a.result_width;
  const int top = static_cast<int>(problem.padding_top), left = static_cast<int>(problem.padding_left);
  a.top = gradient ? a.filters.height - 1 - top : top;
  a.left = gradient ? a.filters.width - 1 - left : left;
  a.turned = gradient;
  a.batch = static_cast<int>(problem.batch);
  a.planes = static_cast<int>(g.planes);
  a.region_height = static_cast<int>(g.rows.units * stack * kSide);
  a.staged_rows = static_cast<int>(g.staged_rows);
  a.plane_elements = static_cast<int>(g.plane_elements);
  a.pitch = static_cast<int>(g.pitch);
  a.group = static_cast<int>(g.group);
  a.bands_at = static_cast<int>(g.shared_bytes - g.bands * g.band_elements * kElementBytes);
  a.regions = divide_by(g.regions());
  a.region_columns = divide_by(g.columns.regions);
  a.groups = divide_by(g.groups);
  a.units = divide_by(g.units());
  a.unit_row = divide_by(g.columns.units);
  a.staged_columns = divide_by(g.pitch);
  a.region_width = divide_by(g.columns.units * kSide);
  a.filter_width = divide_by(problem.filter_width);
  const Finishing<T> finishing = finishing_of<T>(problem, pointers);
  const T* const bias = initial_bias<T>(problem, pointers);
  T* const result = static_cast<T*>(pointers.result);
  a.source.has_octets =
      a.source.has_octets && is_aligned(pointers.result, 16) && finishing.residual_distance % 16 == 0;
  Grid grid;
  grid.x = static_cast<uint32_t>(product_blocks(problem, g));
  const auto launch = [&](auto kernel) {
    launch_in_turn(kernel, "depthwise banded", grid, static_cast<uint32_t>(warps(last) * plan["lanes"]),
                   static_cast<uint32_t>(g.shared_bytes), stream, a, bias, result, finishing);
  };
  with_lanes(plan["lanes"], [&](auto lanes) {
    with_count<2, 3>(g.steps, [&](auto steps) {
      with_count<1, 2>(stack, [&](auto stacked) {
        launch(last ? octets_kernel<lanes.value, steps.value, stacked.value, T>
                    : planes_kernel<lanes.value, steps.value, stacked.value, T>);
      });
    });
  });
}

template <class T>
void launch_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const bool last = is_channels_last(problem);
  const Geometry g = weight_geometry(problem, plan["lanes"], plan["side"]);
  WeightArguments a;
  a.input = planes_of(problem, pointers.input, true);
  a.grad = planes_of(problem, pointers.output_grad, false);
  a.top = static_cast<int>(problem.padding_top);
  a.left = static_cast<int>(problem.padding_left);
  a.filter_height = static_cast<int>(problem.filter_height);
  a.filter_width = static_cast<int>(problem.filter_width);
  a.tile_rows = static_cast<int>(g.rows.units);
  a.tile_columns = static_cast<int>(g.columns.units);
  a.steps = static_cast<int>(g.steps);
  a.staged_rows = static_cast<int>(g.staged_rows);
  a.plane_elements = static_cast<int>(g.plane_elements);
  a.pitch = static_cast<int>(g.pitch);
  a.group = static_cast<int>(g.group);
  a.bands_at = static_cast<int>(g.planes * g.plane_elements * kElementBytes);
  a.groups = divide_by(g.groups);
  a.regions = divide_by(g.regions());
  a.region_columns = divide_by(g.columns.regions);
  a.staged_columns = divide_by(g.steps * kSide);
  a.grad_columns = divide_by(g.columns.units * kSide);
  a.units = problem.batch * g.regions();
  a.slices = plan["slices"];
  Grid grid;
  grid.x = static_cast<uint32_t>(g.groups * a.slices);
  T* const result = static_cast<T*>(pointers.result);
  float* const workspace = static_cast<float*>(pointers.workspace);
  with_lanes(plan["lanes"], [&](auto lanes) {
    with_count<1, 2>(sides_of(problem), [&](auto sides) {
      const auto kernel = last ? weight_kernel<lanes.value, sides.value, true, T>
                               : weight_kernel<lanes.value, sides.value, false, T>;
      launch_in_turn(kernel, "depthwise banded weight_grad", grid,
                     static_cast<uint32_t>(warps(last) * lanes.value), static_cast<uint32_t>(g.shared_bytes),
                     stream, a, result, workspace);
    });
  });
  if (a.slices > 1) {
    sum_slices<T>(pointers.workspace, pointers.result, a.slices, problem.out_channels,
                  problem.filter_height * problem.filter_width, false, stream);
  }
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.operation == Operation::weight_grad) return launch_weight<T>(plan, problem, pointers, stream);
  launch_product<T>(plan, problem, pointers, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::banded
