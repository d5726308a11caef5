// AVX-512 intrinsics in terms of AVX2, by SIMDe (0.7.4 and 0.8.2 were tried), and by the few lines below
// where SIMDe has a gap. Only for tests on machines without AVX-512, never part of a release build.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

namespace {

struct Halves {
  __m256i lo, hi;
};

inline Halves halves_of(simde__m512i a) {
  Halves h;
  memcpy(&h, &a, sizeof h);
  return h;
}
inline simde__m512i joined(__m256i lo, __m256i hi) {
  const Halves h = {lo, hi};
  simde__m512i r;
  memcpy(&r, &h, sizeof r);
  return r;
}
inline simde__m512i bits_of(simde__m512 a) { return simde_mm512_castps_si512(a); }
inline simde__m512 floats_of(__m256 lo, __m256 hi) {
  return simde_mm512_castsi512_ps(joined(_mm256_castps_si256(lo), _mm256_castps_si256(hi)));
}
inline __m128i upper(__m128i a) { return _mm_srli_si128(a, 8); }
inline __m128i lower128(__m256i a) { return _mm256_castsi256_si128(a); }
inline __m128i upper128(__m256i a) { return _mm256_extracti128_si256(a, 1); }

inline simde__m512 maskz_loadu_ps(unsigned mask, const float* p) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = mask >> i & 1 ? p[i] : 0.0f;
  return simde_mm512_loadu_ps(lanes);
}
inline void mask_storeu_ps(float* p, unsigned mask, simde__m512 a) {
  float lanes[16];
  simde_mm512_storeu_ps(lanes, a);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) p[i] = lanes[i];
  }
}
inline simde__m512i cvtepi8_epi32(__m128i a) {
  return joined(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(upper(a)));
}
inline simde__m512i cvtepu8_epi32(__m128i a) {
  return joined(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(upper(a)));
}
inline simde__m512i cvtepu16_epi32(__m256i a) {
  return joined(_mm256_cvtepu16_epi32(lower128(a)), _mm256_cvtepu16_epi32(upper128(a)));
}
inline simde__m512i cvtepu8_epi16(__m256i a) {
  return joined(_mm256_cvtepu8_epi16(lower128(a)), _mm256_cvtepu8_epi16(upper128(a)));
}
template <class To, class From, int Count>
inline void narrow(const void* from, void* to) {  // keeps the low bits, as vpmovdw and vpmovdb do
  From source[Count];
  To target[Count];
  memcpy(source, from, sizeof source);
  for (int i = 0; i < Count; ++i) target[i] = To(source[i]);
  memcpy(to, target, sizeof target);
}
inline __m256i cvtepi32_epi16(simde__m512i a) {
  __m256i r;
  narrow<uint16_t, uint32_t, 16>(&a, &r);
  return r;
}
inline __m128i cvtepi32_epi8(simde__m512i a) {
  __m128i r;
  narrow<uint8_t, uint32_t, 16>(&a, &r);
  return r;
}
inline simde__m512 cvtepi32_ps(simde__m512i a) {
  return floats_of(_mm256_cvtepi32_ps(halves_of(a).lo), _mm256_cvtepi32_ps(halves_of(a).hi));
}
inline simde__m512i cvtps_epi32(simde__m512 a) {
  const Halves h = halves_of(bits_of(a));
  return joined(_mm256_cvtps_epi32(_mm256_castsi256_ps(h.lo)), _mm256_cvtps_epi32(_mm256_castsi256_ps(h.hi)));
}
inline simde__m512 cvtph_ps(__m256i a) {
  return floats_of(_mm256_cvtph_ps(lower128(a)), _mm256_cvtph_ps(upper128(a)));
}
inline __m256i cvtps_ph(simde__m512 a) {
  const Halves h = halves_of(bits_of(a));
  const __m128i lo = _mm256_cvtps_ph(_mm256_castsi256_ps(h.lo), _MM_FROUND_TO_NEAREST_INT);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(lo),
                                 _mm256_cvtps_ph(_mm256_castsi256_ps(h.hi), _MM_FROUND_TO_NEAREST_INT), 1);
}
inline simde__m512i srai_epi32(simde__m512i a, int n) {
  return joined(_mm256_srai_epi32(halves_of(a).lo, n), _mm256_srai_epi32(halves_of(a).hi, n));
}

}  // namespace

#define _mm512_maskz_loadu_ps(mask, p) maskz_loadu_ps(mask, p)
#define _mm512_mask_storeu_ps(p, mask, a) mask_storeu_ps(p, mask, a)
#define _mm512_cvtepi8_epi32(a) cvtepi8_epi32(a)
#define _mm512_cvtepu8_epi32(a) cvtepu8_epi32(a)
#define _mm512_cvtepu16_epi32(a) cvtepu16_epi32(a)
#define _mm512_cvtepu8_epi16(a) cvtepu8_epi16(a)
#define _mm512_cvtepi32_epi16(a) cvtepi32_epi16(a)
#define _mm512_cvtepi32_epi8(a) cvtepi32_epi8(a)
#define _mm512_cvtepi32_ps(a) cvtepi32_ps(a)
#define _mm512_cvtps_epi32(a) cvtps_epi32(a)
#define _mm512_cvtph_ps(a) cvtph_ps(a)
#define _mm512_cvtps_ph(a, rounding) cvtps_ph(a)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(a, n) srai_epi32(a, n)
// SIMDe gives this alias the arguments of the masked form.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
