// Products of a warpgroup, four neighbouring warps, of matrices in shared memory: wgmma of sm_90a (H100,
// H200). sum[64 rows][Columns] += a[64 rows][depth] * b[depth][Columns], the depth 32 bytes.
//
// Both operands lie in pieces of 16 bytes of depth: eight neighbouring rows of a, or columns of b, are 128
// neighbouring bytes, eight more follow those, and the pieces of a step's second half lie `step` bytes after
// those of the first. A column may begin anywhere, so that b can be a window that moves over a larger tensor.
//
// Products go on while their threads do other things. Of a thread's sums, four for each eight columns: rows
// lane / 4 and 8 below, columns 2 * (lane % 4) and the next.
#pragma once
#include "platform/gpu/mma.h"

namespace convx {

#if defined(CONVX_CUDA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVX_WARPGROUP_PRODUCTS 1
#endif

constexpr int kWarpgroupThreads = 128, kWarpgroupRows = 64;

// A matrix of a step's depth.
struct SharedPieces {
  const unsigned char* first;
  int step;
};

// Shared memory that this thread has written may be read by products, once a block_barrier has followed.
CONVX_DEVICE void publish_to_products() {
#if defined(CONVX_WARPGROUP_PRODUCTS)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Before a thread's first product, and after it has touched its sums.
CONVX_DEVICE void begin_products() {
#if defined(CONVX_WARPGROUP_PRODUCTS)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Ends a group of products.
CONVX_DEVICE void commit_products() {
#if defined(CONVX_WARPGROUP_PRODUCTS)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Returns when all but the youngest Pending groups are complete: sums, and what they read.
template <int Pending>
CONVX_DEVICE void wait_products() {
#if defined(CONVX_WARPGROUP_PRODUCTS)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}

constexpr int kMostPending = 5;
// The same for a number that is known at run time, 1 to kMostPending.
CONVX_DEVICE void wait_products(int pending) {
  switch (pending) {
    case 1:
      return wait_products<1>();
    case 2:
      return wait_products<2>();
    case 3:
      return wait_products<3>();
    case 4:
      return wait_products<4>();
    default:
      return wait_products<5>();
  }
}

#if defined(CONVX_SIMT)
namespace detail {
// A row of a or a column of b.
struct Line {
  uint32_t word[8];
};
// Read in the pieces in which it lies, once for all products that it takes part in.
inline Line line_of(const SharedPieces& matrix, int index) {
  struct alignas(16) Piece {
    uint32_t word[4];
  };
  Piece pieces[2];
  for (int half = 0; half < 2; ++half) {
    pieces[half] = *reinterpret_cast<const Piece*>(matrix.first + half * matrix.step + index * 16);
  }
  Line line;
  __builtin_memcpy(&line, pieces, sizeof line);
  return line;
}
template <class T>
__attribute__((no_sanitize("address"))) float line_product(const Line& a, const Line& b, float sum) {
  for (int word = 0; word < 8; ++word) sum = word_product<T>(a.word[word], b.word[word], sum);
  return sum;
}
}  // namespace detail
#elif defined(CONVX_WARPGROUP_PRODUCTS)
namespace detail {
// No swizzle; 128 bytes from eight rows to the next eight.
CONVX_DEVICE uint64_t descriptor(const SharedPieces& pieces) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pieces.first));
  return static_cast<uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<uint64_t>(static_cast<uint32_t>(pieces.step) >> 4) << 16 |
         static_cast<uint64_t>(128 >> 4) << 32;
}
}  // namespace detail

// The operands of eight sums.
#define CONVX_SUMS8(i)                                                                                    \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), \
      "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define CONVX_SUMS32(i) CONVX_SUMS8(i), CONVX_SUMS8(i + 8), CONVX_SUMS8(i + 16), CONVX_SUMS8(i + 24)
#define CONVX_NAMES64                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CONVX_NAMES128                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CONVX_NAMES256                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Sums are added to, or begun; the matrices' descriptors are the operands after them.
#define CONVX_PRODUCT(columns, depth, types, ends, a_at, b_at, adds_at, ...)             \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #adds_at                       \
               ", 0;\n"                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k" #depth ".f32." types     \
               " {" CONVX_NAMES##columns "}, %" #a_at ", %" #b_at ", adds, " ends ";\n}" \
               : __VA_ARGS__                                                             \
               : "l"(place_a), "l"(place_b), "n"(Adds ? 1 : 0))

#define CONVX_PRODUCT64(depth, types, ends) CONVX_PRODUCT(64, depth, types, ends, 32, 33, 34, CONVX_SUMS32(0))

#define CONVX_PRODUCT128(depth, types, ends) \
  CONVX_PRODUCT(128, depth, types, ends, 64, 65, 66, CONVX_SUMS32(0), CONVX_SUMS32(32))

#define CONVX_PRODUCT256(depth, types, ends)                                                                 \
  CONVX_PRODUCT(256, depth, types, ends, 128, 129, 130, CONVX_SUMS32(0), CONVX_SUMS32(32), CONVX_SUMS32(64), \
                CONVX_SUMS32(96))

#define CONVX_PRODUCT_OF_TYPE(columns)                     \
  if constexpr (std::is_same<T, tf32>::value) {            \
    CONVX_PRODUCT##columns(8, "tf32.tf32", "1, 1");        \
  } else if constexpr (std::is_same<T, bfloat16>::value) { \
    CONVX_PRODUCT##columns(16, "bf16.bf16", "1, 1, 0, 0"); \
  } else {                                                 \
    CONVX_PRODUCT##columns(16, "f16.f16", "1, 1, 0, 0");   \
  }
#endif

// T is bfloat16, float16 or tf32. All threads of the warpgroup call this with the same operands. Without Adds
// sums begin here, whatever they were.
template <int Columns, class T, bool Adds = true>
CONVX_DEVICE void multiply_warpgroup(float (&sum)[Columns / 2], const SharedPieces& a,
                                     const SharedPieces& b) {
  static_assert(Columns == 64 || Columns == 128 || Columns == 256, "columns");
#if defined(CONVX_SIMT)
  const int row =
      static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  const detail::Line rows[] = {detail::line_of(a, row), detail::line_of(a, row + 8)};
  for (int eight = 0; eight < Columns / 8; ++eight) {
    for (int j = 0; j < 2; ++j) {
      const detail::Line columns = detail::line_of(b, eight * 8 + column + j);
      for (int upper = 0; upper < 2; ++upper) {
        float& target = sum[4 * eight + 2 * upper + j];
        target = detail::line_product<T>(rows[upper], columns, Adds ? target : 0.0f);
      }
    }
  }
#elif defined(CONVX_WARPGROUP_PRODUCTS)
  const uint64_t place_a = detail::descriptor(a), place_b = detail::descriptor(b);
  if constexpr (Columns == 64) {
    CONVX_PRODUCT_OF_TYPE(64)
  } else if constexpr (Columns == 128) {
    CONVX_PRODUCT_OF_TYPE(128)
  } else {
    CONVX_PRODUCT_OF_TYPE(256)
  }
#endif
}

}  // namespace convx
