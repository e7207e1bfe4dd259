// Weight gradient of nchw depthwise convolution on planes of 7x7 and 14x14. A warp walks over images; the
// planes of its channels lie side by side in memory and arrive by one copy per tensor, some images ahead.
#pragma once
#include "../packed.cuh"
#include "geometry.h"
#include "methods/sums.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"
#include "platform/gpu/stage.h"

namespace convx::depthwise {

struct PlaneWeightArguments {
  const void* input;
  const void* output_grad;
  void* result;  // T with one slice, partial sums [slice][channel][tap] with more
  int batch, channels, slices;
  int channel_groups;
  bool bulk;  // both tensors and the images in them start at multiples of 16 bytes
};

// Side 7: one lane sums a whole plane, and planes 49 words apart meet no bank conflict. Side 14: four lanes
// sum a quarter each, all reading it from the image's corner inwards, so that every lane has the padding at
// the same taps. Edges are known at compile time and cost nothing. Block = (channel group, slice of images).
template <class T, int Lanes, int Filter, int Side>
CONVX_KERNEL(kPlaneWeightThreads, 1)
plane_weight_kernel(PlaneWeightArguments a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  constexpr int kTaps = Filter * Filter, kPadding = Filter / 2, kStages = kPlaneWeightStages;
  constexpr int kParts = Side == 14 ? 4 : 1, kPlanes = Lanes / kParts, kQuarter = 7, kPlane = Side * Side;
  // Input rows and columns of a lane: a quarter reads into its neighbours.
  constexpr int kReach = kParts == 4 ? kQuarter + kPadding : kQuarter;
  // With 64 lanes they also keep float16 within the registers of gfx90a.
  constexpr bool kRowSums = sizeof(T) == 4 || Lanes == 64;
  constexpr int kTensorBytes = kPlanes * kPlane * static_cast<int>(sizeof(T));
  CONVX_DYNAMIC_SHARED(shared);
  CONVX_SHARED(uint64_t, barriers, [kPlaneWeightThreads / 32][kStages]);
  const int lane = threadIdx.x % Lanes, warp = threadIdx.x / Lanes, warps = blockDim.x / Lanes;
  const int group = blockIdx.x % a.channel_groups, slice = blockIdx.x / a.channel_groups;
  const int first_image = static_cast<int>(static_cast<int64_t>(a.batch) * slice / a.slices) + warp;
  const int end_image = static_cast<int>(static_cast<int64_t>(a.batch) * (slice + 1) / a.slices);
  const int first_channel = group * kPlanes;
  const int planes = a.channels - first_channel < kPlanes ? a.channels - first_channel : kPlanes;
  const uint32_t bytes = static_cast<uint32_t>(planes) * kPlane * sizeof(T);
  unsigned char* const stages = shared + warp * kStages * 2 * kTensorBytes;

  WarpStages<Lanes, kStages> ring(barriers[warp], lane);
  const auto issue = [&](int step) {
    const int image = first_image + step * warps, stage = step % kStages;
    if (image >= end_image) return;
    const int64_t offset = (static_cast<int64_t>(image) * a.channels + first_channel) * kPlane;
    unsigned char* const target = stages + stage * 2 * kTensorBytes;
    const T* const input = static_cast<const T*>(a.input) + offset;
    const T* const output_grad = static_cast<const T*>(a.output_grad) + offset;
    if (a.bulk) {
      ring.begin(stage, 2 * bytes);
      ring.load(stage, target, input, bytes);
      ring.load(stage, target + kTensorBytes, output_grad, bytes);
    } else {
      for (int i = lane; i < planes * kPlane; i += Lanes) {
        reinterpret_cast<T*>(target)[i] = input[i];
        reinterpret_cast<T*>(target + kTensorBytes)[i] = output_grad[i];
      }
    }
  };
  take_turn();
  CONVX_UNROLL
  for (int step = 0; step < kStages; ++step) issue(step);

  // Lanes past the last channel repeat its plane; their sums are not used.
  const int plane = lane % kPlanes, readable = plane < planes ? plane : planes - 1;
  const int part = lane / kPlanes;
  const bool from_bottom = (part & 1) != 0, from_right = (part & 2) != 0;
  const int row_step = from_bottom ? -Side : Side, column_step = from_right ? -1 : 1;
  const int corner = readable * kPlane + (from_bottom ? (Side - 1) * Side : 0) + (from_right ? Side - 1 : 0);

  float sum[kTaps] = {};
  for (int step = 0; first_image + step * warps < end_image; ++step) {
    const int stage = step % kStages;
    if (a.bulk) {
      ring.wait(stage, step / kStages & 1);
    } else {
      warp_barrier<Lanes>();
    }
    const T* const input = reinterpret_cast<const T*>(stages + stage * 2 * kTensorBytes) + corner;
    const T* const output_grad =
        reinterpret_cast<const T*>(stages + stage * 2 * kTensorBytes + kTensorBytes) + corner;
    float grad[kQuarter][kQuarter];
    const auto read_grad_row = [&](int row) {
      CONVX_UNROLL
      for (int v = 0; v < kQuarter; ++v) grad[row][v] = widen(output_grad[row * row_step + v * column_step]);
    };
    CONVX_UNROLL
    for (int row = 0; row < kPadding; ++row) read_grad_row(row);
    CONVX_UNROLL
    for (int i = 0; i < kReach; ++i) {
      float window[kReach];
      CONVX_UNROLL
      for (int j = 0; j < kReach; ++j) window[j] = widen(input[i * row_step + j * column_step]);
      if (i + kPadding < kQuarter) read_grad_row(i + kPadding);
      CONVX_UNROLL
      for (int r = 0; r < Filter; ++r) {
        const int row = i - r + kPadding;  // of the output, read through tap row r
        if (row < 0 || row >= kQuarter) continue;
        // float32 adds up a row apart: one chain over a plane and its images would round seven times
        // as a chain of rows. The 16-bit formats round their result far more coarsely.
        float row_sum[Filter];
        CONVX_UNROLL
        for (int q = 0; q < Filter; ++q) row_sum[q] = kRowSums ? 0.0f : sum[r * Filter + q];
        CONVX_UNROLL
        for (int v = 0; v < kQuarter; ++v) {
          CONVX_UNROLL
          for (int q = 0; q < Filter; ++q) {
            const int j = v + q - kPadding;
            if (j < 0 || j >= kReach) continue;
            row_sum[q] = multiply_add(window[j], grad[row][v], row_sum[q]);
          }
        }
        CONVX_UNROLL
        for (int q = 0; q < Filter; ++q) {
          sum[r * Filter + q] = kRowSums ? sum[r * Filter + q] + row_sum[q] : row_sum[q];
        }
      }
    }
    warp_barrier<Lanes>();
    issue(step + kStages);
  }

  // Mirrored lanes have mirrored taps. The stages' memory serves the sums of the block.
  block_barrier();
  float* const block_sums = reinterpret_cast<float*>(shared);  // [warp][part][plane][tap]
  CONVX_UNROLL
  for (int tap = 0; tap < kTaps; ++tap) {
    const int r = tap / Filter, q = tap % Filter;
    const int target = (from_bottom ? Filter - 1 - r : r) * Filter + (from_right ? Filter - 1 - q : q);
    block_sums[((warp * kParts + part) * kPlanes + plane) * kTaps + target] = sum[tap];
  }
  block_barrier();
  for (int i = threadIdx.x; i < planes * kTaps; i += blockDim.x) {
    float total = 0;
    for (int share = 0; share < warps * kParts; ++share) total += block_sums[share * kPlanes * kTaps + i];
    const int64_t target = (static_cast<int64_t>(slice) * a.channels + first_channel) * kTaps + i;
    if (a.slices == 1) {
      static_cast<T*>(a.result)[target] = narrow<T>(total);
    } else {
      static_cast<float*>(a.result)[target] = total;
    }
  }
}

}  // namespace convx::depthwise
