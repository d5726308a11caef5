// Integer dot products of plain NEON: signed byte products summed in int16.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Each int16 takes one product a step. With weights below 2^Bits and |a| <= 127 that many steps cannot
// overflow: 3*127*64 = 24384, 7*127*32 = 28448, 15*127*16 = 30480, 31*127*8 = 31496, 63*127*4 = 32004, and |w
// - 128|*127*2 at most 32512.
template <int Bits>
struct DotChain {
  static_assert(Bits <= 6 || Bits == 8);
  static constexpr int kSteps = 1 << (Bits == 8 ? 1 : 8 - Bits);
  static constexpr int kCentre = Bits == 8 ? 128 : 0;
  struct Sums {
    int16x8_t low, high;  // of bytes 0..7 and 8..15
  };
  Sums q0, q1, q2, q3;

  static int8x16_t weights(uint8x16_t w) {
    return vreinterpretq_s8_u8(Bits == 8 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
  }
  static Sums add(Sums sums, uint8x16_t w, int32x4_t a) {
    const int8x16_t x = weights(w), y = vreinterpretq_s8_s32(a);
    return {vmlal_s8(sums.low, vget_low_s8(x), vget_low_s8(y)), vmlal_high_s8(sums.high, x, y)};
  }
  static int32x4_t total(Sums sums) { return vpaddq_s32(vpaddlq_s16(sums.low), vpaddlq_s16(sums.high)); }

  void start(ClassSums) { q0 = q1 = q2 = q3 = {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  void step(u8x64 w, i32x16 a) {
    q0 = add(q0, w.q0, a.q0);
    q1 = add(q1, w.q1, a.q1);
    q2 = add(q2, w.q2, a.q2);
    q3 = add(q3, w.q3, a.q3);
  }
  i32x16 total() const { return {total(q0), total(q1), total(q2), total(q3)}; }
  i32x16 scaled(i32x16 scale) const { return mul(total(), scale); }
};

constexpr int int_tile_rows(int) { return 2; }  // a row's sums take eight of 32 registers
constexpr bool kFewRegisters = false;

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
