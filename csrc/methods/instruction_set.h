// The kernels of the instruction set asked for.
#pragma once
#include "plan/launch.h"
#include "problem/device.h"

namespace convx {

template <class Job>
using RunJob = void(const Job&, const ThreadPool&);

// Calls what that instruction set has: a method's avx512::run, avx2::run and baseline::run.
template <class Job>
void run_on(CpuIsa isa, const Job& job, const ThreadPool& pool, RunJob<Job>* avx512, RunJob<Job>* avx2,
            RunJob<Job>* baseline) {
  switch (isa) {
    case CpuIsa::avx512:
      return avx512(job, pool);
    case CpuIsa::avx2:
      return avx2(job, pool);
    case CpuIsa::baseline:
      return baseline(job, pool);
  }
}

}  // namespace convx
