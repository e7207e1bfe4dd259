// The source window on its way to shared memory: NCHW is read along its rows, and channels come to lie side
// by side, as matrix units want them, once for all taps and filters of a tile.
#pragma once
#include <type_traits>

#include "methods/cuconv/warpgroup/arguments.cuh"

namespace convx::cuconv::warpgroup {

template <Precision Kind, class Tile>
class Window {
 public:
  using T = typename matrix::Types<Kind>::Element;
  static constexpr int kEach = places_each<Kind, Tile>();

  // elements: of the window's places, in shared memory, by Task::source_element.
  CONVX_DEVICE Window(const Arguments<T>& a, const Task<Tile, T>& task, const int* elements)
      : a_(a), elements_(elements) {
    source_ = a.source + (static_cast<int64_t>(task.first_image) * a.all_channels +
                          static_cast<int64_t>(task.group) * a.channels) *
                             a.source_plane;
  }

  // The channels of some places, step apart, of a stage that begins with a channel; they are not looked at
  // before they are stored. Places are counted on through the steps of channels of a stage.
  CONVX_DEVICE void load(int first_channel, int place, int step) {
    place_ = place;
    step_ = step;
    CONVX_UNROLL
    for (int each = 0; each < kEach; ++each) load_place(first_channel, place + each * step, values_[each]);
  }

  CONVX_DEVICE void store(unsigned char* stage) const {
    CONVX_UNROLL
    for (int each = 0; each < kEach; ++each) store_place(stage, place_ + each * step_, values_[each]);
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  static constexpr int kStep = step_channels(Kind);
  // Bits as they are loaded.
  struct Place {
    bool is_padding;
    uint32_t bits[kStep];
  };

  // Steps of channels of a stage whose places all come at once.
  static constexpr int kMostSteps = Tile::kLoaders * kEach / Tile::kColumns;

  // As many as a stage has, or more, beyond its last place.
  CONVX_DEVICE int step_of(int place) const {
    int step = place >= a_.places ? 1 : 0;
    CONVX_UNROLL
    for (int i = 2; i <= kMostSteps; ++i) step += place >= i * a_.places ? 1 : 0;
    return step;
  }

  CONVX_DEVICE void load_place(int first_channel, int place, Place& values) const {
    const int step = step_of(place), plane = a_.source_plane;
    if (step >= a_.depth) return;
    const int before = kMostSteps > 1 ? step : 0;  // known where there is none
    const int element = elements_[place - before * a_.places], channel = first_channel + before * kStep;
    const int left = a_.channels - channel;
    values.is_padding = element == kNothing;
    const Bits* const from = reinterpret_cast<const Bits*>(source_ + static_cast<int64_t>(channel) * plane +
                                                           (values.is_padding ? 0 : element));
    if (left >= kStep) {
      CONVX_UNROLL
      for (int i = 0; i < kStep; ++i) values.bits[i] = from[i * plane];
    } else {
      CONVX_UNROLL
      for (int i = 0; i < kStep; ++i) {
        values.bits[i] = 0;
        if (i < left) values.bits[i] = from[i * plane];
      }
    }
  }

  CONVX_DEVICE void store_place(unsigned char* stage, int place, const Place& values) const {
    const int step = step_of(place);
    if (step >= a_.depth) return;
    const int before = kMostSteps > 1 ? step : 0;
    stage += (before * (kPieces - 1) * a_.places + place) * kPieceBytes;
    CONVX_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t* const bits = values.bits + piece * (kStep / kPieces);
      Vector<uint32_t, 4> words;
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        uint32_t word = 0;
        if constexpr (sizeof(T) == 2) {
          word = pair_halves(bits[2 * i], bits[2 * i + 1], false);
        } else {
          word = round_to_tf32(bits_to_float(bits[i]));
        }
        words.element[i] = values.is_padding ? 0 : word;
      }
      *reinterpret_cast<Vector<uint32_t, 4>*>(stage + piece * a_.places * kPieceBytes) = words;
    }
  }

  const Arguments<T>& a_;
  const T* source_;
  const int* elements_;
  int place_ = 0, step_ = 0;
  Place values_[kEach];
};

}  // namespace convx::cuconv::warpgroup
