#include "select/method.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace convx {

int64_t Plan::operator[](const char* parameter) const {
  for (const auto& [name, value] : tiling) {
    if (std::strcmp(name, parameter) == 0) return value;
  }
  throw std::out_of_range(std::string("convx: the plan ") + describe(*this) + " has no parameter " +
                          parameter);
}

std::string algorithm_of(const Plan& plan) {
  const std::string method = plan.method == nullptr ? "?" : plan.method->name;
  return plan.candidate.empty() ? method : method + "/" + plan.candidate;
}

std::string name_of(const Plan& plan) {
  std::string text = algorithm_of(plan);
  for (const auto& [name, value] : plan.tiling) text += std::string(" ") + name + "=" + std::to_string(value);
  return text;
}

std::string describe(const Plan& plan) {
  char prediction[80];
  std::snprintf(prediction, sizeof prediction, ", workspace %lld B, predicted %.1f us, ",
                static_cast<long long>(plan.workspace_bytes), plan.predicted_us);
  return name_of(plan) + prediction + plan.source;
}

}  // namespace convx
