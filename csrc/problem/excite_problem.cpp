#include "problem/excite_problem.h"

namespace convx {

Gate parse_gate(const std::string& text) {
  for (const Gate gate : {Gate::sigmoid, Gate::hardsigmoid}) {
    if (text == to_string(gate)) return gate;
  }
  throw InvalidArgument("gate must be one of sigmoid, hardsigmoid; got '" + text + "'");
}

const char* to_string(Gate gate) {
  return gate == Gate::sigmoid ? "sigmoid" : "hardsigmoid";
}

double ExciteProblem::bytes() const {
  const int64_t all = 2 * elements() + 2 * channels * squeezed_channels;
  return static_cast<double>(all) * static_cast<double>(element_size(dtype));
}

double ExciteProblem::flops() const {
  return static_cast<double>(2 * elements()) + 4 * static_cast<double>(batch * channels * squeezed_channels);
}

bool ExciteProblem::operator==(const ExciteProblem& other) const {
  return dtype == other.dtype && layout == other.layout && activation == other.activation &&
         gate == other.gate && batch == other.batch && channels == other.channels && height == other.height &&
         width == other.width && squeezed_channels == other.squeezed_channels;
}

size_t ExciteProblem::hash() const {
  const uint64_t kinds = static_cast<uint64_t>(dtype) | static_cast<uint64_t>(layout) << 8 |
                         static_cast<uint64_t>(activation) << 16 | static_cast<uint64_t>(gate) << 24;
  return hash_of(kinds, {batch, channels, height, width, squeezed_channels});
}

void validate(const ExciteProblem& p) {
  const struct {
    const char* what;
    int64_t value, least;
  } sizes[] = {{"input: batch", p.batch, 0},
               {"input: channels", p.channels, 1},
               {"input: height", p.height, 1},
               {"input: width", p.width, 1},
               {"squeezed_channels", p.squeezed_channels, 1}};
  for (const auto& [what, value, least] : sizes) require_least(what, value, least);
  require_countable("input", {p.batch, p.channels, p.height, p.width});
  require_countable("squeeze_weight", {p.squeezed_channels, p.channels});
}

std::string describe(const ExciteProblem& p) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  return std::string(kExciteOperation) + " " + to_string(p.dtype) + " " + to_string(p.layout) + " " +
         number(p.batch) + "x" + number(p.channels) + "x" + number(p.height) + "x" + number(p.width) +
         " by " + number(p.squeezed_channels) + ", " + to_string(p.activation) + ", " + to_string(p.gate);
}

}  // namespace convx
