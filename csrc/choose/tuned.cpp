#include "choose/tuned.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "problem/record.h"

namespace convx {
namespace {

constexpr size_t kMostTuned = 16384;

struct Key {
  ConvProblem problem;
  std::string device;
  bool operator==(const Key& other) const { return device == other.device && problem == other.problem; }
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    return key.problem.hash() ^ (std::hash<std::string>()(key.device) * 31);
  }
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<Key, Tuned, KeyHash> choices;
  std::atomic<uint64_t> generation{0};
};

// Never destroyed: operators may run while a process ends.
Table& table() {
  static Table& instance = *new Table();
  return instance;
}

}  // namespace

std::string tuning_key(const DeviceTraits& device) {
  if (device.backend != Backend::cpu) return device.name;
  return device.name + " " + to_string(device.isa) + " threads=" + std::to_string(device.threads);
}

void remember_tuned(const ConvProblem& problem, const std::string& device_key, Tuned choice) {
  Table& all = table();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  Key key = {problem, device_key};
  if (all.choices.size() >= kMostTuned && all.choices.count(key) == 0) all.choices.erase(all.choices.begin());
  all.choices[std::move(key)] = std::move(choice);
  ++all.generation;
}

std::optional<Tuned> find_tuned(const ConvProblem& problem, const DeviceTraits& device) {
  Table& all = table();
  if (all.generation == 0) return std::nullopt;
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  const auto found = all.choices.find({problem.as_tuned(), tuning_key(device)});
  if (found == all.choices.end()) return std::nullopt;
  return found->second;
}

void forget_tuned() {
  Table& all = table();
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  all.choices.clear();
  ++all.generation;
}

uint64_t tuned_generation() {
  return table().generation;
}

void remember_tuned(const std::string& record) {
  RecordFields fields(record);
  const ConvProblem problem = read_problem(fields);
  const std::string device = fields.text("device");
  const Tuned choice = {fields.text("algorithm"), fields.number("us")};
  fields.require_empty();
  if (!std::isfinite(choice.us) || choice.us <= 0) {
    throw InvalidArgument("record: us must be above 0, got " + std::to_string(choice.us));
  }
  remember_tuned(problem, device, choice);
}

}  // namespace convx
