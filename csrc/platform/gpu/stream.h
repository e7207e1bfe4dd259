// The queue that launches go to, without naming a runtime.
#pragma once

namespace convx {

struct Stream {
  void* handle = nullptr;  // cudaStream_t, hipStream_t, or null on the host executor
  bool overlaps = false;   // the device can place a kernel while the one before it ends (overlap.h)

  Stream without_overlap() const { return {handle, false}; }
};

}  // namespace convx
