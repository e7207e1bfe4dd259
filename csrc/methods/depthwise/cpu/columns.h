// Where the general kernels for planes keep the columns of a source row, so that vector lanes along target
// columns read neighbours. A packed row is as long as its targets and taps make it, whatever lies between
// them.
#pragma once
#include <cstdint>
#include <vector>

namespace convx::depthwise {

struct Job;

// packed[offset + i] is source column first + i * source_step, zero outside the image.
struct PackedRun {
  int64_t first, offset, count;
};

// A tap of a filter's row: lane i meets packed[offset + i], which is a column of the image for begin <= i <
// end.
struct PackedTap {
  int64_t tap, offset, begin, end;
};

// Target columns first, first + target_step, …, one a lane, and the taps that all of them have.
struct TargetColumns {
  int64_t first, count, taps_begin, taps_end;
};

// As kernels see it. Taps that meet no column of the image are left out, and columns of a transposed sweep
// that no tap reaches.
struct ColumnPlan {
  int64_t source_step, target_step;
  int64_t lanes;     // of the longest row of targets, whole vectors
  int64_t elements;  // of a packed row, whole vectors
  const PackedRun* runs;
  const PackedTap* taps;
  const TargetColumns* targets;
  int64_t run_count, target_count;
};

class Columns {
 public:
  Columns(const Job& job, int64_t vector_lanes);
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;
  const ColumnPlan& plan() const { return plan_; }

 private:
  void plan_runs(int64_t vector_lanes);

  ColumnPlan plan_{};
  std::vector<PackedRun> runs_;
  std::vector<PackedTap> taps_;
  std::vector<TargetColumns> targets_;
  std::vector<int64_t> firsts_;  // source column of each tap's lane 0
};

}  // namespace convx::depthwise
