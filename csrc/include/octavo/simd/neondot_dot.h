// Integer dot products of NEON with SDOT (ARMv8.2 dotprod): four signed byte products into an int32.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Weights as signed bytes: those of eight bits lose their offset of 128.
template <int Bits>
inline int8x16_t signed_weights(uint8x16_t w) {
  return vreinterpretq_s8_u8(Bits == 8 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
}

template <int Bits>
struct DotChain {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = Bits == 8 ? 128 : 0;
  i32x16 sum;

  static int32x4_t dot(int32x4_t sum, uint8x16_t w, int32x4_t a) {
    return vdotq_s32(sum, signed_weights<Bits>(w), vreinterpretq_s8_s32(a));
  }
  void start(ClassSums) { sum = broadcast_i32(0); }
  void step(u8x64 w, i32x16 a) { sum = OCTAVO_ZIP3(dot, sum, w, a); }
  i32x16 total() const { return sum; }
  i32x16 scaled(i32x16 scale) const { return mul(sum, scale); }
};

// SDOT takes its activations from one lane of a register: one load serves both k-groups.
template <int Bits, int M>
struct DotRows {
  i32x16 sum[M];

  template <class Sums>
  [[gnu::always_inline]] void start(Sums) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) sum[m] = broadcast_i32(0);
  }
  static int32x4_t dot(int32x4_t sum, uint8x16_t even, uint8x16_t odd, int8x8_t a) {
    sum = vdotq_lane_s32(sum, signed_weights<Bits>(even), a, 0);
    return vdotq_lane_s32(sum, signed_weights<Bits>(odd), a, 1);
  }
  [[gnu::always_inline]] void step(u8x64 even, u8x64 odd, const int8_t* const (&q)[M]) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      const int8x8_t a = vld1_s8(q[m]);
      sum[m] = {dot(sum[m].q0, even.q0, odd.q0, a), dot(sum[m].q1, even.q1, odd.q1, a),
                dot(sum[m].q2, even.q2, odd.q2, a), dot(sum[m].q3, even.q3, odd.q3, a)};
    }
  }
  [[gnu::always_inline]] i32x16 total(int m) const { return sum[m]; }
  [[gnu::always_inline]] i32x16 scaled(int m, i32x16 scale) const { return mul(sum[m], scale); }
};

constexpr int int_tile_rows(int) { return 4; }
constexpr bool kFewRegisters = false;

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
