// Thirty-two float16 lanes (AVX512-FP16, which every processor with AMX-BF16 has). They keep subnormals. Each
// operation rounds once, to nearest even.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct f16x32 {
  __m512i bits;
};

template <int N>
inline i32x16 shift_left_i16(i32x16 a) {
  return {_mm512_slli_epi16(a.v, N)};
}
template <int N>
inline i32x16 shift_right_i16(i32x16 a) {
  return {_mm512_srli_epi16(a.v, N)};
}
template <int N>
inline i32x16 shift_right_arith_i16(i32x16 a) {
  return {_mm512_srai_epi16(a.v, N)};
}
inline i32x16 add_i16(i32x16 a, i32x16 b) { return {_mm512_add_epi16(a.v, b.v)}; }
inline i32x16 broadcast_i16(uint16_t x) { return {_mm512_set1_epi16(int16_t(x))}; }

// (a & mask) | bits
inline i32x16 and_or(i32x16 a, i32x16 mask, i32x16 bits) {
  return {_mm512_ternarylogic_epi32(a.v, mask.v, bits.v, 0xEA)};
}
// Sixteen floats, each in two neighbouring lanes.
inline f16x32 to_f16_twice(f32x16 a) {
  uint16_t bits[16];
  store_f16(bits, a);
  const __m512i once = _mm512_cvtepu16_epi32(load_m256(bits));
  return {_mm512_or_si512(once, _mm512_slli_epi32(once, 16))};
}
// Lane i of the result is lane order[i] of a and b together (32 int16 each).
inline i32x16 pick_i16(i32x16 a, i32x16 order, i32x16 b) {
  return {_mm512_permutex2var_epi16(a.v, order.v, b.v)};
}
// Lane i of the result is lane order[i] % 32 of a.
inline i32x16 pick_i16(i32x16 a, i32x16 order) { return {_mm512_permutexvar_epi16(order.v, a.v)}; }
// (a + 2^(N-1)) >> N, 1 <= N <= 14, for int16 lanes.
template <int N>
inline i32x16 round_shift_i16(i32x16 a) {
  return {_mm512_mulhrs_epi16(a.v, _mm512_set1_epi16(int16_t(1 << (15 - N))))};
}

#if defined(OCTAVO_EMULATED)

// A float64 holds the exact value of what is rounded here: products have 22 bits, and addends lie within 2^43
// of them.
inline uint16_t round_to_half(double x) {
  const double size = x < 0 ? -x : x;
  const uint16_t sign = x < 0 || (x == 0 && 1 / x < 0) ? 0x8000 : 0;
  if (size >= 65520.0) return uint16_t(sign | 0x7c00);
  double unit = 0x1p-24;  // of the last place
  while (size >= 2048 * unit) unit *= 2;
  const double shifted = size / unit + 0x1p52;  // to an integer, to nearest even
  const double rounded = (shifted - 0x1p52) * unit;
  uint16_t bits = 0;
  double place = 0x1p-24;
  int exponent = 0;
  while (rounded >= 2048 * place) place *= 2, ++exponent;
  const auto mantissa = uint16_t(rounded / place);
  bits = mantissa >= 1024 ? uint16_t(((exponent + 1) << 10) | (mantissa - 1024)) : mantissa;
  return uint16_t(sign | bits);
}

template <class F>
inline f16x32 by_lane(f16x32 a, f16x32 b, f16x32 c, F&& f) {
  uint16_t x[32], y[32], z[32];
  memcpy(x, &a, 64);
  memcpy(y, &b, 64);
  memcpy(z, &c, 64);
  for (int i = 0; i < 32; ++i)
    x[i] = round_to_half(f(f16_to_float(x[i]), f16_to_float(y[i]), f16_to_float(z[i])));
  f16x32 out;
  memcpy(&out, x, 64);
  return out;
}
inline f16x32 sub(f16x32 a, f16x32 b) {
  return by_lane(a, b, b, [](double x, double y, double) { return x - y; });
}
inline f16x32 mul(f16x32 a, f16x32 b) {
  return by_lane(a, b, b, [](double x, double y, double) { return x * y; });
}
inline f16x32 fma(f16x32 a, f16x32 b, f16x32 c) {
  return by_lane(a, b, c, [](double x, double y, double z) { return x * y + z; });
}

#else

inline f16x32 sub(f16x32 a, f16x32 b) {
  return {_mm512_castph_si512(_mm512_sub_ph(_mm512_castsi512_ph(a.bits), _mm512_castsi512_ph(b.bits)))};
}
inline f16x32 mul(f16x32 a, f16x32 b) {
  return {_mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(a.bits), _mm512_castsi512_ph(b.bits)))};
}
inline f16x32 fma(f16x32 a, f16x32 b, f16x32 c) {
  return {_mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(a.bits), _mm512_castsi512_ph(b.bits),
                                              _mm512_castsi512_ph(c.bits)))};
}

#endif

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
