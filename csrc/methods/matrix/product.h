// The sizes of a product of matrices, for planners and launchers.
#pragma once
#include <cstdint>

namespace convx::matrix {

// result[rows][columns] = filters[rows][depth] * source[depth][columns].
struct Product {
  int64_t rows, columns, depth;
  bool same_pixels;  // pixel i of the result is made from pixel i of the source
};

}  // namespace convx::matrix
