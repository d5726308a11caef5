// Integer dot products of AVX-512 without VNNI: byte products in pairs, within the limits of avx2_dot.h.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// The factor in both int16 halves: vpmaddwd then scales as it folds.
inline i32x16 dot_scale_low(i32x16 a) {
  const __m128i pick = _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
  return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(pick))};
}
inline i32x16 dot_scale_high(i32x16 a) {
  const __m128i pick = _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
  return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(pick))};
}

// As in avx2_dot.h: GCC would make all products of a block first, for which 32 registers are too few as well.
inline void in_order(__m512i& sum) {
#if !defined(OCTAVO_EMULATED)  // there a vector is no register
  asm("" : "+v"(sum));
#else
  (void)sum;
#endif
}

// vpmaddubsw adds two products into an int16, and the sums of so many steps fit: see avx2_dot.h.
template <int Bits>
struct DotChain {
  static_assert(Bits >= 2 && Bits <= 6);
  static constexpr int kSteps = Bits < 5 ? 1 << (7 - Bits) : 1 << (8 - Bits);
  static constexpr int kCentre = Bits < 5 ? 0 : 1 << (Bits - 1);
  __m512i sum;

  void start(ClassSums sums) {
    sum = _mm512_setzero_si512();
    if constexpr (kCentre != 0) {
      const __m512i both = _mm512_add_epi16(_mm512_set1_epi32(sums.a), _mm512_set1_epi32(sums.b));
      sum = _mm512_slli_epi16(both, Bits - 1);
    }
  }
  void step(u8x64 w, i32x16 a) {
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(w.v, a.v));
    in_order(sum);
  }
  i32x16 total() const { return scaled({_mm512_set1_epi16(1)}); }
  i32x16 scaled(i32x16 scale) const { return {_mm512_madd_epi16(sum, scale.v)}; }
};

// 8 bits would saturate: the offset of 128 is taken off first and the sign moved to the activation, as in
// avx2_dot.h. There is no vpsignb of 512 bits; weights below 128 are those that become negative.
template <>
struct DotChain<8> {
  static constexpr int kSteps = 1 << 16;
  static constexpr int kCentre = 128;
  __m512i sum;

  void start(ClassSums) { sum = _mm512_setzero_si512(); }
  void step(u8x64 w, i32x16 a) {
    const __m512i q = _mm512_xor_si512(w.v, _mm512_set1_epi8(char(0x80)));
    const __m512i turned = _mm512_mask_sub_epi8(a.v, _mm512_movepi8_mask(q), _mm512_setzero_si512(), a.v);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(q), turned);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    in_order(sum);
  }
  i32x16 total() const { return {sum}; }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
