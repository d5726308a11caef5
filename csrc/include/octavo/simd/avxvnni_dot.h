// Integer dot products of AVX-VNNI: four byte products into an int32, without saturation.
#pragma once

#if defined(OCTAVO_EMULATED)
#include "octavo/simd/avxvnni_emulated.h"
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline i32x16 dot_scale_low(i32x16 a) { return shift_right_arith<16>(shift_left<16>(a)); }
inline i32x16 dot_scale_high(i32x16 a) { return shift_right_arith<16>(a); }

template <int Bits>
struct DotChain {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = 0;
  __m256i lo, hi;

  void start(ClassSums) { lo = hi = _mm256_setzero_si256(); }
  void step(u8x64 w, i32x16 a) {
    lo = _mm256_dpbusd_avx_epi32(lo, w.lo, a.lo);
    hi = _mm256_dpbusd_avx_epi32(hi, w.hi, a.hi);
  }
  i32x16 total() const { return {lo, hi}; }
  i32x16 scaled(i32x16 scale) const { return mul(total(), scale); }
};

constexpr int int_tile_rows(int) { return 4; }
constexpr bool kFewRegisters = true;

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
