#include <torch/csrc/stable/ops.h>

#include <exception>
#include <mutex>
#include <unordered_map>

#include "methods/channel_norm/channel_norm.h"
#include "methods/pooling/pooling.h"
#include "plan/launchers.h"
#include "plan/library.h"
#include "problem/filter_problem.h"
#include "torch/backend.h"

namespace convx {
namespace {

struct Task {
  void (*body)(void*, int64_t, int64_t);
  void* context;
  std::once_flag once;
  std::exception_ptr failure;
};

// What a piece throws is thrown here by its own type and name: of what crosses its parallel_for, torch's
// stable ABI says no more than that the call failed.
void run_in_pool(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  Task task = {body, context, {}, nullptr};
  TORCH_ERROR_CODE_CHECK(torch_parallel_for(
      0, count, grain,
      [](int64_t begin, int64_t end, void* data) {
        Task& task = *static_cast<Task*>(data);
        try {
          task.body(task.context, begin, end);
        } catch (...) {
          std::call_once(task.once, [&task] { task.failure = std::current_exception(); });
        }
      },
      &task));
  if (task.failure != nullptr) std::rethrow_exception(task.failure);
}

}  // namespace

const DeviceTraits& device_traits(int32_t /*device_index*/) {
  const int threads = static_cast<int>(torch::stable::get_num_threads());
  thread_local const DeviceTraits* latest = nullptr;
  if (latest != nullptr && latest->threads == threads) return *latest;
  static std::mutex mutex;
  static std::unordered_map<int, DeviceTraits> known;
  const std::lock_guard<std::mutex> lock(mutex);
  latest = &known.try_emplace(threads, host_cpu(threads)).first->second;
  return *latest;
}

template <class Problem>
void launch(const Plan& plan, const Problem& problem, const Pointers& pointers, int32_t device_index) {
  const DeviceTraits& device = device_traits(device_index);
  const ThreadPool pool = {device.threads, run_in_pool};
  cpu_launcher<Problem>(plan).launch(plan, problem, pointers, pool, device.isa);
}

template <class Problem>
void pack_weight(const Plan& plan, const Problem& problem, const void* weight, void* packed,
                 int32_t device_index) {
  const ThreadPool pool = {device_traits(device_index).threads, run_in_pool};
  cpu_launcher<Problem>(plan).pack_weight(plan, problem, weight, packed, pool);
}

template void launch(const Plan&, const ConvProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const FilterProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const BlockProblem&, const Pointers&, int32_t);
template void launch(const Plan&, const ExciteProblem&, const Pointers&, int32_t);
template void pack_weight(const Plan&, const ConvProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const FilterProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const BlockProblem&, const void*, void*, int32_t);
template void pack_weight(const Plan&, const ExciteProblem&, const void*, void*, int32_t);

bool finish_in_place(const ConvProblem&, const EpiloguePointers&, void* /*sums*/, int32_t /*device_index*/) {
  return false;
}

void complete_packing(int32_t /*device_index*/) {}

DeviceScope::DeviceScope(int32_t /*device_index*/) {}
DeviceScope::~DeviceScope() = default;

namespace {

template <class Problem, void (*Launch)(const Problem&, const Pointers&, const ThreadPool&, CpuIsa)>
void launch_unplanned(const Problem& problem, const Pointers& pointers, int device_index) {
  const DeviceTraits& device = device_traits(device_index);
  Launch(problem, pointers, {device.threads, run_in_pool}, device.isa);
}

const bool registered = [] {
  register_library(
      false, {&device_traits, &launch<ConvProblem>, &launch<BlockProblem>,
              &launch_unplanned<PoolingProblem, &pooling::launch_cpu>,
              &launch_unplanned<NormProblem, &channel_norm::launch_cpu>, nullptr, &pack_weight<ConvProblem>,
              &finish_in_place, [](int) { return false; }, kArgumentAlignment});
  return true;
}();

}  // namespace

}  // namespace convx
