#include "select/tuned.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <unordered_map>
#include <vector>

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

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// The lines of a record; each value may be taken once.
class Fields {
 public:
  explicit Fields(const std::string& record) {
    std::istringstream lines(record);
    for (std::string line; std::getline(lines, line);) {
      if (trimmed(line).empty()) continue;
      const size_t equals = line.find('=');
      if (equals == std::string::npos) throw InvalidArgument("record: no '=' in the line '" + line + "'");
      if (!values_.emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1))).second) {
        throw InvalidArgument("record: '" + trimmed(line.substr(0, equals)) + "' is given twice");
      }
    }
  }

  std::string text(const char* name) {
    const auto found = values_.find(name);
    if (found == values_.end()) throw InvalidArgument(std::string("record: '") + name + "' is missing");
    std::string value = found->second;
    values_.erase(found);
    return value;
  }

  template <class Number>
  std::vector<Number> numbers(const char* name, size_t count) {
    const std::string value = text(name);
    std::istringstream stream(value);
    std::vector<Number> found;
    for (Number number; stream >> number;) found.push_back(number);
    if (!stream.eof() || found.size() != count) {
      throw InvalidArgument(std::string("record: '") + name + "' takes " + std::to_string(count) +
                            " numbers, got '" + value + "'");
    }
    return found;
  }
  int64_t integer(const char* name) { return numbers<int64_t>(name, 1)[0]; }

  void require_empty() const {
    if (!values_.empty())
      throw InvalidArgument("record: no field is called '" + values_.begin()->first + "'");
  }

 private:
  std::map<std::string, std::string> values_;
};

ConvProblem read_problem(Fields& fields) {
  ConvProblem problem;
  problem.operation = parse_operation(fields.text("operation"));
  problem.dtype = parse_dtype(fields.text("dtype"));
  problem.layout = parse_layout(fields.text("layout"));
  problem.activation = parse_activation(fields.text("activation"));
  problem.has_bias = fields.integer("bias") != 0;
  problem.allow_tf32 = fields.integer("allow_tf32") != 0;
  problem.batch = fields.integer("batch");
  problem.in_channels = fields.integer("in_channels");
  problem.in_height = fields.integer("in_height");
  problem.in_width = fields.integer("in_width");
  problem.out_channels = fields.integer("out_channels");
  problem.filter_height = fields.integer("filter_height");
  problem.filter_width = fields.integer("filter_width");
  problem.groups = fields.integer("groups");
  const auto stride = fields.numbers<int64_t>("stride", 2), dilation = fields.numbers<int64_t>("dilation", 2);
  const auto padding = fields.numbers<int64_t>("padding", 4);
  problem.stride_h = stride[0];
  problem.stride_w = stride[1];
  problem.dilation_h = dilation[0];
  problem.dilation_w = dilation[1];
  problem.padding_top = padding[0];
  problem.padding_bottom = padding[1];
  problem.padding_left = padding[2];
  problem.padding_right = padding[3];
  validate_and_size(problem);
  return problem;
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
  const auto found = all.choices.find({problem, tuning_key(device)});
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
  Fields fields(record);
  const ConvProblem problem = read_problem(fields);
  const std::string device = fields.text("device");
  const Tuned choice = {fields.text("algorithm"), fields.numbers<double>("us", 1)[0]};
  fields.require_empty();
  if (!std::isfinite(choice.us) || choice.us <= 0) {
    throw InvalidArgument("record: us must be above 0, got " + std::to_string(choice.us));
  }
  remember_tuned(problem, device, choice);
}

}  // namespace convx
