// What a GPU of this machine is, and does just now.
#pragma once
#include "platform/stream.h"
#include "problem/device.h"

namespace convx {

DeviceTraits query_device(int index);
bool is_capturing(Stream stream);  // what is launched goes into a graph

}  // namespace convx
