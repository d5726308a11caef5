// Integer dot products of NEON with SDOT (ARMv8.2 dotprod): four signed byte products into an int32.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

template <int Bits>
struct DotChain {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kOffset = 0;
  i32x16 sum;

  static int32x4_t dot(int32x4_t sum, uint8x16_t w, int32x4_t a) {
    const uint8x16_t q = Bits == 8 ? veorq_u8(w, vdupq_n_u8(0x80)) : w;
    return vdotq_s32(sum, vreinterpretq_s8_u8(q), vreinterpretq_s8_s32(a));
  }
  void clear() { sum = broadcast_i32(0); }
  void step(u8x64 w, i32x16 a) { sum = OCTAVO_ZIP3(dot, sum, w, a); }
  i32x16 total() const { return sum; }
  i32x16 scaled(i32x16 scale) const { return mul(sum, scale); }
};

constexpr int kIntTileRows = 6;
constexpr bool kFewRegisters = false;

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
