// A network that is one chain from its input to its result. What says that it is still what it was prepared
// for is asked here: in Python that takes some 100 us of a call, whose code and data a network's weights have
// driven out of the caches.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>

#include "front/chain.h"

namespace convx::front {

class WholeNetwork {
 public:
  // input: one like those that it is for. memory: that the chain works in, by those who hold the lock, a
  // threading.Lock. weights: as state_of takes them, of all that the chain keeps. Throws what state_of
  // throws.
  WholeNetwork(std::shared_ptr<Chain> chain, const Tensor& input, Tensor memory, pybind11::list weights,
               const pybind11::object& lock);

  // None where the call is Python's: tensors are of another kind, weights have changed, or somebody else is
  // at it.
  pybind11::object run(pybind11::handle input) const;

 private:
  bool is_for(const Tensor& input) const;

  std::shared_ptr<Chain> chain_;
  Tensor memory_;
  pybind11::list weights_;
  pybind11::object acquire_, release_;
  c10::DimVector sizes_, strides_;
  uint64_t weights_state_, plans_;
  int threads_;
  bool grad_mode_;
};

}  // namespace convx::front
