// The generator's first stage on CPUs: what Table 1 and Eq. 1-7 mean for vectors, registers and caches.
#pragma once
#include <vector>

#include "methods/pointwise/generator/constraint.h"

namespace convx::pointwise::generator::cpu {

// The space of a problem on a CPU, and the device in the terms of waves.
void complete(Space& space, const ConvProblem& problem);

Support supports(const ConvProblem& problem);
const std::vector<Constraint>& constraints();

int64_t shared_limit(const Tiling& tiling, const Space& space);
int64_t register_limit(const Tiling& tiling, const Space& space);
int64_t used_shared(const Tiling& tiling, const Space& space);
int64_t temporary_registers(const Tiling& tiling, const Space& space);
int64_t used_registers(const Tiling& tiling, const Space& space);

// A register tile: `rows` single values times `vectors`. Vectors are those of the axis that the lanes lie
// along.
int rows(const Tiling& tiling);
int vectors(const Tiling& tiling, const Space& space);

// In the order of their predicted times, all that are precompiled and don't waste most of their work.
std::vector<Tiling> tilings(const Space& space, bool exact);
double predicted_us(const Tiling& tiling, const Space& space);

}  // namespace convx::pointwise::generator::cpu
