// Finds accesses by two threads to the same address, one of them a write, that no barrier orders.
#pragma once
#include <cstddef>
#include <string>

namespace simt::race {

void enable(bool on);
void watch_shared(const void* memory, size_t bytes);
void watch_result(const void* memory, size_t bytes);  // where accesses of different blocks race too
// Threads, and warps, are numbered through the blocks of a cluster.
void begin_cluster(int blocks, int threads_of_block, int lanes);
void resume();  // the current thread is another one, or has passed a barrier
void block_barrier(int rank);
void warp_barrier(int warp);
void cluster_arrive();  // the current thread
void cluster_wait();

// Given by the scheduler.
[[noreturn]] void stop_thread(const std::string& message);
int current_thread();

}  // namespace simt::race
