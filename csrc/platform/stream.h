// The queue that launches go to, without naming a runtime.
#pragma once

namespace convx {

using Stream = void*;  // cudaStream_t, hipStream_t, or null on the host executor

}  // namespace convx
