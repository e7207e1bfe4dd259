#include "case.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace simt_test {
namespace {

std::vector<int64_t> integers(const std::string& text) {
  std::vector<int64_t> values;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) values.push_back(std::stoll(item));
  if (values.empty()) throw std::invalid_argument("no number in '" + text + "'");
  return values;
}

// Takes "2" as "2,2".
void pair(const std::string& text, int64_t& first, int64_t& second) {
  const std::vector<int64_t> values = integers(text);
  first = values.front();
  second = values.back();
}

using Setter = std::function<void(Case&, const std::string&)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> table = {
      {"operation", [](Case& c, const std::string& v) { c.problem.operation = convx::parse_operation(v); }},
      {"dtype", [](Case& c, const std::string& v) { c.problem.dtype = convx::parse_dtype(v); }},
      {"layout", [](Case& c, const std::string& v) { c.problem.layout = convx::parse_layout(v); }},
      {"activation",
       [](Case& c, const std::string& v) { c.problem.epilogue.activation = convx::parse_activation(v); }},
      {"bias", [](Case& c, const std::string& v) { c.problem.epilogue.has_bias = std::stoi(v) != 0; }},
      {"scale", [](Case& c, const std::string& v) { c.problem.epilogue.has_scale = std::stoi(v) != 0; }},
      // "before" or "after" the activation.
      {"residual",
       [](Case& c, const std::string& v) {
         if (v != "before" && v != "after") throw std::invalid_argument("residual is before or after");
         c.problem.epilogue.has_residual = true;
         c.problem.epilogue.residual_after_activation = v == "after";
       }},
      {"tf32", [](Case& c, const std::string& v) { c.problem.allow_tf32 = std::stoi(v) != 0; }},
      {"batch", [](Case& c, const std::string& v) { c.problem.batch = std::stoll(v); }},
      {"channels",
       [](Case& c, const std::string& v) { c.problem.in_channels = c.problem.groups = std::stoll(v); }},
      {"multiplier",
       [](Case& c, const std::string& v) { c.problem.out_channels = c.problem.in_channels * std::stoll(v); }},
      {"groups", [](Case& c, const std::string& v) { c.problem.groups = std::stoll(v); }},
      {"out_channels", [](Case& c, const std::string& v) { c.problem.out_channels = std::stoll(v); }},
      {"size", [](Case& c, const std::string& v) { pair(v, c.problem.in_height, c.problem.in_width); }},
      {"filter",
       [](Case& c, const std::string& v) { pair(v, c.problem.filter_height, c.problem.filter_width); }},
      {"stride", [](Case& c, const std::string& v) { pair(v, c.problem.stride_h, c.problem.stride_w); }},
      {"dilation",
       [](Case& c, const std::string& v) { pair(v, c.problem.dilation_h, c.problem.dilation_w); }},
      {"padding",
       [](Case& c, const std::string& v) {
         const std::vector<int64_t> values = integers(v);
         const size_t last = values.size() - 1;
         c.problem.padding_top = values[0];
         c.problem.padding_bottom = values[last < 1 ? last : 1];
         c.problem.padding_left = values[last < 2 ? 0 : 2];
         c.problem.padding_right = values[last];
       }},
      {"device", [](Case& c, const std::string& v) { c.device = v; }},
      {"multiprocessors", [](Case& c, const std::string& v) { c.multiprocessors = std::stoi(v); }},
      {"only",
       [](Case& c, const std::string& v) {
         c.only = v;
         std::replace(c.only.begin(), c.only.end(), '+', ' ');
       }},
      {"traffic", [](Case& c, const std::string& v) { c.traffic = v != "0"; }},
      {"orders", [](Case& c, const std::string& v) { c.orders = v; }},
      {"seed", [](Case& c, const std::string& v) { c.seed = std::stoull(v); }},
      {"special",
       [](Case& c, const std::string& v) {
         std::string value, turn;
         std::stringstream stream(v);
         std::getline(std::getline(std::getline(stream, c.special_operand, ','), value, ','), turn);
         c.special_value = std::stod(value);
         c.special_turn = std::stoll(turn);
       }},
      {"max_plans", [](Case& c, const std::string& v) { c.max_plans = std::stoll(v); }},
  };
  return table;
}

}  // namespace

Case parse_case(const std::string& line) {
  Case result;
  result.problem.batch = 1;
  std::stringstream stream(line);
  for (std::string item; stream >> item;) {
    const size_t equals = item.find('=');
    const auto setter = setters().find(item.substr(0, equals));
    if (equals == std::string::npos || setter == setters().end()) {
      throw std::invalid_argument("unknown item '" + item + "'");
    }
    setter->second(result, item.substr(equals + 1));
  }
  if (result.problem.out_channels == 0) result.problem.out_channels = result.problem.in_channels;
  convx::validate_and_size(result.problem);
  return result;
}

}  // namespace simt_test
