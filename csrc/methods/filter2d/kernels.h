// The GPU kernels of filter2d: each has a folder with its plan (host only), kernel and launchers.
#pragma once
#include <vector>

#include "methods/filter2d/filter2d.h"
#include "problem/divide.h"

namespace convx::filter2d {

// Dense memory in the order that FilterProblem gives.
struct FilterPointers {
  const void* images = nullptr;
  const void* filters = nullptr;
  void* result = nullptr;
  EpiloguePointers epilogue;  // bias and scale of the filters' type
};

// Values of Plan::kernel; 0 and below 10 are the CPU's own.
enum Kernel : int {
  kStrip = 10,    // strip/: vectors of columns a lane, several rows, halo columns by shuffle
  kReuse = 11,    // reuse/: the paper's forms for square filters of side 3 to 9, one column a lane
  kGeneral = 12,  // general/: the same four forms for any filter, stride and dilation
  kRotation = 13  // rotation/: vectors of columns a lane and rotation, for filters of any size at stride 1
};

// What the paper's two reuses make together: the candidates' names and the kernels' parameters.
struct ReuseForm {
  const char* candidate;
  bool columns, rows;
};
constexpr ReuseForm kReuseForms[] = {{"both", true, true},
                                     {"row_reuse", false, true},
                                     {"column_reuse", true, false},
                                     {"direct", false, false}};

// Lane groups and blocks of a launch, which kernels count in 32 bits.
constexpr int64_t kMostUnits = int64_t{1} << 30;

constexpr int kMaxReuseRows = 4;  // result rows that a thread makes together with row reuse

// Those of the general kernel: with both reuses, float64's conditions and constants overflow gfx906's scalar
// registers from three rows on.
constexpr int general_rows(const ReuseForm& form, int64_t pixel_bytes) {
  return !form.rows ? 1 : form.columns && pixel_bytes == 8 ? 2 : kMaxReuseRows;
}

// Add every tiling that can run a problem, none where it can't.
void append_strip(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);
void append_rotation(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);
// Of reuse/ where that can run the problem, of general/ elsewhere.
void append_forms(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);

}  // namespace convx::filter2d
