#include "problem/memory.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "problem/problem.h"

namespace convx {
namespace {

int64_t read_workspace_limit() {
  constexpr int64_t kMegabyte = 1 << 20, kDefault = 1024, kMost = int64_t{1} << 40;
  const char* text = std::getenv("CONVX_WORKSPACE_LIMIT_MB");
  if (text == nullptr || *text == 0) return kDefault * kMegabyte;
  char* end = nullptr;
  errno = 0;
  const long long megabytes = std::strtoll(text, &end, 10);
  if (*end != 0 || errno != 0 || megabytes < 0 || megabytes > kMost) {
    throw InvalidArgument(
        std::string("CONVX_WORKSPACE_LIMIT_MB must be a whole number of megabytes, 0 or more, "
                    "got '") +
        text + "'; unset it for the default of 1024");
  }
  return megabytes * kMegabyte;
}

}  // namespace

int64_t workspace_limit() {
  static const int64_t limit = read_workspace_limit();
  return limit;
}

std::string megabytes(double bytes) {
  return std::to_string(static_cast<int64_t>(std::ceil(bytes / (1 << 20))));
}

}  // namespace convx
