// The calls of one layer of convx.nn, by what they are like.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "front/calls.h"

namespace convx::front {

// Filters that convx/dispatch/packed.py has packed, and the weight that they are of.
struct PackedCopy {
  Tensor weight, packed;
  int64_t version = 0;
  const void* address = nullptr;
  uint64_t weights = 0;  // the count of writes that no version tells of
};

class LayerCalls {
 public:
  // The layer's result; None where convx.functional is to serve the call. packed: the layer's PackedFilters.
  pybind11::object call(pybind11::handle layer, pybind11::handle input, pybind11::handle packed);
  void forget();
  size_t size() const { return calls_.size(); }
  // Who computes each call: "torch" with its gradients, "torch forward", "kernel", "operators", "functional".
  std::vector<std::string> kinds() const;

 private:
  static constexpr size_t kAttributes = 7;
  using Attributes = std::array<PyObject*, kAttributes>;
  struct Call {
    CallKey key;
    std::array<pybind11::object, kAttributes> attributes;  // null where the class has them
    c10::intrusive_ptr<Prepared> prepared;                 // null where functional is to serve it
    PackedCopy copy;
  };
  std::shared_ptr<Call> find(const CallKey& key, const Attributes& attributes) const;
  std::shared_ptr<Call> add(const Operands& operands, const Attributes& attributes, pybind11::handle layer);
  static Tensor packed_of(Call& call, const Operands& operands, pybind11::handle packed);

  // Shared with a call that is under way, while which another thread may forget them. Torch gives Python's
  // lock to others while it frees a tensor: what is here is taken out whole before it is freed.
  std::vector<std::shared_ptr<Call>> calls_;
};

}  // namespace convx::front
