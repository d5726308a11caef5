// AVX-512 F/BW/DQ/VL: sixteen lanes are one zmm register. Meanings are stated in scalar.h; the integer dot
// products are in avx512_dot.h or avx512vnni_dot.h.
#pragma once

#if defined(OCTAVO_EMULATED)  // tests on machines without AVX-512: tests/ops/emulation.py
#include "octavo/simd/avx512_emulated.h"
#else
#include <immintrin.h>
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct f32x16 {
  __m512 v;
};
struct i32x16 {
  __m512i v;
};
struct u8x64 {
  __m512i v;
};
struct mask16 {
  __mmask16 v;
};

// ---- memory
inline f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline i32x16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline u8x64 load_u8(const void* p) { return {_mm512_loadu_si512(p)}; }
inline i32x16 load_words(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store(float* p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
inline void store(int32_t* p, i32x16 a) { _mm512_storeu_si512(p, a.v); }
inline void store_u8(void* p, u8x64 a) { _mm512_storeu_si512(p, a.v); }
inline __mmask16 first_lanes(int n) { return __mmask16((1u << n) - 1u); }
inline f32x16 load_tail(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store_tail(float* p, f32x16 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline __m256i load_m256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline f32x16 load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_m256(p)), 16))};
}
inline f32x16 load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(load_m256(p))}; }
inline __m128i load_m128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline f32x16 load_e4m3(const uint8_t* p) {  // by way of a 16-bit float of a 256th
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_m128(p)), 7);
  const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(int16_t(0xbf80)));
  const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x3f80));
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
  const __m256i bits = _mm256_or_si256(half, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7f80)));
  return {_mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256.0f))};
}
inline f32x16 load_e5m2(const uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_m128(p)), 8))};
}
inline void store_bf16(uint16_t* p, f32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m256i packed = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
}
inline void store_f16(uint16_t* p, f32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline i32x16 load_i8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline i32x16 load_u8_i32(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_i8(int8_t* p, i32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

// ---- float arithmetic
inline f32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline f32x16 add(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline f32x16 sub(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline f32x16 mul(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline f32x16 div(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline f32x16 sqrt(f32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }

// ---- integer arithmetic
inline i32x16 broadcast_i32(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline i32x16 iota_i32() { return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
inline i32x16 add(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline i32x16 sub(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline i32x16 mul(i32x16 a, i32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline i32x16 bit_and(i32x16 a, i32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline i32x16 bit_or(i32x16 a, i32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline i32x16 bit_xor(i32x16 a, i32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
inline i32x16 shift_left(i32x16 a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
inline i32x16 shift_right(i32x16 a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
inline i32x16 shift_right_arith(i32x16 a) {
  return {_mm512_srai_epi32(a.v, N)};
}
inline i32x16 min(i32x16 a, i32x16 b) { return {_mm512_min_epi32(a.v, b.v)}; }
inline i32x16 max(i32x16 a, i32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }

// ---- conversions
inline i32x16 to_i32(f32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline f32x16 to_f32(i32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline i32x16 bitcast_i32(f32x16 a) { return {_mm512_castps_si512(a.v)}; }
inline f32x16 bitcast_f32(i32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
inline u8x64 bitcast_u8(i32x16 a) { return {a.v}; }
inline i32x16 bitcast_i32(u8x64 a) { return {a.v}; }

// ---- predicates
inline mask16 less(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline mask16 less_equal(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline mask16 equal(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline mask16 less(i32x16 a, i32x16 b) { return {_mm512_cmpgt_epi32_mask(b.v, a.v)}; }
inline mask16 equal(i32x16 a, i32x16 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
inline mask16 mask_and(mask16 a, mask16 b) { return {__mmask16(a.v & b.v)}; }
inline mask16 mask_or(mask16 a, mask16 b) { return {__mmask16(a.v | b.v)}; }
inline uint32_t mask_bits(mask16 a) { return uint32_t(a.v); }
inline f32x16 select(mask16 m, f32x16 yes, f32x16 no) { return {_mm512_mask_mov_ps(no.v, m.v, yes.v)}; }
inline i32x16 select(mask16 m, i32x16 yes, i32x16 no) { return {_mm512_mask_mov_epi32(no.v, m.v, yes.v)}; }

inline f32x16 interleave_low(f32x16 a, f32x16 b) {
  const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return {_mm512_permutex2var_ps(a.v, order, b.v)};
}
inline f32x16 interleave_high(f32x16 a, f32x16 b) {
  const __m512i order = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return {_mm512_permutex2var_ps(a.v, order, b.v)};
}

// ---- reductions (not _mm512_reduce_*: their tree is the compiler's choice)
inline __m256 upper_half(__m512 a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
inline float reduce_add(f32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float reduce_max(f32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline int32_t reduce_add(i32x16 a) {
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// ---- bytes
inline u8x64 broadcast_u8(uint8_t x) { return {_mm512_set1_epi8(char(x))}; }
inline u8x64 bit_and(u8x64 a, u8x64 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline u8x64 bit_or(u8x64 a, u8x64 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int N>
inline u8x64 shift_right_u8(u8x64 a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, N), _mm512_set1_epi8(char(0xff >> N)))};
}
template <int N>
inline u8x64 shift_left_u8(u8x64 a) {
  return {_mm512_and_si512(_mm512_slli_epi16(a.v, N), _mm512_set1_epi8(char(0xff << N)))};
}
inline u8x64 lookup_u8(const uint8_t* table, u8x64 index) {
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_m128(table)), index.v)};
}
inline i32x16 broadcast_4xs8(const int8_t* p) {
  int32_t word;
  memcpy(&word, p, 4);
  return {_mm512_set1_epi32(word)};
}
inline i32x16 dot2_i16(i32x16 a, i32x16 b) { return {_mm512_madd_epi16(a.v, b.v)}; }
inline i32x16 load_u8_pairs(const uint8_t* p) { return {_mm512_cvtepu8_epi16(load_m256(p))}; }
inline i32x16 load_i8_pairs(const int8_t* p) { return {_mm512_cvtepi8_epi16(load_m256(p))}; }

constexpr int int_tile_rows(int) { return 6; }
constexpr bool kFewRegisters = false;
constexpr int kFloatTileRows = 12;
constexpr int kPairTileRows = 12;  // bf16 pairs need registers of their own
constexpr int kFloatPanels = 2;    // panels of a float tile of many rows

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
