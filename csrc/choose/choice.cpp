#include <algorithm>
#include <cmath>

#include "choose/measured.h"
#include "choose/registry.h"
#include "choose/tuned.h"
#include "methods/native/native.h"

namespace convx {
namespace {

struct Name {
  std::string method, candidate;  // candidate is empty where the method alone is named
  bool has_tiling;                // a plan is named, as name_of does
};

Name split(const std::string& algorithm) {
  const size_t space = algorithm.find(' ');
  const std::string kernel = algorithm.substr(0, space);
  const size_t slash = kernel.find('/');
  const bool has_tiling = space != std::string::npos;
  if (slash == std::string::npos) return {kernel, "", has_tiling};
  return {kernel.substr(0, slash), kernel.substr(slash + 1), has_tiling};
}

// "hntmp|auto" as {"hntmp", "auto"}; {"hntmp", ""} where there is no second.
std::pair<std::string, std::string> alternatives(const std::string& algorithm) {
  const size_t bar = algorithm.find('|');
  if (bar == std::string::npos) return {algorithm, ""};
  return {algorithm.substr(0, bar), algorithm.substr(bar + 1)};
}

const Method* find(const std::string& name) {
  for (const Method* method : methods()) {
    if (name == method->name) return method;
  }
  return nullptr;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names = {"auto"};
  for (const Method* method : methods()) names.push_back(method->name);
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

std::vector<std::string> able_methods(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<std::string> names = {"auto"};
  for (const Method* method : methods()) {
    if (method->supports(problem, device).ok) names.push_back(method->name);
  }
  return names;
}

Choice select_named(const ConvProblem& problem, const DeviceTraits& device, const std::string& algorithm) {
  const Name name = split(algorithm);
  const Method& method = *find(name.method);
  const Support support = method.supports(problem, device);
  if (!support.ok) {
    throw InvalidArgument("algorithm '" + algorithm + "' can't run this problem: " + support.reason + " (" +
                          describe(problem) + ", on " + device.name +
                          "); what can run it: " + join(able_methods(problem, device)));
  }
  const std::vector<Plan> plans = predict(method, problem, device);
  // "native" is the plan that has no other name, of other methods the best.
  const bool has_nameless =
      std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.candidate.empty(); });
  for (const Plan& plan : plans) {
    const bool is_meant = name.has_tiling
                              ? name_of(plan) == algorithm
                              : (name.candidate.empty() && !has_nameless) || plan.candidate == name.candidate;
    if (is_meant) return {plan, true, "named as algorithm '" + algorithm + "'"};
  }
  const std::vector<std::string> names = candidate_names(plans);
  if (name.has_tiling) {
    throw InvalidArgument("algorithm '" + algorithm + "' can't run this problem: " + name.method +
                          " has no such tiling for " + describe(problem) + ", on " + device.name +
                          "; convx.explain lists those it has, and without a tiling the best is taken");
  }
  const std::string why =
      method.why_absent == nullptr ? "" : method.why_absent(problem, device, name.candidate);
  throw InvalidArgument(
      "algorithm '" + algorithm + "' can't run this problem: " + name.method + " has no candidate '" +
      name.candidate + "' for " + describe(problem) + ", on " + device.name +
      (why.empty() ? "; " : ": " + why + "; ") +
      (names.empty() ? "it has none: name the method alone" : "what it has: " + join(names)));
}

// What convx.tune measured; nothing where the method no longer has such a plan.
std::optional<Choice> select_tuned(const ConvProblem& problem, const DeviceTraits& device) {
  const std::optional<Tuned> tuned = find_tuned(problem, device);
  if (!tuned.has_value()) return std::nullopt;
  const Method* method = find(split(tuned->algorithm).method);
  if (method == nullptr || !method->supports(problem, device).ok) return std::nullopt;
  for (Plan& plan : predict(*method, problem, device)) {
    if (name_of(plan) != tuned->algorithm) continue;
    plan.predicted_us = tuned->us;
    plan.source = "tuned";
    plan.doubt = 1;
    return Choice{std::move(plan), false, "the fastest when convx.tune measured this problem here"};
  }
  return std::nullopt;
}

}  // namespace

void check_algorithm(const std::string& algorithm) {
  const auto [first, rest] = alternatives(algorithm);
  if (!rest.empty()) {
    check_algorithm(first);
    return check_algorithm(rest);
  }
  if (algorithm == "auto" || find(split(algorithm).method) != nullptr) return;
  throw InvalidArgument("algorithm must be one of " + join(method_names()) +
                        ", or 'method/candidate' as convx.explain lists them, or several of them as "
                        "'first|second'; got '" +
                        algorithm + "'");
}

std::string algorithm_of_gradients(const std::string& algorithm) {
  const std::string method = split(alternatives(algorithm).first).method;
  return method == "auto" ? method : method + "|auto";
}

Choice select_untuned(const ConvProblem& problem, const DeviceTraits& device) {
  const Plan torch = select_named(problem, device, "native").plan;
  Choice best{torch, false, ""};
  std::string reasons, unmeasured;
  for (const Method* method : methods()) {
    const Support support = method->supports(problem, device);
    if (!support.ok) {
      reasons += std::string("; ") + method->name + " can't: " + support.reason;
      continue;
    }
    bool measured = false;
    for (Plan& plan : predict(*method, problem, device)) {
      measured = measured || std::isfinite(plan.doubt);
      const bool is_ahead = plan.predicted_us * std::max(plan.doubt, torch.doubt) < torch.predicted_us;
      if (is_ahead && plan.predicted_us < best.plan.predicted_us) best.plan = std::move(plan);
    }
    if (!measured && method != torch.method) {
      unmeasured += (unmeasured.empty() ? "" : ", ") + std::string(method->name);
    }
  }
  if (!std::isfinite(torch.doubt)) unmeasured += (unmeasured.empty() ? "" : ", ") + std::string("torch");
  best.why = name_of(best.plan) == name_of(torch)
                 ? "nothing was measured ahead of torch's convolution on layers like this one"
                 : "the least time of what was measured ahead of torch's convolution on layers like this one";
  if (!unmeasured.empty()) best.why += "; not measured on such: " + unmeasured + " (convx.tune does it here)";
  best.why += reasons;
  return best;
}

Choice select(const ConvProblem& problem, const DeviceTraits& device, const std::string& algorithm) {
  check_algorithm(algorithm);
  const auto [first, rest] = alternatives(algorithm);
  if (!rest.empty()) {
    const Method* method = find(split(first).method);
    const bool able = method == nullptr || method->supports(problem, device).ok;
    return select(problem, device, able ? first : rest);
  }
  if (algorithm != "auto") return select_named(problem, device, algorithm);
  if (std::optional<Choice> tuned = select_tuned(problem, device)) return *std::move(tuned);
  return select_untuned(problem, device);
}

std::vector<Explanation> explain(const ConvProblem& problem, const DeviceTraits& device) {
  const Plan chosen = select(problem, device, "auto").plan;
  std::vector<Explanation> rows;
  for (const Method* method : methods()) {
    Explanation row{method, method->supports(problem, device), {}, method == chosen.method};
    if (row.support.ok) row.plans = predict(*method, problem, device);
    for (Plan& plan : row.plans) {
      if (row.chosen && name_of(plan) == name_of(chosen)) plan = chosen;  // with a tuned one's time
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace convx
