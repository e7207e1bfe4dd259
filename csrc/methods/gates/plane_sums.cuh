// Sums of a block's planes that were made of each of an image's tiles, for a result of gates alone.
#pragma once
#include "methods/gates/arguments.cuh"

namespace convx::gates {

template <class T>
class PlaneSums {
 public:
  // With their biases, complete before the kernel before this one begins.
  static constexpr bool kHasPackedMatrices = true;

  CONVX_DEVICE PlaneSums(const Arguments<T>& a, const Share& share, const Memory& memory)
      : a_(a),
        memory_(memory),
        count_(share.channels.count()),
        first_(share.image * a.channels + share.channels.begin),
        sums_(a.plane_sums + share.image * a.tiles * a.channels + share.channels.begin) {}

  CONVX_DEVICE void stage() const {}

  // Leaves means of its channels in memory.means. Each part of the threads takes some of the tiles.
  CONVX_DEVICE void average() const {
    const int part = static_cast<int>(a_.by_fours.quotient(threadIdx.x));
    const int channel = static_cast<int>(a_.by_fours.remainder(threadIdx.x)) * 4;
    if (part < a_.parts && channel < count_) {
      Vector<float, 4> total = {};
      CONVX_UNROLL_TWICE
      for (int tile = part; tile < a_.tiles; tile += a_.parts) {
        add_to(total, load<float, 4>(sums_ + tile * a_.channels + channel));
      }
      *vector_of_four(memory_.partial + part * a_.own_channels + channel) = total;
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int c = threadIdx.x; c < count_; c += kThreads) {
      float sum = 0;
      for (int i = 0; i < a_.parts; ++i) sum += memory_.partial[i * a_.own_channels + c];
      memory_.means[c] = sum * a_.per_pixel;
    }
  }

  CONVX_DEVICE void scale() const {
    CONVX_NO_UNROLL
    for (int c = threadIdx.x; c < count_; c += kThreads) a_.result[first_ + c] = narrow<T>(memory_.gates[c]);
  }

 private:
  const Arguments<T>& a_;
  const Memory& memory_;
  int count_;
  int64_t first_;  // of the block's gates
  const float* sums_;
};

}  // namespace convx::gates
