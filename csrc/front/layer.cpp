#include "front/layer.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

namespace py = pybind11;

namespace convx::front {
namespace {

// Input sizes of which a layer keeps something; a network of changing sizes starts anew past that.
constexpr size_t kMostCalls = 64;

PyObject* interned(const char* text) {
  return PyUnicode_InternFromString(text);
}

// Attributes that a call depends on beside its tensors, in the order of convx.dispatch.attributes.arguments.
const std::array<PyObject*, 7>& attribute_names() {
  static const std::array<PyObject*, 7> names = {
      interned("stride"),       interned("padding"),    interned("dilation"), interned("groups"),
      interned("padding_mode"), interned("activation"), interned("algorithm")};
  return names;
}

// Whether nothing can change it in place: then its identity says what it holds.
bool is_constant(PyObject* value) {
  if (value == nullptr || PyLong_CheckExact(value) || PyUnicode_CheckExact(value)) return true;
  if (!PyTuple_CheckExact(value)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
    if (!is_constant(PyTuple_GET_ITEM(value, i))) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<LayerCalls::Call> LayerCalls::find(const CallKey& key, const Attributes& attributes) const {
  for (const auto& each : calls_) {
    bool same = each->key == key;
    for (size_t i = 0; same && i < kAttributes; ++i) same = each->attributes[i].ptr() == attributes[i];
    if (same) return each;
  }
  return nullptr;
}

std::shared_ptr<LayerCalls::Call> LayerCalls::add(const Operands& operands, const Attributes& attributes,
                                                  py::handle layer) {
  const CallKey& key = operands.key;
  const auto call = std::make_shared<Call>();
  call->key = key;
  for (size_t i = 0; i < kAttributes; ++i) {
    call->attributes[i] = py::reinterpret_borrow<py::object>(attributes[i]);
  }
  // It says what the attributes mean; None where functional is to. Not kept in a static variable: who waits
  // for that holds Python's lock, which the import gives to others meanwhile.
  const py::object meant = py::module_::import("convx.dispatch.attributes").attr("arguments")(layer);
  if (!meant.is_none()) {
    using Meant = std::tuple<std::array<int64_t, 2>, std::array<int64_t, 4>, std::array<int64_t, 2>, int64_t,
                             std::string, std::string>;
    const auto [stride, padding, dilation, groups, activation, algorithm] = meant.cast<Meant>();
    const Asked asked = {{stride, padding, dilation, groups}, parse_activation(activation), algorithm};
    call->prepared = prepared_for(operands, asked, packs_each_call(key, operands.weight));
    if (key.measures) call->key.plans = plans_forgotten();  // with what was measured just now
  }
  if (calls_.size() >= kMostCalls) forget();
  calls_.push_back(call);
  return call;
}

Tensor LayerCalls::packed_of(Call& call, const Operands& operands, py::handle packed) {
  const Prepared& p = *call.prepared;
  const Tensor& weight = operands.weight;
  if (packs_each_call(call.key, weight) || !p.keeps_filters(weight)) return {};
  const bool capturing = p.library->is_capturing(weight.device().index());
  const PackedCopy& copy = call.copy;
  if (!capturing && copy.packed.defined() && copy.weight.is_same(weight) &&
      copy.version == weight._version() && copy.address == weight.const_data_ptr() &&
      copy.weights == weights_forgotten()) {
    return copy.packed;
  }
  packed.attr("keeps") = true;
  // As it is before it is packed: another thread may write to it meanwhile.
  PackedCopy fresh = {weight, {}, weight._version(), weight.const_data_ptr(), weights_forgotten()};
  fresh.packed = kept_filters(packed, p, operands);
  const Tensor found = fresh.packed;
  if (capturing || !found.defined()) fresh = {};
  std::swap(call.copy, fresh);
  return found;
}

void LayerCalls::forget() {
  std::vector<std::shared_ptr<Call>> forgotten;
  calls_.swap(forgotten);
}

py::object LayerCalls::call(py::handle layer, py::handle input, py::handle packed) {
  static PyObject *const parameters_name = interned("_parameters"), *const weight_name = interned("weight"),
                         *const bias_name = interned("bias"), *const training_name = interned("training");
  const auto dict = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(layer.ptr(), nullptr));
  PyObject* const parameters = dict ? PyDict_GetItem(dict.ptr(), parameters_name) : nullptr;
  if (parameters == nullptr || !PyDict_Check(parameters)) return py::none();
  // Parametrized and pruned layers have theirs elsewhere. Held: another thread may replace them meanwhile.
  const auto weight = py::reinterpret_borrow<py::object>(PyDict_GetItem(parameters, weight_name));
  const auto bias = py::reinterpret_borrow<py::object>(PyDict_GetItem(parameters, bias_name));
  if (!weight || !bias) return py::none();
  Attributes attributes;
  for (size_t i = 0; i < kAttributes; ++i) {
    attributes[i] = PyDict_GetItem(dict.ptr(), attribute_names()[i]);
  }
  std::optional<Operands> operands = usual_operands(input, weight, bias);
  if (!operands) return py::none();
  operands->key.training = PyDict_GetItem(dict.ptr(), training_name) == Py_True;
  try {
    std::optional<Cast> cast;
    std::shared_ptr<Call> found = find(operands->key, attributes);
    const bool is_torchs = found && found->prepared && found->prepared->is_torchs;  // torch casts by itself
    if (operands->key.autocast && !is_torchs) cast.emplace(*operands);
    if (!found) {
      if (!std::all_of(attributes.begin(), attributes.end(), is_constant)) return py::none();
      found = add(*operands, attributes, layer);
    }
    if (!found->prepared) return py::none();
    return run(found->prepared, *operands, packed_of(*found, *operands, packed));
  } catch (const std::exception&) {
    return none_unless_raised_by_others();
  }
}

std::vector<std::string> LayerCalls::kinds() const {
  std::vector<std::string> names;
  for (const auto& each : calls_) {
    if (!each->prepared) {
      names.emplace_back("functional");
    } else if (each->prepared->is_torchs) {
      names.emplace_back("torch");
    } else {
      constexpr const char* kForward[] = {"kernel", "torch forward", "operators"};
      names.emplace_back(kForward[static_cast<int>(each->prepared->forward.by)]);
    }
  }
  return names;
}

}  // namespace convx::front
