// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/epilogue.h"
#include "plan/launch.h"
#include "problem/device.h"
#include "problem/sweep.h"

namespace convx::cuconv {

// A source channel as the products read it: zeros around it, rows and columns dealt out by their residues
// modulo the strides, so that the values that a tap meets for neighbouring results are neighbours, across the
// ends of rows too: result (row, column) is position row * pitch + column, and every tap a constant distance
// away.
struct PackedPlane {
  int64_t pitch, residue_plane, elements;  // elements: of a channel
};

inline PackedPlane packed_plane(const Sweep& s) {
  const int64_t height = s.result_height + (s.filter_height - 1) * s.dilation_h / s.stride_h;
  const int64_t pitch = s.result_width + (s.filter_width - 1) * s.dilation_w / s.stride_w;
  const int64_t rows = s.filter_height == 1 ? 1 : s.stride_h, columns = s.filter_width == 1 ? 1 : s.stride_w;
  return {pitch, height * pitch, height * pitch * rows * columns};
}

// Elements behind the packed planes that a vector may read and nothing uses.
constexpr int64_t kOverread = 64;

struct Job {
  DType dtype;
  const void* source;
  const void* weight;  // in blocks of the order "crsk filters"
  EpilogueArguments<void> epilogue;
  void* result;
  void* workspace;  // packed planes of `images` images, in accumulators; null where the source is read itself
  Sweep sweep;
  int64_t images, positions;  // packed at a time; results of a task, of each of its filters
};

// Filters that share a loaded source vector, and vectors: as many as registers hold.
constexpr int64_t block_filters(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? 8 : 4;
}
constexpr int64_t strip_vectors(CpuIsa isa) {
  return isa == CpuIsa::baseline ? 2 : 3;
}
}  // namespace convx::cuconv

namespace convx::avx512 {
void run(const cuconv::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const cuconv::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const cuconv::Job& job, const ThreadPool& pool);
}
