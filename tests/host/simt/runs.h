// What the drivers share: lines of the standard input, and a plan run in several orders of its threads.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "problem/device.h"

namespace simt_test {

// A line of "key=value key=value …".
class Items {
 public:
  explicit Items(const std::string& line);
  std::string take(const char* key, const char* otherwise);  // where the line has no such key
  int64_t number(const char* key, const char* otherwise) { return std::stoll(take(key, otherwise)); }
  void require_empty() const;  // std::invalid_argument for a key that nobody took

 private:
  std::map<std::string, std::string> items_;
};

// Runs something once for each order of "forward,reverse,shuffled", on a GPU with the device's limits, and
// says so; `attempt` returns what is wrong, or throws it. Returns how many went wrong.
int run_in_orders(const std::string& text, const std::string& orders, const convx::DeviceTraits& device,
                  uint64_t seed, const std::function<std::string()>& attempt);

// Some memory of a launch.
struct Area {
  const void* memory;
  size_t bytes;
};
// Launches, and prints the loads and stores that warps make in these areas and the sectors that they touch.
void launch_and_count(const std::vector<Area>& areas, const std::function<void()>& launch);

// A driver's main: run_line returns how many runs of a line went wrong. Returns the exit status.
int run_lines(int (*run_line)(const std::string& line));

}  // namespace simt_test
