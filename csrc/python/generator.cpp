// convx._core.generator: the tilings of the pointwise pipeline, why a tiling is not one of them, and sources.
#include "python/generator.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "methods/pointwise/generator/kernels.h"
#include "methods/pointwise/generator/source.h"

namespace py = pybind11;
using namespace convx;
using namespace convx::pointwise::generator;

namespace {

Tiling make_tiling(int wave_w, int wave_c, int wave_n, int repeat_w, int repeat_c, int block_n, int group_c,
                   int stage_c, bool pixel_lanes) {
  Tiling tiling;
  tiling.wave_w = wave_w;
  tiling.wave_c = wave_c;
  tiling.wave_n = wave_n;
  tiling.repeat_w = repeat_w;
  tiling.repeat_c = repeat_c;
  tiling.block_n = block_n;
  tiling.group_c = group_c;
  tiling.stage_c = stage_c == 0 ? group_c : stage_c;
  tiling.pixel_lanes = pixel_lanes;
  return tiling;
}

void require(const Support& support, const char* what, const ConvProblem& problem,
             const DeviceTraits& device) {
  if (support.ok) return;
  throw InvalidArgument(std::string("problem: ") + what + " for " + describe(problem) + " on " + device.name +
                        ": " + support.reason);
}

void require_supported(const ConvProblem& problem, const DeviceTraits& device) {
  require(supports(problem, device), "there are no tilings", problem, device);
}

void require_allowed(const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling) {
  require_supported(problem, device);
  for (const Check& each : check(tiling, Space(problem, device), false)) {
    if (!each.holds) throw InvalidArgument("tiling: " + each.constraint + ": " + each.reason);
  }
}

}  // namespace

void bind_generator(py::module_& parent) {
  py::module_ module = parent.def_submodule(
      "generator", "The pointwise pipeline of Liu et al. 2024: tilings, and the source of their kernels.");
  py::class_<Tiling>(module, "Tiling", "How a pointwise kernel divides its work: Table 1 of the paper.")
      .def(py::init(&make_tiling), py::kw_only(), py::arg("wave_w"), py::arg("wave_c"), py::arg("wave_n"),
           py::arg("repeat_w"), py::arg("repeat_c"), py::arg("block_n"), py::arg("group_c"),
           py::arg("stage_c") = 0, py::arg("pixel_lanes") = false)
      .def_readonly("wave_w", &Tiling::wave_w)
      .def_readonly("wave_c", &Tiling::wave_c)
      .def_readonly("wave_n", &Tiling::wave_n)
      .def_readonly("repeat_w", &Tiling::repeat_w)
      .def_readonly("repeat_c", &Tiling::repeat_c)
      .def_readonly("block_n", &Tiling::block_n)
      .def_readonly("group_c", &Tiling::group_c)
      .def_readonly("stage_c", &Tiling::stage_c)
      .def_readonly("pixel_lanes", &Tiling::pixel_lanes)
      .def("describe", [](const Tiling& tiling) { return describe(tiling); })
      .def("__repr__", [](const Tiling& tiling) { return "Tiling(" + describe(tiling) + ")"; })
      .def("__eq__", [](const Tiling& a, const Tiling& b) { return a == b; });
  py::class_<Check>(module, "Check", "One constraint on a tiling, and the numbers it looks at.")
      .def_readonly("constraint", &Check::constraint)
      .def_readonly("holds", &Check::holds)
      .def_readonly("reason", &Check::reason)
      .def("__repr__", [](const Check& check) {
        return "Check(" + check.constraint + (check.holds ? " holds: " : " fails: ") + check.reason + ")";
      });
  module.def(
      "supports",
      [](const ConvProblem& problem, const DeviceTraits& device) {
        const Support support = supports(problem, device);
        return std::make_pair(support.ok, support.reason);
      },
      py::arg("problem"), py::arg("device"));
  module.def(
      "has_source",
      [](const ConvProblem& problem, const DeviceTraits& device) {
        const Support support = has_source(problem, device);
        return std::make_pair(support.ok, support.reason);
      },
      py::arg("problem"), py::arg("device"));
  module.def(
      "tilings",
      [](const ConvProblem& problem, const DeviceTraits& device, bool exact, size_t most) {
        require_supported(problem, device);
        return tilings(problem, device, exact, most);
      },
      py::arg("problem"), py::arg("device"), py::arg("exact") = false, py::arg("most") = 64);
  module.def(
      "check",
      [](const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling, bool exact) {
        require_supported(problem, device);
        return check(tiling, Space(problem, device), exact);
      },
      py::arg("problem"), py::arg("device"), py::arg("tiling"), py::arg("exact") = false);
  module.def(
      "is_allowed",
      [](const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling, bool exact) {
        require_supported(problem, device);
        return is_allowed(tiling, Space(problem, device), exact);
      },
      py::arg("problem"), py::arg("device"), py::arg("tiling"), py::arg("exact") = false);
  py::class_<Source>(module, "Source", "A generated kernel: its name and its text.")
      .def_readonly("name", &Source::name)
      .def_readonly("text", &Source::text);
  module.def(
      "source",
      [](const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling) {
        require(has_source(problem, device), "no kernel is generated", problem, device);
        require_allowed(problem, device, tiling);
        return source(problem, tiling, device.lanes);
      },
      py::arg("problem"), py::arg("device"), py::arg("tiling"));
  module.def(
      "launch_shape",
      [](const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling) {
        require(has_source(problem, device), "no kernel is generated", problem, device);
        require_allowed(problem, device, tiling);
        const LaunchShape shape = launch_shape(tiling, Space(problem, device));
        return py::dict(py::arg("blocks") = shape.blocks, py::arg("threads") = shape.threads,
                        py::arg("shared_bytes") = shape.shared_bytes);
      },
      py::arg("problem"), py::arg("device"), py::arg("tiling"));
  module.def(
      "remember_kernel",
      [](const std::string& record, const py::bytes& image) { remember_kernel(record, image); },
      py::arg("record"), py::arg("image"));
  module.def(
      "resources",
      [](const ConvProblem& problem, const DeviceTraits& device, const Tiling& tiling) {
        require_allowed(problem, device, tiling);
        const Space space(problem, device);
        return py::dict(py::arg("shared_limit") = shared_limit(tiling, space),
                        py::arg("used_shared") = used_shared(tiling, space),
                        py::arg("register_limit") = register_limit(tiling, space),
                        py::arg("temporary_registers") = temporary_registers(tiling, space),
                        py::arg("used_registers") = used_registers(tiling, space),
                        py::arg("predicted_us") = predicted_us(tiling, space));
      },
      py::arg("problem"), py::arg("device"), py::arg("tiling"));
}
