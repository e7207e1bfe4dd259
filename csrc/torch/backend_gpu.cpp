#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <map>
#include <mutex>

#include "plan/launchers.h"
#include "plan/library.h"
#include "platform/gpu/fence.h"
#include "platform/gpu/query_device.h"
#include "torch/backend.h"

namespace convx {
namespace {

struct Gpu {
  DeviceTraits traits;
  bool overlaps;
};

// Asked once for each device.
const Gpu& gpu(int32_t device_index) {
  thread_local std::pair<int32_t, const Gpu*> latest = {-1, nullptr};
  if (latest.first == device_index) return *latest.second;
  static std::mutex mutex;
  static std::map<int32_t, Gpu> known;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = known.find(device_index);
  if (found == known.end()) {
    found = known
                .emplace(device_index,
                         Gpu{gpu_traits(query_device(device_index)), kernels_take_turns(device_index)})
                .first;
  }
  latest = {device_index, &found->second};
  return found->second;
}

Stream current_stream(int32_t device_index) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
  return {stream, gpu(device_index).overlaps};
}

}  // namespace

const DeviceTraits& device_traits(int32_t device_index) {
  return gpu(device_index).traits;
}

void launch(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, int32_t device_index) {
  gpu_launcher(plan).launch(plan, problem, pointers, current_stream(device_index));
}

void pack_weight(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                 int32_t device_index) {
  gpu_launcher(plan).pack_weight(plan, problem, weight, packed, current_stream(device_index));
}

void complete_packing(int32_t device_index) {
  const Stream stream = current_stream(device_index);
  if (stream.overlaps) launch_fence(stream);
}

void launch_filter(const Plan& plan, const filter2d::FilterProblem& problem,
                   const filter2d::FilterPointers& pointers, int32_t device_index) {
  filter2d::launch_filter_gpu(plan, problem, pointers, current_stream(device_index));
}

DeviceScope::DeviceScope(int32_t device_index) {
  int32_t current = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_device_index(&current));
  if (current == device_index) return;
  DeviceGuardHandle guard = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_device_guard(device_index, &guard));
  guard_ = guard;
}

DeviceScope::~DeviceScope() {
  if (guard_ != nullptr) aoti_torch_delete_device_guard(static_cast<DeviceGuardHandle>(guard_));
}

namespace {

const bool registered = [] {
  register_library(true, {&device_traits, &launch, &pack_weight,
                          [](int device_index) { return is_capturing(current_stream(device_index)); },
                          kArgumentAlignment});
  return true;
}();

}  // namespace

}  // namespace convx
