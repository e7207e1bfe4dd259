// The shared memory of the blocks that run, one or a cluster: of each its dynamic part and arrays, each with
// a red zone after it.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace simt {

class SharedMemory {
 public:
  void configure(size_t blocks, size_t limit, size_t static_limit, size_t dynamic_bytes);
  void begin_cluster();  // every byte is 0xFF again, and the arrays are laid out anew
  void release();        // poisons nothing any more
  // Of the block of that rank. Null where it does not fit, and problem says why.
  void* array(size_t rank, const void* key, size_t bytes, size_t alignment, std::string& problem);
  unsigned char* dynamic(size_t rank) { return dynamic_bytes_ ? memory_ + rank * capacity_ : nullptr; }
  // The same place in another block's; null where it is not in the block of `from`.
  void* in_block(const void* place, size_t from, size_t to);

  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory();

 private:
  struct Array {
    const void* key;
    size_t offset;
  };
  struct Block {
    size_t used = 0, static_bytes = 0;  // used: up to where, from the first byte of memory_
    std::vector<Array> arrays = {};
  };
  size_t open(size_t offset, size_t bytes);  // fills and unpoisons; returns where the next may start

  unsigned char* memory_ = nullptr;
  size_t capacity_ = 0, allocated_ = 0;  // of a block, and of all
  size_t limit_ = 0, static_limit_ = 0, dynamic_bytes_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace simt
