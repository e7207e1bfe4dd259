// Sums along rows as products with band matrices: result[y][x] = sum over filter rows r of
// sum_k band_r[x - x0][k] source[y + r][x0 + k], where band_r[m][k] = filter[r][k - m], zero outside of the
// filter. For 16 results of a row and up to 33 taps that is three fragments of depth, and a lane's words of a
// band are pairs of neighbouring taps: nothing is unrolled in memory. The source is b, of which a lane's
// words are of one row: from one row of the filter to the next all rows that it has but one stay where they
// are (row reuse; Lu, Zhang, Wang 2020, section 3.2).
#pragma once
#include "methods/depthwise/banded/staging.cuh"
#include "platform/gpu/mma.h"

namespace convx::depthwise::banded {

// Which rows a lane has of Stack tiles that are stacked: neighbouring ones.
template <int Lanes, int Stack>
struct OwnRows {
  static constexpr int kGroups = Fragment<Lanes>::kColumns;  // of lanes
  static constexpr int kCount = Stack * kSide / kGroups;     // and fragments, each of a row of each group

  CONVX_DEVICE static int row(int fragment, int group) { return group * kCount + fragment; }
};

// A lane's part of fragments: of a row of a, which is the band, and of a column of b, a row of the source,
// the same four values of the depth.
template <int Lanes>
struct Lane {
  using F = Fragment<Lanes>;
  int lane;

  CONVX_DEVICE Lane() : lane(static_cast<int>(threadIdx.x) % Lanes) {}
  // Where it reads in groups of rows that begin with the depth.
  CONVX_DEVICE int offset_of_rows(int group) const {
    return F::column_of_b(lane) * group + 4 * F::slot(lane);
  }
  // And in a band of rows of `elements`: value `depth` less the row of a, which may lie Margin before the
  // first.
  template <int Margin>
  CONVX_DEVICE int offset_of_band(int elements) const {
    const int row = F::row_of_a(lane, 0), odd = row & 1;
    return odd * (elements - 1) + Margin + 4 * F::slot(lane) - row;
  }
};

// A warp's sums, zero at first: of Count fragments of rows, each of Across times 16 columns.
template <int Lanes, int Count, int Across>
struct Sums {
  using F = Fragment<Lanes>;
  float at[Count][Across][4];

  CONVX_DEVICE Sums() {
    CONVX_UNROLL
    for (int i = 0; i < Count * Across * 4; ++i) at[i / (Across * 4)][i / 4 % Across][i % 4] = 0;
  }
  // body(which of Count, group of lanes that has the row, column, sum) of each.
  template <class Body>
  CONVX_DEVICE void for_each(const Body& body) const {
    const int lane = static_cast<int>(threadIdx.x) % Lanes;
    CONVX_UNROLL
    for (int i = 0; i < Count * Across * 4; ++i) {
      const int count = i / (Across * 4), part = i / 4 % Across, place = i % 4;
      body(count, F::column(lane, place), part * kSide + F::row(lane, place), at[count][part][place]);
    }
  }
};

template <class Words>
CONVX_DEVICE Words words_at(const uint16_t* place) {
  return *reinterpret_cast<const Words*>(place);
}

// What a row of the filter meets: a row of each unit of the source, and the row's band.
template <int Lanes, int Units, int Steps, int Across>
struct Operands {
  using F = Fragment<Lanes>;
  Vector<uint32_t, 2> row[Units][Steps];
  uint32_t band[Steps][Across][F::kWordsA];

  CONVX_DEVICE void read_row(const uint16_t* const (&unit)[Units], int offset) {
    CONVX_UNROLL
    for (int i = 0; i < Units * Steps; ++i) {
      row[i / Steps][i % Steps] = words_at<Vector<uint32_t, 2>>(unit[i / Steps] + offset + i % Steps * kSide);
    }
  }
  CONVX_DEVICE void read_band(const uint16_t* from) {
    CONVX_UNROLL
    for (int i = 0; i < Steps * Across * F::kWordsA; ++i) {
      const int step = i / (Across * F::kWordsA), part = i / F::kWordsA % Across, word = i % F::kWordsA;
      const int row = part * kSide + F::row_of_a(0, word);
      band[step][part][word] = words_at<uint32_t>(from + step * kSide - row + 2 * F::depth_word_of_a(word));
    }
  }
};

// Adds the products of `count` rows of a band, of row_elements, with units of the source that one warp
// multiplies at once, each Stack tiles that are stacked, so that a band's words serve them all. unit, each
// one's source in shared memory, and band are this lane's parts.
template <class T, int Lanes, int Steps, int Stack, int Units, int Across>
CONVX_DEVICE void multiply(Sums<Lanes, Units * OwnRows<Lanes, Stack>::kCount, Across>& sums,
                           const uint16_t* const (&unit)[Units],
                           const RowPlaces<OwnRows<Lanes, Stack>::kCount>& places, const uint16_t* band,
                           int row_elements, int count) {
  constexpr int kRows = OwnRows<Lanes, Stack>::kCount;
  Operands<Lanes, Units, Steps, Across> kept[kRows], next;
  CONVX_UNROLL
  for (int row = 0; row < kRows; ++row) kept[row].read_row(unit, row * places.pitch);
  next.read_band(band);
  int offset = places.group;
  CONVX_NO_UNROLL
  for (int first = 0; first < count; first += kRows, offset += places.group) {
    CONVX_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (first + row >= count) break;
      const Operands<Lanes, Units, Steps, Across> now = next;
      // The next row's are on their way meanwhile; behind the last there are none.
      const bool is_last = first + row + 1 == count;
      band += is_last ? 0 : row_elements;
      next.read_band(band);
      next.read_row(unit, is_last ? 0 : offset + row * places.pitch);
      CONVX_UNROLL
      for (int step = 0; step < Steps; ++step) {
        CONVX_UNROLL
        for (int i = 0; i < Units * kRows; ++i) {
          const auto& b = kept[(row + i) % kRows].row[i / kRows][step];
          CONVX_UNROLL
          for (int part = 0; part < Across; ++part) {
            multiply_fragments<Lanes, T>(sums.at[i][part], now.band[step][part], b.element[0], b.element[1]);
          }
        }
      }
      CONVX_UNROLL
      for (int i = 0; i < Units * Steps; ++i) {
        kept[row].row[i / Steps][i % Steps] = next.row[i / Steps][i % Steps];
      }
    }
  }
}

}  // namespace convx::depthwise::banded
