// A block's pixels in channels_last: a group of threads has those channels of a pixel that are the block's, a
// vector each, and goes from pixel to pixel.
#pragma once
#include "methods/gates/arguments.cuh"

namespace convx::squeeze_excite {

using namespace gates;

template <class T>
class Pixels {
 public:
  static constexpr bool kHasPackedMatrices = false;

  CONVX_DEVICE Pixels(const Arguments<T>& a, const Share& share, const Memory& memory)
      : a_(a), memory_(memory), pixels_(share.pixels.count()), count_(share.channels.count()) {
    group_ = static_cast<int>(a.by_vectors.quotient(threadIdx.x));
    channel_ = static_cast<int>(a.by_vectors.remainder(threadIdx.x)) * kVector<T>;
    if (channel_ >= count_) group_ = a.groups;  // none
    offset_ = (share.image * a.pixels + share.pixels.begin) * a.channels + share.channels.begin + channel_;
    stage_ = reinterpret_cast<T*>(memory.image) + channel_;
  }

  CONVX_DEVICE void stage() const {
    if (group_ >= a_.groups) return;
    CONVX_UNROLL_TWICE
    for (int pixel = group_; pixel < pixels_; pixel += a_.groups) {
      copy_async<kVectorBytes>(stage_ + pixel * a_.own_channels, a_.input + offset_ + pixel * a_.channels,
                               kVectorBytes);
    }
  }

  // Leaves what the block's pixels bring to the means of its channels in memory.means.
  CONVX_DEVICE void average() {
    if (group_ < a_.groups) {
      float sum[kVector<T>] = {};
      const int left =
          walk<kAtOnce>(group_, [&](auto count, int pixel) { add<decltype(count)::value>(pixel, sum); });
      walk<1>(left, [&](auto count, int pixel) { add<decltype(count)::value>(pixel, sum); });
      CONVX_UNROLL
      for (int i = 0; i < kVector<T>; i += 4) {
        *vector_of_four(memory_.partial + group_ * a_.own_channels + channel_ + i) = {sum[i], sum[i + 1],
                                                                                      sum[i + 2], sum[i + 3]};
      }
    }
    block_barrier();
    if (a_.parts > 1) {  // each takes some of the groups, among them that in whose place it leaves the sum
      const int part = static_cast<int>(a_.by_fours.quotient(threadIdx.x));
      const int c = static_cast<int>(a_.by_fours.remainder(threadIdx.x)) * 4;
      if (part < a_.parts && c < count_) {
        *vector_of_four(memory_.partial + part * a_.own_channels + c) =
            groups_sum(part, a_.groups, a_.parts, c);
      }
      block_barrier();
    }
    const int count = a_.parts > 1 ? a_.parts : a_.groups;
    CONVX_NO_UNROLL
    for (int c = threadIdx.x * 4; c < count_; c += kThreads * 4) {
      Vector<float, 4> mean = groups_sum(0, count, 1, c);
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) mean.element[i] *= a_.per_pixel;
      *vector_of_four(memory_.means + c) = mean;
    }
  }

  CONVX_DEVICE void scale() {
    if (group_ >= a_.groups) return;
    float gate[kVector<T>];
    read_fours(memory_.gates + channel_, gate);
    const int left =
        walk<kAtOnce>(group_, [&](auto count, int pixel) { multiply<decltype(count)::value>(pixel, gate); });
    walk<1>(left, [&](auto count, int pixel) { multiply<decltype(count)::value>(pixel, gate); });
  }

 private:
  using Piece = Vector<T, kVector<T> >;
  static constexpr int kAtOnce = 6;  // loads of a thread that are under way

  CONVX_DEVICE Vector<float, 4> groups_sum(int first, int end, int step, int channel) const {
    Vector<float, 4> total = {};
    CONVX_UNROLL_TWICE
    for (int group = first; group < end; group += step) {
      add_to(total, *vector_of_four(memory_.partial + group * a_.own_channels + channel));
    }
    return total;
  }

  // The group's pixels from the first on, Count at a time, as long as there are so many; what is left.
  template <int Count, class Body>
  CONVX_DEVICE int walk(int first, const Body& body) const {
    int pixel = first;
    CONVX_NO_UNROLL
    for (; pixel + (Count - 1) * a_.groups < pixels_; pixel += Count * a_.groups) {
      body(std::integral_constant<int, Count>(), pixel);
    }
    return pixel;
  }

  CONVX_DEVICE int place(int pixel, int step, int pitch) const { return (pixel + step * a_.groups) * pitch; }

  CONVX_DEVICE Piece read(int pixel, int step) const {
    return a_.stages_image ? *reinterpret_cast<const Piece*>(stage_ + place(pixel, step, a_.own_channels))
                           : load<T, kVector<T> >(a_.input + offset_ + place(pixel, step, a_.channels));
  }

  template <int Count>
  CONVX_DEVICE void add(int pixel, float (&sum)[kVector<T>]) {
    Piece piece[Count];
    CONVX_UNROLL
    for (int n = 0; n < Count; ++n) piece[n] = read(pixel, n);
    CONVX_UNROLL
    for (int n = 0; n < Count; ++n) {
      CONVX_UNROLL
      for (int i = 0; i < kVector<T>; ++i) sum[i] += widen(piece[n].element[i]);
    }
  }

  template <int Count>
  CONVX_DEVICE void multiply(int pixel, const float (&gate)[kVector<T>]) {
    Piece piece[Count];
    CONVX_UNROLL
    for (int n = 0; n < Count; ++n) piece[n] = read(pixel, n);
    CONVX_UNROLL
    for (int n = 0; n < Count; ++n) {
      CONVX_UNROLL
      for (int i = 0; i < kVector<T>; ++i) {
        piece[n].element[i] = narrow<T>(widen(piece[n].element[i]) * gate[i]);
      }
      store<T, kVector<T> >(a_.result + offset_ + place(pixel, n, a_.channels), piece[n]);
    }
  }

  const Arguments<T>& a_;
  const Memory& memory_;
  int pixels_, count_, group_, channel_;  // of the block: pixels, channels; the thread's of them
  int64_t offset_;                        // of the thread's vector of the first pixel, in elements
  T* stage_;
};

}  // namespace convx::squeeze_excite
