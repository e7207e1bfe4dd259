// The kernel of the tensor family: a block multiplies, then finishes.
#pragma once
#include "methods/pointwise/tensor/finish.cuh"
#include "methods/pointwise/tensor/finish_channels.cuh"

namespace convx::pointwise::tensor {

// The same code needs some more registers before sm_90 and on sm_100.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kMoreRegisters = 24;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kMoreRegisters = 8;
#else
constexpr int kMoreRegisters = 0;
#endif

// Blocks of a multiprocessor that leave a thread its registers.
template <Precision Kind, int Lanes, Access How, class Tile>
constexpr int kBlocks = blocks_by_registers<Kind, Lanes, How, Tile>(kMoreRegisters);

#if defined(CONVX_HIP)
template <Precision Kind, Access How>
constexpr bool kCompiled = planned_on_amd(Kind, How);
#else
template <Precision Kind, Access How>
constexpr bool kCompiled = true;
#endif

template <Precision Kind, int Lanes, Access How, class Tile, class T>
CONVX_KERNEL((Sizes<Kind, Lanes, How, Tile>::kThreads), (kBlocks<Kind, Lanes, How, Tile>))
tensor_kernel(const uint32_t* packed, const T* filters, const T* source, const T* bias, T* result,
              Shape shape, Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  if constexpr (kCompiled<Kind, How>) {
    CONVX_DYNAMIC_SHARED(shared);
    Block<Kind, Lanes, How, Tile> block(packed, source, shape, shared);
    block.run([&] {
      if constexpr (How == kChannels) {
        FinishChannels<Kind, Lanes, Tile>(block, filters, source, bias, result, shape, finishing.activation,
                                          shared)
            .write();
      } else {
        Finish<Kind, Lanes, How, Tile>(block, filters, source, bias, result, shape, finishing, shared)
            .write();
      }
    });
  }
}

}  // namespace convx::pointwise::tensor
