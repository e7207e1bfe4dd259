// Sizes of the reuse kernel that the planner and the launcher share.
#pragma once
#include "methods/filter2d/kernels.h"

namespace convx::filter2d::reuse {

constexpr int kThreads = 128;
// Result rows that a thread makes together with row reuse: more read fewer pixels, fewer make more warps, the
// trade-off that the paper describes. Others than four of float32 alone, which its measurements are of; eight
// of 9x9 would spill on gfx906 and gfx1100.
constexpr int kRows[] = {2, 4, 8};
constexpr bool has_rows(int64_t rows, int64_t filter, int64_t pixel_bytes) {
  return rows == kMaxReuseRows || (pixel_bytes == 4 && (rows < kMaxReuseRows || filter <= 7));
}
// Result rows of a warp, in steps of a thread's: what a lane's taps are read for.
constexpr int kChunkRows[] = {2, 4, 8, 16};

// Square filters that a lane's registers hold; the bytes of 9x9, widened, would not fit beside them.
constexpr bool has_filter(int64_t side, int64_t pixel_bytes) {
  return side == 3 || side == 5 || side == 7 || (side == 9 && pixel_bytes != 1);
}

inline int64_t chunks_of(const FilterProblem& problem, int64_t chunk_rows) {
  return divide_up(problem.out_height, chunk_rows);
}
inline int64_t units_of(const FilterProblem& problem, int64_t chunk_rows, int64_t lanes) {
  return problem.images * chunks_of(problem, chunk_rows) * divide_up(problem.out_width, lanes);
}

}  // namespace convx::filter2d::reuse
