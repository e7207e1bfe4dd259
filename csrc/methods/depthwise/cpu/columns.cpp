#include "methods/depthwise/cpu/columns.h"

#include <algorithm>
#include <numeric>

#include "methods/depthwise/cpu/job.h"
#include "problem/divide.h"

namespace convx::depthwise {
namespace {

// How many of first, first + step, … are below limit.
int64_t count_below(int64_t limit, int64_t first, int64_t step) {
  return first < limit ? (limit - first - 1) / step + 1 : 0;
}

}  // namespace

Columns::Columns(const Job& job, int64_t vector_lanes) {
  plan_.source_step = job.transposed ? 1 : job.stride_w;
  plan_.target_step = job.transposed ? job.stride_w : 1;
  struct Meeting {
    int64_t target, first;  // target and source column of lane 0
    PackedTap tap;
  };
  std::vector<Meeting> meetings;
  for (int64_t g = 0; g < job.filter_width; ++g) {
    const int64_t shift = g * job.dilation_w - job.pad_left;
    int64_t target = 0, first = shift;
    if (job.transposed) {
      target = shift % job.stride_w + (shift % job.stride_w < 0 ? job.stride_w : 0);
      first = (target - shift) / job.stride_w;
    }
    const int64_t count = count_below(job.target_width, target, plan_.target_step);
    const int64_t begin = std::min(count_below(0, first, plan_.source_step), count);
    const int64_t end = std::min(count_below(job.source_width, first, plan_.source_step), count);
    if (begin < end) meetings.push_back({target, first, {g, 0, begin, end}});
  }
  std::stable_sort(meetings.begin(), meetings.end(),
                   [](const Meeting& a, const Meeting& b) { return a.target < b.target; });
  // Without a tap too, targets of a forward sweep have a result.
  if (!job.transposed) targets_.push_back({0, job.target_width, 0, 0});
  for (const Meeting& meeting : meetings) {
    if (targets_.empty() || targets_.back().first != meeting.target) {
      const int64_t count = count_below(job.target_width, meeting.target, plan_.target_step);
      const int64_t taps = static_cast<int64_t>(taps_.size());
      targets_.push_back({meeting.target, count, taps, taps});
    }
    taps_.push_back(meeting.tap);
    firsts_.push_back(meeting.first);
    ++targets_.back().taps_end;
  }
  for (const TargetColumns& targets : targets_) {
    plan_.lanes = std::max(plan_.lanes, round_up(targets.count, vector_lanes));
  }
  plan_runs(vector_lanes);
  plan_.runs = runs_.data();
  plan_.taps = taps_.data();
  plan_.targets = targets_.data();
  plan_.run_count = static_cast<int64_t>(runs_.size());
  plan_.target_count = static_cast<int64_t>(targets_.size());
}

// Taps whose columns overlap, a multiple of the step apart, share a run.
void Columns::plan_runs(int64_t vector_lanes) {
  const int64_t step = plan_.source_step;
  const auto residue = [step](int64_t first) { return first % step + (first % step < 0 ? step : 0); };
  std::vector<size_t> order(taps_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t left = residue(firsts_[a]), right = residue(firsts_[b]);
    return left != right ? left < right : firsts_[a] < firsts_[b];
  });
  for (const size_t i : order) {
    const int64_t first = firsts_[i];
    const bool joins = !runs_.empty() && residue(first) == residue(runs_.back().first) &&
                       (first - runs_.back().first) / step <= runs_.back().count;
    if (!joins) {
      runs_.push_back({first, plan_.elements, 0});
    }
    PackedRun& run = runs_.back();
    const int64_t distance = (first - run.first) / step;
    run.count = round_up(distance + plan_.lanes, vector_lanes);
    plan_.elements = run.offset + run.count;
    taps_[i].offset = run.offset + distance;
  }
}

}  // namespace convx::depthwise
