// AVX2 + FMA + F16C: sixteen lanes are two ymm registers (`lo` = lanes 0..7). Meanings are stated in
// scalar.h; the integer dot products are in avx2_dot.h or avxvnni_dot.h.
#pragma once

#include <immintrin.h>

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct f32x16 {
  __m256 lo, hi;
};
struct i32x16 {
  __m256i lo, hi;
};
struct u8x64 {
  __m256i lo, hi;
};
struct mask16 {
  __m256i lo, hi;  // all ones or all zeros in a lane
};

inline const __m256i* as_m256i(const void* p) { return static_cast<const __m256i*>(p); }

// ---- memory
inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline i32x16 load(const int32_t* p) {
  return {_mm256_loadu_si256(as_m256i(p)), _mm256_loadu_si256(as_m256i(p + 8))};
}
inline u8x64 load_u8(const void* p) {
  return {_mm256_loadu_si256(as_m256i(p)), _mm256_loadu_si256(as_m256i(p) + 1)};
}
inline i32x16 load_words(const void* p) {
  return {_mm256_loadu_si256(as_m256i(p)), _mm256_loadu_si256(as_m256i(p) + 1)};
}
inline void store(float* p, f32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store(int32_t* p, i32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline void store_u8(void* p, u8x64 a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, a.hi);
}
inline mask16 first_lanes(int n) {
  const __m256i count = _mm256_set1_epi32(n);
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
inline f32x16 load_tail(const float* p, int n) {
  const mask16 m = first_lanes(n);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
inline void store_tail(float* p, f32x16 a, int n) {
  const mask16 m = first_lanes(n);
  _mm256_maskstore_ps(p, m.lo, a.lo);
  _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}
inline __m256 widen_bf16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline f32x16 load_bf16(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
inline f32x16 load_f16(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline f32x16 widen_halves(__m256i h) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
inline __m128i load_m128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline f32x16 load_e4m3(const uint8_t* p) {  // by way of a 16-bit float of a 256th
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_m128(p)), 7);
  const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(int16_t(0xbf80)));
  const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x3f80));
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
  const f32x16 x = widen_halves(_mm256_or_si256(half, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7f80))));
  const __m256 unit = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(x.lo, unit), _mm256_mul_ps(x.hi, unit)};
}
inline f32x16 load_e5m2(const uint8_t* p) {
  return widen_halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_m128(p)), 8));
}
inline __m256i narrow_bf16(__m256 x) {  // 32-bit lanes holding the 16-bit result
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
inline void store_bf16(uint16_t* p, f32x16 a) {
  const __m256i packed = _mm256_packus_epi32(narrow_bf16(a.lo), narrow_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_f16(uint16_t* p, f32x16 a) {
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline i32x16 load_i8(const int8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
inline i32x16 load_u8_i32(const uint8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
inline void store_i8(int8_t* p, i32x16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// ---- float arithmetic
inline f32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline f32x16 add(f32x16 a, f32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline f32x16 sub(f32x16 a, f32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline f32x16 mul(f32x16 a, f32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline f32x16 div(f32x16 a, f32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline f32x16 sqrt(f32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline f32x16 min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline f32x16 max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }

// ---- integer arithmetic
inline i32x16 broadcast_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline i32x16 iota_i32() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
inline i32x16 add(i32x16 a, i32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline i32x16 sub(i32x16 a, i32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline i32x16 mul(i32x16 a, i32x16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
inline i32x16 bit_and(i32x16 a, i32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline i32x16 bit_or(i32x16 a, i32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline i32x16 bit_xor(i32x16 a, i32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int N>
inline i32x16 shift_left(i32x16 a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>
inline i32x16 shift_right(i32x16 a) {
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
template <int N>
inline i32x16 shift_right_arith(i32x16 a) {
  return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
inline i32x16 min(i32x16 a, i32x16 b) { return {_mm256_min_epi32(a.lo, b.lo), _mm256_min_epi32(a.hi, b.hi)}; }
inline i32x16 max(i32x16 a, i32x16 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }

// ---- conversions
inline i32x16 to_i32(f32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline f32x16 to_f32(i32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline i32x16 bitcast_i32(f32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
inline f32x16 bitcast_f32(i32x16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline u8x64 bitcast_u8(i32x16 a) { return {a.lo, a.hi}; }
inline i32x16 bitcast_i32(u8x64 a) { return {a.lo, a.hi}; }

// ---- predicates
template <int Op>
inline mask16 compare(f32x16 a, f32x16 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, Op)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, Op))};
}
inline mask16 less(f32x16 a, f32x16 b) { return compare<_CMP_LT_OQ>(a, b); }
inline mask16 less_equal(f32x16 a, f32x16 b) { return compare<_CMP_LE_OQ>(a, b); }
inline mask16 equal(f32x16 a, f32x16 b) { return compare<_CMP_EQ_OQ>(a, b); }
inline mask16 less(i32x16 a, i32x16 b) {
  return {_mm256_cmpgt_epi32(b.lo, a.lo), _mm256_cmpgt_epi32(b.hi, a.hi)};
}
inline mask16 equal(i32x16 a, i32x16 b) {
  return {_mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi)};
}
inline mask16 mask_and(mask16 a, mask16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline mask16 mask_or(mask16 a, mask16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline uint32_t mask_bits(mask16 a) {
  return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(a.lo))) |
         uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(a.hi))) << 8;
}
inline f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_castsi256_ps(m.hi))};
}
inline i32x16 select(mask16 m, i32x16 yes, i32x16 no) {
  return {_mm256_blendv_epi8(no.lo, yes.lo, m.lo), _mm256_blendv_epi8(no.hi, yes.hi, m.hi)};
}

inline f32x16 interleave_eight(__m256 a, __m256 b) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
inline f32x16 interleave_low(f32x16 a, f32x16 b) { return interleave_eight(a.lo, b.lo); }
inline f32x16 interleave_high(f32x16 a, f32x16 b) { return interleave_eight(a.hi, b.hi); }

// ---- reductions
inline float reduce_add(f32x16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float reduce_max(f32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline int32_t reduce_add(i32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// ---- bytes
inline u8x64 broadcast_u8(uint8_t x) { return {_mm256_set1_epi8(char(x)), _mm256_set1_epi8(char(x))}; }
inline u8x64 bit_and(u8x64 a, u8x64 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline u8x64 bit_or(u8x64 a, u8x64 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int N>
inline u8x64 shift_right_u8(u8x64 a) {
  const __m256i keep = _mm256_set1_epi8(char(0xff >> N));
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, N), keep),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, N), keep)};
}
template <int N>
inline u8x64 shift_left_u8(u8x64 a) {
  const __m256i keep = _mm256_set1_epi8(char(0xff << N));
  return {_mm256_and_si256(_mm256_slli_epi16(a.lo, N), keep),
          _mm256_and_si256(_mm256_slli_epi16(a.hi, N), keep)};
}
inline u8x64 lookup_u8(const uint8_t* table, u8x64 index) {
  const __m256i twice = _mm256_broadcastsi128_si256(load_m128(table));
  return {_mm256_shuffle_epi8(twice, index.lo), _mm256_shuffle_epi8(twice, index.hi)};
}
inline i32x16 broadcast_4xs8(const int8_t* p) {
  int32_t word;
  memcpy(&word, p, 4);
  const __m256i x = _mm256_set1_epi32(word);
  return {x, x};
}
inline i32x16 dot2_i16(i32x16 a, i32x16 b) {
  return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
inline i32x16 load_u8_pairs(const uint8_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu8_epi16(_mm_loadu_si128(q)), _mm256_cvtepu8_epi16(_mm_loadu_si128(q + 1))};
}
inline i32x16 load_i8_pairs(const int8_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(q)), _mm256_cvtepi8_epi16(_mm_loadu_si128(q + 1))};
}

constexpr int kFloatTileRows = 6;
constexpr int kPairTileRows = 4;  // bf16 pairs need registers of their own
constexpr int kFloatPanels = 1;   // panels of a float tile of many rows

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
