// CONVX_HIP, where HIP compiles. No device code, so that what a launch is given may depend on it.
#pragma once

#if !defined(CONVX_SIMT) && (defined(__HIP__) || defined(__HIP_PLATFORM_AMD__))
#define CONVX_HIP 1
#endif
