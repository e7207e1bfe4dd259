#include "choose/plans.h"

#include <functional>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "choose/registry.h"
#include "choose/tuned.h"
#include "problem/filter_problem.h"

namespace convx {
namespace {

// Networks with changing shapes would grow the table without end; starting anew is cheaper than keeping
// track of what was used last.
constexpr size_t kMostPlans = 4096;

template <class Problem>
struct Key {
  Problem problem;
  const DeviceTraits* device;  // a library gives one object per device, for good
  std::string algorithm;
  bool operator==(const Key& other) const {
    return device == other.device && problem == other.problem && algorithm == other.algorithm;
  }
};

struct KeyHash {
  template <class Problem>
  size_t operator()(const Key<Problem>& key) const {
    return key.problem.hash() ^ (reinterpret_cast<size_t>(key.device) >> 4) ^
           (std::hash<std::string>()(key.algorithm) * 31);
  }
};

}  // namespace

template <class Problem>
std::shared_ptr<const Plan> plan_for(const Problem& problem, const DeviceTraits& device,
                                     const std::string& algorithm) {
  static std::shared_mutex mutex;
  static auto& plans = *new std::unordered_map<Key<Problem>, std::shared_ptr<const Plan>, KeyHash>();
  static uint64_t plans_generation = 0;  // of the tuned choices that all of them were made with
  Key<Problem> key = {problem, &device, algorithm};
  const uint64_t generation = tuned_generation();
  {
    const std::shared_lock<std::shared_mutex> lock(mutex);
    const auto found = plans_generation == generation ? plans.find(key) : plans.end();
    if (found != plans.end()) return found->second;
  }
  auto plan = std::make_shared<const Plan>(select(problem, device, algorithm).plan);
  const std::unique_lock<std::shared_mutex> lock(mutex);
  if (generation < plans_generation) return plan;  // chosen before what another thread has tuned since
  if (generation > plans_generation || plans.size() >= kMostPlans) plans.clear();
  plans_generation = generation;
  plans[std::move(key)] = plan;
  return plan;
}

template std::shared_ptr<const Plan> plan_for(const ConvProblem&, const DeviceTraits&, const std::string&);
template std::shared_ptr<const Plan> plan_for(const FilterProblem&, const DeviceTraits&, const std::string&);
template std::shared_ptr<const Plan> plan_for(const BlockProblem&, const DeviceTraits&, const std::string&);
template std::shared_ptr<const Plan> plan_for(const ExciteProblem&, const DeviceTraits&, const std::string&);

}  // namespace convx
