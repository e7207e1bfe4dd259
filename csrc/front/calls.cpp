#include "front/calls.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <unordered_map>

#include "choose/tuned.h"

namespace py = pybind11;

namespace convx::front {
namespace {

std::atomic<uint64_t> forgotten_plans{0}, forgotten_weights{0};

const Tensor* usual_tensor(py::handle object) {
  if (!object || !THPVariable_CheckExact(object.ptr())) return nullptr;
  const Tensor& tensor = THPVariable_Unpack(object.ptr());
  return is_usual(tensor) && tensor.dim() <= 4 ? &tensor : nullptr;
}

std::optional<at::ScalarType> autocast_of(const Tensor& input) {
  const auto device = input.device().type();
  if (!at::autocast::is_autocast_enabled(device) || input.scalar_type() == at::kDouble) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

struct PreparedKey {
  CallKey call;
  Asked asked;
  bool packs_each_call;
  Sizes gradient = {};  // one by itself, whose sizes are not to be seen in the operands
  bool operator==(const PreparedKey& other) const {
    const Geometry &g = asked.geometry, &h = other.asked.geometry;
    return call == other.call && packs_each_call == other.packs_each_call && gradient == other.gradient &&
           g.stride == h.stride && g.padding == h.padding && g.dilation == h.dilation &&
           g.groups == h.groups && asked.activation == other.asked.activation &&
           asked.algorithm == other.asked.algorithm && asked.residual == other.asked.residual;
  }
};

struct PreparedHash {
  size_t operator()(const PreparedKey& key) const {
    const Geometry& g = key.asked.geometry;
    size_t seed = key.call.hash();
    for (int64_t each : {g.stride[0], g.stride[1], g.padding[0], g.padding[2], g.dilation[0], g.groups}) {
      seed = c10::hash_combine(seed, static_cast<size_t>(each));
    }
    return c10::hash_combine(seed, std::hash<std::string>()(key.asked.algorithm));
  }
};

}  // namespace

void forget_plans() {
  ++forgotten_plans;
  ++forgotten_weights;
}

void forget_weights() {
  ++forgotten_weights;
}

uint64_t weights_forgotten() {
  return forgotten_weights;
}

uint64_t plans_forgotten() {
  return forgotten_plans + tuned_generation();
}

namespace {

// The tensors there are. Between calls of a network its weights drive all of this out of the caches: what
// lies behind each pointer is fetched for all of them before it is read.
std::vector<PyObject*> held_tensors(const py::list& tensors) {
  for (const py::handle each : tensors) __builtin_prefetch(each.ptr());
  for (const py::handle each : tensors) {
    if (!PyDict_Check(each.ptr())) continue;
    const auto* const dict = reinterpret_cast<const PyDictObject*>(each.ptr());
    __builtin_prefetch(dict->ma_keys), __builtin_prefetch(dict->ma_values);
  }
  std::vector<PyObject*> found;
  found.reserve(2 * tensors.size());
  const auto add = [&found](PyObject* each) {
    if (each == Py_None) return;
    __builtin_prefetch(each);
    found.push_back(each);
  };
  for (const py::handle each : tensors) {
    if (!PyDict_Check(each.ptr())) {
      add(each.ptr());
      continue;
    }
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(each.ptr(), &place, &name, &value);) add(value);
  }
  for (PyObject* const each : found) {
    const auto* const own = reinterpret_cast<const char*>(THPVariable_Unpack(each).unsafeGetTensorImpl());
    for (size_t line = 0; line < sizeof(c10::TensorImpl); line += 64) __builtin_prefetch(own + line);
  }
  return found;
}

}  // namespace

uint64_t state_of(const py::list& tensors) {
  size_t state = tensors.size();
  bool is_trained = false;
  for (PyObject* const each : held_tensors(tensors)) {
    const Tensor& tensor = THPVariable_Unpack(each);
    state = c10::hash_combine(state, reinterpret_cast<size_t>(tensor.unsafeGetTensorImpl()));
    state = c10::hash_combine(state, reinterpret_cast<size_t>(tensor.const_data_ptr()));
    state = c10::hash_combine(state, static_cast<size_t>(tensor._version()));
    state = c10::hash_combine(state, static_cast<size_t>(tensor.requires_grad()));
    is_trained = is_trained || tensor.requires_grad();
  }
  return is_trained ? c10::hash_combine(state, static_cast<size_t>(forgotten_weights)) : state;
}

TensorKey::TensorKey(const Tensor& tensor)
    : rank(tensor.dim()), dtype(tensor.scalar_type()), device(tensor.device()) {
  std::copy_n(tensor.sizes().begin(), rank, sizes.begin());
  std::copy_n(tensor.strides().begin(), rank, strides.begin());
}

bool TensorKey::operator==(const TensorKey& other) const {
  return sizes == other.sizes && strides == other.strides && rank == other.rank && dtype == other.dtype &&
         device == other.device;
}

bool CallKey::operator==(const CallKey& other) const {
  return wanted == other.wanted && training == other.training && measures == other.measures &&
         plans == other.plans && threads == other.threads && tf32 == other.tf32 &&
         autocast == other.autocast && input == other.input && weight == other.weight && bias == other.bias;
}

size_t CallKey::hash() const {
  size_t seed = static_cast<size_t>(wanted);
  for (const TensorKey* tensor : {&input, &weight}) {
    for (int64_t size : tensor->sizes) seed = c10::hash_combine(seed, static_cast<size_t>(size));
    seed = c10::hash_combine(seed, static_cast<size_t>(tensor->dtype));
  }
  return seed;
}

bool packs_each_call(const CallKey& key, const Tensor& weight) {
  return key.training || key.wanted != 0 || key.autocast.has_value() || weight.is_inference();
}

std::optional<Operands> usual_operands(py::handle input_object, py::handle weight_object,
                                       py::handle bias_object) {
  if (!is_usual()) return std::nullopt;
  const Tensor *input = usual_tensor(input_object), *weight = usual_tensor(weight_object);
  const Tensor* bias = bias_object.is_none() ? nullptr : usual_tensor(bias_object);
  if (input == nullptr || weight == nullptr || (bias == nullptr && !bias_object.is_none())) {
    return std::nullopt;
  }
  const auto tf32 = tf32_setting(*input);
  if (!tf32) return std::nullopt;
  Operands operands = {*input, *weight, std::nullopt, {}};
  if (bias != nullptr) operands.bias = *bias;
  CallKey& key = operands.key;
  key.input = TensorKey(*input);
  key.weight = TensorKey(*weight);
  if (bias != nullptr) key.bias = TensorKey(*bias);
  key.autocast = autocast_of(*input);
  key.tf32 = *tf32;
  key.threads = input->is_cuda() ? 0 : at::get_num_threads();
  key.plans = plans_forgotten();
  key.measures = measures_first(*input);
  if (at::GradMode::is_enabled()) {
    key.wanted = (input->requires_grad() ? kInput : 0) | (weight->requires_grad() ? kWeight : 0) |
                 (bias != nullptr && bias->requires_grad() ? kBias : 0);
  }
  return operands;
}

namespace {

// make: what is to be remembered for the key.
template <class Make>
c10::intrusive_ptr<Prepared> remembered(PreparedKey key, const Make& make) {
  // Only touched while the lock of Python is held. Networks with changing shapes start anew past the limit.
  static auto& known = *new std::unordered_map<PreparedKey, c10::intrusive_ptr<Prepared>, PreparedHash>();
  constexpr size_t kMostKnown = 4096;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  auto made = make();
  if (key.call.measures) key.call.plans = plans_forgotten();  // with what was measured just now
  if (known.size() >= kMostKnown) known.clear();
  known.emplace(std::move(key), made);
  return made;
}

}  // namespace

c10::intrusive_ptr<Prepared> prepared_for(const Operands& operands, const Asked& asked,
                                          bool packs_each_call) {
  PreparedKey key = {operands.key, asked, packs_each_call};
  key.call.training = false;  // it has its say in packs_each_call
  return remembered(key, [&] {
    return prepare(operands.input, operands.weight, operands.bias, asked, key.call.wanted, packs_each_call,
                   key.call.measures);
  });
}

c10::intrusive_ptr<Prepared> prepared_for_gradient(const Operands& operands, Wanted which, const Sizes& sizes,
                                                   const Asked& asked) {
  PreparedKey key = {operands.key, asked, true, sizes};
  key.call.wanted = which;
  return remembered(key, [&] {
    return prepare_gradient(operands.input, operands.weight, which, sizes, asked, key.call.measures);
  });
}

namespace {

Geometry geometry_of(py::handle stride, py::handle padding, py::handle dilation, py::handle groups) {
  return {stride.cast<std::array<int64_t, 2>>(), padding.cast<std::array<int64_t, 4>>(),
          dilation.cast<std::array<int64_t, 2>>(), groups.cast<int64_t>()};
}

py::object wrapped(Tensor result) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(result)));
}

}  // namespace

Cast::Cast(Operands& operands)
    : no_autocast_(at::autocast::get_autocast_dispatch_key_from_device_type(operands.input.device().type())) {
  const auto device = operands.input.device().type();
  const at::ScalarType dtype = *operands.key.autocast;
  operands.input = at::autocast::cached_cast(dtype, operands.input, device);
  operands.weight = at::autocast::cached_cast(dtype, operands.weight, device);
  operands.bias = at::autocast::cached_cast(dtype, operands.bias, device);
}

py::object run(const c10::intrusive_ptr<Prepared>& prepared, const Operands& operands, const Tensor& packed) {
  Tensor result;
  {
    const py::gil_scoped_release others_run;
    const auto convolved = [&] {
      return convolve(prepared, operands.input, operands.weight, operands.bias, packed);
    };
    if (prepared->is_torchs) {  // whose function records itself
      result = convolved();
    } else {
      RECORD_FUNCTION("convx::convolve", std::vector<c10::IValue>());
      result = convolved();
    }
  }
  return wrapped(std::move(result));
}

Tensor kept_filters(py::handle packed, const Prepared& p, const Operands& operands) {
  const auto images = [](const Tensor& rows) { return rows.dim() == 3 ? rows.unsqueeze(-2) : rows; };
  const Geometry& g = p.geometry;
  const py::object found = packed.attr("of")(
      images(operands.input), images(operands.weight), operands.bias,
      py::make_tuple(g.stride[0], g.stride[1]),
      py::make_tuple(g.padding[0], g.padding[1], g.padding[2], g.padding[3]),
      py::make_tuple(g.dilation[0], g.dilation[1]), g.groups, to_string(p.activation), p.algorithm, p.tf32);
  return found.is_none() ? Tensor() : THPVariable_Unpack(found.ptr());
}

py::object none_unless_raised_by_others() {
  const auto is_of_arguments = [](const py::error_already_set& error) {
    return error.matches(PyExc_RuntimeError) || error.matches(PyExc_TypeError) ||
           error.matches(PyExc_ValueError);
  };
  try {
    throw;
  } catch (python_error& error) {  // torch's own, of Python code that its C++ has called
    error.restore();
    const py::error_already_set raised;
    if (!is_of_arguments(raised)) throw raised;
  } catch (const py::error_already_set& raised) {
    if (!is_of_arguments(raised)) throw;
  } catch (const std::exception&) {
  }
  return py::none();
}

py::object conv2d(py::handle input, py::handle weight, py::handle bias, py::handle stride, py::handle padding,
                  py::handle dilation, py::handle groups, py::handle activation, py::handle algorithm,
                  py::handle packed) {
  std::optional<Operands> operands = usual_operands(input, weight, bias);
  if (!operands) return py::none();
  const bool keeps = !packed.is_none() && !packs_each_call(operands->key, operands->weight);
  try {
    std::optional<Cast> cast;
    const Asked asked = {geometry_of(stride, padding, dilation, groups),
                         parse_activation(activation.cast<std::string>()), algorithm.cast<std::string>()};
    if (operands->key.autocast) cast.emplace(*operands);
    const c10::intrusive_ptr<Prepared> prepared = prepared_for(*operands, asked, !keeps);
    if (!prepared) return py::none();
    const bool has_kept = keeps && prepared->keeps_filters(operands->weight);
    return run(prepared, *operands, has_kept ? kept_filters(packed, *prepared, *operands) : Tensor());
  } catch (const std::exception&) {
    return none_unless_raised_by_others();
  }
}

py::object conv2d_gradient(bool of_input, py::handle first, py::handle second, py::handle sizes,
                           py::handle stride, py::handle padding, py::handle dilation, py::handle groups,
                           py::handle algorithm) {
  const std::optional<Operands> operands = usual_operands(first, second, py::none());
  if (!operands || operands->key.wanted != 0 || operands->key.autocast) return py::none();
  try {
    const Asked asked = {geometry_of(stride, padding, dilation, groups), Activation::none,
                         algorithm.cast<std::string>()};
    const c10::intrusive_ptr<Prepared> prepared =
        prepared_for_gradient(*operands, of_input ? kInput : kWeight, sizes.cast<Sizes>(), asked);
    if (!prepared) return py::none();
    Tensor gradient;
    {
      const py::gil_scoped_release others_run;
      RECORD_FUNCTION("convx::gradient", std::vector<c10::IValue>());
      gradient = run_gradient(*prepared, operands->input, operands->weight);
    }
    return wrapped(std::move(gradient));
  } catch (const std::exception&) {
    return none_unless_raised_by_others();
  }
}

}  // namespace convx::front
