// Integer dot products of AVX2: byte products in pairs, which is exact within the limits below.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// The factor in both int16 halves: pmaddwd then scales as it folds.
inline i32x16 dot_scale_low(i32x16 a) {
  const __m256i pick = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5,
                                        4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
  return {_mm256_shuffle_epi8(a.lo, pick), _mm256_shuffle_epi8(a.hi, pick)};
}
inline i32x16 dot_scale_high(i32x16 a) {
  const __m256i pick = _mm256_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15, 2, 3, 2, 3, 6,
                                        7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
  return {_mm256_shuffle_epi8(a.lo, pick), _mm256_shuffle_epi8(a.hi, pick)};
}

// Says that the sums are complete here. Left to itself GCC makes all products of a block first and adds them
// later, which takes several times the 16 registers.
inline void in_order(__m256i& lo, __m256i& hi) { asm("" : "+x"(lo), "+x"(hi)); }

// pmaddubsw adds two products into an int16. With weights below 2^Bits and |a| <= 127 that many steps fit
// into an int16: 3*127*2*32 = 24384, 7*127*2*16 = 28448, 15*127*2*8 = 30480. More bits are counted from the
// middle, 16*127*2*8 = 32*127*2*4 = 32512: the sum starts with minus the middle times the activations and may
// wrap on its way, since only its end has to fit.
template <int Bits>
struct DotChain {
  static_assert(Bits >= 2 && Bits <= 6);
  static constexpr int kSteps = Bits < 5 ? 1 << (7 - Bits) : 1 << (8 - Bits);
  static constexpr int kCentre = Bits < 5 ? 0 : 1 << (Bits - 1);
  __m256i lo, hi;

  void start(ClassSums sums) {
    lo = hi = _mm256_setzero_si256();
    if constexpr (kCentre != 0) {
      const __m256i both = _mm256_add_epi16(_mm256_set1_epi32(sums.a), _mm256_set1_epi32(sums.b));
      lo = hi = _mm256_slli_epi16(both, Bits - 1);
    }
  }
  void step(u8x64 w, i32x16 a) {
    lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(w.lo, a.lo));
    hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(w.hi, a.hi));
    in_order(lo, hi);
  }
  i32x16 total() const { return scaled({_mm256_set1_epi16(1), _mm256_set1_epi16(1)}); }
  i32x16 scaled(i32x16 scale) const {
    return {_mm256_madd_epi16(lo, scale.lo), _mm256_madd_epi16(hi, scale.hi)};
  }
};

// 8 bits would saturate, so the offset of 128 is taken off first and the sign moved to the activation:
// |w - 128| <= 128 times 127, twice, is 32512.
template <>
struct DotChain<8> {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = 128;
  __m256i lo, hi;

  static __m256i dot(__m256i w, __m256i a) {
    const __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8(char(0x80)));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  void start(ClassSums) { lo = hi = _mm256_setzero_si256(); }
  void step(u8x64 w, i32x16 a) {
    lo = _mm256_add_epi32(lo, dot(w.lo, a.lo));
    hi = _mm256_add_epi32(hi, dot(w.hi, a.hi));
    in_order(lo, hi);
  }
  i32x16 total() const { return {lo, hi}; }
};

constexpr int int_tile_rows(int bits) { return bits == 8 ? 4 : 6; }
constexpr bool kFewRegisters = true;

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
