// Operands and results of multiply_fragments<32>, of 16 bits, in shared memory: matrices of eight rows of 16
// bytes, four at a time. Of matrix i the rows are where lanes 8 * i to 8 * i + 7 say, aligned to 16 bytes; of
// row r a lane's word i has the pair of values lane % 4, where r is lane / 4.
//
// Loads and stores beside these may pass them: a barrier is between what is written and what is read.
#pragma once
#include "platform/gpu/opaque.h"
#include "platform/gpu/platform.h"

namespace convx {

// A place in shared memory, to which numbers of bytes are added. Where it comes from is hidden: compilers
// would make it anew wherever it is used.
#if defined(CONVX_CUDA)
using SharedPlace = uint32_t;
#else
using SharedPlace = unsigned char*;
#endif

CONVX_DEVICE SharedPlace shared_place(unsigned char* at) {
#if !defined(CONVX_CUDA)
  return at;
#elif defined(__CUDA_ARCH__)
  SharedPlace place = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  make_opaque(place);
  return place;
#else
  return 0;
#endif
}

// 16 bytes.
CONVX_DEVICE void load_piece(SharedPlace from, uint32_t (&words)[4]) {
#if !defined(CONVX_CUDA)
  const auto piece = *reinterpret_cast<const Vector<uint32_t, 4>*>(from);
  for (int i = 0; i < 4; ++i) words[i] = piece.element[i];
#elif defined(__CUDA_ARCH__)
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from));
#endif
}

CONVX_DEVICE void load_rows(SharedPlace row, uint32_t (&words)[4]) {
#if defined(CONVX_SIMT)
  const simt::Given<32, const void*> given(row);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    words[i] = static_cast<const uint32_t*>(given.from(8 * i + lane / 4))[lane % 4];
  }
#elif defined(CONVX_CUDA) && defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row));
#endif
}

CONVX_DEVICE void load_rows(const void* row, uint32_t (&words)[4]) {
#if !defined(CONVX_CUDA)
  load_rows(static_cast<unsigned char*>(const_cast<void*>(row)), words);
#elif defined(__CUDA_ARCH__)
  load_rows(static_cast<uint32_t>(__cvta_generic_to_shared(row)), words);
#endif
}

// Transposed: a lane's pair is of rows 2 * (lane % 4) and the next, of their value lane / 4.
CONVX_DEVICE void load_columns(SharedPlace row, uint32_t (&words)[4]) {
#if defined(CONVX_SIMT)
  const simt::Given<32, const void*> given(row);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const int first = 8 * i + lane % 4 * 2;
    const uint32_t low = static_cast<const uint16_t*>(given.from(first))[lane / 4];
    const uint32_t high = static_cast<const uint16_t*>(given.from(first + 1))[lane / 4];
    words[i] = low | high << 16;
  }
#elif defined(CONVX_CUDA) && defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row));
#endif
}

CONVX_DEVICE void store_rows(SharedPlace row, const uint32_t (&words)[4]) {
#if defined(CONVX_SIMT)
  const simt::Given<32, void*> given(row);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    static_cast<uint32_t*>(given.from(8 * i + lane / 4))[lane % 4] = words[i];
  }
#elif defined(CONVX_CUDA) && defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
#else
  const int lane = threadIdx.x % 32;
  CONVX_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t to_row = __shfl_sync(0xffffffffu, row, 8 * i + lane / 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to_row + lane % 4 * 4), "r"(words[i]) : "memory");
  }
#endif
#endif
}

}  // namespace convx
