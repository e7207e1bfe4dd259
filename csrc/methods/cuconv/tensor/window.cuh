// The source window on its way to shared memory: NCHW is read along its rows, and channels come to lie side
// by side, as matrix units want them, once for all taps and filters of a tile.
#pragma once
#include <type_traits>

#include "methods/cuconv/tensor/arguments.cuh"

namespace convx::cuconv::tensor {

// Together: 1, or 2 neighbouring places, whose values of a channel are one load: half as many, and of 16 bits
// twice as much is on its way in the same registers.
template <Precision Kind, class Tile, int Together>
class Window {
 public:
  using T = typename matrix::Types<Kind>::Element;
  using OwnTask = Task<Tile, T>;
  // What a table in shared memory tells of an item.
  using Entry = std::conditional_t<Together == 1, int, typename OwnTask::Pair>;
  static constexpr int kEach = items_each<Kind, Tile>(Together);

  CONVX_DEVICE Window(const Arguments<T>& a, const OwnTask& task, const Entry* entries)
      : a_(a), entries_(entries) {
    source_ = a.source + (static_cast<int64_t>(task.first_image) * a.all_channels +
                          static_cast<int64_t>(task.group) * a.channels) *
                             a.source_plane;
  }

  // Threads of a block begin with thread; padding is written to stages here where stores leave it out.
  CONVX_DEVICE static void prepare(const Arguments<T>& a, const OwnTask& task, Entry* entries,
                                   unsigned char* stages, int thread) {
    if constexpr (Together == 1) {
      CONVX_NO_UNROLL
      for (int i = thread; i < a.places; i += Tile::kThreads) entries[i] = task.source_element(a, i);
    } else {
      const int first = task.pairs_before(a, task.first_place, 0);
      const int end = task.pairs_before(a, task.first_place + a.places, 1);
      CONVX_NO_UNROLL
      for (int i = thread; i < a.items; i += Tile::kThreads) entries[i] = task.source_pair(a, i, first, end);
      CONVX_NO_UNROLL
      for (int i = thread; i < a.places; i += Tile::kThreads) {
        if (task.source_element(a, i) != kNothing) continue;
        CONVX_NO_UNROLL
        for (int piece = 0; piece < a.buffers * a.depth * kStagePieces; ++piece) {
          *reinterpret_cast<Piece*>(stages + (piece * a.places + i) * kPieceBytes) = Piece{};
        }
      }
    }
  }

  // The channels of some items, step apart, of a stage that begins with a channel; they are not looked at
  // before they are stored. Items are counted on through the steps of channels of a stage.
  CONVX_DEVICE void load(int first_channel, int item, int step) {
    item_ = item;
    step_ = step;
    CONVX_UNROLL
    for (int each = 0; each < kEach; ++each) load_item(first_channel, item + each * step, values_[each]);
  }

  CONVX_DEVICE void store(unsigned char* stage) const {
    CONVX_UNROLL
    for (int each = 0; each < kEach; ++each) store_item(stage, item_ + each * step_, values_[each]);
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  using Piece = Vector<uint32_t, 4>;
  static constexpr int kStep = step_channels(Kind);
  static constexpr int kStagePieces = matrix::parts(Kind) * kPieces;  // of a place, of a step of channels
  static constexpr int kWords = Together * static_cast<int>(sizeof(T)) > 4 ? 2 : 1;  // of a channel
  // Bits as they are loaded.
  struct Values {
    bool is_padding;
    uint32_t words[kStep * kWords];
  };

  // Steps of channels of a stage whose items all come at once.
  static constexpr int kMostSteps = Tile::kLoaders * kEach * Together / Tile::kColumns;

  // As many as a stage has, or more, beyond its last item.
  CONVX_DEVICE int step_of(int item) const {
    int step = item >= a_.items ? 1 : 0;
    CONVX_UNROLL
    for (int i = 2; i <= kMostSteps; ++i) step += item >= i * a_.items ? 1 : 0;
    return step;
  }
  CONVX_DEVICE Entry entry(int item, int step) const {
    return entries_[item - (kMostSteps > 1 ? step * a_.items : 0)];  // known where there is one step
  }

  CONVX_DEVICE void load_item(int first_channel, int item, Values& values) const {
    const int step = step_of(item), plane = a_.source_plane;
    if (step >= a_.depth) return;
    int element;
    if constexpr (Together == 1) {
      element = entry(item, step);
      values.is_padding = element == kNothing;
      if (values.is_padding) element = 0;
    } else {
      element = entry(item, step).element;
      if (element == kNothing) return;
    }
    const int channel = first_channel + (kMostSteps > 1 ? step * kStep : 0);
    const int left = a_.channels - channel;
    const Bits* const from =
        reinterpret_cast<const Bits*>(source_ + static_cast<int64_t>(channel) * plane + element);
    if (left >= kStep) {
      CONVX_UNROLL
      for (int i = 0; i < kStep; ++i) read(true, from + i * plane, values.words + i * kWords);
    } else {
      CONVX_UNROLL
      for (int i = 0; i < kStep; ++i) read(i < left, from + i * plane, values.words + i * kWords);
    }
  }

  CONVX_DEVICE static void read(bool exists, const Bits* from, uint32_t* words) {
    CONVX_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = 0;
    if (!exists) return;
    if constexpr (Together == 1) {
      words[0] = *from;
    } else {
      const auto pair = *reinterpret_cast<const Vector<uint32_t, kWords>*>(from);
      CONVX_UNROLL
      for (int i = 0; i < kWords; ++i) words[i] = pair.element[i];
    }
  }

  CONVX_DEVICE void store_item(unsigned char* stage, int item, const Values& values) const {
    const int step = step_of(item);
    if (step >= a_.depth) return;
    if (kMostSteps > 1) stage += step * kStagePieces * a_.places * kPieceBytes;
    if constexpr (Together == 1) {
      const int place = item - (kMostSteps > 1 ? step * a_.items : 0);
      put(stage + place * kPieceBytes, values, 0);
    } else {
      const typename OwnTask::Pair pair = entry(item, step);
      if (pair.element == kNothing) return;
      // Eight lanes' pieces meet all banks where half of them begin with the second place.
      const int second = static_cast<int>(threadIdx.x) / 4 % 2;
      CONVX_UNROLL
      for (int turn = 0; turn < 2; ++turn) {
        const int which = turn ^ second, place = pair.place + which;
        if (place >= 0 && place < a_.places) put(stage + place * kPieceBytes, values, which);
      }
    }
  }

  // The channels of one of an item's places.
  CONVX_DEVICE void put(unsigned char* to, const Values& values, int which) const {
    CONVX_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t* const words = values.words + piece * (kStep / kPieces) * kWords;
      Piece put, low;
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        uint32_t word = 0;
        if constexpr (sizeof(T) == 2) {
          word = pair_halves(words[2 * i], words[2 * i + 1], which != 0);
        } else if constexpr (Together == 1) {
          word = words[i];
        } else {
          word = which != 0 ? words[2 * i + 1] : words[2 * i];
        }
        if (Together == 1 && values.is_padding) word = 0;
        if constexpr (Kind == matrix::kSplit) {
          part_tf32(word, put.element[i], low.element[i]);
        } else {
          put.element[i] = sizeof(T) == 2 ? word : round_to_tf32(bits_to_float(word));
        }
      }
      *reinterpret_cast<Piece*>(to + piece * a_.places * kPieceBytes) = put;
      if constexpr (Kind == matrix::kSplit) {
        *reinterpret_cast<Piece*>(to + (kPieces + piece) * a_.places * kPieceBytes) = low;
      }
    }
  }

  const Arguments<T>& a_;
  const T* source_;
  const Entry* entries_;
  int item_ = 0, step_ = 0;
  Values values_[kEach];
};

}  // namespace convx::cuconv::tensor
