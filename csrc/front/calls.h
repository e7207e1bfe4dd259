// What a call is known by, and how one that is known is made: of layers and of functions alike.
#pragma once
#include <c10/util/hash.h>
#include <pybind11/pybind11.h>

#include "front/engine.h"

namespace convx::front {

// A tensor of up to four dimensions, as far as a plan depends on it.
struct TensorKey {
  std::array<int64_t, 4> sizes = {}, strides = {};
  int64_t rank = -1;  // of one that is absent
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;

  TensorKey() = default;
  explicit TensorKey(const Tensor& tensor);
  bool operator==(const TensorKey& other) const;
};

// Compared at every call: no allocation, nothing behind a pointer.
struct CallKey {
  TensorKey input, weight, bias;
  int64_t threads = 0, tf32 = 0;
  uint64_t plans = 0;  // the count of choices that were made anew
  std::optional<at::ScalarType> autocast;
  int wanted = 0;
  bool training = false, measures = false;
  bool operator==(const CallKey& other) const;
  size_t hash() const;
};

// The tensors of a call, held for as long as it takes, and its key.
struct Operands {
  Tensor input, weight;
  std::optional<Tensor> bias;
  CallKey key;
};

// None where there is something unusual about the tensors or the program. bias may be None.
std::optional<Operands> usual_operands(pybind11::handle input, pybind11::handle weight,
                                       pybind11::handle bias);

// Whether filters can be kept for no later call: training changes the weight, autocast casts it to a copy of
// this call's own, and of one made in inference mode nobody counts writes.
bool packs_each_call(const CallKey& key, const Tensor& weight);

// What is known of a call, remembered for all layers and functions; null where the operators are to serve it.
c10::intrusive_ptr<Prepared> prepared_for(const Operands& operands, const Asked& asked, bool packs_each_call);

// The same of one gradient by itself, as prepare_gradient has it; of operands that want none.
c10::intrusive_ptr<Prepared> prepared_for_gradient(const Operands& operands, Wanted which, const Sizes& sizes,
                                                   const Asked& asked);

// Casts the operands for as long as it lives, as autocast casts those of torch's convolutions.
class Cast {
 public:
  explicit Cast(Operands& operands);

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

// Runs a call while other threads of Python run.
pybind11::object run(const c10::intrusive_ptr<Prepared>& prepared, const Operands& operands,
                     const Tensor& packed);

// What PackedFilters of convx/dispatch/packed.py keeps for a call; undefined where the call is to pack.
Tensor kept_filters(pybind11::handle packed, const Prepared& prepared, const Operands& operands);

// Of the exception that is being handled: None where it may be of the arguments, of which convx.functional
// and the operators say what is wrong. What else was raised, by hooks of saved tensors, say, goes on.
pybind11::object none_unless_raised_by_others();

// torch.nn.functional.conv2d's, with its arguments in the operators' form; None where the operators are to
// serve it. packed: PackedFilters or None.
pybind11::object conv2d(pybind11::handle input, pybind11::handle weight, pybind11::handle bias,
                        pybind11::handle stride, pybind11::handle padding, pybind11::handle dilation,
                        pybind11::handle groups, pybind11::handle activation, pybind11::handle algorithm,
                        pybind11::handle packed);

// convx.functional's gradients, of the input or of the weight, with their arguments in the operators' form;
// None where the operators are to serve them.
pybind11::object conv2d_gradient(bool of_input, pybind11::handle first, pybind11::handle second,
                                 pybind11::handle sizes, pybind11::handle stride, pybind11::handle padding,
                                 pybind11::handle dilation, pybind11::handle groups,
                                 pybind11::handle algorithm);

// A number that another one takes the place of when one of these tensors is written to, has other memory, is
// to have a gradient or is another tensor, and after steps of optimizers where one is to have a gradient,
// since fused ones count no write; but for a chance of one in 2^64. Raises torch's error for one that counts
// none at all. A dict, as a module's _parameters, is all tensors that it has.
uint64_t state_of(const pybind11::list& tensors);

// Counts that calls are compared with: of plans that were chosen anew, and of writes to weights that no
// version counter saw (steps of fused optimizers).
void forget_plans();
void forget_weights();
uint64_t weights_forgotten();
uint64_t plans_forgotten();  // with what was tuned

}  // namespace convx::front
