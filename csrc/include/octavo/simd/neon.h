// AArch64 NEON: sixteen lanes are four q registers (q0 = lanes 0..3). Meanings are stated in scalar.h; the
// integer dot products are in neon_dot.h and neondot_dot.h. NEON rounds to nearest even and
// keeps subnormal numbers, as long as nobody sets FPCR otherwise.
#pragma once

#include <arm_neon.h>

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct f32x16 {
  float32x4_t q0, q1, q2, q3;
};
struct i32x16 {
  int32x4_t q0, q1, q2, q3;
};
struct u8x64 {
  uint8x16_t q0, q1, q2, q3;
};
struct mask16 {
  uint32x4_t q0, q1, q2, q3;  // all ones or all zeros in a lane
};

// f on each quarter; N is an immediate operand.
#define OCTAVO_MAP(f, a) {f((a).q0), f((a).q1), f((a).q2), f((a).q3)}
#define OCTAVO_MAP_N(f, a, N) {f((a).q0, N), f((a).q1, N), f((a).q2, N), f((a).q3, N)}
#define OCTAVO_ZIP(f, a, b) {f((a).q0, (b).q0), f((a).q1, (b).q1), f((a).q2, (b).q2), f((a).q3, (b).q3)}
#define OCTAVO_ZIP3(f, a, b, c) \
  {f((a).q0, (b).q0, (c).q0), f((a).q1, (b).q1, (c).q1), f((a).q2, (b).q2, (c).q2), f((a).q3, (b).q3, (c).q3)}

// ---- memory
inline f32x16 load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline i32x16 load(const int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
inline u8x64 load_u8(const void* p) {
  const uint8_t* q = static_cast<const uint8_t*>(p);
  return {vld1q_u8(q), vld1q_u8(q + 16), vld1q_u8(q + 32), vld1q_u8(q + 48)};
}
inline i32x16 load_words(const void* p) {
  const u8x64 bytes = load_u8(p);
  return OCTAVO_MAP(vreinterpretq_s32_u8, bytes);
}
inline void store(float* p, f32x16 a) {
  vst1q_f32(p, a.q0);
  vst1q_f32(p + 4, a.q1);
  vst1q_f32(p + 8, a.q2);
  vst1q_f32(p + 12, a.q3);
}
inline void store(int32_t* p, i32x16 a) {
  vst1q_s32(p, a.q0);
  vst1q_s32(p + 4, a.q1);
  vst1q_s32(p + 8, a.q2);
  vst1q_s32(p + 12, a.q3);
}
inline void store_u8(void* p, u8x64 a) {
  uint8_t* q = static_cast<uint8_t*>(p);
  vst1q_u8(q, a.q0);
  vst1q_u8(q + 16, a.q1);
  vst1q_u8(q + 32, a.q2);
  vst1q_u8(q + 48, a.q3);
}
inline float32x4_t load_quarter(const float* p, int n) {  // n may lie outside of [0, 4]
  if (n >= 4) return vld1q_f32(p);
  float32x4_t r = vdupq_n_f32(0.0f);
  if (n > 0) r = vld1q_lane_f32(p, r, 0);
  if (n > 1) r = vld1q_lane_f32(p + 1, r, 1);
  if (n > 2) r = vld1q_lane_f32(p + 2, r, 2);
  return r;
}
inline void store_quarter(float* p, float32x4_t a, int n) {
  if (n >= 4) return vst1q_f32(p, a);
  if (n > 0) vst1q_lane_f32(p, a, 0);
  if (n > 1) vst1q_lane_f32(p + 1, a, 1);
  if (n > 2) vst1q_lane_f32(p + 2, a, 2);
}
inline f32x16 load_tail(const float* p, int n) {
  return {load_quarter(p, n), load_quarter(p + 4, n - 4), load_quarter(p + 8, n - 8),
          load_quarter(p + 12, n - 12)};
}
inline void store_tail(float* p, f32x16 a, int n) {
  store_quarter(p, a.q0, n);
  store_quarter(p + 4, a.q1, n - 4);
  store_quarter(p + 8, a.q2, n - 8);
  store_quarter(p + 12, a.q3, n - 12);
}
// A zip with zeros is a shift to the upper half.
inline f32x16 load_bf16(const uint16_t* p) {
  const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8), zero = vdupq_n_u16(0);
  return {vreinterpretq_f32_u16(vzip1q_u16(zero, low)), vreinterpretq_f32_u16(vzip2q_u16(zero, low)),
          vreinterpretq_f32_u16(vzip1q_u16(zero, high)), vreinterpretq_f32_u16(vzip2q_u16(zero, high))};
}
inline float32x4_t widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
inline f32x16 widen_halves(uint16x8_t low, uint16x8_t high) {
  return {widen_f16(vget_low_u16(low)), widen_f16(vget_high_u16(low)), widen_f16(vget_low_u16(high)),
          widen_f16(vget_high_u16(high))};
}
inline f32x16 load_f16(const uint16_t* p) { return widen_halves(vld1q_u16(p), vld1q_u16(p + 8)); }
inline uint16x8_t e4m3_to_half(int8x8_t x) {  // of a 256th
  const uint16x8_t wide = vreinterpretq_u16_s16(vshll_n_s8(x, 7));
  const uint16x8_t magnitude = vandq_u16(wide, vdupq_n_u16(0x3f80));
  const uint16x8_t is_nan = vceqq_u16(magnitude, vdupq_n_u16(0x3f80));
  return vorrq_u16(vandq_u16(wide, vdupq_n_u16(0xbf80)), vandq_u16(is_nan, vdupq_n_u16(0x7f80)));
}
inline f32x16 load_e4m3(const uint8_t* p) {
  const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
  const f32x16 part = widen_halves(e4m3_to_half(vget_low_s8(x)), e4m3_to_half(vget_high_s8(x)));
  return OCTAVO_MAP_N(vmulq_n_f32, part, 256.0f);
}
inline f32x16 load_e5m2(const uint8_t* p) {
  const uint8x16_t x = vld1q_u8(p), zero = vdupq_n_u8(0);
  return widen_halves(vreinterpretq_u16_u8(vzip1q_u8(zero, x)), vreinterpretq_u16_u8(vzip2q_u8(zero, x)));
}
inline uint16x4_t narrow_bf16(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
}
inline void store_bf16(uint16_t* p, f32x16 a) {
  vst1_u16(p, narrow_bf16(a.q0));
  vst1_u16(p + 4, narrow_bf16(a.q1));
  vst1_u16(p + 8, narrow_bf16(a.q2));
  vst1_u16(p + 12, narrow_bf16(a.q3));
}
inline uint16x4_t narrow_f16(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
inline void store_f16(uint16_t* p, f32x16 a) {
  vst1_u16(p, narrow_f16(a.q0));
  vst1_u16(p + 4, narrow_f16(a.q1));
  vst1_u16(p + 8, narrow_f16(a.q2));
  vst1_u16(p + 12, narrow_f16(a.q3));
}
inline i32x16 widen_i16(int16x8_t low, int16x8_t high) {
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
          vmovl_high_s16(high)};
}
inline i32x16 load_i8(const int8_t* p) { return widen_i16(vmovl_s8(vld1_s8(p)), vmovl_s8(vld1_s8(p + 8))); }
inline int16x8_t load_eight_u8(const uint8_t* p) { return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p))); }
inline i32x16 load_u8_i32(const uint8_t* p) { return widen_i16(load_eight_u8(p), load_eight_u8(p + 8)); }
inline void store_i8(int8_t* p, i32x16 a) {
  vst1_s8(p, vmovn_s16(vcombine_s16(vmovn_s32(a.q0), vmovn_s32(a.q1))));
  vst1_s8(p + 8, vmovn_s16(vcombine_s16(vmovn_s32(a.q2), vmovn_s32(a.q3))));
}

// ---- float arithmetic (NEON's own minimum and maximum treat NaN and zeros otherwise)
inline f32x16 broadcast(float x) {
  const float32x4_t q = vdupq_n_f32(x);
  return {q, q, q, q};
}
inline f32x16 add(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vaddq_f32, a, b); }
inline f32x16 sub(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vsubq_f32, a, b); }
inline f32x16 mul(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vmulq_f32, a, b); }
inline f32x16 div(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vdivq_f32, a, b); }
inline f32x16 sqrt(f32x16 a) { return OCTAVO_MAP(vsqrtq_f32, a); }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return OCTAVO_ZIP3(vfmaq_f32, c, a, b); }
inline float32x4_t smaller_of(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline float32x4_t larger_of(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline f32x16 min(f32x16 a, f32x16 b) { return OCTAVO_ZIP(smaller_of, a, b); }
inline f32x16 max(f32x16 a, f32x16 b) { return OCTAVO_ZIP(larger_of, a, b); }

// ---- integer arithmetic
inline i32x16 broadcast_i32(int32_t x) {
  const int32x4_t q = vdupq_n_s32(x);
  return {q, q, q, q};
}
inline i32x16 iota_i32() {
  const int32x4_t q0 = {0, 1, 2, 3}, q1 = {4, 5, 6, 7}, q2 = {8, 9, 10, 11}, q3 = {12, 13, 14, 15};
  return {q0, q1, q2, q3};
}
inline i32x16 add(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vaddq_s32, a, b); }
inline i32x16 sub(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vsubq_s32, a, b); }
inline i32x16 mul(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vmulq_s32, a, b); }
inline i32x16 bit_and(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vandq_s32, a, b); }
inline i32x16 bit_or(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vorrq_s32, a, b); }
inline i32x16 bit_xor(i32x16 a, i32x16 b) { return OCTAVO_ZIP(veorq_s32, a, b); }
template <int N>
inline i32x16 shift_left(i32x16 a) {
  return OCTAVO_MAP_N(vshlq_n_s32, a, N);
}
template <int N>
inline int32x4_t shift_right_logical(int32x4_t a) {
  return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), N));
}
template <int N>
inline i32x16 shift_right(i32x16 a) {
  return OCTAVO_MAP(shift_right_logical<N>, a);
}
template <int N>
inline i32x16 shift_right_arith(i32x16 a) {
  return OCTAVO_MAP_N(vshrq_n_s32, a, N);
}
inline i32x16 min(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vminq_s32, a, b); }
inline i32x16 max(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vmaxq_s32, a, b); }

// ---- conversions. The instruction saturates and takes NaN to 0; what is too large and NaN must be
// INT32_MIN.
inline int32x4_t nearest_i32(float32x4_t a) {
  return vbslq_s32(vcltq_f32(a, vdupq_n_f32(2147483648.0f)), vcvtnq_s32_f32(a), vdupq_n_s32(INT32_MIN));
}
inline i32x16 to_i32(f32x16 a) { return OCTAVO_MAP(nearest_i32, a); }
inline f32x16 to_f32(i32x16 a) { return OCTAVO_MAP(vcvtq_f32_s32, a); }
inline i32x16 bitcast_i32(f32x16 a) { return OCTAVO_MAP(vreinterpretq_s32_f32, a); }
inline f32x16 bitcast_f32(i32x16 a) { return OCTAVO_MAP(vreinterpretq_f32_s32, a); }
inline u8x64 bitcast_u8(i32x16 a) { return OCTAVO_MAP(vreinterpretq_u8_s32, a); }
inline i32x16 bitcast_i32(u8x64 a) { return OCTAVO_MAP(vreinterpretq_s32_u8, a); }

// ---- predicates
inline mask16 less(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vcltq_f32, a, b); }
inline mask16 less_equal(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vcleq_f32, a, b); }
inline mask16 equal(f32x16 a, f32x16 b) { return OCTAVO_ZIP(vceqq_f32, a, b); }
inline mask16 less(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vcltq_s32, a, b); }
inline mask16 equal(i32x16 a, i32x16 b) { return OCTAVO_ZIP(vceqq_s32, a, b); }
inline mask16 mask_and(mask16 a, mask16 b) { return OCTAVO_ZIP(vandq_u32, a, b); }
inline mask16 mask_or(mask16 a, mask16 b) { return OCTAVO_ZIP(vorrq_u32, a, b); }
inline uint32_t mask_bits(mask16 a) {
  const uint8x8_t low = vmovn_u16(vcombine_u16(vmovn_u32(a.q0), vmovn_u32(a.q1)));
  const uint8x8_t high = vmovn_u16(vcombine_u16(vmovn_u32(a.q2), vmovn_u32(a.q3)));
  const uint8x8_t weight = {1, 2, 4, 8, 16, 32, 64, 128};
  return uint32_t(vaddv_u8(vand_u8(low, weight))) | uint32_t(vaddv_u8(vand_u8(high, weight))) << 8;
}
inline f32x16 select(mask16 m, f32x16 yes, f32x16 no) { return OCTAVO_ZIP3(vbslq_f32, m, yes, no); }
inline i32x16 select(mask16 m, i32x16 yes, i32x16 no) { return OCTAVO_ZIP3(vbslq_s32, m, yes, no); }

inline f32x16 interleave_low(f32x16 a, f32x16 b) {
  return {vzip1q_f32(a.q0, b.q0), vzip2q_f32(a.q0, b.q0), vzip1q_f32(a.q1, b.q1), vzip2q_f32(a.q1, b.q1)};
}
inline f32x16 interleave_high(f32x16 a, f32x16 b) {
  return {vzip1q_f32(a.q2, b.q2), vzip2q_f32(a.q2, b.q2), vzip1q_f32(a.q3, b.q3), vzip2q_f32(a.q3, b.q3)};
}

// ---- reductions (vaddvq_f32 adds neighbours first: another tree)
inline float reduce_add(f32x16 a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.q0, a.q2), vaddq_f32(a.q1, a.q3));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float reduce_max(f32x16 a) {
  const float32x4_t four = larger_of(larger_of(a.q0, a.q2), larger_of(a.q1, a.q3));
  const float32x4_t two = larger_of(four, vextq_f32(four, four, 2));
  const float x = vgetq_lane_f32(two, 0), y = vgetq_lane_f32(two, 1);
  return x > y ? x : y;
}
inline int32_t reduce_add(i32x16 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.q0, a.q1), vaddq_s32(a.q2, a.q3)));
}

// ---- bytes
inline u8x64 broadcast_u8(uint8_t x) {
  const uint8x16_t q = vdupq_n_u8(x);
  return {q, q, q, q};
}
inline u8x64 bit_and(u8x64 a, u8x64 b) { return OCTAVO_ZIP(vandq_u8, a, b); }
inline u8x64 bit_or(u8x64 a, u8x64 b) { return OCTAVO_ZIP(vorrq_u8, a, b); }
template <int N>
inline u8x64 shift_right_u8(u8x64 a) {
  if constexpr (N == 0) return a;  // no such instruction
  constexpr int kBits = N == 0 ? 1 : N;
  return OCTAVO_MAP_N(vshrq_n_u8, a, kBits);
}
template <int N>
inline u8x64 shift_left_u8(u8x64 a) {
  return OCTAVO_MAP_N(vshlq_n_u8, a, N);
}
inline u8x64 lookup_u8(const uint8_t* table, u8x64 index) {
  const uint8x16_t t = vld1q_u8(table);
  return {vqtbl1q_u8(t, index.q0), vqtbl1q_u8(t, index.q1), vqtbl1q_u8(t, index.q2), vqtbl1q_u8(t, index.q3)};
}
inline i32x16 broadcast_4xs8(const int8_t* p) {
  int32_t word;
  memcpy(&word, p, 4);
  return broadcast_i32(word);
}
inline int32x4_t dot2_quarter(int32x4_t a, int32x4_t b) {
  const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
  return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
inline i32x16 dot2_i16(i32x16 a, i32x16 b) { return OCTAVO_ZIP(dot2_quarter, a, b); }
inline int32x4_t four_u8_pairs(const uint8_t* p) { return vreinterpretq_s32_u16(vmovl_u8(vld1_u8(p))); }
inline int32x4_t four_i8_pairs(const int8_t* p) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p))); }
inline i32x16 load_u8_pairs(const uint8_t* p) {
  return {four_u8_pairs(p), four_u8_pairs(p + 8), four_u8_pairs(p + 16), four_u8_pairs(p + 24)};
}
inline i32x16 load_i8_pairs(const int8_t* p) {
  return {four_i8_pairs(p), four_i8_pairs(p + 8), four_i8_pairs(p + 16), four_i8_pairs(p + 24)};
}
inline i32x16 dot_scale_low(i32x16 a) { return shift_right_arith<16>(shift_left<16>(a)); }
inline i32x16 dot_scale_high(i32x16 a) { return shift_right_arith<16>(a); }

// Of 32 registers a float tile's sums take 24.
constexpr int kFloatTileRows = 6;
constexpr int kPairTileRows = 5;  // bf16 pairs need registers of their own
constexpr int kFloatPanels = 1;   // panels of a float tile of many rows

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
