// A str argument of an operator.
#pragma once
#include <torch/csrc/stable/library.h>

#include <string>

namespace convx {

// Take `const Text&` where torch's headers would have `const std::string&`: their conversion (to<std::string>
// in torch 2.11 to 2.13) leaves a copy of the string on the heap at every call.
struct Text : std::string {
  using std::string::string;
};

}  // namespace convx

template <>
struct torch::stable::detail::ToImpl<convx::Text> {
  static convx::Text call(StableIValue value, uint64_t /*extension_build_version*/, bool /*is_internal*/) {
    const StringHandle handle = to<StringHandle>(value);
    size_t length = 0;
    const char* data = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle, &length));
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle, &data));
    convx::Text text(data, length);
    TORCH_ERROR_CODE_CHECK(torch_delete_string(handle));
    return text;
  }
};
