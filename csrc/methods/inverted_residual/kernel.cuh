// An inverted residual block in one kernel: the expanded tensor is never in memory. MobileNetV2's block
// (Sandler et al., 2018); the papers' future work of fusing the depthwise kernel with its neighbours.
//
// A block of threads makes a tile of results of one image, all output channels, in steps of a chunk of
// expanded channels; of a small batch's few tiles each is a cluster's, whose blocks have some of the chunks
// and add up what they have. In step t a block does three things that do not depend on one another, with one
// barrier a step: expands chunk t, filters chunk t - 1, projects chunk t - 2 into sums that stay in
// registers. Odd warps filter first, so that matrix units and the others are busy at the same time.
#pragma once
#include "methods/inverted_residual/depthwise.cuh"
#include "methods/inverted_residual/expand.cuh"
#include "methods/inverted_residual/patches.cuh"
#include "methods/inverted_residual/project.cuh"
#include "platform/gpu/overlap.h"

namespace convx::inverted_residual {

template <int Lanes, class T, class Form>
CONVX_KERNEL(Form::kShape.threads, 1)
block_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_DYNAMIC_SHARED(shared);
  const Share share = share_of<T, Form>(a, blockIdx.x);
  const bool is_shared = kHasClusters && Form::kShape.shares && a.by_ranks.divisor > 1;
  if (is_shared) cluster_arrive();
  const Window window = window_of<T, Form>(a, blockIdx.x);
  FilterRing<Arguments<T> > filters(a, share, shared);
  list_places(a, window, reinterpret_cast<Place*>(shared + a.places_at));
  if (window.count < window.height * window.width) clear_windows(a, shared + a.window_at);
  take_turn();
  block_barrier();
  if (Form::kShape.patches && a.taps > 1) {
    Patches<T>(a, window).fetch(shared);
  } else {
    fetch_source(a, window, shared);
  }
  commit_copies();

  const int warp = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
  const bool filters_first = warp % 2 == 1;
  Sums<Form> sums(a, share.rank, warp, lane);
  wait_copies<0>();
  bool found = false;  // what is not finite, in the chunk that was filtered in the step before
  CONVX_NO_UNROLL
  for (int step = 0; step < share.chunks + 2; ++step) {
    filters.wait(step);
    bool is_non_finite = false;  // in the chunk to be projected
    if constexpr (sizeof(T) == 4) {
      is_non_finite = block_barrier_any(found);
    } else {
      block_barrier();
    }
    filters.fetch(step + a.ahead);
    // Chunks, and so the buffers between stages, alternate.
    const int window_at = a.window_at + (step & 1) * a.window_step;
    const int previous_window_at = 2 * a.window_at + a.window_step - window_at;
    const int filtered_at = a.filtered_at + (step & 1) * a.filtered_step;
    const int next_filtered_at = 2 * a.filtered_at + a.filtered_step - filtered_at;
    CONVX_NO_UNROLL
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == filters_first) {
        if (step >= 1 && step <= share.chunks) {
          found = depthwise<T, Form>(a, filters.stage(1), shared + previous_window_at,
                                     shared + next_filtered_at, share.first + step - 1);
        }
      } else {
        if (step < share.chunks) {
          expand<Lanes, T, Form>(a, window, filters.stage(0), shared, shared + window_at, warp, lane);
        }
        if (step >= 2) {
          sums.template add_chunk<Lanes, T>(a, filters.stage(2), shared + filtered_at, is_non_finite, lane);
        }
      }
    }
    filters.advance();
  }
  if (Form::kShape.shares && (is_shared || a.splits > 1)) {
    sums.template exchange<Lanes>(a, share, shared, lane);
  }
  sums.template store<Lanes>(a, window, share.rank, shared, lane);
}

}  // namespace convx::inverted_residual
