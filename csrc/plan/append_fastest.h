// Of plans that differ in how work is shared out, those worth trying.
#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "plan/method.h"

namespace convx {

// The `most` that are expected to be the fastest, in that order.
inline void append_fastest(std::vector<Plan>& plans, std::vector<Plan> some, size_t most) {
  std::stable_sort(some.begin(), some.end(),
                   [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  if (some.size() > most) some.resize(most);
  plans.insert(plans.end(), some.begin(), some.end());
}

}  // namespace convx
