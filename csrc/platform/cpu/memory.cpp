#include "platform/cpu/memory.h"

#include <cstdlib>
#include <string>

namespace convx {

void* allocate_scratch(int64_t bytes) {
  constexpr int64_t kLine = 64;
  void* const memory = std::aligned_alloc(static_cast<size_t>(kLine),
                                          static_cast<size_t>((bytes + kLine - 1) / kLine * kLine));
  if (memory != nullptr) return memory;
  throw OutOfMemory("out of memory: a kernel of convx could not allocate " + std::to_string(bytes) +
                    " bytes for one thread; free some, or use fewer threads (torch.set_num_threads)");
}

}  // namespace convx
