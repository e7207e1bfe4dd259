#include <algorithm>
#include <cmath>
#include <optional>

#include "choose/fitted.h"
#include "choose/measured.h"
#include "choose/offers.h"
#include "choose/registry.h"
#include "choose/tuned.h"

namespace convx {
namespace {

struct Name {
  std::string method, candidate;  // candidate is empty where the method alone is named
  std::string tiling;             // as name_of has it, with a space before; empty where a kernel is named
};

template <class Problem>
const MethodOf<Problem>* find(const std::string& name) {
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    if (name == method->name) return method;
  }
  return nullptr;
}

template <class Problem>
Name split(const std::string& algorithm) {
  const size_t space = std::min(algorithm.find(' '), algorithm.size());
  const std::string kernel = algorithm.substr(0, space), tiling = algorithm.substr(space);
  const size_t slash = kernel.find('/');
  if (slash != std::string::npos) return {kernel.substr(0, slash), kernel.substr(slash + 1), tiling};
  const auto& all = methods<Problem>();
  if (all.size() == 1 && !kernel.empty() && kernel != all.front()->name) {
    return {all.front()->name, kernel, tiling};
  }
  return {kernel, "", tiling};
}

// "hntmp|auto" as {"hntmp", "auto"}; {"hntmp", ""} where there is no second.
std::pair<std::string, std::string> alternatives(const std::string& algorithm) {
  const size_t bar = algorithm.find('|');
  if (bar == std::string::npos) return {algorithm, ""};
  return {algorithm.substr(0, bar), algorithm.substr(bar + 1)};
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

template <class Problem>
std::vector<std::string> method_names() {
  std::vector<std::string> names = {"auto"};
  for (const MethodOf<Problem>* method : methods<Problem>()) names.push_back(method->name);
  return names;
}

std::vector<std::string> candidate_names(const std::vector<Plan>& plans) {
  std::vector<std::string> names;
  for (const Plan& plan : plans) {
    const std::string name = algorithm_of(plan);
    if (!plan.candidate.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

// "; what can run it: auto, depthwise", or that nothing can.
template <class Problem>
std::string way_out(const Problem& problem, const DeviceTraits& device) {
  std::vector<std::string> names;
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    if (supports(*method, problem, device).ok) names.push_back(method->name);
  }
  return names.empty() ? "; nothing can run it there" : "; what can run it: auto, " + join(names);
}

template <class Problem>
std::string place(const Problem& problem, const DeviceTraits& device) {
  return describe(problem) + ", on " + device.name;
}

// The best of a method's plans that a name means; nullptr where there is none.
const Plan* find_plan(const std::vector<Plan>& plans, const Name& name) {
  // "native" is the plan that has no other name, of other methods the best.
  const bool has_nameless =
      std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.candidate.empty(); });
  const bool any = name.candidate.empty() && name.tiling.empty() && !has_nameless;
  for (const Plan& plan : plans) {
    if (any ? plan.by_name_only : plan.candidate != name.candidate) continue;
    if (name.tiling.empty() || name_of(plan) == algorithm_of(plan) + name.tiling) return &plan;
  }
  return nullptr;
}

template <class Problem>
Choice select_named(const Problem& problem, const DeviceTraits& device, const std::string& algorithm) {
  const Name name = split<Problem>(algorithm);
  const MethodOf<Problem>& method = *find<Problem>(name.method);
  const Support support = supports(method, problem, device);
  const std::string refusal = "algorithm '" + algorithm + "' can't run this problem: ";
  if (!support.ok) {
    throw InvalidArgument(refusal + support.reason + " (" + place(problem, device) + ")" +
                          way_out(problem, device));
  }
  const std::vector<Plan> plans = predict(method, problem, device);
  if (const Plan* plan = find_plan(plans, name)) {
    return {*plan, true, "named as algorithm '" + algorithm + "'"};
  }
  if (!name.tiling.empty()) {
    throw InvalidArgument(refusal + name.method + " has no such tiling for " + place(problem, device) +
                          "; convx.explain lists those it has, and without a tiling the best is taken");
  }
  const std::vector<std::string> names = candidate_names(plans);
  const std::string why =
      method.why_absent == nullptr ? "" : method.why_absent(problem, device, name.candidate);
  throw InvalidArgument(
      refusal + name.method + " has no candidate '" + name.candidate + "' for " + place(problem, device) +
      (why.empty() ? "; " : ": " + why + "; ") +
      (names.empty() ? "it has none: name the method alone" : "what it has: " + join(names)));
}

// Whether a list of algorithms ends with this one.
template <class Problem>
bool can_run(const Problem& problem, const DeviceTraits& device, const std::string& algorithm) {
  if (algorithm == "auto") return true;
  const Name name = split<Problem>(algorithm);
  const MethodOf<Problem>& method = *find<Problem>(name.method);
  if (!supports(method, problem, device).ok) return false;
  return name.candidate.empty() || find_plan(candidates(method, problem, device), name) != nullptr;
}

// What convx.tune measured; nothing where the method no longer has such a plan.
template <class Problem>
std::optional<Choice> select_tuned(const Problem& problem, const DeviceTraits& device) {
  const std::optional<Tuned> tuned = find_tuned(problem, device);
  if (!tuned.has_value()) return std::nullopt;
  const MethodOf<Problem>* method = find<Problem>(split<Problem>(tuned->algorithm).method);
  if (method == nullptr || !supports(*method, problem, device).ok) return std::nullopt;
  for (Plan& plan : predict(*method, problem, device)) {
    if (name_of(plan) != tuned->algorithm) continue;
    plan.predicted_us = tuned->us;
    plan.source = "tuned";
    plan.doubt = 1;
    return Choice{std::move(plan), false, "the fastest when " + tuned->by + " measured this problem here"};
  }
  return std::nullopt;
}

// Why auto takes a plan: held against torch's, where torch has one.
std::string reason_of(const Plan& taken, const std::optional<Plan>& torch) {
  if (!torch.has_value()) return "the least predicted time";
  if (name_of(taken) == name_of(*torch)) {
    return "nothing was measured ahead of torch's convolution on layers like this one";
  }
  if (taken.source == Plan().source) {
    return "an estimate of less than a quarter of what torch's convolution takes at least, group by group";
  }
  if (is_fitted(taken)) {
    return "a model of random layers has it ahead of torch's convolution by more than it is mostly off";
  }
  return "the least time of what was measured ahead of torch's convolution on layers like this one";
}

}  // namespace

template <class Problem>
void check_algorithm(const std::string& algorithm) {
  const auto [first, rest] = alternatives(algorithm);
  if (!rest.empty()) {
    check_algorithm<Problem>(first);
    return check_algorithm<Problem>(rest);
  }
  if (algorithm == "auto" || find<Problem>(split<Problem>(algorithm).method) != nullptr) return;
  throw InvalidArgument("algorithm must be one of " + join(method_names<Problem>()) +
                        ", or 'method/candidate' as convx.explain lists them, or several of them as "
                        "'first|second'; got '" +
                        algorithm + "'");
}

std::string algorithm_of_gradients(const std::string& algorithm) {
  const std::string method = split<ConvProblem>(alternatives(algorithm).first).method;
  return method == "auto" ? method : method + "|auto";
}

template <class Problem>
Choice select_untuned(const Problem& problem, const DeviceTraits& device) {
  std::vector<Plan> torchs;  // which can run anything
  const MethodOf<Problem>* const native = find<Problem>("native");
  if (native != nullptr) torchs = predict(*native, problem, device);
  std::optional<Plan> torch;
  if (!torchs.empty()) torch = *find_plan(torchs, {"native", "", ""});
  std::optional<Plan> best = torch;
  std::vector<std::string> unmeasured;
  std::string reasons;
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    const Support support = supports(*method, problem, device);
    if (!support.ok) {
      reasons += std::string("; ") + method->name + " can't: " + support.reason;
      continue;
    }
    bool measured = false;
    std::vector<Plan> plans = method == native ? std::move(torchs) : predict(*method, problem, device);
    for (Plan& plan : plans) {
      measured = measured || std::isfinite(plan.doubt);
      if (plan.by_name_only) continue;
      const bool is_ahead =
          !torch.has_value() || plan.predicted_us * std::max(plan.doubt, torch->doubt) < torch->predicted_us;
      if (is_ahead && (!best.has_value() || plan.predicted_us < best->predicted_us)) best = std::move(plan);
    }
    if (!measured && (!torch.has_value() || method != torch->method)) unmeasured.push_back(method->name);
  }
  if (!best.has_value()) {
    throw InvalidArgument("algorithm 'auto' can't run this problem" + reasons + " (" +
                          place(problem, device) + ")");
  }
  if (torch.has_value() && !std::isfinite(torch->doubt)) unmeasured.push_back("torch");
  std::string why = reason_of(*best, torch);
  if (!unmeasured.empty()) {
    why += "; not measured on such: " + join(unmeasured) + " (convx.tune does it here)";
  }
  return {*std::move(best), false, why + reasons};
}

template <class Problem>
Choice select(const Problem& problem, const DeviceTraits& device, const std::string& algorithm) {
  check_algorithm<Problem>(algorithm);
  const auto [first, rest] = alternatives(algorithm);
  if (!rest.empty()) return select(problem, device, can_run(problem, device, first) ? first : rest);
  if (algorithm != "auto") return select_named(problem, device, algorithm);
  if (std::optional<Choice> tuned = select_tuned(problem, device)) return *std::move(tuned);
  return select_untuned(problem, device);
}

template <class Problem>
std::vector<Explanation> explain(const Problem& problem, const DeviceTraits& device) {
  const Plan chosen = select(problem, device, "auto").plan;
  std::vector<Explanation> rows;
  for (const MethodOf<Problem>* method : methods<Problem>()) {
    Explanation row{method, supports(*method, problem, device), {}, method == chosen.method};
    if (row.support.ok) row.plans = predict(*method, problem, device);
    for (Plan& plan : row.plans) {
      if (row.chosen && name_of(plan) == name_of(chosen)) plan = chosen;  // with a tuned one's time
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

template void check_algorithm<ConvProblem>(const std::string&);
template void check_algorithm<FilterProblem>(const std::string&);
template void check_algorithm<BlockProblem>(const std::string&);
template void check_algorithm<ExciteProblem>(const std::string&);
template Choice select(const ConvProblem&, const DeviceTraits&, const std::string&);
template Choice select(const FilterProblem&, const DeviceTraits&, const std::string&);
template Choice select(const BlockProblem&, const DeviceTraits&, const std::string&);
template Choice select(const ExciteProblem&, const DeviceTraits&, const std::string&);
template Choice select_untuned(const ConvProblem&, const DeviceTraits&);
template Choice select_untuned(const FilterProblem&, const DeviceTraits&);
template Choice select_untuned(const BlockProblem&, const DeviceTraits&);
template Choice select_untuned(const ExciteProblem&, const DeviceTraits&);
template std::vector<Explanation> explain(const ConvProblem&, const DeviceTraits&);
template std::vector<Explanation> explain(const FilterProblem&, const DeviceTraits&);
template std::vector<Explanation> explain(const BlockProblem&, const DeviceTraits&);
template std::vector<Explanation> explain(const ExciteProblem&, const DeviceTraits&);

}  // namespace convx
