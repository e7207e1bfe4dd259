// Inverted residual blocks in one kernel (kernel.cuh, banded/), or with squeeze-and-excitation in three
// (excited/); on CPUs by strips of rows (cpu/).
#pragma once
#include "methods/inverted_residual/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::inverted_residual {

extern const MethodOf<BlockProblem> method;
// Three convolutions, each by its layer's own choice: what a block is without that.
extern const MethodOf<BlockProblem> native;

Tiling tiling_of(const Plan& plan);

// weights: BlockWeights.
void pack_weights_gpu(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed,
                      Stream stream);
// pointers: input, packed_weight, result.
void launch_gpu(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream);
void pack_weights_cpu(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed,
                      const ThreadPool& pool);
void launch_cpu(const Plan& plan, const BlockProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);

}  // namespace convx::inverted_residual
