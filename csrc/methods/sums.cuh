// Sums that several threads, warps or blocks share, in a fixed order: no atomics, so results repeat bit by
// bit. Used by every kernel of the weight gradient.
#pragma once
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx {

// The smallest power of two that holds Count values.
template <int Count>
constexpr int kPaddedCount = 2 * kPaddedCount<(Count + 1) / 2>;
template <>
inline constexpr int kPaddedCount<1> = 1;

// The step of warp_totals that leaves each lane half of its Count values, padded with zeros.
template <int Lanes, int Count, class A>
CONVX_DEVICE A halve_values(const A* values, int lane) {
  if constexpr (Count == 1) {
    return values[0];
  } else {
    constexpr int kHalf = kPaddedCount<Count> / 2;
    const bool upper = (lane & kHalf) != 0;
    A kept[kHalf];
    CONVX_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      // Two named values: a choice between array elements would keep the array in memory.
      const A low = values[i], high = i + kHalf < Count ? A(values[i + kHalf < Count ? i + kHalf : 0]) : A(0);
      kept[i] = (upper ? A(high) : A(low)) + shuffle_xor<Lanes>(upper ? A(low) : A(high), kHalf);
    }
    return halve_values<Lanes, kHalf>(kept, lane);
  }
}

// Sums each of Count <= Lanes values over the lanes of the warp and returns the total of value
// lane % kPaddedCount<Count>. Each exchange halves the values that a lane still carries, so there are about
// Count shuffles instead of Count * log2(Lanes).
template <int Lanes, int Count, class A>
CONVX_DEVICE A warp_totals(const A* values, int lane) {
  static_assert(kPaddedCount<Count> <= Lanes, "one total a lane");
  A total = halve_values<Lanes, Count>(values, lane);
  CONVX_UNROLL
  for (int mask = kPaddedCount<Count>; mask < Lanes; mask *= 2) total += shuffle_xor<Lanes>(total, mask);
  return total;
}

// result[channel][tap] = sum over slices of partial[slice][channel][tap], or of partial[slice][tap][channel]
// where the partials are tap-major. A block owns 32 sums; 16 groups of threads take every sixteenth slice
// each.
constexpr int kSumOutputs = 32, kSumGroups = 16, kSumAhead = 8;

template <class T>
CONVX_KERNEL(kSumOutputs* kSumGroups, 1)
sum_slices_kernel(const Accumulator<T>* partial, T* result, int64_t count, int slices, FastDivide channels,
                  uint32_t taps, bool tap_major) {
  using A = Accumulator<T>;
  CONVX_SHARED(A, group_sums, [kSumGroups][kSumOutputs]);
  const int output = threadIdx.x % kSumOutputs, group = threadIdx.x / kSumOutputs;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kSumOutputs + output;
  take_turn();
  A sum[kSumAhead] = {};
  if (index < count) {
    const A* source = partial + index;
    int slice = group;
    for (; slice + (kSumAhead - 1) * kSumGroups < slices; slice += kSumAhead * kSumGroups) {
      CONVX_UNROLL
      for (int i = 0; i < kSumAhead; ++i) sum[i] += source[(slice + i * kSumGroups) * count];
    }
    for (; slice < slices; slice += kSumGroups) sum[0] += source[slice * count];
  }
  CONVX_UNROLL
  for (int i = 1; i < kSumAhead; ++i) sum[0] += sum[i];
  group_sums[group][output] = sum[0];
  block_barrier();
  if (group == 0 && index < count) {
    A total = A(0);
    CONVX_UNROLL
    for (int i = 0; i < kSumGroups; ++i) total += group_sums[i][output];
    int64_t target = index;
    if (tap_major) {
      const uint32_t tap = channels.quotient(static_cast<uint32_t>(index));
      target = static_cast<int64_t>(static_cast<uint32_t>(index) - tap * channels.divisor) * taps + tap;
    }
    result[target] = narrow<T>(total);
  }
}

// The second step of a weight gradient whose first left slices partial sums in the workspace. channels is
// the number of filters; channels * taps < 2^31.
template <class T>
void sum_slices(const void* partial, void* result, int64_t slices, int64_t channels, int64_t taps,
                bool tap_major, Stream stream) {
  const int64_t count = channels * taps;
  const Grid grid{static_cast<uint32_t>((count + kSumOutputs - 1) / kSumOutputs)};
  launch_in_turn(sum_slices_kernel<T>, "sum_slices", grid, kSumOutputs * kSumGroups, 0, stream,
                 static_cast<const Accumulator<T>*>(partial), static_cast<T*>(result), count,
                 static_cast<int>(slices), FastDivide(static_cast<uint32_t>(channels)),
                 static_cast<uint32_t>(taps), tap_major);
}

}  // namespace convx
