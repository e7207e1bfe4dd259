// An inverted residual block in one kernel whose three convolutions are all products on matrix units: the
// depthwise one of each channel apart, by bands of taps (filter.cuh). The expanded tensor and what it is
// filtered to lie in shared memory as planes of rows, a chunk of channels at a time.
//
// A block of threads makes a tile of results of one image, all output channels. In step t it does three
// things that do not depend on one another, with one barrier a step: expands chunk t, filters chunk t - 1,
// projects chunk t - 2 into sums that stay in registers; as the kernel for any tile does (kernel.cuh), whose
// depthwise stage takes three times the instructions. Or chunk t - 2 goes to memory (End::filtered).
#pragma once
#include "methods/inverted_residual/banded/expand.cuh"
#include "methods/inverted_residual/banded/filter.cuh"
#include "methods/inverted_residual/banded/project.cuh"
#include "methods/inverted_residual/banded/store_filtered.cuh"
#include "methods/inverted_residual/filters.cuh"
#include "platform/gpu/overlap.h"

namespace convx::inverted_residual::banded {

// rows: room in shared memory that is not yet used for anything else.
template <class T, class Form>
CONVX_DEVICE Source<T, Form> source_of(const Arguments<T>& a, const Window& window, unsigned char* rows,
                                       int warp, int lane) {
  if constexpr (Form::kPatches) {
    Source<T, Form>::fetch_rows(a, window, rows);
    wait_copies<0>();
    block_barrier();
    return Source<T, Form>(a, window, rows, warp, lane);
  } else {
    return Source<T, Form>(a, window, warp, lane);
  }
}

template <int Lanes, class T, class Form>
CONVX_KERNEL((Form::kWarps * Lanes), Form::kBlocks)
banded_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_DYNAMIC_SHARED(shared);
  const int warp = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
  const int rank = static_cast<int>(a.by_ranks.remainder(blockIdx.x)), first_chunk = rank * a.rank_chunks;
  const Share share = {rank, first_chunk, min(a.rank_chunks, a.chunks - first_chunk)};
  constexpr bool kProjects = Form::kEnd == End::project;
  const bool is_shared = kProjects && kHasClusters && a.by_ranks.divisor > 1;
  if (is_shared) cluster_arrive();
  const Window window = window_of<T, Form>(a, blockIdx.x);
  FilterRing<Arguments<T> > filters(a, share, shared);
  take_turn();
  unsigned char* const results = shared + 2 * Form::kWindowBytes;
  const auto source = source_of<T, Form>(a, window, results, warp, lane);
  const Expand<T, Form> expand(a, window, shared, warp, lane);
  const Filter<T, Form> filter(a, window, shared, results, warp, lane);
  typename std::conditional<kProjects, Project<T, Form>, StoreFiltered<T, Form> >::type last(
      a, window, results, rank, warp, lane);
  const SharedPlace ring = shared_place(shared + a.ring_at + lane * 16);
  const bool is_non_finite = source.has_non_finite();
  bool found = false, was_exact = false;
  CONVX_NO_UNROLL
  for (int step = 0; step < share.chunks + 2; ++step) {
    filters.wait(step);
    // Whether there are infinities or NaN in the chunk that is filtered now.
    const bool is_exact = block_barrier_any(found);
    filters.fetch(step + a.ahead);
    // Chunks, and so the buffers between stages, alternate.
    const int own = step & 1, other = own ^ 1;
    if (step < share.chunks) {
      const SharedPlace stage = ring + filters.stage_at(0);
      found = expand(source, stage, own * Form::kWindowBytes);
      found = found || is_non_finite ||
              *reinterpret_cast<const int*>(shared + a.ring_at + filters.stage_at(0) + a.non_finite_at) != 0;
    }
    if (step >= 1 && step <= share.chunks) {
      const int window_at = other * Form::kWindowBytes, filtered_at = other * Form::kFilteredBytes;
      const int first_channel = (share.first + step - 1) * Form::kChunk;
      if (is_exact) {
        filter.exactly(a, window, shared + a.ring_at + filters.stage_at(1), shared + window_at,
                       results + filtered_at, first_channel);
      } else {
        filter(a, window, ring + filters.stage_at(1) - lane * 16, window_at, filtered_at, first_channel);
      }
    }
    if (step >= 2) {
      const int filtered_at = own * Form::kFilteredBytes,
                first_channel = (share.first + step - 2) * Form::kChunk;
      last.add(a, ring + filters.stage_at(2), filtered_at, first_channel);
      if constexpr (!kProjects) {
        if (was_exact) last.sum_exactly(a, window, results + filtered_at, first_channel);
      }
    }
    was_exact = is_exact;
    filters.advance();
  }
  if constexpr (kProjects) {
    if (is_shared) last.exchange(a, rank, shared, warp, lane);
    last.store(a, window, rank, warp, lane);
  }
}

}  // namespace convx::inverted_residual::banded
