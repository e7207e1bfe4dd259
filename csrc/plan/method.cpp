#include "plan/method.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace convx {

Support supports_padding(const ConvProblem& p, const DeviceTraits& device) {
  constexpr int64_t kMostTimes = 8, kMostPlaces = int64_t{1} << 30;
  struct Axis {
    const char* name;
    int64_t padded, sizes;
  };
  const Axis axes[] = {{"height", p.padded_height(), p.in_height + p.out_height + p.filter_height},
                       {"width", p.padded_width(), p.in_width + p.out_width + p.filter_width}};
  for (const auto& [name, padded, sizes] : axes) {
    const std::string what =
        std::string("the padded input's ") + name + ", " + std::to_string(padded) + ", is more than ";
    if (padded / kMostTimes > sizes) {
      return Support::no(what + std::to_string(kMostTimes) +
                         " times those of input, output and filter together (" + std::to_string(sizes) + ")");
    }
    if (device.backend != Backend::cpu && padded > kMostPlaces) return Support::no(what + "2^30");
  }
  return Support::yes();
}

Support supports_epilogue(const ConvProblem& p, const DeviceTraits& device) {
  if (device.backend != Backend::hip || !p.epilogue.is_more_than_bias()) return Support::yes();
  return Support::no(std::string("on AMD it ") + kAddsBiasAlone);
}

double finishing_us(const ConvProblem& problem, const DeviceTraits& device) {
  const Epilogue& epilogue = problem.epilogue;
  if (epilogue == Epilogue{}) return 0;
  const double output_bytes = static_cast<double>(problem.output_elements() * element_size(problem.dtype));
  return (epilogue.has_residual ? 3 : 2) * output_bytes / (device.bandwidth_GBps * 1e3) +
         (device.backend == Backend::cpu ? 3 : 2);
}

void trust(Plan& plan, const DeviceTraits& device, double doubt) {
  if (device.backend != Backend::cuda || device.architecture != 90) return;
  plan.doubt = doubt;
  plan.source = "modelled on NVIDIA H200";
}

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
  return name_of(plan) + (plan.finishes_apart ? ", finished apart" : "") + prediction + plan.source;
}

}  // namespace convx
