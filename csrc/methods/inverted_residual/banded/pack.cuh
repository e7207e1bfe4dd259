// Writes a block's filters in the order in which the kernel's stages read them; see geometry.h.
#pragma once
#include "methods/inverted_residual/banded/geometry.h"
#include "methods/inverted_residual/pack.cuh"
#include "methods/runs.cuh"

namespace convx::inverted_residual::banded {

// Of a value of the depth of a network's first convolution (patches.h): its place among a filter's, -1 of
// what counts as zero. The same where pixels are expanded, of one tap.
struct PatchDepth {
  Runs runs;
  int channels;

  CONVX_DEVICE int of(int value) const {
    if (runs.taps == 1) return value;
    const RunPair pair(runs, value / 2);
    if (!pair.has(runs, value % 2)) return -1;
    const int in_run = pair.first + value % 2;
    return (in_run % channels * runs.taps + pair.row) * runs.taps + in_run / channels;
  }
};

// The filter value that is `element` of 16 outputs, a step of the depth: a lane has four neighbours of the
// depth.
template <class T>
CONVX_DEVICE T expand_value(const PackArguments<T>& a, const PatchDepth& patch, End end, int first_output,
                            int pair, int first_depth, int element) {
  const int lane = element / 8, word = element / 2 % 4, half = element % 2;
  const int output = first_output + channel_of_plane(end, pair * 16 + lane / 4 + word % 2 * 8);
  const int place = patch.of(first_depth + lane % 4 * 4 + word / 2 * 2 + half);
  if (output >= a.expanded_channels || place < 0 || place >= a.expand_depth) return T{};
  return a.expand[static_cast<int64_t>(output) * a.expand_depth + place];
}

// Of a channel: in piece k neighbouring taps k - 1 and k of each row, zeros beside the first and the last.
template <class T>
CONVX_DEVICE uint32_t taps_word(const T* taps, int filter, int piece, int word) {
  if (word >= filter || taps == nullptr) return 0;
  const T* const row = taps + word * filter;
  const uint32_t low = piece > 0 ? row[piece - 1].bits : 0, high = piece < filter ? row[piece].bits : 0;
  return low | high << 16;
}

// A block of threads for a chunk, and one more for the bias of the result. a.depth_steps and a.pairs: of a
// chunk; project's filters are in the order of the other kernels.
template <class T>
CONVX_KERNEL(kPackThreads, 1)
pack_banded_kernel(PackArguments<T> a, PatchDepth patch, End end, int filter, int depthwise_bias_at,
                   int non_finite_at) {
  const int chunk = static_cast<int>(blockIdx.x), first = chunk * a.chunk;
  unsigned char* const to = a.packed + static_cast<int64_t>(chunk) * a.chunk_bytes;
  if (chunk == a.chunks) {
    for (int i = threadIdx.x; i < a.out_pairs * 16; i += kPackThreads) {
      reinterpret_cast<float*>(to)[i] = bias_value(a.project_bias, i, a.out_channels);
    }
    if (threadIdx.x == 0) to[a.out_pairs * 64] = 0;
    return;
  }
  CONVX_SHARED(int, non_finite, [4]);
  if (threadIdx.x < 4) non_finite[threadIdx.x] = 0;
  block_barrier();
  bool found = false;
  const auto look_at = [&](float value) { found |= !(fabsf(value) < INFINITY); };
  T* const expand = reinterpret_cast<T*>(to);
  for (int i = threadIdx.x; i < a.pairs * a.depth_steps * 256; i += kPackThreads) {
    const int pair = i / 256 / a.depth_steps, step = i / 256 % a.depth_steps;
    expand[i] = expand_value(a, patch, end, first, pair, step * 16, i % 256);
    look_at(widen(expand[i]));
  }
  // Of a lane's two channels, 8 apart, four sums begin with what lies together.
  float* const expand_bias = reinterpret_cast<float*>(to + a.expand_bias_at);
  for (int i = threadIdx.x; i < a.pairs * 32; i += kPackThreads) {
    const int channel = first + channel_of_plane(end, i / 32 * 16 + i % 32 / 4 + i % 4 / 2 * 8);
    expand_bias[i] = bias_value(a.expand_bias, channel, a.expanded_channels);
    look_at(expand_bias[i]);
  }
  float* const depthwise_bias = reinterpret_cast<float*>(to + depthwise_bias_at);
  for (int i = threadIdx.x; i < a.chunk * 4; i += kPackThreads) {
    depthwise_bias[i] =
        bias_value(a.depthwise_bias, first + channel_of_plane(end, i / 4), a.expanded_channels);
  }
  uint32_t* const taps = reinterpret_cast<uint32_t*>(to + a.depthwise_at);
  const int words = taps_piece(filter) / 4, of_channel = (filter + 1) * words;
  for (int i = threadIdx.x; i < a.chunk * of_channel; i += kPackThreads) {
    const int channel = first + channel_of_plane(end, i / of_channel), place = i % of_channel;
    const T* const own = channel < a.expanded_channels ? a.depthwise + channel * a.taps : nullptr;
    taps[i] = taps_word(own, filter, place / words, place % words);
  }
  T* const project = reinterpret_cast<T*>(to + a.project_at);
  for (int i = threadIdx.x; i < a.pairs * a.out_pairs * 256; i += kPackThreads) {
    const int step = i / 256 / a.out_pairs, pair = i / 256 % a.out_pairs;
    project[i] =
        fragment_value(a.project, a.out_channels, a.expanded_channels, pair * 16, first + step * 16, i % 256);
  }
  if (found) non_finite[0] = 1;
  block_barrier();
  if (threadIdx.x < 4) reinterpret_cast<int*>(to + non_finite_at)[threadIdx.x] = non_finite[threadIdx.x];
}

}  // namespace convx::inverted_residual::banded
