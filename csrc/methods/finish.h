// The forward epilogue as a pass of its own over sums in memory: what torch's convolutions leave to be done.
#pragma once
#include "plan/launch.h"

namespace convx {

// In place, on dense sums of the problem's layout that are aligned to 16 bytes, as the residual is. On AMD
// the problem has neither scale nor residual (supports_epilogue in plan/method.h).
void finish_gpu(const ConvProblem& problem, const EpiloguePointers& epilogue, void* sums, Stream stream);

}  // namespace convx
