// The shared memory of the block that is running: dynamic part and arrays, each with a red zone after it.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace simt {

class SharedMemory {
 public:
  void configure(size_t limit, size_t static_limit, size_t dynamic_bytes);
  void begin_block();  // every byte is 0xFF again, and the arrays are laid out anew
  void release();      // poisons nothing any more
  // Null where it does not fit, and problem says why.
  void* array(const void* key, size_t bytes, size_t alignment, std::string& problem);
  unsigned char* dynamic() { return dynamic_bytes_ ? memory_ : nullptr; }

  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory();

 private:
  struct Array {
    const void* key;
    size_t offset, bytes;
  };
  size_t open(size_t offset, size_t bytes);  // fills and unpoisons; returns where the next may start

  unsigned char* memory_ = nullptr;
  size_t capacity_ = 0, used_ = 0;
  size_t limit_ = 0, static_limit_ = 0, dynamic_bytes_ = 0, static_bytes_ = 0;
  std::vector<Array> arrays_;
};

}  // namespace simt
