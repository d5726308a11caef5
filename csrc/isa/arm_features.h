// What an AArch64 processor has beyond NEON, as the operating system tells it.
#pragma once

#if defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

namespace octavo {
namespace {

struct ArmFeatures {
  bool dotprod = false;  // SDOT, UDOT
  bool i8mm = false;     // with dotprod: SMMLA, USMMLA
};

#if defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
ArmFeatures arm_features() {
  const bool dotprod = has_feature("hw.optional.arm.FEAT_DotProd");
  return {dotprod, dotprod && has_feature("hw.optional.arm.FEAT_I8MM")};
}
#elif defined(__linux__)
ArmFeatures arm_features() {
  constexpr unsigned long kAsimdDP = 1ul << 20, kI8MM = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  const bool dotprod = (getauxval(AT_HWCAP) & kAsimdDP) != 0;
  return {dotprod, dotprod && (getauxval(AT_HWCAP2) & kI8MM) != 0};
}
#else
ArmFeatures arm_features() { return {}; }
#endif

}  // namespace
}  // namespace octavo
