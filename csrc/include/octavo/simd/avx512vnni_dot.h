// Integer dot products of AVX-512 VNNI: four byte products into an int32, without saturation.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline i32x16 dot_scale_low(i32x16 a) { return shift_right_arith<16>(shift_left<16>(a)); }
inline i32x16 dot_scale_high(i32x16 a) { return shift_right_arith<16>(a); }

template <int Bits>
struct DotChain {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = 0;
  __m512i sum;

  void start(ClassSums) { sum = _mm512_setzero_si512(); }
  void step(u8x64 w, i32x16 a) { sum = _mm512_dpbusd_epi32(sum, w.v, a.v); }
  i32x16 total() const { return {sum}; }
  i32x16 scaled(i32x16 scale) const { return {_mm512_mullo_epi32(sum, scale.v)}; }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
