#include <stdexcept>

#include "methods/depthwise/depthwise.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (plan.kernel) {
    case kDirect:
      return launch_direct(plan, problem, pointers, stream);
    case kStrip:
      return launch_strip(plan, problem, pointers, stream);
    case kPlane:
      return launch_plane(plan, problem, pointers, stream);
    case kPlaneSplit:
      return launch_plane_split(plan, problem, pointers, stream);
    case kStripWeight:
      return launch_strip_weight(plan, problem, pointers, stream);
    case kPlaneWeight:
      return launch_plane_weight(plan, problem, pointers, stream);
    case kChannels:
      return launch_channels(plan, problem, pointers, stream);
    case kChannelsRolling:
      return launch_channels_rolling(plan, problem, pointers, stream);
    case kChannelsWeight:
      return launch_channels_weight(plan, problem, pointers, stream);
    case kSharedRows:
      return launch_shared_rows(plan, problem, pointers, stream);
    case kBanded:
      return launch_banded(plan, problem, pointers, stream);
  }
  throw std::logic_error("convx: no depthwise GPU kernel for " + describe(plan));
}

}  // namespace convx::depthwise
