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

void SharedMemory::configure(size_t limit, size_t static_limit, size_t dynamic_bytes) {
  const size_t capacity = round_up(limit + kMaxArrays * (kAlignment + kRedZone), kAlignment);
  if (capacity != capacity_) {
    std::free(memory_);
    memory_ = static_cast<unsigned char*>(std::aligned_alloc(kAlignment, capacity));
    if (!memory_) throw std::bad_alloc();
    capacity_ = capacity;
  }
  limit_ = limit;
  static_limit_ = static_limit;
  dynamic_bytes_ = dynamic_bytes;
  race::watch_shared(memory_, capacity_);
}

void SharedMemory::begin_block() {
  poison(memory_, capacity_);
  arrays_.clear();
  static_bytes_ = 0;
  used_ = dynamic_bytes_ ? open(0, dynamic_bytes_) : 0;
}

void SharedMemory::release() {
  unpoison(memory_, capacity_);
}

size_t SharedMemory::open(size_t offset, size_t bytes) {
  unpoison(memory_ + offset, bytes);
  std::memset(memory_ + offset, 0xFF, bytes);
  return round_up(offset + bytes + kRedZone, kAlignment);
}

void* SharedMemory::array(const void* key, size_t bytes, size_t alignment, std::string& problem) {
  for (const Array& array : arrays_) {
    if (array.key == key) return memory_ + array.offset;
  }
  static_bytes_ += bytes;
  if (static_bytes_ > static_limit_) {
    problem = std::to_string(static_bytes_) + " bytes of shared arrays, over the limit of " +
              std::to_string(static_limit_);
    return nullptr;
  }
  if (static_bytes_ + dynamic_bytes_ > limit_) {
    problem = std::to_string(static_bytes_ + dynamic_bytes_) + " bytes of shared memory, over the limit of " +
              std::to_string(limit_);
    return nullptr;
  }
  if (arrays_.size() == kMaxArrays || alignment > kAlignment) {
    problem = "too many shared arrays, or one of too large an alignment";
    return nullptr;
  }
  arrays_.push_back({key, used_, bytes});
  used_ = open(used_, bytes);
  return memory_ + arrays_.back().offset;
}

}  // namespace simt
