// How filters and pixels come to a block's stages of shared memory, a part of the channels at a time.
#pragma once
#include "methods/pointwise/tensor/copy_channels.cuh"
#include "methods/pointwise/tensor/copy_elements.cuh"
#include "methods/pointwise/tensor/copy_planes.cuh"
#include "methods/pointwise/tensor/copy_rows.cuh"
#include "methods/pointwise/tensor/copy_shifted.cuh"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, Access How, class Tile>
class Copies : public SourceCopies<Kind, Lanes, How, Tile> {
 public:
  using Source = SourceCopies<Kind, Lanes, How, Tile>;
  using typename Source::T;

  CONVX_DEVICE Copies(const uint32_t* filters, const T* source, const Shape& shape)
      : Source(filters, source, shape) {
    keep_per_lane(this->row_tile);
    keep_per_lane(this->column_tile);
  }
};

}  // namespace convx::pointwise::tensor
