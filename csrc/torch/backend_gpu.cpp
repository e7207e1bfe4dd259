#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <map>
#include <mutex>

#include "methods/finish.h"
#include "methods/plane_means/plane_means.h"
#include "methods/pooling/pooling.h"
#include "plan/launchers.h"
#include "plan/library.h"
#include "platform/gpu/fence.h"
#include "platform/gpu/query_device.h"
#include "problem/filter_problem.h"
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

template <class Problem>
void launch(const Plan& plan, const Problem& problem, const Pointers& pointers, int32_t device_index) {
  gpu_launcher<Problem>(plan).launch(plan, problem, pointers, current_stream(device_index));
}

template <class Problem>
void pack_weight(const Plan& plan, const Problem& problem, const void* weight, void* packed,
                 int32_t device_index) {
  gpu_launcher<Problem>(plan).pack_weight(plan, problem, weight, packed, current_stream(device_index));
}

template void launch(const Plan&, const ConvProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const FilterProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const BlockProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const ExciteProblem&, const Pointers&, int32_t);
template void pack_weight(const Plan&, const ConvProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const FilterProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const BlockProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const ExciteProblem&, const void*, void*, int32_t);

bool finish_in_place(const ConvProblem& problem, const EpiloguePointers& epilogue, void* sums,
                     int32_t device_index) {
  if (!supports_epilogue(problem, device_traits(device_index)).ok) return false;
  finish_gpu(problem, epilogue, sums, current_stream(device_index));
  return true;
}

void complete_packing(int32_t device_index) {
  const Stream stream = current_stream(device_index);
  if (stream.overlaps) launch_fence(stream);
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

template <class Problem, void (*Launch)(const Problem&, const Pointers&, Stream)>
void launch_unplanned(const Problem& problem, const Pointers& pointers, int device_index) {
  Launch(problem, pointers, current_stream(device_index));
}

const bool registered = [] {
  register_library(
      true,
      {&device_traits, &launch<ConvProblem>, &launch<BlockProblem>,
       &launch_unplanned<PoolingProblem, &pooling::launch_gpu>, nullptr,
       &launch_unplanned<MeansProblem, &plane_means::launch_gpu>, &pack_weight<ConvProblem>, &finish_in_place,
       [](int device_index) { return is_capturing(current_stream(device_index)); }, kArgumentAlignment});
  return true;
}();

}  // namespace

}  // namespace convx
