// Of plans that differ in how work is shared out, or what they are made from, those worth trying.
#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "plan/method.h"

namespace convx {

// The `most` that are expected to be the fastest, in that order. us: a member that has the time.
template <class Choice>
void keep_fastest(std::vector<Choice>& choices, size_t most, double Choice::* us) {
  std::stable_sort(choices.begin(), choices.end(),
                   [us](const Choice& a, const Choice& b) { return a.*us < b.*us; });
  if (choices.size() > most) choices.resize(most);
}

inline void append_fastest(std::vector<Plan>& plans, std::vector<Plan> some, size_t most) {
  keep_fastest(some, most, &Plan::predicted_us);
  plans.insert(plans.end(), some.begin(), some.end());
}

}  // namespace convx
