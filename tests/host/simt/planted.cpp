// Kernels with one bug each, named on the command line, to prove that the executor finds it; "none" has none.
// A bug that is found ends the program with status 3 and a line "FOUND …", or by the address sanitizer.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "platform/gpu/async_copy.h"
#include "platform/gpu/cluster.h"
#include "platform/gpu/overlap.h"

namespace {

using namespace convx;

constexpr int kThreads = 128;

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
correct(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  CONVX_DYNAMIC_SHARED(dynamic);
  float* const copy = reinterpret_cast<float*>(dynamic);
  const int thread = threadIdx.x;
  tile[thread] = static_cast<float>(thread);
  block_barrier();
  const float mirrored = tile[kThreads - 1 - thread];
  copy[thread] = segment_sum<Lanes, 4>(mirrored);
  warp_barrier<Lanes>();
  result[thread] = copy[thread ^ 1] + shuffle<Lanes>(mirrored, 3);
}

CONVX_KERNEL(kThreads, 1) two_barriers(float* result) {
  if (threadIdx.x < 32) {
    block_barrier();
  } else {
    block_barrier();
  }
  result[threadIdx.x] = 1;
}

CONVX_KERNEL(kThreads, 1) early_return(float* result) {
  if (threadIdx.x > 40) return;
  block_barrier();
  result[threadIdx.x] = 1;
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
divergent_shuffle(float* result) {
  float value = 1;
  if (threadIdx.x & 1) value = shuffle_xor<Lanes>(value, 1);
  result[threadIdx.x] = value;
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
divergent_warp_barrier(float* result) {
  if (threadIdx.x % Lanes < 7) warp_barrier<Lanes>();
  result[threadIdx.x] = 1;
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
lane_outside_warp(float* result) {
  result[threadIdx.x] = shuffle<Lanes>(1.f, threadIdx.x % Lanes + 1);
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
wrong_lane(float* result) {
  // Right on 64 lanes only.
  result[threadIdx.x] = shuffle<Lanes>(static_cast<float>(threadIdx.x), threadIdx.x & 63);
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
wrong_width(float* result) {
  result[threadIdx.x] = segment_sum<96 - Lanes, 32>(1.f);
}

CONVX_KERNEL(kThreads, 1) uninitialised_shared(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  if (threadIdx.x != 5) tile[threadIdx.x] = 1;
  block_barrier();
  result[threadIdx.x] = tile[threadIdx.x];
}

CONVX_KERNEL(kThreads, 1) shared_overrun(float* result) {
  CONVX_SHARED(float, tile, [kThreads - 1]);
  tile[threadIdx.x] = 1;
  block_barrier();
  result[threadIdx.x] = tile[0];
}

CONVX_KERNEL(kThreads, 1) dynamic_overrun(float* result) {
  CONVX_DYNAMIC_SHARED(dynamic);
  float* const tile = reinterpret_cast<float*>(dynamic);
  tile[threadIdx.x + 1] = 1;
  result[threadIdx.x] = 1;
}

CONVX_KERNEL(kThreads, 1) global_overrun(float* result) {
  result[threadIdx.x + 1] = 1;
}

CONVX_KERNEL(kThreads, 1) global_read_before(float* result) {
  const float before = result[static_cast<int>(threadIdx.x) - 1];
  result[threadIdx.x] = before == before ? 1 : 2;
}

CONVX_KERNEL(kThreads, 1) missing_barrier(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1;
  result[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

// The second write may overtake another thread's read.
CONVX_KERNEL(kThreads, 1) missing_second_barrier(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1;
  block_barrier();
  const float value = tile[kThreads - 1 - threadIdx.x];
  tile[threadIdx.x] = 1;  // the same value: only the race detector can tell
  result[threadIdx.x] = value;
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
shuffle_as_barrier(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1;
  const float value = shuffle_xor<Lanes>(1.f, 1);
  result[threadIdx.x] = tile[threadIdx.x ^ 1] * value;
}

template <int Lanes>
CONVX_KERNEL(kThreads, 1)
warp_barrier_for_block(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1;
  warp_barrier<Lanes>();
  result[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

CONVX_KERNEL(kThreads, 1) result_race(float* result) {
  result[threadIdx.x / 2] = 1;
}

CONVX_KERNEL(kThreads, 1) result_race_of_blocks(float* result) {
  result[threadIdx.x] = 1;
}

template <bool Commits, bool Waits>
CONVX_KERNEL(kThreads, 1)
copied(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  copy_async<4>(tile + threadIdx.x, result + threadIdx.x, 4);
  if (Commits) commit_copies();
  if (Waits) wait_copies<0>();
  block_barrier();
  result[threadIdx.x] = tile[threadIdx.x ^ 1];
}

// Waits for all but the group that it reads.
CONVX_KERNEL(kThreads, 1) waits_for_another_group(float* result) {
  CONVX_SHARED(float, tile, [2 * kThreads]);
  for (int i = 0; i < 2; ++i) {
    copy_async<4>(tile + i * kThreads + threadIdx.x, result + threadIdx.x, 4);
    commit_copies();
  }
  wait_copies<1>();
  result[threadIdx.x] = tile[kThreads + threadIdx.x];
}

CONVX_KERNEL(kThreads, 1) misaligned_vector(float* result) {
  const Vector<float, 4> value = load<float, 4>(result + 1);
  result[threadIdx.x] = value.element[0] == 0 ? 1 : 2;
}

CONVX_KERNEL(kThreads, 1) too_many_arrays(float* result) {
  CONVX_SHARED(float, tile, [20000]);
  tile[threadIdx.x] = 1;
  result[threadIdx.x] = tile[threadIdx.x];
}

// Two blocks, each of which reads what the other has pushed to it: before that one has arrived, or what it
// pushes when it has, or without having arrived.
enum class Exchange { correct, without_barrier, pushed_late, without_arrival };

template <Exchange How>
CONVX_KERNEL(kThreads, 1)
exchanged(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  const int other = 1 - static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  tile[thread] = 0;
  cluster_arrive();
  cluster_wait();
  float* const to = in_block(tile + kThreads - 1 - thread, other);
  if (How != Exchange::pushed_late) *to = 1;
  if (How == Exchange::correct || How == Exchange::pushed_late) cluster_arrive();
  if (How == Exchange::pushed_late) *to = 1;
  if (How != Exchange::without_barrier) cluster_wait();
  if (other == 1) result[thread] = tile[thread];
  cluster_arrive();
  cluster_wait();
}

CONVX_KERNEL(kThreads, 1) outside_cluster(float* result) {
  CONVX_SHARED(float, tile, [kThreads]);
  *in_block(tile + threadIdx.x, 2) = 1;
  result[threadIdx.x] = 1;
}

CONVX_KERNEL(kThreads, 1) leaves_cluster(float* result) {
  if (blockIdx.x == 1) return;
  cluster_arrive();
  cluster_wait();
  result[threadIdx.x] = 1;
}

using Kernel = void (*)(float*);

struct Planted {
  Kernel kernel32, kernel64;
  uint32_t blocks = 1, threads = kThreads, shared_bytes = 0;
  bool in_turn = false;
  uint32_t cluster = 1;
};

template <Exchange How>
Planted pair_of_blocks() {
  return {exchanged<How>, exchanged<How>, 2, kThreads, 0, false, 2};
}

const std::map<std::string, Planted>& table() {
  static const std::map<std::string, Planted> bugs = {
      {"none", {correct<32>, correct<64>, 1, kThreads, kThreads * sizeof(float)}},
      {"two_barriers", {two_barriers, two_barriers}},
      {"early_return", {early_return, early_return}},
      {"divergent_shuffle", {divergent_shuffle<32>, divergent_shuffle<64>}},
      {"divergent_warp_barrier", {divergent_warp_barrier<32>, divergent_warp_barrier<64>}},
      {"lane_outside_warp", {lane_outside_warp<32>, lane_outside_warp<64>}},
      {"wrong_lane", {wrong_lane<32>, wrong_lane<32>}},
      {"wrong_width", {wrong_width<32>, wrong_width<64>}},
      {"uninitialised_shared", {uninitialised_shared, uninitialised_shared}},
      {"shared_overrun", {shared_overrun, shared_overrun}},
      {"dynamic_overrun", {dynamic_overrun, dynamic_overrun, 1, kThreads, kThreads * sizeof(float)}},
      {"global_overrun", {global_overrun, global_overrun}},
      {"global_read_before", {global_read_before, global_read_before}},
      {"missing_barrier", {missing_barrier, missing_barrier}},
      {"missing_second_barrier", {missing_second_barrier, missing_second_barrier}},
      {"shuffle_as_barrier", {shuffle_as_barrier<32>, shuffle_as_barrier<64>}},
      {"warp_barrier_for_block", {warp_barrier_for_block<32>, warp_barrier_for_block<64>}},
      {"result_race", {result_race, result_race}},
      {"result_race_of_blocks", {result_race_of_blocks, result_race_of_blocks, 2}},
      {"not_committed", {copied<false, true>, copied<false, true>}},
      {"not_waited_for", {copied<true, false>, copied<true, false>}},
      {"waits_for_another_group", {waits_for_another_group, waits_for_another_group}},
      {"none_of_a_cluster", pair_of_blocks<Exchange::correct>()},
      {"no_barrier_of_cluster", pair_of_blocks<Exchange::without_barrier>()},
      {"pushed_after_arrival", pair_of_blocks<Exchange::pushed_late>()},
      {"waits_without_arrival", pair_of_blocks<Exchange::without_arrival>()},
      {"outside_cluster", {outside_cluster, outside_cluster, 2, kThreads, 0, false, 2}},
      {"leaves_cluster", {leaves_cluster, leaves_cluster, 2, kThreads, 0, false, 2}},
      {"half_a_cluster",
       {exchanged<Exchange::correct>, exchanged<Exchange::correct>, 3, kThreads, 0, false, 2}},
      {"misaligned_vector", {misaligned_vector, misaligned_vector}},
      {"too_many_arrays", {too_many_arrays, too_many_arrays}},
      {"too_much_dynamic", {correct<32>, correct<64>, 1, kThreads, 100000}},
      {"no_dynamic", {correct<32>, correct<64>}},
      {"no_turn", {correct<32>, correct<64>, 1, kThreads, kThreads * sizeof(float), true}},
      {"partial_warp", {correct<32>, correct<64>, 1, kThreads - 16, kThreads * sizeof(float)}},
  };
  return bugs;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && !std::strcmp(arguments[1], "list")) {
    for (const auto& entry : table()) std::printf("%s\n", entry.first.c_str());
    return 0;
  }
  if (count != 4 || !table().count(arguments[1])) {
    std::fprintf(stderr, "usage: planted list | planted BUG LANES forward|reverse|shuffled\n");
    return 2;
  }
  const Planted& bug = table().at(arguments[1]);
  simt::options().lanes = std::atoi(arguments[2]);
  const std::string order = arguments[3];
  if (order == "reverse") simt::options().order = simt::Order::reverse;
  if (order == "shuffled") simt::options().order = simt::Order::shuffled;
  std::vector<float> result(kThreads, 0.f);
  simt::watch_result(result.data(), kThreads * sizeof(float));
  try {
    const Kernel kernel = simt::options().lanes == 32 ? bug.kernel32 : bug.kernel64;
    const Grid grid{bug.blocks, 1, 1, bug.cluster};
    if (bug.in_turn) {
      launch_in_turn(kernel, arguments[1], grid, bug.threads, bug.shared_bytes, Stream(), result.data());
    } else {
      launch_kernel(kernel, arguments[1], grid, bug.threads, bug.shared_bytes, Stream(), result.data());
    }
  } catch (const simt::Error& error) {
    std::printf("FOUND %s\n", error.what());
    return 3;
  }
  for (float value : result) {
    if (value != value) {
      std::printf("FOUND NaN in the result\n");
      return 3;
    }
  }
  std::printf("RAN\n");
}
