#include "problem/record.h"

#include <algorithm>
#include <charconv>

namespace convx {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

template <class Number>
std::vector<Number> numbers(const char* name, const std::string& value, size_t count) {
  // Not by streams: their locales crash where torch brings another standard library than the one linked here.
  std::vector<Number> found;
  const char *place = value.data(), *const end = place + value.size();
  while (place != end) {
    Number number;
    const auto [next, error] = std::from_chars(place, end, number);
    if (error != std::errc()) break;
    found.push_back(number);
    for (place = next; place != end && *place == ' ';) ++place;
  }
  if (place != end || found.size() != count) {
    throw InvalidArgument(std::string("record: '") + name + "' takes " + std::to_string(count) +
                          " numbers, got '" + value + "'");
  }
  return found;
}

}  // namespace

RecordFields::RecordFields(const std::string& record) {
  for (size_t begin = 0; begin < record.size();) {
    const size_t end = std::min(record.find('\n', begin), record.size());
    const std::string line = record.substr(begin, end - begin);
    begin = end + 1;
    if (trimmed(line).empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) throw InvalidArgument("record: no '=' in the line '" + line + "'");
    if (!values_.emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1))).second) {
      throw InvalidArgument("record: '" + trimmed(line.substr(0, equals)) + "' is given twice");
    }
  }
}

bool RecordFields::says(const char* name, const char* value) const {
  const auto found = values_.find(name);
  return found != values_.end() && found->second == value;
}

std::string RecordFields::text(const char* name) {
  const auto found = values_.find(name);
  if (found == values_.end()) throw InvalidArgument(std::string("record: '") + name + "' is missing");
  std::string value = found->second;
  values_.erase(found);
  return value;
}

std::string RecordFields::text_or(const char* name, const char* otherwise) {
  return values_.count(name) == 0 ? otherwise : text(name);
}

int64_t RecordFields::integer(const char* name) {
  return integers(name, 1)[0];
}

int64_t RecordFields::integer_or(const char* name, int64_t otherwise) {
  return values_.count(name) == 0 ? otherwise : integer(name);
}

std::vector<int64_t> RecordFields::integers(const char* name, size_t count) {
  return numbers<int64_t>(name, text(name), count);
}

double RecordFields::number(const char* name) {
  return numbers<double>(name, text(name), 1)[0];
}

void RecordFields::require_empty() const {
  if (!values_.empty()) throw InvalidArgument("record: no field is called '" + values_.begin()->first + "'");
}

// Records from before there were scales and residuals have none of them.
static Epilogue read_epilogue(RecordFields& fields) {
  Epilogue epilogue;
  epilogue.activation = parse_activation(fields.text("activation"));
  epilogue.has_bias = fields.integer("bias") != 0;
  epilogue.has_scale = fields.integer_or("scale", 0) != 0;
  epilogue.has_residual = fields.integer_or("residual", 0) != 0;
  epilogue.residual_after_activation = fields.integer_or("residual_after_activation", 0) != 0;
  return epilogue;
}

template <>
ConvProblem read_problem(RecordFields& fields) {
  ConvProblem problem;
  problem.operation = parse_operation(fields.text("operation"));
  problem.dtype = parse_dtype(fields.text("dtype"));
  problem.layout = parse_layout(fields.text("layout"));
  problem.epilogue = read_epilogue(fields);
  problem.allow_tf32 = fields.integer("allow_tf32") != 0;
  problem.batch = fields.integer("batch");
  problem.in_channels = fields.integer("in_channels");
  problem.in_height = fields.integer("in_height");
  problem.in_width = fields.integer("in_width");
  problem.out_channels = fields.integer("out_channels");
  problem.filter_height = fields.integer("filter_height");
  problem.filter_width = fields.integer("filter_width");
  problem.groups = fields.integer("groups");
  const auto stride = fields.integers("stride", 2), dilation = fields.integers("dilation", 2);
  const auto padding = fields.integers("padding", 4);
  problem.stride_h = stride[0];
  problem.stride_w = stride[1];
  problem.dilation_h = dilation[0];
  problem.dilation_w = dilation[1];
  problem.padding_top = padding[0];
  problem.padding_bottom = padding[1];
  problem.padding_left = padding[2];
  problem.padding_right = padding[3];
  validate_and_size(problem);
  return problem;
}

template <>
FilterProblem read_problem(RecordFields& fields) {
  FilterProblem problem;
  fields.text("operation");  // kFilterOperation
  problem.dtype = parse_image_type(fields.text("dtype"));
  problem.border = parse_border(fields.text("border"));
  problem.images = fields.integer("images");
  problem.height = fields.integer("height");
  problem.width = fields.integer("width");
  problem.filters = fields.integer("filters");
  problem.filter_height = fields.integer("filter_height");
  problem.filter_width = fields.integer("filter_width");
  validate_and_size(problem);
  return problem;
}

// Records of blocks without it, and those from before there was any, have none of these fields.
static void read_excitation(RecordFields& fields, BlockProblem& problem) {
  problem.squeezed_channels = fields.integer_or("squeezed_channels", 0);
  if (problem.squeezed_channels == 0) return;
  problem.squeeze_activation = parse_activation(fields.text("squeeze_activation"));
  problem.gate = parse_gate(fields.text("gate"));
}

template <>
BlockProblem read_problem(RecordFields& fields) {
  BlockProblem problem;
  fields.text("operation");  // kBlockOperation
  problem.dtype = parse_dtype(fields.text("dtype"));
  problem.activation = parse_activation(fields.text("activation"));
  problem.output_activation = parse_activation(fields.text("output_activation"));
  problem.has_residual = fields.integer("residual") != 0;
  problem.layout = parse_layout(fields.text("layout"));
  problem.batch = fields.integer("batch");
  problem.channels = fields.integer("channels");
  problem.height = fields.integer("height");
  problem.width = fields.integer("width");
  problem.expanded_channels = fields.integer("expanded_channels");
  problem.out_channels = fields.integer("out_channels");
  problem.expand_filter = fields.integer("expand_filter");
  problem.expand_stride = fields.integer("expand_stride");
  problem.filter = fields.integer("filter");
  problem.stride = fields.integer("stride");
  read_excitation(fields, problem);
  validate_and_size(problem);
  return problem;
}

template <>
ExciteProblem read_problem(RecordFields& fields) {
  ExciteProblem problem;
  fields.text("operation");  // kExciteOperation
  problem.dtype = parse_dtype(fields.text("dtype"));
  problem.layout = parse_layout(fields.text("layout"));
  problem.activation = parse_activation(fields.text("activation"));
  problem.gate = parse_gate(fields.text("gate"));
  problem.batch = fields.integer("batch");
  problem.channels = fields.integer("channels");
  problem.height = fields.integer("height");
  problem.width = fields.integer("width");
  problem.squeezed_channels = fields.integer("squeezed_channels");
  validate(problem);
  return problem;
}

}  // namespace convx
