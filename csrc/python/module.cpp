// convx._core: the planner for Python. No tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "build_information.h"
#include "choose/first_call.h"
#include "choose/measured.h"
#include "choose/offers.h"
#include "choose/registry.h"
#include "choose/tuned.h"
#include "plan/library.h"
#include "problem/filter_problem.h"
#include "python/generator.h"

namespace py = pybind11;
using namespace convx;

namespace {

using Pair = std::pair<int64_t, int64_t>;
using Padding = std::tuple<int64_t, int64_t, int64_t, int64_t>;

ConvProblem make_problem(const std::string& operation, const std::string& dtype, const std::string& layout,
                         int64_t batch, int64_t in_channels, int64_t in_height, int64_t in_width,
                         int64_t out_channels, int64_t filter_height, int64_t filter_width, Pair stride,
                         Padding padding, Pair dilation, int64_t groups, bool bias,
                         const std::string& activation, bool allow_tf32, bool packs_each_call,
                         bool exact_products, bool scale, bool residual, bool residual_after_activation) {
  ConvProblem problem;
  problem.operation = parse_operation(operation);
  problem.dtype = parse_dtype(dtype);
  problem.layout = parse_layout(layout);
  problem.epilogue = {bias, scale, residual, residual_after_activation, parse_activation(activation)};
  problem.allow_tf32 = allow_tf32;
  problem.packs_each_call = packs_each_call;
  problem.exact_products = exact_products;
  problem.batch = batch;
  problem.in_channels = in_channels;
  problem.in_height = in_height;
  problem.in_width = in_width;
  problem.out_channels = out_channels;
  problem.filter_height = filter_height;
  problem.filter_width = filter_width;
  std::tie(problem.stride_h, problem.stride_w) = stride;
  std::tie(problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right) =
      padding;
  std::tie(problem.dilation_h, problem.dilation_w) = dilation;
  problem.groups = groups;
  validate_and_size(problem);
  if (problem.operation != Operation::forward && packs_each_call) {
    throw InvalidArgument("packs_each_call belongs to the forward operation; gradients always pack");
  }
  if (problem.operation != Operation::forward && !(problem.epilogue == Epilogue())) {
    throw InvalidArgument(
        "bias, scale, residual and activation belong to the forward operation; got them with operation '" +
        operation + "'");
  }
  return problem;
}

// Height and width of a convolution's output, by the check that operators make.
Pair output_size(const Sizes& input, const Sizes& weight, const std::array<int64_t, 2>& stride,
                 const std::array<int64_t, 4>& padding, const std::array<int64_t, 2>& dilation,
                 int64_t groups) {
  ConvProblem problem;
  set_sizes(problem, input, weight, stride.data(), padding.data(), dilation.data(), groups);
  return {problem.out_height, problem.out_width};
}

template <class Problem>
const MethodOf<Problem>& method_named(const std::string& name) {
  std::string names;
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    if (name == method->name) return *method;
    names += (names.empty() ? "" : ", ") + std::string(method->name);
  }
  throw InvalidArgument("method must be one of " + names + "; got '" + name + "'");
}

py::dict tiling(const Plan& plan) {
  py::dict parameters;
  for (const auto& [name, value] : plan.tiling) parameters[name] = value;
  return parameters;
}

py::dict build_info() {
  py::dict facts;
  for (const auto& [name, value] : kBuildInformation) facts[name] = value;
  return facts;
}

void bind_problem(py::module_& module) {
  py::class_<ConvProblem>(module, "Problem", "One convolution, described without tensors.")
      .def(py::init(&make_problem), py::kw_only(), py::arg("operation") = "forward",
           py::arg("dtype") = "float32", py::arg("layout") = "nchw", py::arg("batch"), py::arg("in_channels"),
           py::arg("in_height"), py::arg("in_width"), py::arg("out_channels"), py::arg("filter_height"),
           py::arg("filter_width"), py::arg("stride") = Pair(1, 1), py::arg("padding") = Padding(0, 0, 0, 0),
           py::arg("dilation") = Pair(1, 1), py::arg("groups") = 1, py::arg("bias") = false,
           py::arg("activation") = "none", py::arg("allow_tf32") = false, py::arg("packs_each_call") = false,
           py::arg("exact_products") = false, py::arg("scale") = false, py::arg("residual") = false,
           py::arg("residual_after_activation") = false)
      .def_property_readonly("operation", [](const ConvProblem& p) { return to_string(p.operation); })
      .def_property_readonly("dtype", [](const ConvProblem& p) { return to_string(p.dtype); })
      .def_property_readonly("layout", [](const ConvProblem& p) { return to_string(p.layout); })
      .def_property_readonly("activation",
                             [](const ConvProblem& p) { return to_string(p.epilogue.activation); })
      .def_property_readonly("bias", [](const ConvProblem& p) { return p.epilogue.has_bias; })
      .def_property_readonly("scale", [](const ConvProblem& p) { return p.epilogue.has_scale; })
      .def_property_readonly("residual", [](const ConvProblem& p) { return p.epilogue.has_residual; })
      .def_property_readonly("residual_after_activation",
                             [](const ConvProblem& p) { return p.epilogue.residual_after_activation; })
      .def_readonly("allow_tf32", &ConvProblem::allow_tf32)
      .def_readonly("packs_each_call", &ConvProblem::packs_each_call)
      .def_readonly("exact_products", &ConvProblem::exact_products)
      .def_property_readonly("tf32",
                             [](const ConvProblem& p) { return p.allow_tf32 + 2 * !p.exact_products; })
      .def_readonly("batch", &ConvProblem::batch)
      .def_readonly("in_channels", &ConvProblem::in_channels)
      .def_readonly("in_height", &ConvProblem::in_height)
      .def_readonly("in_width", &ConvProblem::in_width)
      .def_readonly("out_channels", &ConvProblem::out_channels)
      .def_readonly("out_height", &ConvProblem::out_height)
      .def_readonly("out_width", &ConvProblem::out_width)
      .def_readonly("filter_height", &ConvProblem::filter_height)
      .def_readonly("filter_width", &ConvProblem::filter_width)
      .def_property_readonly("stride", [](const ConvProblem& p) { return Pair(p.stride_h, p.stride_w); })
      .def_property_readonly("padding",
                             [](const ConvProblem& p) {
                               return Padding(p.padding_top, p.padding_bottom, p.padding_left,
                                              p.padding_right);
                             })
      .def_property_readonly("dilation",
                             [](const ConvProblem& p) { return Pair(p.dilation_h, p.dilation_w); })
      .def_readonly("groups", &ConvProblem::groups)
      .def_property_readonly("is_depthwise", &ConvProblem::is_depthwise)
      .def_property_readonly("bytes", &ConvProblem::bytes)
      .def_property_readonly("flops", &ConvProblem::flops)
      .def("describe", [](const ConvProblem& p) { return describe(p); })
      .def("__repr__", [](const ConvProblem& p) { return "Problem(" + describe(p) + ")"; })
      .def(
          "__eq__", [](const ConvProblem& a, const ConvProblem& b) { return a == b; }, py::is_operator())
      .def("__hash__", &ConvProblem::hash);
}

FilterProblem make_filter_problem(const std::string& dtype, const std::string& border, int64_t images,
                                  int64_t height, int64_t width, int64_t filters, int64_t filter_height,
                                  int64_t filter_width) {
  FilterProblem problem;
  problem.dtype = parse_image_type(dtype);
  problem.border = parse_border(border);
  problem.images = images;
  problem.height = height;
  problem.width = width;
  problem.filters = filters;
  problem.filter_height = filter_height;
  problem.filter_width = filter_width;
  validate_and_size(problem);
  return problem;
}

void bind_filter_problem(py::module_& module) {
  py::class_<FilterProblem>(module, "FilterProblem",
                            "One filtering of single-channel images, described without tensors.")
      .def(py::init(&make_filter_problem), py::kw_only(), py::arg("dtype") = "float32",
           py::arg("border") = "zero", py::arg("images"), py::arg("height"), py::arg("width"),
           py::arg("filters") = 1, py::arg("filter_height"), py::arg("filter_width"))
      .def_property_readonly("operation", [](const FilterProblem&) { return kFilterOperation; })
      .def_property_readonly("dtype", [](const FilterProblem& p) { return to_string(p.dtype); })
      .def_property_readonly("border", [](const FilterProblem& p) { return to_string(p.border); })
      .def_readonly("images", &FilterProblem::images)
      .def_readonly("height", &FilterProblem::height)
      .def_readonly("width", &FilterProblem::width)
      .def_readonly("filters", &FilterProblem::filters)
      .def_readonly("filter_height", &FilterProblem::filter_height)
      .def_readonly("filter_width", &FilterProblem::filter_width)
      .def_property_readonly("bytes", &FilterProblem::bytes)
      .def_property_readonly("flops", &FilterProblem::flops)
      .def("describe", [](const FilterProblem& p) { return describe(p); })
      .def("__repr__", [](const FilterProblem& p) { return "FilterProblem(" + describe(p) + ")"; })
      .def(
          "__eq__", [](const FilterProblem& a, const FilterProblem& b) { return a == b; }, py::is_operator())
      .def("__hash__", &FilterProblem::hash);
}

BlockProblem make_block_problem(const std::string& dtype, const std::string& activation,
                                const std::string& output_activation, bool residual,
                                const std::string& layout, int64_t batch, int64_t channels, int64_t height,
                                int64_t width, int64_t expanded_channels, int64_t out_channels,
                                int64_t expand_filter, int64_t expand_stride, int64_t filter, int64_t stride,
                                int64_t squeezed_channels, const std::string& squeeze_activation,
                                const std::string& gate) {
  BlockProblem problem;
  problem.dtype = parse_dtype(dtype);
  problem.activation = parse_activation(activation);
  problem.output_activation = parse_activation(output_activation);
  problem.has_residual = residual;
  problem.layout = parse_layout(layout);
  problem.batch = batch;
  problem.channels = channels;
  problem.height = height;
  problem.width = width;
  problem.expanded_channels = expanded_channels;
  problem.out_channels = out_channels;
  problem.expand_filter = expand_filter;
  problem.expand_stride = expand_stride;
  problem.filter = filter;
  problem.stride = stride;
  problem.squeezed_channels = squeezed_channels;
  problem.squeeze_activation = parse_activation(squeeze_activation);
  problem.gate = parse_gate(gate);
  validate_and_size(problem);
  return problem;
}

std::optional<ExciteProblem> excitation_of(const BlockProblem& problem) {
  return problem.squeezed_channels > 0 ? std::optional(problem.excitation()) : std::nullopt;
}

// A copy for convx._front, where the types of Python may be those of another pybind11.
py::capsule hand_over(const BlockProblem& problem) {
  return {new BlockProblem(problem), kBlockCapsule,
          [](void* copy) { delete static_cast<BlockProblem*>(copy); }};
}

void bind_block_problem(py::module_& module) {
  py::class_<BlockProblem>(module, "BlockProblem", "One inverted residual block, described without tensors.")
      .def(py::init(&make_block_problem), py::kw_only(), py::arg("dtype"), py::arg("activation") = "relu6",
           py::arg("output_activation") = "none", py::arg("residual") = false,
           py::arg("layout") = "channels_last", py::arg("batch"), py::arg("channels"), py::arg("height"),
           py::arg("width"), py::arg("expanded_channels"), py::arg("out_channels"),
           py::arg("expand_filter") = 1, py::arg("expand_stride") = 1, py::arg("filter") = 3,
           py::arg("stride") = 1, py::arg("squeezed_channels") = 0, py::arg("squeeze_activation") = "relu",
           py::arg("gate") = "sigmoid")
      .def_property_readonly("operation", [](const BlockProblem&) { return kBlockOperation; })
      .def_property_readonly("dtype", [](const BlockProblem& p) { return to_string(p.dtype); })
      .def_property_readonly("activation", [](const BlockProblem& p) { return to_string(p.activation); })
      .def_property_readonly("output_activation",
                             [](const BlockProblem& p) { return to_string(p.output_activation); })
      .def_readonly("residual", &BlockProblem::has_residual)
      .def_property_readonly("layout", [](const BlockProblem& p) { return to_string(p.layout); })
      .def_readonly("batch", &BlockProblem::batch)
      .def_readonly("channels", &BlockProblem::channels)
      .def_readonly("height", &BlockProblem::height)
      .def_readonly("width", &BlockProblem::width)
      .def_readonly("expanded_channels", &BlockProblem::expanded_channels)
      .def_readonly("out_channels", &BlockProblem::out_channels)
      .def_readonly("expand_filter", &BlockProblem::expand_filter)
      .def_readonly("expand_stride", &BlockProblem::expand_stride)
      .def_readonly("filter", &BlockProblem::filter)
      .def_readonly("stride", &BlockProblem::stride)
      .def_readonly("squeezed_channels", &BlockProblem::squeezed_channels)
      .def_property_readonly("squeeze_activation",
                             [](const BlockProblem& p) { return to_string(p.squeeze_activation); })
      .def_property_readonly("gate", [](const BlockProblem& p) { return to_string(p.gate); })
      .def_property_readonly("excitation", &excitation_of)
      .def("handed_over", &hand_over)
      .def_property_readonly("bytes", &BlockProblem::bytes)
      .def_property_readonly("flops", &BlockProblem::flops)
      .def("describe", [](const BlockProblem& p) { return describe(p); })
      .def("__repr__", [](const BlockProblem& p) { return "BlockProblem(" + describe(p) + ")"; })
      .def(
          "__eq__", [](const BlockProblem& a, const BlockProblem& b) { return a == b; }, py::is_operator())
      .def("__hash__", &BlockProblem::hash);
}

DeviceTraits gpu(int index) {
  const KernelLibrary* library = find_library(true);
  if (library == nullptr) throw InvalidArgument("convx's library for GPUs is not loaded");
  return library->device(index);
}

ExciteProblem make_excite_problem(const std::string& dtype, const std::string& layout,
                                  const std::string& activation, const std::string& gate, int64_t batch,
                                  int64_t channels, int64_t height, int64_t width,
                                  int64_t squeezed_channels) {
  ExciteProblem problem;
  problem.dtype = parse_dtype(dtype);
  problem.layout = parse_layout(layout);
  problem.activation = parse_activation(activation);
  problem.gate = parse_gate(gate);
  problem.batch = batch;
  problem.channels = channels;
  problem.height = height;
  problem.width = width;
  problem.squeezed_channels = squeezed_channels;
  validate(problem);
  return problem;
}

void bind_excite_problem(py::module_& module) {
  py::class_<ExciteProblem>(module, "ExciteProblem", "One squeeze-and-excitation, described without tensors.")
      .def(py::init(&make_excite_problem), py::kw_only(), py::arg("dtype"), py::arg("layout") = "nchw",
           py::arg("activation") = "relu", py::arg("gate") = "sigmoid", py::arg("batch"), py::arg("channels"),
           py::arg("height"), py::arg("width"), py::arg("squeezed_channels"))
      .def_property_readonly("operation", [](const ExciteProblem&) { return kExciteOperation; })
      .def_property_readonly("dtype", [](const ExciteProblem& p) { return to_string(p.dtype); })
      .def_property_readonly("layout", [](const ExciteProblem& p) { return to_string(p.layout); })
      .def_property_readonly("activation", [](const ExciteProblem& p) { return to_string(p.activation); })
      .def_property_readonly("gate", [](const ExciteProblem& p) { return to_string(p.gate); })
      .def_readonly("batch", &ExciteProblem::batch)
      .def_readonly("channels", &ExciteProblem::channels)
      .def_readonly("height", &ExciteProblem::height)
      .def_readonly("width", &ExciteProblem::width)
      .def_readonly("squeezed_channels", &ExciteProblem::squeezed_channels)
      .def_property_readonly("bytes", &ExciteProblem::bytes)
      .def_property_readonly("flops", &ExciteProblem::flops)
      .def("describe", [](const ExciteProblem& p) { return describe(p); })
      .def("__repr__", [](const ExciteProblem& p) { return "ExciteProblem(" + describe(p) + ")"; })
      .def(
          "__eq__", [](const ExciteProblem& a, const ExciteProblem& b) { return a == b; }, py::is_operator())
      .def("__hash__", &ExciteProblem::hash);
}

void bind_device(py::module_& module) {
  py::class_<DeviceTraits>(module, "Device", "What the planner knows about a device.")
      .def_static("host_cpu", &host_cpu, py::arg("threads"))
      .def_static("known_device", &known_device, py::arg("name"))
      .def_static("known_names", &known_device_names)
      .def_static("gpu", &gpu, py::arg("index"))
      .def_property_readonly("backend", [](const DeviceTraits& d) { return to_string(d.backend); })
      .def_property_readonly("isa", [](const DeviceTraits& d) { return to_string(d.isa); })
      .def_property_readonly("has_bulk_copy", &DeviceTraits::has_bulk_copy)
      .def_readonly("name", &DeviceTraits::name)
      .def_readonly("bandwidth_GBps", &DeviceTraits::bandwidth_GBps)
      .def_readonly("fp32_TFLOPs", &DeviceTraits::fp32_TFLOPs)
      .def_readonly("threads", &DeviceTraits::threads)
      .def_readonly("lanes", &DeviceTraits::lanes)
      .def_readonly("multiprocessors", &DeviceTraits::multiprocessors)
      .def_readonly("clock_MHz", &DeviceTraits::clock_MHz)
      .def_readonly("architecture", &DeviceTraits::architecture)
      .def_readonly("shared_bytes_per_block", &DeviceTraits::shared_bytes_per_block)
      .def_readonly("shared_bytes_per_multiprocessor", &DeviceTraits::shared_bytes_per_multiprocessor)
      .def_readonly("registers_per_multiprocessor", &DeviceTraits::registers_per_multiprocessor)
      .def_readonly("threads_per_multiprocessor", &DeviceTraits::threads_per_multiprocessor)
      .def("__repr__", [](const DeviceTraits& d) { return "Device(" + d.name + ")"; });
}

void bind_plans(py::module_& module) {
  py::class_<Plan>(module, "Plan", "One way to run one problem: a method, its candidate and the tiling.")
      .def_property_readonly("method", [](const Plan& plan) { return plan.method->name; })
      .def_readonly("candidate", &Plan::candidate)
      .def_readonly("variant", &Plan::variant)
      .def_property_readonly("tiling", &tiling)
      .def_readonly("workspace_bytes", &Plan::workspace_bytes)
      .def_readonly("packing", &Plan::packing)
      .def_readonly("packed_weight_bytes", &Plan::packed_weight_bytes)
      .def_readonly("predicted_us", &Plan::predicted_us)
      .def_readonly("source", &Plan::source)
      .def_readonly("doubt", &Plan::doubt)
      .def_readonly("by_name_only", &Plan::by_name_only)
      .def_readonly("finishes_apart", &Plan::finishes_apart)
      .def_property_readonly("name", &name_of)
      .def("describe", [](const Plan& plan) { return describe(plan); })
      .def("__repr__", [](const Plan& plan) { return "Plan(" + describe(plan) + ")"; });
  py::class_<Choice>(module, "Choice", "The plan that a call takes, and why.")
      .def_readonly("plan", &Choice::plan)
      .def_readonly("forced", &Choice::forced)
      .def_readonly("why", &Choice::why);
  py::class_<Explanation>(module, "Explanation", "What one method would do with a problem.")
      .def_property_readonly("method", [](const Explanation& row) { return row.method->name; })
      .def_property_readonly("summary", [](const Explanation& row) { return row.method->summary; })
      .def_property_readonly("supported", [](const Explanation& row) { return row.support.ok; })
      .def_property_readonly("reason", [](const Explanation& row) { return row.support.reason; })
      .def_readonly("plans", &Explanation::plans)
      .def_readonly("chosen", &Explanation::chosen);
}

template <class Problem>
py::list list_methods() {
  py::list rows;
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    rows.append(py::dict(py::arg("name") = method->name, py::arg("summary") = method->summary));
  }
  return rows;
}

// Overloads for one kind of problem.
template <class Problem>
void bind_planner(py::module_& module) {
  module.def(
      "supports",
      [](const std::string& method, const Problem& problem, const DeviceTraits& device) {
        const Support support = convx::supports(method_named<Problem>(method), problem, device);
        return std::make_pair(support.ok, support.reason);
      },
      py::arg("method"), py::arg("problem"), py::arg("device"));
  module.def(
      "candidates",
      [](const std::string& name, const Problem& problem, const DeviceTraits& device, bool fitted) {
        const MethodOf<Problem>& method = method_named<Problem>(name);
        if (!convx::supports(method, problem, device).ok) return std::vector<Plan>();
        return predict(method, problem, device, fitted);
      },
      py::arg("method"), py::arg("problem"), py::arg("device"), py::arg("fitted") = true);
  module.def("select", &convx::select<Problem>, py::arg("problem"), py::arg("device"),
             py::arg("algorithm") = "auto");
  module.def("select_untuned", &select_untuned<Problem>, py::arg("problem"), py::arg("device"));
  module.def("explain", &convx::explain<Problem>, py::arg("problem"), py::arg("device"));
}

// InvalidArgument is Python's convx.InvalidArgument; pybind11 would make a plain ValueError of it.
void translate_invalid_argument(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    PyErr_SetString(py::module_::import("convx._errors").attr("InvalidArgument").ptr(), error.what());
  }
}

// measure(problem, device_index), kept for as long as the process lasts.
void set_measure_of_python(const py::function& measure) {
  auto* const kept = new py::function(measure);
  set_measure_first([kept](const ConvProblem& problem, int device_index) {
    const py::gil_scoped_acquire python;
    (*kept)(problem, device_index);
  });
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "convx's planner: problems, devices, methods and the choice of one. No tensors.";
  py::register_local_exception_translator(&translate_invalid_argument);
  bind_problem(module);
  bind_filter_problem(module);
  bind_block_problem(module);
  bind_excite_problem(module);
  bind_device(module);
  bind_plans(module);
  bind_generator(module);
  module.def(
      "methods",
      [](const py::object& kind) {
        if (kind.is(py::type::of<ConvProblem>())) return list_methods<ConvProblem>();
        if (kind.is(py::type::of<FilterProblem>())) return list_methods<FilterProblem>();
        if (kind.is(py::type::of<BlockProblem>())) return list_methods<BlockProblem>();
        if (kind.is(py::type::of<ExciteProblem>())) return list_methods<ExciteProblem>();
        throw py::type_error("methods takes Problem, FilterProblem, BlockProblem or ExciteProblem, got " +
                             std::string(py::str(kind)));
      },
      py::arg("kind") = py::type::of<ConvProblem>());
  module.def("output_size", &output_size, py::arg("input_size"), py::arg("weight_size"), py::arg("stride"),
             py::arg("padding"), py::arg("dilation"), py::arg("groups"));
  module.def("check_algorithm", &check_algorithm<ConvProblem>, py::arg("algorithm"));
  module.def("algorithm_of_gradients", &algorithm_of_gradients, py::arg("algorithm"));
  bind_planner<ConvProblem>(module);
  bind_planner<FilterProblem>(module);
  bind_planner<BlockProblem>(module);
  bind_planner<ExciteProblem>(module);
  module.def("tuning_key", &tuning_key, py::arg("device"));
  module.def("remember_tuned", [](const std::string& record) { remember_tuned(record); }, py::arg("record"));
  module.def("forget_tuned", &forget_tuned);
  module.def("set_measure_first", &set_measure_of_python, py::arg("measure"));
  module.def("build_info", &build_info);
}
