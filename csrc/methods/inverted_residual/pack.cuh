// Writes a block's filters in the order in which the kernel's stages read them; see geometry.h.
#pragma once
#include "methods/inverted_residual/launching.cuh"
#include "platform/gpu/mma.h"
#include "platform/gpu/platform.h"

namespace convx::inverted_residual {

constexpr int kPackThreads = 256;

template <class T>
struct PackArguments {
  const T *expand, *expand_bias, *depthwise, *depthwise_bias, *project, *project_bias;
  unsigned char* packed;
  int expand_depth, expanded_channels, out_channels, taps;
  int chunk, chunks, depth_steps, chunk_steps, pairs, out_pairs;
  int expand_bias_at, depthwise_at, project_at, non_finite_at, chunk_bytes;
};

// Of a form's geometry; chunk: expanded channels of one.
template <class T, class Geometry>
PackArguments<T> pack_arguments_of(const BlockProblem& p, const Geometry& g, int64_t chunk,
                                   int64_t depth_steps, const BlockWeights& w, void* packed) {
  const auto typed = [](const void* pointer) { return static_cast<const T*>(pointer); };
  PackArguments<T> a{};
  a.expand = typed(w.expand), a.expand_bias = typed(w.expand_bias);
  a.depthwise = typed(w.depthwise), a.depthwise_bias = typed(w.depthwise_bias);
  a.project = typed(w.project), a.project_bias = typed(w.project_bias);
  a.packed = static_cast<unsigned char*>(packed);
  a.expand_depth = number(p.expand_depth()), a.expanded_channels = number(p.expanded_channels);
  a.out_channels = number(p.out_channels), a.taps = number(p.filter * p.filter);
  a.chunk = number(chunk), a.chunks = number(g.chunks), a.depth_steps = number(depth_steps);
  a.chunk_steps = number(chunk * static_cast<int64_t>(sizeof(T)) / kStepBytes);
  a.pairs = number(chunk / kMatrix), a.out_pairs = number(g.out_pairs);
  a.expand_bias_at = number(g.expand_bias_at), a.depthwise_at = number(g.depthwise_at);
  a.project_at = number(g.project_at), a.non_finite_at = number(g.non_finite_at);
  a.chunk_bytes = number(g.chunk_bytes);
  return a;
}

// The filter value that is `element` of a pair of tiles, a step of the depth: filters is (outputs, depth).
template <class T>
CONVX_DEVICE T fragment_value(const T* filters, int outputs, int depth, int first_output, int first_depth,
                              int element) {
  constexpr int kOfWord = 4 / sizeof(T), kOfTile = 2 * kOfWord, kOfLane = 2 * kOfTile;
  const int lane = element / kOfLane, tile = element / kOfTile % 2, word = element / kOfWord % 2;
  const int column = lane / 4;
  const int output = first_output + column / 2 * 4 + tile * 2 + column % 2;
  const int channel = first_depth + (word * 4 + lane % 4) * kOfWord + element % kOfWord;
  if (output >= outputs || channel >= depth) return T{};
  const T value = filters[static_cast<int64_t>(output) * depth + channel];
  if constexpr (sizeof(T) == 4) {
    return against_dropped_digits(value, channel);
  } else {
    return value;
  }
}

template <class T>
CONVX_DEVICE float bias_value(const T* bias, int channel, int channels) {
  return bias != nullptr && channel < channels ? widen(bias[channel]) : 0.0f;
}

// A block of threads for a chunk, and one more for the bias of the result.
template <class T>
CONVX_KERNEL(kPackThreads, 1)
pack_kernel(PackArguments<T> a) {
  const int chunk = static_cast<int>(blockIdx.x), first = chunk * a.chunk;
  unsigned char* const to = a.packed + static_cast<int64_t>(chunk) * a.chunk_bytes;
  if (chunk == a.chunks) {
    for (int i = threadIdx.x; i < a.out_pairs * 16; i += kPackThreads) {
      reinterpret_cast<float*>(to)[i] = bias_value(a.project_bias, i, a.out_channels);
    }
    for (int i = threadIdx.x; i < a.chunk; i += kPackThreads) to[a.out_pairs * 64 + i] = 0;
    return;
  }
  constexpr int kValues = kPairBytes / sizeof(T), kDepth = kStepBytes / sizeof(T);
  T* const expand = reinterpret_cast<T*>(to);
  for (int i = threadIdx.x; i < a.pairs * a.depth_steps * kValues; i += kPackThreads) {
    const int pair = i / kValues / a.depth_steps, step = i / kValues % a.depth_steps;
    expand[i] = fragment_value(a.expand, a.expanded_channels, a.expand_depth, first + pair * 16,
                               step * kDepth, i % kValues);
  }
  float* const expand_bias = reinterpret_cast<float*>(to + a.expand_bias_at);
  float* const depthwise = reinterpret_cast<float*>(to + a.depthwise_at);
  for (int i = threadIdx.x; i < a.chunk; i += kPackThreads) {
    const int channel = first + i;
    expand_bias[i] = bias_value(a.expand_bias, channel, a.expanded_channels);
    for (int tap = 0; tap < a.taps; ++tap) {
      depthwise[tap * a.chunk + i] =
          channel < a.expanded_channels ? widen(a.depthwise[channel * a.taps + tap]) : 0.0f;
    }
    depthwise[a.taps * a.chunk + i] = bias_value(a.depthwise_bias, channel, a.expanded_channels);
  }
  bool found = false;  // what parts of float32 can't be made of
  T* const project = reinterpret_cast<T*>(to + a.project_at);
  for (int i = threadIdx.x; i < a.chunk_steps * a.out_pairs * kValues; i += kPackThreads) {
    const int step = i / kValues / a.out_pairs, pair = i / kValues % a.out_pairs;
    project[i] = fragment_value(a.project, a.out_channels, a.expanded_channels, pair * 16,
                                first + step * kDepth, i % kValues);
    found |= !(fabsf(widen(project[i])) < 0x1p127f);
  }
  if constexpr (sizeof(T) == 4) {
    found = block_barrier_any(found);
    if (threadIdx.x < 4) reinterpret_cast<int*>(to + a.non_finite_at)[threadIdx.x] = found;
  }
}

}  // namespace convx::inverted_residual
