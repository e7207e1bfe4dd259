// Runs the blocks of a grid, one at a time or a cluster of them together, one fiber per thread, and checks
// how threads meet.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fiber.h"
#include "race.h"
#include "shared_memory.h"
#include "simt.h"

simt::Extent threadIdx, blockIdx, blockDim, gridDim;

namespace simt {
namespace {

enum class State : uint8_t { ready, at_cluster_barrier, at_block_barrier, at_warp_barrier, at_shuffle, done };

const char* to_string(State state) {
  switch (state) {
    case State::ready:
      return "running";
    case State::at_cluster_barrier:
      return "at a cluster's barrier";
    case State::at_block_barrier:
      return "at a block barrier";
    case State::at_warp_barrier:
      return "at a warp barrier";
    case State::at_shuffle:
      return "at a shuffle";
    case State::done:
      return "finished";
  }
  return "";
}

struct Thread {
  Fiber fiber;
  State state = State::ready;
  const char* file = "";
  int line = 0;
  unsigned shuffles = 0;  // values of two successive shuffles are kept: a lane may be one ahead
  detail::Carried given[2];
  std::vector<std::pair<Copy, int>> copies;  // that are not all taken, and the groups that they are of
  size_t copies_taken = 0;
  int groups = 0;                  // that are committed
  int arrivals = 0;                // at the cluster's barrier, that are not waited for
  bool vote = false, any = false;  // at the block's barrier: the own, and whether one's was yes
};

struct Machine {
  Options options;
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  std::vector<Thread> threads;  // as many as the largest cluster so far, its blocks one after the other
  int count = 0;                // of a block
  int ranks = 1;                // blocks of a cluster
  int current = 0;
  int first_of_warp = 0;
  uint32_t first_block = 0;  // of the cluster, along x
  int rank() const { return current / count; }
  SharedMemory shared;
  std::string error;
  bool turn_taken = false;  // by a thread of the launch
  uint64_t random = 1;
};

Machine& machine() {
  static Machine* const instance = new Machine;  // outlives every fiber
  return *instance;
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

std::string format(const char* text, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(buffer, sizeof buffer, text, arguments);
  va_end(arguments);
  return buffer;
}

std::string where(int thread) {
  const Thread& it = machine().threads[thread];
  if (it.state == State::done || it.state == State::ready) {
    return format("thread %d is %s", thread, to_string(it.state));
  }
  return format("thread %d is %s at %s:%d", thread, to_string(it.state), base_name(it.file), it.line);
}

void record(const std::string& message) {
  Machine& m = machine();
  m.error =
      format("%s, block (%u, %u, %u): %s", m.kernel, blockIdx.x, blockIdx.y, blockIdx.z, message.c_str());
}

// From inside a thread: gives up the launch. The fiber is abandoned: what its frames own is leaked.
[[noreturn]] void stop(const std::string& message) {
  Machine& m = machine();
  record(message);
  m.threads[m.current].state = State::done;
  m.threads[m.current].fiber.suspend(true);
  std::abort();
}

void thread_main() {
  Fiber::entered();
  Machine& m = machine();
  (*m.body)();
  m.threads[m.current].state = State::done;
  m.threads[m.current].fiber.suspend(true);
  std::abort();
}

void wait(State state, const char* file, int line) {
  Machine& m = machine();
  Thread& thread = m.threads[m.current];
  thread.state = state;
  thread.file = file;
  thread.line = line;
  thread.fiber.suspend();
}

void require_lanes(int lanes, const char* file, int line) {
  const int device = machine().options.lanes;
  if (lanes == device) return;
  stop(format("code for warps of %d lanes at %s:%d, run on a device of %d", lanes, base_name(file), line,
              device));
}

uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

void arrange(std::vector<int>& order, int count, Order how, uint64_t& random) {
  order.resize(count);
  for (int i = 0; i < count; ++i) order[i] = how == Order::reverse ? count - 1 - i : i;
  if (how != Order::shuffled) return;
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[next_random(random) % (i + 1)]);
}

bool same_call(const Thread& a, const Thread& b) {
  return a.state == b.state && a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// Runs the warp that starts at first until all its threads are finished or at a barrier of more than the
// warp.
void run_warp(int first) {
  Machine& m = machine();
  m.first_of_warp = first;
  static std::vector<int> order;
  for (;;) {
    arrange(order, m.options.lanes, m.options.order, m.random);
    for (int lane : order) {
      Thread& thread = m.threads[first + lane];
      if (thread.state != State::ready) continue;
      m.current = first + lane;
      threadIdx.x = m.current % m.count;
      race::resume();
      thread.fiber.resume();
      if (!m.error.empty()) return;
    }
    int waiting = -1;
    for (int i = first; i < first + m.options.lanes; ++i) {
      const State state = m.threads[i].state;
      if (state == State::at_warp_barrier || state == State::at_shuffle) waiting = i;
    }
    if (waiting < 0) return;
    for (int i = first; i < first + m.options.lanes; ++i) {
      if (same_call(m.threads[i], m.threads[waiting])) continue;
      record("the warp diverges: " + where(waiting) + ", " + where(i));
      return;
    }
    if (m.threads[waiting].state == State::at_warp_barrier) race::warp_barrier(first / m.options.lanes);
    for (int i = first; i < first + m.options.lanes; ++i) m.threads[i].state = State::ready;
  }
}

// A thread of those that is not finished, at whose barrier all of them have to be; -1 where all are finished.
int meet(int first, int count, const char* whose) {
  Machine& m = machine();
  int waiting = -1;
  for (int i = first; i < first + count; ++i) {
    if (m.threads[i].state != State::done) waiting = i;
  }
  for (int i = first; waiting >= 0 && i < first + count; ++i) {
    if (same_call(m.threads[i], m.threads[waiting])) continue;
    record("the " + std::string(whose) + "'s barrier diverges: " + where(waiting) + ", " + where(i));
    return -1;
  }
  return waiting;
}

// Runs a block until all its threads are finished or at the cluster's barrier.
void run_block(int rank) {
  Machine& m = machine();
  const int first = rank * m.count;
  blockIdx.x = m.first_block + rank;
  std::vector<int> order;
  for (;;) {
    arrange(order, m.count / m.options.lanes, m.options.order, m.random);
    for (int warp : order) {
      run_warp(first + warp * m.options.lanes);
      if (!m.error.empty()) return;
    }
    const int waiting = meet(first, m.count, "block");
    if (waiting < 0 || m.threads[waiting].state == State::at_cluster_barrier) return;
    race::block_barrier(rank);
    bool any = false;
    for (int i = first; i < first + m.count; ++i) any |= m.threads[i].vote;
    for (int i = first; i < first + m.count; ++i) {
      m.threads[i].state = State::ready;
      m.threads[i].any = any, m.threads[i].vote = false;
    }
  }
}

void run_cluster() {
  Machine& m = machine();
  m.shared.begin_cluster();
  race::begin_cluster(m.ranks, m.count, m.options.lanes);
  const int threads = m.ranks * m.count;
  for (int i = 0; i < threads; ++i) {
    m.threads[i].state = State::ready;
    m.threads[i].shuffles = 0;
    m.threads[i].copies.clear();
    m.threads[i].copies_taken = 0;
    m.threads[i].groups = m.threads[i].arrivals = 0;
    m.threads[i].vote = false;
    m.threads[i].fiber.start(thread_main, i);
  }
  std::vector<int> order;
  for (;;) {
    arrange(order, m.ranks, m.options.order, m.random);
    for (int rank : order) {
      run_block(rank);
      if (!m.error.empty()) return;
    }
    if (meet(0, threads, "cluster") < 0) return;
    for (int i = 0; i < threads; ++i) m.threads[i].state = State::ready;
  }
}

void check_launch(Extent grid, uint32_t threads, uint32_t shared_bytes, uint32_t cluster) {
  const Machine& m = machine();
  if (m.options.lanes != 32 && m.options.lanes != 64) record(format("warps of %d lanes", m.options.lanes));
  if (threads == 0 || threads > m.options.max_threads || threads % m.options.lanes) {
    record(format("%u threads: a block has whole warps of %d, %u threads at most", threads, m.options.lanes,
                  m.options.max_threads));
  }
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    record(format("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z));
  }
  if (cluster == 0 || cluster > 16 || grid.x % cluster) {
    record(format("clusters of %u blocks of %u: at most 16, and all of them whole", cluster, grid.x));
  }
  if (shared_bytes > m.options.shared_limit) {
    record(format("%u bytes of dynamic shared memory, over the limit of %zu", shared_bytes,
                  m.options.shared_limit));
  }
}

}  // namespace

Options& options() {
  static Options instance;
  return instance;
}

void launch(const char* name, Extent grid, uint32_t threads, uint32_t shared_bytes,
            const std::function<void()>& body, uint32_t cluster) {
  Machine& m = machine();
  m.options = options();
  m.kernel = name;
  m.body = &body;
  m.error.clear();
  m.turn_taken = false;
  m.random = m.options.seed * 0x9e3779b97f4a7c15u | 1;
  blockIdx = Extent{0, 0, 0};
  check_launch(grid, threads, shared_bytes, cluster);
  if (!m.error.empty()) throw Error(m.error);
  m.count = static_cast<int>(threads);
  m.ranks = static_cast<int>(cluster);
  if (m.threads.size() < threads * cluster) m.threads.resize(threads * cluster);
  m.shared.configure(cluster, m.options.shared_limit, m.options.static_limit, shared_bytes);
  race::enable(m.options.detect_races);
  threadIdx = Extent{0, 0, 0};
  blockDim = Extent{threads, 1, 1};
  gridDim = grid;
  const uint64_t clusters = uint64_t{grid.x} * grid.y * grid.z / cluster;
  for (uint64_t i = 0; i < clusters && m.error.empty(); ++i) {
    const uint64_t block = (m.options.reverse_blocks ? clusters - 1 - i : i) * cluster;
    m.first_block = static_cast<uint32_t>(block % grid.x);
    blockIdx.y = static_cast<uint32_t>(block / grid.x % grid.y);
    blockIdx.z = static_cast<uint32_t>(block / grid.x / grid.y);
    run_cluster();
  }
  race::enable(false);
  m.shared.release();
  if (m.error.empty()) return;
  for (Thread& thread : m.threads) thread.fiber.abandon();
  throw Error(m.error);
}

void watch_result(const void* memory, size_t bytes) {
  race::watch_result(memory, bytes);
}

void take_turn() {
  machine().turn_taken = true;
}

void begin_copy(const Copy& copy) {
  Thread& thread = machine().threads[machine().current];
  thread.copies.emplace_back(copy, thread.groups);
}

void commit_copies() {
  ++machine().threads[machine().current].groups;
}

bool take_copy(int pending, Copy& copy) {
  Thread& thread = machine().threads[machine().current];
  if (thread.copies.empty()) return false;
  const auto& [oldest, group] = thread.copies[thread.copies_taken];
  if (machine().options.late_copies && group >= thread.groups - pending) return false;
  copy = oldest;
  if (++thread.copies_taken == thread.copies.size()) {
    thread.copies.clear();
    thread.copies_taken = 0;
  }
  return true;
}

void require_turn(const char* name) {
  if (!machine().turn_taken) {
    throw Error(std::string(name) + ": launched in turn, but the kernel does not call take_turn()");
  }
}

void block_barrier(const char* file, int line) {
  wait(State::at_block_barrier, file, line);
}

bool block_barrier_any(bool vote, const char* file, int line) {
  Thread& thread = machine().threads[machine().current];
  thread.vote = vote;
  wait(State::at_block_barrier, file, line);
  return thread.any;
}

void cluster_arrive() {
  Thread& thread = machine().threads[machine().current];
  if (thread.arrivals++ > 0)
    stop("a thread arrives twice at its cluster's barrier and does not wait between");
  race::cluster_arrive();
}

void cluster_wait(const char* file, int line) {
  Thread& thread = machine().threads[machine().current];
  if (thread.arrivals-- == 0) stop("a thread waits at its cluster's barrier and has not arrived");
  wait(State::at_cluster_barrier, file, line);
  race::cluster_wait();
}

namespace race {
void stop_thread(const std::string& message) {
  stop(message);
}
int current_thread() {
  return machine().current;
}
}  // namespace race

namespace detail {

int lane() {
  return machine().current - machine().first_of_warp;
}

void warp_barrier(int lanes, const char* file, int line) {
  require_lanes(lanes, file, line);
  wait(State::at_warp_barrier, file, line);
}

// In turns at two places: lanes that are ahead give to the other one, and wait there for those behind.
void give(int lanes, const Carried& value, const char* file, int line) {
  require_lanes(lanes, file, line);
  Machine& m = machine();
  Thread& thread = m.threads[m.current];
  thread.given[thread.shuffles++ % 2] = value;
  wait(State::at_shuffle, file, line);
}

const Carried& given_by(int lanes, int source_lane, const char* file, int line) {
  if (source_lane < 0 || source_lane >= lanes) {
    stop(format("shuffle from lane %d of %d at %s:%d", source_lane, lanes, base_name(file), line));
  }
  const Machine& m = machine();
  return m.threads[m.first_of_warp + source_lane].given[(m.threads[m.current].shuffles - 1) % 2];
}

void* shared_array(const void* key, size_t bytes, size_t alignment, const char* file, int line) {
  std::string problem;
  void* array = machine().shared.array(machine().rank(), key, bytes, alignment, problem);
  if (!array) stop(problem + format(" at %s:%d", base_name(file), line));
  return array;
}

unsigned char* dynamic_shared(const char* file, int line) {
  unsigned char* memory = machine().shared.dynamic(machine().rank());
  if (!memory) stop(format("the launch gave no dynamic shared memory, used at %s:%d", base_name(file), line));
  return memory;
}

void* in_block(const void* place, int rank, const char* file, int line) {
  void* const found = machine().shared.in_block(place, machine().rank(), rank);
  if (!found) stop(format("no shared memory of block %d's cluster, at %s:%d", rank, base_name(file), line));
  return found;
}

}  // namespace detail
}  // namespace simt
