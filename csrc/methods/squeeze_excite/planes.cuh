// A block's planes in nchw: so many that they begin and end with a vector.
#pragma once
#include "methods/gates/arguments.cuh"

namespace convx::squeeze_excite {

using namespace gates;

template <int Lanes, class T>
class Planes {
 public:
  static constexpr bool kHasPackedMatrices = false;

  CONVX_DEVICE Planes(const Arguments<T>& a, const Share& share, const Memory& memory)
      : a_(a), memory_(memory), count_(share.channels.count()) {
    offset_ = (share.image * a.channels + share.channels.begin) * a.pixels;
    stage_ = reinterpret_cast<const T*>(memory.image);
  }

  CONVX_DEVICE void stage() const { copy_to(memory_.image, a_.input + offset_, count_ * a_.pixels); }

  // Leaves the mean of each of the block's channels in memory.means.
  CONVX_DEVICE void average() {
    constexpr int kAtOnce = kThreads / kSumLanes, kOfWarp = Lanes / kSumLanes;
    const int lane = threadIdx.x % kSumLanes;
    // Of few planes each is summed in several parts.
    const int parts = count_ >= kAtOnce ? 1 : kAtOnce / count_;
    const bool is_whole = a_.pixels % kVector<T> == 0;
    const int all = is_whole ? a_.pixels / kVector<T> : a_.pixels;
    CONVX_NO_UNROLL
    for (int first = threadIdx.x / Lanes * kOfWarp; first < count_ * parts; first += kAtOnce) {
      const int own = first + threadIdx.x % Lanes / kSumLanes, item = min(own, count_ * parts - 1);
      const int plane = item / parts;
      const Range part = share_of(all, item - plane * parts, parts);
      const int from = plane * a_.pixels;
      const float sum = is_whole ? sum_of<kVector<T> >(from, part, lane) : sum_of<1>(from, part, lane);
      const float total = segment_sum<Lanes, kSumLanes>(sum);
      if (lane == 0 && own == item) memory_.partial[item] = total;
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int plane = threadIdx.x; plane < count_; plane += kThreads) {
      float total = 0;
      for (int part = 0; part < parts; ++part) total += memory_.partial[plane * parts + part];
      memory_.means[plane] = total * a_.per_pixel;
    }
  }

  CONVX_DEVICE void scale() {
    const bool is_whole = a_.pixels % kVector<T> == 0;
    const float* const gates = memory_.gates;
    const int end = count_ * a_.pixels;
    CONVX_NO_UNROLL
    for (int first = threadIdx.x * kVector<T>; first < end; first += kReads * kThreads * kVector<T>) {
      Piece piece[kReads];
      CONVX_UNROLL
      for (int n = 0; n < kReads; ++n) {
        const int i = first + n * kThreads * kVector<T>;
        if (i < end) piece[n] = read<kVector<T> >(i);
      }
      CONVX_UNROLL
      for (int n = 0; n < kReads; ++n) {
        const int i = first + n * kThreads * kVector<T>;
        if (i >= end) break;
        const float gate = gates[a_.by_pixels.quotient(i)];
        CONVX_UNROLL
        for (int j = 0; j < kVector<T>; ++j) {
          const float own = is_whole ? gate : gates[a_.by_pixels.quotient(i + j)];
          piece[n].element[j] = narrow<T>(widen(piece[n].element[j]) * own);
        }
        store<T, kVector<T> >(a_.result + offset_ + i, piece[n]);
      }
    }
  }

 private:
  using Piece = Vector<T, kVector<T> >;
  static constexpr int kReads = 16 / kVector<T>;  // of a thread that are under way: registers are few

  template <int Count>
  CONVX_DEVICE Vector<T, Count> read(int place) const {
    return a_.stages_image ? *reinterpret_cast<const Vector<T, Count>*>(stage_ + place)
                           : load<T, Count>(a_.input + offset_ + place);
  }

  // A lane's pieces of a part of a plane.
  template <int Count>
  CONVX_DEVICE float sum_of(int from, const Range& part, int lane) const {
    float sum = 0;
    CONVX_NO_UNROLL
    for (int first = part.begin + lane; first < part.end; first += kReads * kSumLanes) {
      Vector<T, Count> piece[kReads];
      CONVX_UNROLL
      for (int n = 0; n < kReads; ++n) {
        const int i = first + n * kSumLanes;
        piece[n] = {};
        if (i < part.end) piece[n] = read<Count>(from + i * Count);
      }
      CONVX_UNROLL
      for (int n = 0; n < kReads; ++n) {
        CONVX_UNROLL
        for (int j = 0; j < Count; ++j) sum += widen(piece[n].element[j]);
      }
    }
    return sum;
  }

  const Arguments<T>& a_;
  const Memory& memory_;
  int count_;       // of planes
  int64_t offset_;  // of the first plane, in elements
  const T* stage_;
};

}  // namespace convx::squeeze_excite
