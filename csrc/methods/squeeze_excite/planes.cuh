// A block's planes in nchw: so many that they begin and end with a vector.
#pragma once
#include "methods/squeeze_excite/arguments.cuh"

namespace convx::squeeze_excite {

template <int Lanes, class T>
class Planes {
 public:
  CONVX_DEVICE Planes(const Arguments<T>& a, int64_t image, int rank, const Memory& memory)
      : a_(a), memory_(memory) {
    const Range vectors = share_of(a.channels / kVector<T>, rank, a.ranks);
    first_ = vectors.begin * kVector<T>, count_ = vectors.count() * kVector<T>;
    offset_ = (image * a.channels + first_) * a.pixels;
    stage_ = reinterpret_cast<const T*>(memory.image);
  }

  CONVX_DEVICE void stage() const { copy_to(memory_.image, a_.input + offset_, count_ * a_.pixels); }

  // Leaves the sum of each of the block's channels in memory.own.
  CONVX_DEVICE void sum() {
    constexpr int kWarps = kThreads / Lanes;
    const int warp = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
    // Of few planes each is summed by several warps.
    const int parts = count_ >= kWarps || count_ == 0 ? 1 : kWarps / count_;
    const bool is_whole = a_.pixels % kVector<T> == 0;
    const int all = is_whole ? a_.pixels / kVector<T> : a_.pixels;
    CONVX_NO_UNROLL
    for (int item = warp; item < count_ * parts; item += kWarps) {
      const int plane = item / parts;
      const Range part = share_of(all, item - plane * parts, parts);
      const int from = plane * a_.pixels;
      const float own = is_whole ? sum_of<kVector<T> >(from, part, lane) : sum_of<1>(from, part, lane);
      const float total = segment_sum<Lanes, Lanes>(own);
      if (lane == 0) memory_.partial[item] = total;
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int plane = threadIdx.x; plane < count_; plane += kThreads) {
      float total = 0;
      for (int part = 0; part < parts; ++part) total += memory_.partial[plane * parts + part];
      memory_.own[first_ + plane] = total;
    }
  }

  // Of all pixels: of the block that has the channels.
  CONVX_DEVICE Vector<float, 4> totals(int channel) const {
    const int vector = channel / kVector<T>;
    return *in_block(vector_of_four(memory_.own + channel),
                     rank_of(vector, a_.channels / kVector<T>, a_.ranks));
  }

  CONVX_DEVICE void scale() {
    const bool is_whole = a_.pixels % kVector<T> == 0;
    const float* const gates = memory_.gates + first_;
    CONVX_UNROLL_TWICE
    for (int i = threadIdx.x * kVector<T>; i < count_ * a_.pixels; i += kThreads * kVector<T>) {
      Piece piece = read<kVector<T> >(i);
      const float gate = gates[a_.by_pixels.quotient(i)];
      CONVX_UNROLL
      for (int j = 0; j < kVector<T>; ++j) {
        const float own = is_whole ? gate : gates[a_.by_pixels.quotient(i + j)];
        piece.element[j] = narrow<T>(widen(piece.element[j]) * own);
      }
      store<T, kVector<T> >(a_.result + offset_ + i, piece);
    }
  }

 private:
  using Piece = Vector<T, kVector<T> >;

  template <int Count>
  CONVX_DEVICE Vector<T, Count> read(int place) const {
    return a_.stages_image ? *reinterpret_cast<const Vector<T, Count>*>(stage_ + place)
                           : load<T, Count>(a_.input + offset_ + place);
  }

  // A lane's pieces of a part of a plane.
  template <int Count>
  CONVX_DEVICE float sum_of(int from, const Range& part, int lane) const {
    float sum = 0;
    CONVX_UNROLL_TWICE
    for (int i = part.begin + lane; i < part.end; i += Lanes) {
      const Vector<T, Count> piece = read<Count>(from + i * Count);
      CONVX_UNROLL
      for (int j = 0; j < Count; ++j) sum += widen(piece.element[j]);
    }
    return sum;
  }

  const Arguments<T>& a_;
  const Memory& memory_;
  int first_, count_;  // channels
  int64_t offset_;     // of the first plane, in elements
  const T* stage_;
};

}  // namespace convx::squeeze_excite
