// What a CPU's instructions for 16 bits say of torch's times.
#pragma once

namespace convx {

// Whether this CPU has products of bfloat16 or float16 values. oneDNN takes them, by AMX a tile at a time;
// convx's kernels multiply floats everywhere, so that times beside torch's on a CPU without say nothing here.
bool has_native_halves();

}  // namespace convx
