// The launchers of one kernel for one element type, each compiled in a file of its own.
#pragma once
#include "methods/filter2d/kernels.h"

namespace convx {

struct float16;  // platform/gpu/numeric.h, which device code alone includes
struct bfloat16;

namespace filter2d {

namespace strip {
template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream);
}
namespace reuse {
template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream);
}
namespace general {
template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream);
}
namespace rotation {
template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream);
}

}  // namespace filter2d
}  // namespace convx
