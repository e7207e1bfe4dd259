#include "runs.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "simt.h"
#include "traffic.h"

namespace simt_test {
namespace {

simt::Options options_for(const convx::DeviceTraits& device, const std::string& order, uint64_t seed) {
  simt::Options options;
  options.lanes = device.lanes;
  options.shared_limit = device.shared_bytes_per_block;
  const size_t static_limit = device.backend == convx::Backend::cuda ? 48 * 1024 : 64 * 1024;
  options.static_limit = std::min<size_t>(static_limit, options.shared_limit);
  options.seed = seed;
  options.late_copies = order != "forward";
  if (order == "reverse") {
    options.order = simt::Order::reverse;
    options.reverse_blocks = true;
  } else if (order == "shuffled") {
    options.order = simt::Order::shuffled;
  } else if (order != "forward") {
    throw std::invalid_argument("unknown order '" + order + "'");
  }
  return options;
}

}  // namespace

Items::Items(const std::string& line) {
  std::stringstream stream(line);
  for (std::string item; stream >> item;) {
    items_[item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
  }
}

std::string Items::take(const char* key, const char* otherwise) {
  const auto found = items_.find(key);
  if (found == items_.end()) return otherwise;
  const std::string value = found->second;
  items_.erase(found);
  return value;
}

void Items::require_empty() const {
  if (!items_.empty()) throw std::invalid_argument("unknown item '" + items_.begin()->first + "'");
}

int run_in_orders(const std::string& text, const std::string& orders, const convx::DeviceTraits& device,
                  uint64_t seed, const std::function<std::string()>& attempt) {
  int failures = 0;
  std::stringstream stream(orders);
  for (std::string order; std::getline(stream, order, ',');) {
    // Before the run, so that an abort of the sanitizers is attributed.
    std::printf("RUN  %s %s\n", order.c_str(), text.c_str());
    std::fflush(stdout);
    simt::options() = options_for(device, order, seed);
    std::string error;
    try {
      error = attempt();
    } catch (const std::exception& exception) {
      error = exception.what();
    }
    if (error.empty()) continue;
    ++failures;
    std::printf("FAIL %s %s: %s\n", order.c_str(), text.c_str(), error.c_str());
  }
  return failures;
}

void launch_and_count(const std::vector<Area>& areas, const std::function<void()>& launch) {
  for (const Area& area : areas) simt::traffic::watch(area.memory, area.bytes);
  launch();
  const simt::traffic::Counts counts = simt::traffic::take();
  const auto number = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf("TRAFFIC loads %llu sectors %llu stores %llu sectors %llu\n", number(counts.loads.requests),
              number(counts.loads.sectors), number(counts.stores.requests), number(counts.stores.sectors));
}

int run_lines(int (*run_line)(const std::string& line)) {
  int failures = 0, lines = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++lines;
    try {
      failures += run_line(line);
    } catch (const std::exception& exception) {
      ++failures;
      std::printf("FAIL %s: %s\n", line.c_str(), exception.what());
    }
  }
  std::printf("DONE %d cases, %d failures\n", lines, failures);
  return failures ? 1 : 0;
}

}  // namespace simt_test
