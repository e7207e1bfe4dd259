#include "front/chain.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <stdexcept>

namespace convx::front {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line, which no two values share

int64_t result_bytes(const Link& link) {
  const int64_t bytes =
      c10::multiply_integers(link.result_sizes) * static_cast<int64_t>(link.options.dtype().itemsize());
  return (bytes + kLine - 1) / kLine * kLine;
}

// Of one channel, or of one pixel: the same memory in both layouts.
bool is_either(const c10::DimVector& sizes) {
  return sizes[1] == 1 || c10::multiply_integers(sizes.begin() + 2, sizes.end()) == 1;
}

}  // namespace

Chain::Chain(std::vector<std::shared_ptr<Link>> links, std::vector<Reads> reads, int64_t given,
             std::vector<int64_t> outputs, bool by_image)
    : links_(std::move(links)),
      reads_(std::move(reads)),
      given_(given),
      outputs_(std::move(outputs)),
      by_image_(by_image) {
  const auto count = static_cast<int64_t>(links_.size()), values = given_ + count;
  if (links_.empty() || given_ < 1 || reads_.size() != links_.size())
    throw std::invalid_argument("a chain's links read something each");
  last_use_.assign(values, -1);
  given_sizes_.resize(given_);
  for (int64_t i = 0; i < count; ++i) {
    const Link& link = *links_[i];
    if (by_image_ && link.input_sizes[0] != 1) {
      throw std::invalid_argument("by image, links are prepared for one");
    }
    if (link.adds_residual != (reads_[i].residual >= 0)) {
      throw std::invalid_argument("a link was prepared with a residual or without");
    }
    for (const int64_t value : {reads_[i].input, reads_[i].residual}) {
      if (value < -1 || value >= given_ + i || reads_[i].input < 0) {
        throw std::invalid_argument("a link reads what there is before it");
      }
      if (value < 0) continue;
      last_use_[value] = i;
      const auto& wanted = value == reads_[i].input ? link.input_sizes : link.residual_sizes;
      if (value < given_) {
        if (!given_sizes_[value].empty() && given_sizes_[value] != wanted) {
          throw std::invalid_argument("a link reads tensors like those that it was prepared for");
        }
        given_sizes_[value] = wanted;
        continue;
      }
      const Link& source = *links_[value - given_];
      const bool is_same = source.result_format == link.input_format || is_either(wanted);
      if (source.result_sizes != wanted || !is_same) {
        throw std::invalid_argument("a link reads tensors like those that it was prepared for");
      }
    }
  }
  for (const int64_t value : outputs_) {
    if (value < given_ || value >= values) throw std::invalid_argument("a chain's outputs are its links'");
    last_use_[value] = count;
  }
  place();
}

// Lowest places first: each result where nothing lies that is read in that time.
void Chain::place() {
  struct Taken {
    int64_t begin, end, last_use;
  };
  std::vector<Taken> taken;
  offsets_.assign(links_.size(), -1);
  for (size_t i = 0; i < links_.size(); ++i) {
    const int64_t now = static_cast<int64_t>(i), last_use = std::max(last_use_[given_ + now], now);
    if (is_output(i) || links_[i]->is_torchs()) continue;
    const auto is_over = [now](const Taken& each) { return each.last_use < now; };
    taken.erase(std::remove_if(taken.begin(), taken.end(), is_over), taken.end());
    const int64_t size = result_bytes(*links_[i]);
    int64_t begin = 0;
    auto next = taken.begin();
    for (; next != taken.end() && next->begin < begin + size; ++next) begin = next->end;
    taken.insert(next, {begin, begin + size, last_use});
    offsets_[i] = begin;
    bytes_ = std::max(bytes_, begin + size);
  }
}

Tensor Chain::tensor_of(const Value& value, int64_t index) const {
  if (value.tensor.defined()) return value.tensor;
  const Link& link = *links_[index - given_];
  const auto& sizes = link.result_sizes;
  if (link.result_format == at::MemoryFormat::Contiguous) {
    return at::from_blob(value.data, sizes, link.options);
  }
  const auto strides = c10::get_channels_last_strides_2d(sizes);
  return at::from_blob(value.data, sizes, strides, link.options);
}

char* Chain::address_of(Value& value, const Link& reader) {
  if (value.data == nullptr) {
    value.tensor = reader.dense(value.tensor);
    value.data = static_cast<char*>(const_cast<void*>(value.tensor.const_data_ptr()));
  }
  return value.data;
}

void Chain::run_links(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, char* memory) const {
  std::vector<Value> values(given_ + links_.size());
  for (int64_t i = 0; i < given_; ++i) values[i].tensor = inputs[i];
  for (size_t k = 0; k < outputs.size(); ++k) values[outputs_[k]].tensor = outputs[k];
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = *links_[i];
    const auto [input, residual] = reads_[i];
    Value& result = values[given_ + i];
    if (link.is_torchs()) {
      const Tensor found = link.run(tensor_of(values[input], input));
      result.tensor = result.tensor.defined() ? result.tensor.copy_(found) : found;
    } else {
      result.data =
          is_output(i) ? static_cast<char*>(result.tensor.mutable_data_ptr()) : memory + offsets_[i];
      Pointers pointers;
      pointers.input = address_of(values[input], link);
      pointers.epilogue.residual = residual < 0 ? nullptr : address_of(values[residual], link);
      pointers.result = result.data;
      link.launch(pointers);
    }
    for (const int64_t value : {input, residual}) {  // memory for the next
      if (value >= 0 && last_use_[value] == static_cast<int64_t>(i)) values[value].tensor = Tensor();
    }
  }
}

// Sizes may be other ones at every call, where they depend on values.
bool Chain::takes(const std::vector<Tensor>& inputs) const {
  for (int64_t i = 0; i < given_; ++i) {
    const Tensor& input = inputs[i];
    const size_t first = by_image_ ? 1 : 0;
    const bool is_like = is_usual(input) && input.dtype() == links_[0]->options.dtype() &&
                         input.device() == links_[0]->options.device() &&
                         input.sizes().slice(first) == at::IntArrayRef(given_sizes_[i]).slice(first) &&
                         input.size(0) == (by_image_ ? inputs[0].size(0) : given_sizes_[i][0]);
    if (!is_like || (input.requires_grad() && at::GradMode::is_enabled())) return false;
  }
  return is_usual();
}

std::optional<std::vector<Tensor>> Chain::run(const std::vector<Tensor>& inputs, const Tensor& memory) const {
  if (static_cast<int64_t>(inputs.size()) != given_) {
    throw std::invalid_argument("a chain's inputs are all given");
  }
  if (static_cast<int64_t>(memory.nbytes()) < bytes_) {
    throw std::invalid_argument("a chain works in as much memory as it says");
  }
  if (!takes(inputs)) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  auto* const base = static_cast<char*>(memory.mutable_data_ptr());
  std::vector<Tensor> outputs;
  for (const int64_t value : outputs_) {
    const Link& link = *links_[value - given_];
    auto sizes = link.result_sizes;
    if (by_image_) sizes[0] = inputs[0].size(0);
    outputs.push_back(at::empty(sizes, link.options, link.result_format));
  }
  if (!by_image_) {
    run_links(inputs, outputs, base);
    return outputs;
  }
  for (int64_t image = 0; image < inputs[0].size(0); ++image) {
    const auto alone = [image](const std::vector<Tensor>& tensors) {
      std::vector<Tensor> found;
      for (const Tensor& each : tensors) found.push_back(each.narrow(0, image, 1));
      return found;
    };
    std::vector<Tensor> results = alone(outputs);
    run_links(alone(inputs), results, base);
  }
  return outputs;
}

}  // namespace convx::front
