// The meaning of every vector operation, in plain C++. Included by simd.h only.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct f32x16 {
  float v[16];
};
struct i32x16 {
  int32_t v[16];
};
struct u8x64 {
  uint8_t v[64];
};
struct mask16 {
  bool v[16];
};

#define OCTAVO_LANES for (int i = 0; i < 16; ++i)

// ---- memory. Tails take n in [0, 16]: absent lanes load as zero and are not stored. No alignment is asked
// for.
inline f32x16 load(const float* p) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = p[i];
  return r;
}
inline i32x16 load(const int32_t* p) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = p[i];
  return r;
}
inline u8x64 load_u8(const void* p) {
  u8x64 r;
  memcpy(r.v, p, 64);
  return r;
}
inline i32x16 load_words(const void* p) {
  i32x16 r;
  memcpy(r.v, p, 64);
  return r;
}
inline void store(float* p, f32x16 a) { OCTAVO_LANES p[i] = a.v[i]; }
inline void store(int32_t* p, i32x16 a) { OCTAVO_LANES p[i] = a.v[i]; }
inline void store_u8(void* p, u8x64 a) { memcpy(p, a.v, 64); }
inline f32x16 load_tail(const float* p, int n) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = i < n ? p[i] : 0.0f;
  return r;
}
inline void store_tail(float* p, f32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
inline f32x16 load_bf16(const uint16_t* p) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = bf16_to_float(p[i]);
  return r;
}
inline f32x16 load_f16(const uint16_t* p) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = f16_to_float(p[i]);
  return r;
}
inline f32x16 load_e4m3(const uint8_t* p) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = e4m3_to_float(p[i]);
  return r;
}
inline f32x16 load_e5m2(const uint8_t* p) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = e5m2_to_float(p[i]);
  return r;
}
inline void store_bf16(uint16_t* p, f32x16 a) { OCTAVO_LANES p[i] = float_to_bf16(a.v[i]); }
inline void store_f16(uint16_t* p, f32x16 a) { OCTAVO_LANES p[i] = float_to_f16(a.v[i]); }
// int8 / uint8 -> int32 lanes, 16 bytes read.
inline i32x16 load_i8(const int8_t* p) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = p[i];
  return r;
}
inline i32x16 load_u8_i32(const uint8_t* p) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = p[i];
  return r;
}
// Lanes must lie in [-128, 127].
inline void store_i8(int8_t* p, i32x16 a) { OCTAVO_LANES p[i] = int8_t(a.v[i]); }

// ---- float arithmetic. min and max return the second operand when either is NaN, as x86 does.
inline f32x16 broadcast(float x) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = x;
  return r;
}
inline f32x16 add(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] + b.v[i];
  return a;
}
inline f32x16 sub(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] - b.v[i];
  return a;
}
inline f32x16 mul(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] * b.v[i];
  return a;
}
inline f32x16 div(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] / b.v[i];
  return a;
}
inline f32x16 sqrt(f32x16 a) {
  OCTAVO_LANES a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {  // a * b + c, rounded once
  OCTAVO_LANES a.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return a;
}
inline f32x16 min(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline f32x16 max(f32x16 a, f32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}

// ---- integer arithmetic (wraps)
inline i32x16 broadcast_i32(int32_t x) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = x;
  return r;
}
inline i32x16 iota_i32() {  // 0, 1, ..., 15
  i32x16 r;
  OCTAVO_LANES r.v[i] = i;
  return r;
}
inline i32x16 add(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i]));
  return a;
}
inline i32x16 sub(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = int32_t(uint32_t(a.v[i]) - uint32_t(b.v[i]));
  return a;
}
inline i32x16 mul(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = int32_t(uint32_t(a.v[i]) * uint32_t(b.v[i]));
  return a;
}
inline i32x16 bit_and(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] &= b.v[i];
  return a;
}
inline i32x16 bit_or(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] |= b.v[i];
  return a;
}
inline i32x16 bit_xor(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] ^= b.v[i];
  return a;
}
template <int N>
inline i32x16 shift_left(i32x16 a) {
  OCTAVO_LANES a.v[i] = int32_t(uint32_t(a.v[i]) << N);
  return a;
}
template <int N>
inline i32x16 shift_right(i32x16 a) {
  OCTAVO_LANES a.v[i] = int32_t(uint32_t(a.v[i]) >> N);
  return a;
}
template <int N>
inline i32x16 shift_right_arith(i32x16 a) {
  OCTAVO_LANES a.v[i] = a.v[i] >> N;
  return a;
}
inline i32x16 min(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline i32x16 max(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}

// ---- conversions
inline i32x16 to_i32(f32x16 a) {  // nearest even; out of range and NaN give INT32_MIN, as x86 does
  i32x16 r;
  OCTAVO_LANES {
    const float x = a.v[i];
    r.v[i] = x >= -2147483648.0f && x < 2147483648.0f ? int32_t(__builtin_rintf(x)) : INT32_MIN;
  }
  return r;
}
inline f32x16 to_f32(i32x16 a) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = float(a.v[i]);
  return r;
}
inline i32x16 bitcast_i32(f32x16 a) {
  i32x16 r;
  memcpy(&r, &a, sizeof r);
  return r;
}
inline f32x16 bitcast_f32(i32x16 a) {
  f32x16 r;
  memcpy(&r, &a, sizeof r);
  return r;
}
inline u8x64 bitcast_u8(i32x16 a) {
  u8x64 r;
  memcpy(&r, &a, sizeof r);
  return r;
}
inline i32x16 bitcast_i32(u8x64 a) {
  i32x16 r;
  memcpy(&r, &a, sizeof r);
  return r;
}

// ---- predicates (false when either side is NaN)
inline mask16 less(f32x16 a, f32x16 b) {
  mask16 r;
  OCTAVO_LANES r.v[i] = a.v[i] < b.v[i];
  return r;
}
inline mask16 less_equal(f32x16 a, f32x16 b) {
  mask16 r;
  OCTAVO_LANES r.v[i] = a.v[i] <= b.v[i];
  return r;
}
inline mask16 equal(f32x16 a, f32x16 b) {
  mask16 r;
  OCTAVO_LANES r.v[i] = a.v[i] == b.v[i];
  return r;
}
inline mask16 less(i32x16 a, i32x16 b) {
  mask16 r;
  OCTAVO_LANES r.v[i] = a.v[i] < b.v[i];
  return r;
}
inline mask16 equal(i32x16 a, i32x16 b) {
  mask16 r;
  OCTAVO_LANES r.v[i] = a.v[i] == b.v[i];
  return r;
}
inline mask16 mask_and(mask16 a, mask16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] && b.v[i];
  return a;
}
inline mask16 mask_or(mask16 a, mask16 b) {
  OCTAVO_LANES a.v[i] = a.v[i] || b.v[i];
  return a;
}
inline uint32_t mask_bits(mask16 a) {  // bit i = lane i
  uint32_t bits = 0;
  OCTAVO_LANES bits |= uint32_t(a.v[i]) << i;
  return bits;
}
inline f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  OCTAVO_LANES yes.v[i] = m.v[i] ? yes.v[i] : no.v[i];
  return yes;
}
inline i32x16 select(mask16 m, i32x16 yes, i32x16 no) {
  OCTAVO_LANES yes.v[i] = m.v[i] ? yes.v[i] : no.v[i];
  return yes;
}

// a0 b0 a1 b1 ...: the first and the last 16 of the 32 lanes.
inline f32x16 interleave_low(f32x16 a, f32x16 b) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = i % 2 ? b.v[i / 2] : a.v[i / 2];
  return r;
}
inline f32x16 interleave_high(f32x16 a, f32x16 b) {
  f32x16 r;
  OCTAVO_LANES r.v[i] = i % 2 ? b.v[8 + i / 2] : a.v[8 + i / 2];
  return r;
}

// ---- reductions: always the tree i+8, i+4, i+2, i+1
inline float reduce_add(f32x16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] + a.v[i + step];
  }
  return a.v[0];
}
inline float reduce_max(f32x16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
  }
  return a.v[0];
}
inline int32_t reduce_add(i32x16 a) {
  uint32_t sum = 0;
  OCTAVO_LANES sum += uint32_t(a.v[i]);
  return int32_t(sum);
}

// ---- bytes
inline u8x64 broadcast_u8(uint8_t x) {
  u8x64 r;
  memset(r.v, x, 64);
  return r;
}
inline u8x64 bit_and(u8x64 a, u8x64 b) {
  for (int i = 0; i < 64; ++i) a.v[i] &= b.v[i];
  return a;
}
inline u8x64 bit_or(u8x64 a, u8x64 b) {
  for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i];
  return a;
}
template <int N>
inline u8x64 shift_right_u8(u8x64 a) {  // each byte by itself
  for (int i = 0; i < 64; ++i) a.v[i] = uint8_t(a.v[i] >> N);
  return a;
}
template <int N>
inline u8x64 shift_left_u8(u8x64 a) {
  for (int i = 0; i < 64; ++i) a.v[i] = uint8_t(a.v[i] << N);
  return a;
}
inline u8x64 lookup_u8(const uint8_t* table, u8x64 index) {  // 16 entries; indices below 16
  for (int i = 0; i < 64; ++i) index.v[i] = table[index.v[i]];
  return index;
}
// Four signed bytes at p, repeated in all 16 lanes.
inline i32x16 broadcast_4xs8(const int8_t* p) {
  int32_t word;
  memcpy(&word, p, 4);
  return broadcast_i32(word);
}
// Each lane holds two int16: lane = a.lo * b.lo + a.hi * b.hi.
inline i32x16 dot2_i16(i32x16 a, i32x16 b) {
  OCTAVO_LANES a.v[i] = int16_t(a.v[i]) * int16_t(b.v[i]) + (a.v[i] >> 16) * (b.v[i] >> 16);
  return a;
}
// 32 bytes -> lanes of two int16.
inline i32x16 load_u8_pairs(const uint8_t* p) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = p[2 * i] | p[2 * i + 1] << 16;
  return r;
}
inline i32x16 load_i8_pairs(const int8_t* p) {
  i32x16 r;
  OCTAVO_LANES r.v[i] = int32_t((uint32_t(p[2 * i]) & 0xffffu) | uint32_t(p[2 * i + 1]) << 16);
  return r;
}
// The low or high int16 of each lane as a factor for DotChain::scaled, in the form that the ISA wants.
inline i32x16 dot_scale_low(i32x16 a) { return shift_right_arith<16>(shift_left<16>(a)); }
inline i32x16 dot_scale_high(i32x16 a) { return shift_right_arith<16>(a); }

// ---- DotChain<Bits>: per lane the exact sum over k-groups of (4 unsigned weights) . (4 signed activations).
// Weights are below 2^Bits, activations in [-127, 127]; at most kSteps steps between two folds. Weights count
// less kCentre, which the ISA chooses; what their zero differs from it the caller removes. A chain with a
// centre of its own starts with the class sums (linear_args.h) of all its activations.
template <int Bits>
struct DotChain {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = 0;
  i32x16 sum;

  void start(ClassSums) { sum = broadcast_i32(0); }
  void step(u8x64 w, i32x16 a) {
    OCTAVO_LANES {
      for (int j = 0; j < 4; ++j) sum.v[i] += int32_t(w.v[4 * i + j]) * int8_t(uint32_t(a.v[i]) >> (8 * j));
    }
  }
  i32x16 total() const { return sum; }
  i32x16 scaled(i32x16 scale) const { return mul(sum, scale); }
};

#undef OCTAVO_LANES

// Rows of a register tile of the matrix kernels (16 columns wide). One row here: nothing to gain, and the
// unit stays quick to compile.
constexpr int int_tile_rows(int) { return 1; }
constexpr bool kFewRegisters = false;
constexpr int kFloatTileRows = 1;
constexpr int kPairTileRows = 1;  // bf16 pairs need registers of their own
constexpr int kFloatPanels = 1;   // panels of a float tile of many rows

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
