#include "problem/native_halves.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace convx {

bool has_native_halves() {
#if defined(__x86_64__)
  static const bool has = [] {
    constexpr unsigned kAmxBfloat16 = 1u << 22, kAvx512Float16 = 1u << 23;  // of leaf 7, edx
    constexpr unsigned kAvx512Bfloat16 = 1u << 5, kAvxConverts = 1u << 5;   // of its subleaf 1, eax and edx
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & (kAmxBfloat16 | kAvx512Float16)) != 0) return true;
    if (eax < 1) return false;  // subleaves
    __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
    return (eax & kAvx512Bfloat16) != 0 || (edx & kAvxConverts) != 0;
  }();
  return has;
#else
  return false;
#endif
}

}  // namespace convx
