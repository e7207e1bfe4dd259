#include "shared_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "race.h"

#if defined(SIMT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace simt {
namespace {
constexpr size_t kAlignment = 128;  // of each array, as on the device
constexpr size_t kRedZone = 128;
constexpr size_t kMaxArrays = 64;

void poison(const void* memory, size_t bytes) {
#if defined(SIMT_ADDRESS_SANITIZER)
  __asan_poison_memory_region(memory, bytes);
#else
  (void)memory, (void)bytes;
#endif
}
void unpoison(const void* memory, size_t bytes) {
#if defined(SIMT_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(memory, bytes);
#else
  (void)memory, (void)bytes;
#endif
}

size_t round_up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}
}  // namespace

SharedMemory::~SharedMemory() {
  std::free(memory_);
}

void SharedMemory::configure(size_t blocks, size_t limit, size_t static_limit, size_t dynamic_bytes) {
  capacity_ = round_up(limit + kMaxArrays * (kAlignment + kRedZone), kAlignment);
  if (blocks * capacity_ != allocated_) {
    std::free(memory_);
    allocated_ = blocks * capacity_;
    memory_ = static_cast<unsigned char*>(std::aligned_alloc(kAlignment, allocated_));
    if (!memory_) throw std::bad_alloc();
  }
  blocks_.resize(blocks);
  limit_ = limit;
  static_limit_ = static_limit;
  dynamic_bytes_ = dynamic_bytes;
  race::watch_shared(memory_, allocated_);
}

void SharedMemory::begin_cluster() {
  poison(memory_, allocated_);
  for (size_t rank = 0; rank < blocks_.size(); ++rank) {
    const size_t first = rank * capacity_;
    blocks_[rank] = {dynamic_bytes_ ? open(first, dynamic_bytes_) : first};
  }
}

void SharedMemory::release() {
  unpoison(memory_, allocated_);
}

size_t SharedMemory::open(size_t offset, size_t bytes) {
  unpoison(memory_ + offset, bytes);
  std::memset(memory_ + offset, 0xFF, bytes);
  return round_up(offset + bytes + kRedZone, kAlignment);
}

void* SharedMemory::array(size_t rank, const void* key, size_t bytes, size_t alignment,
                          std::string& problem) {
  Block& block = blocks_[rank];
  for (const Array& array : block.arrays) {
    if (array.key == key) return memory_ + array.offset;
  }
  block.static_bytes += bytes;
  if (block.static_bytes > static_limit_) {
    problem = std::to_string(block.static_bytes) + " bytes of shared arrays, over the limit of " +
              std::to_string(static_limit_);
    return nullptr;
  }
  if (block.static_bytes + dynamic_bytes_ > limit_) {
    problem = std::to_string(block.static_bytes + dynamic_bytes_) +
              " bytes of shared memory, over the limit of " + std::to_string(limit_);
    return nullptr;
  }
  if (block.arrays.size() == kMaxArrays || alignment > kAlignment) {
    problem = "too many shared arrays, or one of too large an alignment";
    return nullptr;
  }
  block.arrays.push_back({key, block.used});
  block.used = open(block.used, bytes);
  return memory_ + block.arrays.back().offset;
}

void* SharedMemory::in_block(const void* place, size_t from, size_t to) {
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(place) - memory_);
  if (offset / capacity_ != from || to >= blocks_.size()) return nullptr;
  return memory_ + offset + (to - from) * capacity_;
}

}  // namespace simt
