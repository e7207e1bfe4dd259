// The depthwise kernel families: each has a folder with its plan (host only), kernel and launcher.
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/method.h"

namespace convx::depthwise {

// Values of Plan::kernel.
enum Kernel : int {
  kCpu = 0,              // cpu/: SIMD rows, both layouts, all operations
  kDirect = 1,           // direct/: any problem, any layout, all operations
  kStrip = 2,            // strip/: nchw forward and input_grad, rows in registers, columns by shuffle
  kPlane = 3,            // plane/: nchw forward and input_grad, whole small planes staged in shared memory
  kStripWeight = 4,      // strip_weight/: nchw weight_grad, as strip
  kPlaneWeight = 5,      // plane_weight/: nchw weight_grad, as plane
  kChannels = 6,         // channels/: channels_last forward and input_grad, lanes along channels
  kChannelsWeight = 7,   // channels_weight/: channels_last weight_grad
  kPlaneSplit = 8,       // plane_split/: nchw forward and input_grad, small planes shared out by strips
  kChannelsRolling = 9,  // channels_rolling/: channels_last forward and input_grad, sums rolling through rows
  kSharedRows = 10,      // shared_rows/: nchw forward, row reuse as published, by name alone
  kBanded = 11           // banded/: large filters of 16 bits on matrix units, both layouts, all operations
};

// Planning half of a family. append adds every tiling that can run the problem, none where it can't.
struct Family {
  const char* name;
  Support (*supports)(const ConvProblem&, const DeviceTraits&);
  void (*append)(const ConvProblem&, const DeviceTraits&, std::vector<Plan>&);
};

extern const Family cpu_family, direct_family, strip_family, plane_family, plane_split_family,
    strip_weight_family, plane_weight_family, channels_family, channels_rolling_family,
    channels_weight_family, shared_rows_family, banded_family;

// Launching half, in the GPU library alone.
using Launch = void(const Plan&, const ConvProblem&, const Pointers&, Stream);
Launch launch_direct, launch_strip, launch_plane, launch_plane_split, launch_strip_weight,
    launch_plane_weight, launch_channels, launch_channels_rolling, launch_channels_weight, launch_shared_rows,
    launch_banded;

}  // namespace convx::depthwise
