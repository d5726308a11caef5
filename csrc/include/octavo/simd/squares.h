// Squares: the products of two rows and two columns, which SMMLA (Armv8.6 i8mm) computes eight k deep.
//
//   lanes of a square: row 0 column 0, row 0 column 1, row 1 column 0, row 1 column 1
//   operands: eight bytes of the first row (column), eight of the second
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

using i32x4 = int32x4_t;
using f32x4 = float32x4_t;
using s8x16 = int8x16_t;

constexpr int kSquares = 8;  // in two rows of a panel

inline s8x16 load_bytes(const int8_t* p) { return vld1q_s8(p); }
inline i32x4 load_square(const int32_t* p) { return vld1q_s32(p); }
inline f32x4 load_square(const float* p) { return vld1q_f32(p); }
inline i32x4 square_of(int32_t x) { return vdupq_n_s32(x); }

inline i32x4 dot8(i32x4 sum, s8x16 rows, s8x16 columns) { return vmmlaq_s32(sum, rows, columns); }
// a * b + c
inline i32x4 multiply_add(i32x4 a, i32x4 b, i32x4 c) { return vmlaq_s32(c, a, b); }
// a + 128 * b
inline i32x4 add_128(i32x4 a, i32x4 b) { return vaddq_s32(a, vshlq_n_s32(b, 7)); }

inline f32x4 mul(f32x4 a, f32x4 b) { return vmulq_f32(a, b); }
inline f32x4 fma(f32x4 a, f32x4 b, f32x4 c) { return vfmaq_f32(c, a, b); }
inline f32x4 neg(f32x4 a) { return vnegq_f32(a); }
inline f32x4 to_f32(i32x4 a) { return vcvtq_f32_s32(a); }

// A sum that starts at kExactStart, of which less than 2^22 came, is the bits of 1.5 * 2^23 and the rest: a
// subtraction makes it a float, where the conversion would take two operations of half of the pipes.
constexpr int32_t kExactStart = 0x4b400000;
inline f32x4 exact_f32(i32x4 a) { return vsubq_f32(vreinterpretq_f32_s32(a), vdupq_n_f32(12582912.0f)); }

inline u8x64 sub(u8x64 a, u8x64 b) { return OCTAVO_ZIP(vsubq_u8, a, b); }

// Two k-groups of a panel: the right operands of its eight pairs of columns.
[[gnu::always_inline]] inline void put_columns(int8_t (*out)[16], u8x64 even, u8x64 odd) {
  const auto four = [](uint8x16_t a, uint8x16_t b, int8_t (*to)[16]) {
    const int32x4_t x = vreinterpretq_s32_u8(a), y = vreinterpretq_s32_u8(b);
    vst1q_s8(to[0], vreinterpretq_s8_s32(vzip1q_s32(x, y)));
    vst1q_s8(to[1], vreinterpretq_s8_s32(vzip2q_s32(x, y)));
  };
  four(even.q0, odd.q0, out);
  four(even.q1, odd.q1, out + 2);
  four(even.q2, odd.q2, out + 4);
  four(even.q3, odd.q3, out + 6);
}

// What belongs to columns, for both rows of their squares.
inline void put_for_both(int32_t (*out)[4], i32x16 x) {
  const auto four = [](int32x4_t q, int32_t (*to)[4]) {
    vst1q_s32(to[0], vcombine_s32(vget_low_s32(q), vget_low_s32(q)));
    vst1q_s32(to[1], vcombine_s32(vget_high_s32(q), vget_high_s32(q)));
  };
  four(x.q0, out);
  four(x.q1, out + 2);
  four(x.q2, out + 4);
  four(x.q3, out + 6);
}
inline void put_for_both(float (*out)[4], f32x16 x) {
  put_for_both(reinterpret_cast<int32_t (*)[4]>(out), bitcast_i32(x));
}

inline f32x4 first_halves(f32x4 a, f32x4 b) { return vcombine_f32(vget_low_f32(a), vget_low_f32(b)); }
inline f32x4 second_halves(f32x4 a, f32x4 b) { return vcombine_f32(vget_high_f32(a), vget_high_f32(b)); }

// Two rows of a panel as squares, and back.
inline void to_squares(f32x16 row0, f32x16 row1, f32x4 (&out)[kSquares]) {
  const f32x4 a[4] = {row0.q0, row0.q1, row0.q2, row0.q3}, b[4] = {row1.q0, row1.q1, row1.q2, row1.q3};
  OCTAVO_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = first_halves(a[i], b[i]);
    out[2 * i + 1] = second_halves(a[i], b[i]);
  }
}
inline f32x16 first_row(const f32x4 (&s)[kSquares]) {
  return {first_halves(s[0], s[1]), first_halves(s[2], s[3]), first_halves(s[4], s[5]),
          first_halves(s[6], s[7])};
}
inline f32x16 second_row(const f32x4 (&s)[kSquares]) {
  return {second_halves(s[0], s[1]), second_halves(s[2], s[3]), second_halves(s[4], s[5]),
          second_halves(s[6], s[7])};
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
