#include "problem/block_problem.h"

namespace convx {

double BlockProblem::bytes() const {
  const int64_t elements = input_elements() + result_elements() + weight_elements();
  return static_cast<double>(elements) * static_cast<double>(element_size(dtype));
}

double BlockProblem::flops() const {
  const double expanded = static_cast<double>(expanded_channels);
  const double pixels = static_cast<double>(batch * expanded_height * expanded_width);
  const double results = static_cast<double>(batch * out_height * out_width);
  const double convolutions = 2 * expanded *
                              (pixels * static_cast<double>(expand_depth()) +
                               results * static_cast<double>(filter * filter + out_channels));
  return squeezed_channels > 0 ? convolutions + excitation().flops() : convolutions;
}

ExciteProblem BlockProblem::excitation() const {
  ExciteProblem of;
  of.dtype = dtype, of.layout = Layout::nhwc;
  of.activation = squeeze_activation, of.gate = gate;
  of.batch = batch, of.channels = expanded_channels, of.height = out_height, of.width = out_width;
  of.squeezed_channels = squeezed_channels;
  return of;
}

bool BlockProblem::operator==(const BlockProblem& other) const {
  return dtype == other.dtype && activation == other.activation &&
         output_activation == other.output_activation && has_residual == other.has_residual &&
         layout == other.layout && expand_filter == other.expand_filter &&
         expand_stride == other.expand_stride && batch == other.batch && channels == other.channels &&
         height == other.height && width == other.width && expanded_channels == other.expanded_channels &&
         out_channels == other.out_channels && filter == other.filter && stride == other.stride &&
         squeezed_channels == other.squeezed_channels && squeeze_activation == other.squeeze_activation &&
         gate == other.gate;
}

size_t BlockProblem::hash() const {
  const uint64_t kinds = static_cast<uint64_t>(dtype) | static_cast<uint64_t>(activation) << 8 |
                         static_cast<uint64_t>(output_activation) << 16 |
                         static_cast<uint64_t>(has_residual) << 24 | static_cast<uint64_t>(layout) << 25 |
                         static_cast<uint64_t>(squeeze_activation) << 32 | static_cast<uint64_t>(gate) << 40;
  return hash_of(kinds, {batch, channels, height, width, expanded_channels, out_channels, expand_filter,
                         expand_stride, filter, stride, squeezed_channels});
}

void validate_and_size(BlockProblem& p) {
  const struct {
    const char* what;
    int64_t value, least;
  } sizes[] = {{"input: batch", p.batch, 0},
               {"input: channels", p.channels, 1},
               {"input: height", p.height, 1},
               {"input: width", p.width, 1},
               {"expanded_channels", p.expanded_channels, 1},
               {"out_channels", p.out_channels, 1},
               {"squeezed_channels", p.squeezed_channels, 0},
               {"expand_filter", p.expand_filter, 1},
               {"expand_stride", p.expand_stride, 1},
               {"filter", p.filter, 1},
               {"stride", p.stride, 1}};
  for (const auto& [what, value, least] : sizes) require_least(what, value, least);
  const std::pair<const char*, int64_t> filters[] = {{"expand_filter", p.expand_filter},
                                                     {"filter", p.filter}};
  for (const auto& [what, size] : filters) {
    if (size % 2 == 1) continue;
    throw InvalidArgument(std::string(what) + " must be odd, so that half of it pads both sides alike, got " +
                          std::to_string(size));
  }
  if (p.squeezed_channels == 0) p.squeeze_activation = Activation::relu, p.gate = Gate::sigmoid;
  p.expanded_height = (p.height - 1) / p.expand_stride + 1;
  p.expanded_width = (p.width - 1) / p.expand_stride + 1;
  p.out_height = (p.expanded_height - 1) / p.stride + 1;
  p.out_width = (p.expanded_width - 1) / p.stride + 1;
  const int64_t stride = p.expand_stride * p.stride;
  if (p.has_residual && (stride != 1 || p.channels != p.out_channels)) {
    throw InvalidArgument(
        "residual: a result has the input's size for stride 1 and equal channels only, got stride " +
        std::to_string(stride) + ", " + std::to_string(p.channels) + " and " +
        std::to_string(p.out_channels) + " channels");
  }
  require_countable("input", {p.batch, p.channels, p.height, p.width});
  require_countable("the expanded tensor",
                    {p.batch, p.expanded_channels, p.expanded_height, p.expanded_width});
  require_countable("result", {p.batch, p.out_channels, p.out_height, p.out_width});
}

std::string describe(const BlockProblem& p) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string text = std::string(kBlockOperation) + " " + to_string(p.dtype) + " " + number(p.batch) + "x" +
                     number(p.channels) + "x" + number(p.height) + "x" + number(p.width) + " -> " +
                     number(p.expanded_channels) + " -> " + number(p.out_channels) + "x" +
                     number(p.out_height) + "x" + number(p.out_width) + ", filter " + number(p.filter) + "x" +
                     number(p.filter);
  if (p.stride != 1) text += ", stride " + number(p.stride);
  if (p.expand_filter != 1 || p.expand_stride != 1) {
    text += ", expanded by " + number(p.expand_filter) + "x" + number(p.expand_filter);
    if (p.expand_stride != 1) text += " with stride " + number(p.expand_stride);
  }
  if (p.layout != Layout::nhwc) text += std::string(", of ") + to_string(p.layout);
  if (p.activation != Activation::none) text += std::string(", ") + to_string(p.activation) + " inside";
  if (p.squeezed_channels > 0) {
    text += std::string(", excited by ") + number(p.squeezed_channels) + " (" +
            to_string(p.squeeze_activation) + ", " + to_string(p.gate) + ")";
  }
  if (p.output_activation != Activation::none) text += std::string(", ") + to_string(p.output_activation);
  return text + (p.has_residual ? ", residual" : "");
}

}  // namespace convx
