// By Python's C interface: a call goes from the interpreter straight to LayerCalls::call, where pybind11
// looks up __call__, makes a tuple and picks an overload. In a network those are cold each time.
#include "front/layer_type.h"

#include <pybind11/stl.h>
#include <structmember.h>

#include <new>

#include "front/layer.h"

namespace py = pybind11;

namespace convx::front {
namespace {

struct Object {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  LayerCalls calls;
};

LayerCalls& calls_of(PyObject* self) {
  return reinterpret_cast<Object*>(self)->calls;
}

// What a function of C++ returns or raises, as Python takes it.
template <class Function>
PyObject* returned(const Function& function) {
  try {
    return function().release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t count, PyObject* names) {
  if (PyVectorcall_NARGS(count) != 3 || names != nullptr) {
    PyErr_SetString(PyExc_TypeError, "LayerCalls takes a layer, its input and its PackedFilters");
    return nullptr;
  }
  return returned([&] { return calls_of(self).call(arguments[0], arguments[1], arguments[2]); });
}

PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* const self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  reinterpret_cast<Object*>(self)->vectorcall = call;
  new (&calls_of(self)) LayerCalls();
  return self;
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  calls_of(self).~LayerCalls();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* forget(PyObject* self, PyObject*) {
  calls_of(self).forget();
  Py_RETURN_NONE;
}

PyObject* kinds(PyObject* self, PyObject*) {
  return returned([&] { return py::cast(calls_of(self).kinds()); });
}

Py_ssize_t length(PyObject* self) {
  return static_cast<Py_ssize_t>(calls_of(self).size());
}

}  // namespace

py::object layer_calls_type() {
  static PyMethodDef methods[] = {{"forget", forget, METH_NOARGS, "Lets all calls be prepared anew."},
                                  {"kinds", kinds, METH_NOARGS, "Who computes each of the calls."},
                                  {}};
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What is known of a layer's calls.")},
                                {Py_tp_new, reinterpret_cast<void*>(make)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_sq_length, reinterpret_cast<void*>(length)},
                                {Py_tp_methods, methods},
                                {Py_tp_members, members},
                                {}};
  static PyType_Spec spec = {"convx._front.LayerCalls", sizeof(Object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  const auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  return type;
}

}  // namespace convx::front
