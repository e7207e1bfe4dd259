// Layers and blocks that follow one another on a CPU, called as one: no Python between them, and what only
// they see lies in one piece of memory that the caller keeps, where fresh tensors of megabytes are mapped and
// faulted in anew at every call.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "front/link.h"

namespace convx::front {

class Chain {
 public:
  // Which values a link reads, input and residual (-1 without): those below `given` are the chain's inputs,
  // the others the links' results in their order.
  struct Reads {
    int64_t input, residual;
  };

  // outputs: values that the caller gets. by_image: the links are prepared for one image, and the images of a
  // batch go through all of them one by one, so that what is between stays in caches. std::invalid_argument
  // where a link reads a later one's result, or one that is not what it was prepared for.
  Chain(std::vector<std::shared_ptr<Link>> links, std::vector<Reads> reads, int64_t given,
        std::vector<int64_t> outputs, bool by_image);

  int64_t bytes() const { return bytes_; }  // of the memory that a call works in

  // None where the inputs are not like those that the links were prepared for (by image, of any one batch),
  // or somebody wants to see the operators. memory: `bytes` bytes that nobody else uses meanwhile.
  std::optional<std::vector<Tensor>> run(const std::vector<Tensor>& inputs, const Tensor& memory) const;

 private:
  struct Value {
    char* data = nullptr;  // null until somebody asks where the tensor has it
    Tensor tensor;         // undefined of what lies in the memory
  };
  void place();
  bool takes(const std::vector<Tensor>& inputs) const;
  bool is_output(size_t link) const {
    return last_use_[given_ + link] == static_cast<int64_t>(links_.size());
  }
  Tensor tensor_of(const Value& value, int64_t index) const;
  static char* address_of(Value& value, const Link& reader);
  void run_links(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, char* memory) const;

  std::vector<std::shared_ptr<Link>> links_;
  std::vector<Reads> reads_;
  int64_t given_;
  std::vector<int64_t> outputs_;
  bool by_image_;
  std::vector<c10::DimVector> given_sizes_;
  std::vector<int64_t> last_use_;  // of each value: the last link that reads it
  std::vector<int64_t> offsets_;   // of each link's result in the memory; -1 of tensors of their own
  int64_t bytes_ = 0;
};

}  // namespace convx::front
