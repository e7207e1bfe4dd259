#include "choose/tuned.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "problem/filter_problem.h"
#include "problem/record.h"

namespace convx {
namespace {

constexpr size_t kMostTuned = 16384;

template <class Problem>
struct Key {
  Problem problem;
  std::string device;
  bool operator==(const Key& other) const { return device == other.device && problem == other.problem; }
};
struct KeyHash {
  template <class Problem>
  size_t operator()(const Key<Problem>& key) const {
    return key.problem.hash() ^ (std::hash<std::string>()(key.device) * 31);
  }
};

template <class Problem>
struct Table {
  std::shared_mutex mutex;
  std::unordered_map<Key<Problem>, Tuned, KeyHash> choices;
};

// Never destroyed: operators may run while a process ends.
template <class Problem>
Table<Problem>& table() {
  static Table<Problem>& instance = *new Table<Problem>();
  return instance;
}

std::atomic<uint64_t> generation{0};  // of all tables

template <class Problem>
void clear() {
  Table<Problem>& all = table<Problem>();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  all.choices.clear();
}

template <class Problem>
void remember_problem(RecordFields& fields) {
  const Problem problem = read_problem<Problem>(fields);
  const std::string device = fields.text("device");
  const Tuned choice = {fields.text("algorithm"), fields.number("us"), fields.text_or("by", "convx.tune")};
  fields.require_empty();
  if (!std::isfinite(choice.us) || choice.us <= 0) {
    throw InvalidArgument("record: us must be above 0, got " + std::to_string(choice.us));
  }
  remember_tuned(problem, device, choice);
}

}  // namespace

std::string tuning_key(const DeviceTraits& device) {
  if (device.backend != Backend::cpu) return device.name;
  return device.name + " " + to_string(device.isa) + " threads=" + std::to_string(device.threads);
}

template <class Problem>
void remember_tuned(const Problem& problem, const std::string& device_key, Tuned choice) {
  Table<Problem>& all = table<Problem>();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  Key<Problem> key = {problem, device_key};
  if (all.choices.size() >= kMostTuned && all.choices.count(key) == 0) all.choices.erase(all.choices.begin());
  all.choices[std::move(key)] = std::move(choice);
  ++generation;
}

template <class Problem>
std::optional<Tuned> find_tuned(const Problem& problem, const DeviceTraits& device) {
  if (generation == 0) return std::nullopt;
  Table<Problem>& all = table<Problem>();
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  const auto found = all.choices.find({problem.as_tuned(), tuning_key(device)});
  if (found == all.choices.end()) return std::nullopt;
  return found->second;
}

void forget_tuned() {
  clear<ConvProblem>();
  clear<FilterProblem>();
  clear<BlockProblem>();
  clear<ExciteProblem>();
  ++generation;
}

uint64_t tuned_generation() {
  return generation;
}

void remember_tuned(const std::string& record) {
  RecordFields fields(record);
  if (fields.says("operation", kFilterOperation)) return remember_problem<FilterProblem>(fields);
  if (fields.says("operation", kBlockOperation)) return remember_problem<BlockProblem>(fields);
  if (fields.says("operation", kExciteOperation)) return remember_problem<ExciteProblem>(fields);
  remember_problem<ConvProblem>(fields);
}

template void remember_tuned(const ConvProblem&, const std::string&, Tuned);
template void remember_tuned(const FilterProblem&, const std::string&, Tuned);
template void remember_tuned(const BlockProblem&, const std::string&, Tuned);
template void remember_tuned(const ExciteProblem&, const std::string&, Tuned);
template std::optional<Tuned> find_tuned(const ConvProblem&, const DeviceTraits&);
template std::optional<Tuned> find_tuned(const FilterProblem&, const DeviceTraits&);
template std::optional<Tuned> find_tuned(const BlockProblem&, const DeviceTraits&);
template std::optional<Tuned> find_tuned(const ExciteProblem&, const DeviceTraits&);

}  // namespace convx
