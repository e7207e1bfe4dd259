// Host executor: runs device kernels as plain C++, for tests on machines without a GPU.
//
// A kernel compiled with -DCONVX_SIMT is an ordinary function. simt::launch runs each block, or cluster, of
// the grid in turn with one fiber per GPU thread; fibers give way at barriers and shuffles alone, in an order
// that simt::options() sets. What a GPU would leave undefined raises simt::Error:
//   - a barrier or shuffle that not all threads of the block or warp reach, or that they reach at different
//   calls;
//   - a shuffle whose source lies outside the warp, warp code built for another width than the device's;
//   - more shared memory, threads or blocks than the device has;
//   - a kernel launched to overlap the one before it that never waits for that;
//   - with late_copies, what is copied beside a thread's work and not waited for: it is not there;
//   - in address-sanitized builds, accesses to the same address by two threads, one of them a write, with no
//     barrier between (race.cpp).
// Shared memory holds 0xFF (NaN, -1) until it is written, and has red zones that the address sanitizer knows.
#pragma once
#include <math.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace simt {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// In which order the warps of a block, and the lanes of a warp, run between two barriers.
enum class Order { forward, reverse, shuffled };

struct Options {
  int lanes = 32;  // threads of a warp: 32 or 64
  Order order = Order::forward;
  uint64_t seed = 1;                // of Order::shuffled
  size_t shared_limit = 64 * 1024;  // bytes a block may have, static and dynamic together
  size_t static_limit = 48 * 1024;  // of those, in CONVX_SHARED arrays
  uint32_t max_threads = 1024;      // of a block
  bool detect_races = true;         // where the build can
  bool reverse_blocks = false;      // last block first
  // Copies beside a thread's work are done when it waits for them, and not when they begin: a GPU may do
  // either. Who does not wait reads what was there before; who begins too early overwrites what is read.
  bool late_copies = true;
};
Options& options();

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

// Also finds races on this memory, between threads of different blocks too. Zero bytes: no more.
void watch_result(const void* memory, size_t bytes);

// Runs body once per thread of the grid. body is the kernel with its arguments bound. cluster: how many
// neighbours along x are one.
void launch(const char* name, Extent grid, uint32_t threads, uint32_t shared_bytes,
            const std::function<void()>& body, uint32_t cluster = 1);

// Raises an error unless the kernel launched last has called take_turn().
void require_turn(const char* name);

// The rest is called by kernels. Default arguments record the call site, so that threads which meet at
// different barriers are told apart.
#define SIMT_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace detail {
// key is unique to the array; the first thread of a block that asks lays it out.
void* shared_array(const void* key, size_t bytes, size_t alignment, const char* file, int line);
unsigned char* dynamic_shared(const char* file, int line);
void warp_barrier(int lanes, const char* file, int line);
// What lanes give each other.
struct alignas(16) Carried {
  unsigned char bytes[32];
};
// Waits until all lanes of the warp have given something.
void give(int lanes, const Carried& value, const char* file, int line);
// What a lane of the warp gave last.
const Carried& given_by(int lanes, int source_lane, const char* file, int line);
int lane();
void* in_block(const void* place, int rank, const char* file, int line);
}  // namespace detail

void block_barrier(SIMT_SITE);
bool block_barrier_any(bool vote, SIMT_SITE);

// The two halves of the barrier of a cluster's threads. What a thread has accessed before it arrives is
// ordered before what others access once they have waited.
void cluster_arrive();
void cluster_wait(SIMT_SITE);
// A place in the shared memory of this block, in that of the cluster's block of the rank.
template <class T>
T* in_block(T* place, int rank, SIMT_SITE) {
  return static_cast<T*>(detail::in_block(place, rank, file, line));
}

// A thread's copies beside its work; platform/gpu/async_copy.h performs them.
struct Copy {
  void* to;
  const void* from;
  int bytes, valid_bytes;
};
void begin_copy(const Copy& copy);
void commit_copies();  // those that have begun since the last time are a group
// Takes the oldest copy of the thread's groups but for the youngest `pending`; without late_copies the oldest
// of all that have begun. false where there is none.
bool take_copy(int pending, Copy& copy);

// Where a GPU would wait for the kernel before: here each is complete when the next begins.
void take_turn();

// Whether the GPU that it is copies in bulk (platform/gpu/stage.h), as sm_90 and later do.
inline bool copies_in_bulk = true;
inline bool block_stages_copy() {
  return copies_in_bulk;
}

template <int Lanes>
void warp_barrier(SIMT_SITE) {
  detail::warp_barrier(Lanes, file, line);
}

// A value of each lane of the warp, which any of them reads until it gives another. Nothing of a kernel's is
// accessed here that the address sanitizer could say something about.
template <int Lanes, class T>
class Given {
 public:
  __attribute__((no_sanitize("address"))) explicit Given(T own, SIMT_SITE) : file_(file), line_(line) {
    static_assert(sizeof(T) <= sizeof(detail::Carried) && std::is_trivially_copyable<T>::value, "what fits");
    detail::Carried carried;
    __builtin_memcpy(&carried, &own, sizeof(T));
    detail::give(Lanes, carried, file, line);
  }
  __attribute__((no_sanitize("address"))) T from(int lane) const {
    T value;
    __builtin_memcpy(&value, &detail::given_by(Lanes, lane, file_, line_), sizeof(T));
    return value;
  }

 private:
  const char* file_;
  int line_;
};

template <int Lanes, class T>
T shuffle(T value, int source_lane, SIMT_SITE) {
  return Given<Lanes, T>(value, file, line).from(source_lane);
}

template <int Lanes, class T>
T shuffle_xor(T value, int mask, SIMT_SITE) {
  return shuffle<Lanes>(value, detail::lane() ^ mask, file, line);
}

}  // namespace simt

#define SIMT_SHARED(type, name, dims)                                                    \
  using name##_simt_type = type dims;                                                    \
  static const char name##_simt_key = 0;                                                 \
  name##_simt_type& name = *static_cast<name##_simt_type*>(::simt::detail::shared_array( \
      &name##_simt_key, sizeof(name##_simt_type), alignof(name##_simt_type), __FILE__, __LINE__))
#define SIMT_DYNAMIC_SHARED() ::simt::detail::dynamic_shared(__FILE__, __LINE__)

// Built-ins with the names kernels use.
extern simt::Extent threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;
