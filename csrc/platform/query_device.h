// Traits of a GPU of this machine.
#pragma once
#include "problem/device.h"

namespace convx {
DeviceTraits query_device(int index);
}
