// The source of a network's first convolution, whose products are of patches.
#pragma once
#include "methods/inverted_residual/arguments.cuh"

namespace convx::inverted_residual {

// What the first filters meet for each of the window's pixels, in their order: channel, row, column. The
// threads of a pixel have 16 bytes each, whose places in a patch stay the same from pixel to pixel. All
// patches of most windows are whole: no place is compared with the image's borders then.
template <class T>
class Patches {
 public:
  CONVX_DEVICE Patches(const Arguments<T>& a, const Window& w)
      : a_(a),
        w_(w),
        image_(reinterpret_cast<const Bits*>(a.source) +
               static_cast<int64_t>(w.image) * a.source_height * a.source_width * a.channels),
        piece_(static_cast<int>(a.by_pieces.remainder(threadIdx.x))) {
    CONVX_UNROLL
    for (int i = 0; i < kValues; ++i) {
      const int value = piece_ * kValues + i;
      of_[i] = a.patch[value];
      if (value < a.channels * a.taps * a.taps) mask_[i / kOfWord] |= Bits(~Bits()) << i % kOfWord * 16;
    }
  }

  CONVX_DEVICE void fetch(unsigned char* shared) const {
    const int top = w_.row * a_.patch_stride - a_.taps / 2, left = w_.column * a_.patch_stride - a_.taps / 2;
    const bool is_whole = top >= 0 && left >= 0 &&
                          top + (w_.rows - 1) * a_.patch_stride + a_.taps <= a_.source_height &&
                          left + (w_.columns - 1) * a_.patch_stride + a_.taps <= a_.source_width;
    is_whole ? fetch_all<true>(shared) : fetch_all<false>(shared);
  }

 private:
  static constexpr int kOfWord = 4 / sizeof(T), kValues = 4 * kOfWord;
  static constexpr int kAtOnce = 3;  // pixels whose values are on their way together
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  using Words = Vector<uint32_t, 4>;

  template <bool Whole>
  CONVX_DEVICE void fetch_all(unsigned char* shared) const {
    const int step = static_cast<int>(a_.by_pieces.quotient(blockDim.x));
    const int step_down = step / w_.columns, step_across = step - step_down * w_.columns;
    int to = static_cast<int>(a_.by_pieces.quotient(threadIdx.x));
    int down = to / w_.columns, across = to - down * w_.columns;
    CONVX_NO_UNROLL
    while (to < a_.window_tiles * 16) {
      Words words[kAtOnce];
      CONVX_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        // Rows behind the window's last one are in no result: there is something to be read for them.
        words[i] = values<Whole>(min(down, w_.rows - 1), across);
        across += step_across, down += step_down;
        if (across >= w_.columns) across -= w_.columns, ++down;
      }
      CONVX_UNROLL
      for (int i = 0; i < kAtOnce; ++i, to += step) {
        unsigned char* const place = shared + to * a_.source_pitch + piece_ * 16;
        if (to < a_.window_tiles * 16) *reinterpret_cast<Words*>(place) = words[i];
      }
    }
  }

  // Of the patch of a pixel of the window.
  template <bool Whole>
  CONVX_DEVICE Words values(int down, int across) const {
    const int top = (w_.row + down) * a_.patch_stride - a_.taps / 2;
    const int left = (w_.column + across) * a_.patch_stride - a_.taps / 2;
    const int first = top * a_.row_step + left * a_.pixel_step;
    Words words = {};
    CONVX_UNROLL
    for (int i = 0; i < kValues; ++i) {
      const bool is_inside =
          Whole || (static_cast<uint32_t>(top + of_[i].row) < static_cast<uint32_t>(a_.source_height) &&
                    static_cast<uint32_t>(left + of_[i].column) < static_cast<uint32_t>(a_.source_width));
      if (is_inside)
        words.element[i / kOfWord] |= static_cast<uint32_t>(image_[first + of_[i].place]) << i % kOfWord * 16;
    }
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) words.element[i] &= mask_[i];
    return words;
  }

  const Arguments<T>& a_;
  const Window& w_;
  const Bits* image_;
  int piece_;
  PatchValue of_[kValues];
  uint32_t mask_[4] = {};
};

}  // namespace convx::inverted_residual
