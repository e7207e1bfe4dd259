// Finds accesses by two threads to the same address, one of them a write, that no barrier orders.
#pragma once
#include <cstddef>
#include <string>

namespace simt::race {

void enable(bool on);
void watch_shared(const void* memory, size_t bytes);
void watch_result(const void* memory, size_t bytes);  // where accesses of different blocks race too
void begin_block(int threads, int lanes);
void block_barrier();
void warp_barrier(int warp);

// Given by the scheduler.
[[noreturn]] void stop_thread(const std::string& message);
int current_thread();

}  // namespace simt::race
