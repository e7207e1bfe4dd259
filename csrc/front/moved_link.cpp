// Channels of one or two tensors in another order: concatenations, slices and shuffles of networks, which are
// a call of torch's and a copy each.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <stdexcept>

#include "front/calls.h"
#include "front/link.h"

namespace py = pybind11;

namespace convx::front {
namespace {

// A channel of one of the two tensors.
struct Place {
  int64_t tensor, channel;
  bool follows(const Place& other, int64_t by) const {
    return tensor == other.tensor && channel == other.channel + by;
  }
};

// Neighbours of the result: of one place and on, or of two in turns, as shuffles have them.
struct Run {
  Place first, second;
  int64_t begin, count;
  bool alternates;
};

class MovedLink : public Link {
 public:
  // order: of each channel of the result, its place among the first tensor's channels and the second's.
  MovedLink(const Tensor& first, const Tensor* second, const std::vector<int64_t>& order, bool is_nchw,
            const KernelLibrary& of) {
    read(first, of);
    input_format = is_nchw ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    adds_residual = second != nullptr;
    if (adds_residual) residual_sizes = second->sizes();
    result_sizes = input_sizes;
    result_sizes[1] = static_cast<int64_t>(order.size());
    result_format = input_format;
    for (const int64_t place : order) {
      const bool is_first = place < input_sizes[1];
      places_.push_back({is_first ? 0 : 1, is_first ? place : place - input_sizes[1]});
    }
    find_runs();
  }

  void launch(Pointers pointers) const override {
    const Sources from = {static_cast<const float*>(pointers.input),
                          static_cast<const float*>(pointers.epilogue.residual)};
    auto* const to = static_cast<float*>(pointers.result);
    const int64_t pixels = input_sizes[2] * input_sizes[3], channels = result_sizes[1];
    const bool is_nchw = input_format == at::MemoryFormat::Contiguous;
    const int64_t tasks = input_sizes[0] * (is_nchw ? channels : pixels);
    const int64_t grain = std::max<int64_t>(1, 8192 / (is_nchw ? pixels : channels));
    at::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
      if (!is_nchw) return move_pixels(from, to, begin, end);
      for (int64_t plane = begin; plane < end; ++plane) {
        const Place& place = places_[plane % channels];
        const int64_t source = plane / channels * channels_of(place.tensor) + place.channel;
        std::memcpy(to + plane * pixels, from.of[place.tensor] + source * pixels, pixels * sizeof(float));
      }
    });
  }

 private:
  struct Sources {
    const float* of[2];
  };

  int64_t channels_of(int64_t tensor) const { return tensor == 0 ? input_sizes[1] : residual_sizes[1]; }

  void find_runs() {
    const auto count = static_cast<int64_t>(places_.size());
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      const auto grow = [&](int64_t period) {
        end = std::min(begin + period, count);
        while (end < count && places_[end].follows(places_[end - period], 1)) ++end;
      };
      grow(2);
      const bool alternates = end - begin >= 4 && !places_[begin + 1].follows(places_[begin], 1);
      if (!alternates) grow(1);
      const int64_t some = alternates ? (end - begin) / 2 * 2 : end - begin;
      end = begin + some;
      runs_.push_back({places_[begin], places_[std::min(begin + 1, count - 1)], begin, some, alternates});
    }
  }

  void move_pixels(const Sources& from, float* to, int64_t begin, int64_t end) const {
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      for (const Run& run : runs_) {
        const auto source = [&](const Place& place) {
          return from.of[place.tensor] + pixel * channels_of(place.tensor) + place.channel;
        };
        float* const result = to + pixel * result_sizes[1] + run.begin;
        const float* const first = source(run.first);
        if (!run.alternates) {
          std::memcpy(result, first, run.count * sizeof(float));
          continue;
        }
        const float* const second = source(run.second);
        for (int64_t i = 0; i < run.count / 2; ++i) result[2 * i] = first[i], result[2 * i + 1] = second[i];
      }
    }
  }

  std::vector<Place> places_;
  std::vector<Run> runs_;
};

bool is_dense(const Tensor& first, const Tensor* second, at::MemoryFormat format) {
  return first.is_contiguous(format) && (second == nullptr || second->is_contiguous(format));
}

// Whether the second has the first one's pixels.
bool are_beside(const Tensor& first, const Tensor& second) {
  return library_of_images(second) != nullptr && second.size(0) == first.size(0) &&
         second.sizes().slice(2) == first.sizes().slice(2);
}

std::shared_ptr<MovedLink> made(const Tensor& first, const Tensor* second,
                                const std::vector<int64_t>& order) {
  const KernelLibrary* const library = library_of_images(first);
  if (library == nullptr) return nullptr;
  if (second != nullptr && !are_beside(first, *second)) return nullptr;
  // Of one channel they are dense in both layouts.
  const bool is_nchw = is_dense(first, second, at::MemoryFormat::Contiguous);
  if (!is_nchw && !is_dense(first, second, at::MemoryFormat::ChannelsLast)) return nullptr;
  const int64_t channels = first.size(1) + (second == nullptr ? 0 : second->size(1));
  for (const int64_t place : order) {
    if (place < 0 || place >= channels) return nullptr;
  }
  return order.empty() ? nullptr : std::make_shared<MovedLink>(first, second, order, is_nchw, *library);
}

const Tensor* tensor_or_null(py::handle object) {
  return object.is_none() ? nullptr : &THPVariable_Unpack(object.ptr());
}

}  // namespace

py::object moved_link(py::handle first, py::handle second, const std::vector<int64_t>& order) {
  const std::shared_ptr<Link> link = made(THPVariable_Unpack(first.ptr()), tensor_or_null(second), order);
  return link == nullptr ? py::none() : py::cast(link);
}

std::optional<Tensor> moved_channels(const Tensor& first, const std::optional<Tensor>& second,
                                     const std::vector<int64_t>& order) {
  const bool wants_gradient = first.requires_grad() || (second && second->requires_grad());
  if (wants_gradient && at::GradMode::is_enabled()) return std::nullopt;
  const Tensor* const other = second ? &*second : nullptr;
  const auto link = made(first, other, order);
  return link == nullptr ? std::nullopt : std::optional<Tensor>(link->launched(first, other));
}

}  // namespace convx::front
