// The one vector vocabulary of the kernels: 16 lanes, whatever the machine.
//
//   f32x16, i32x16   16 lanes of float / int32       u8x64   one 64-byte line = 16 rows x 4 bytes
//   mask16           16 lane predicates              DotChain<Bits>   exact u8 x s8 dot products
//
// simd/scalar.h states the meaning of every operation; simd/avx2.h (2 ymm), simd/avx512.h (1 zmm) and
// simd/neon.h (4 q) give the same bits. What can be composed from the primitives (exp, tails, ...) lives
// here, once. An ISA translation unit defines OCTAVO_ISA (a namespace name) and OCTAVO_SIMD_<WHICH> before it
// includes this file.
#pragma once

#ifndef OCTAVO_ISA
#error "include simd.h only from an ISA translation unit (csrc/isa/*.cpp)"
#endif

#include <cstddef>
#include <cstdint>

#include "octavo/float16.h"

// Loops over a tile's rows and panels must vanish, or its accumulators live in memory.
#define OCTAVO_UNROLL _Pragma("GCC unroll 16")

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Class sums of a row (linear_args.h) of one piece, or of two that follow each other.
struct ClassSums {
  int32_t a, b = 0;
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo

#if defined(OCTAVO_SIMD_AVX512VNNI)
#include "octavo/simd/avx512.h"
#include "octavo/simd/avx512vnni_dot.h"
#elif defined(OCTAVO_SIMD_AVX512)
#include "octavo/simd/avx512.h"
#include "octavo/simd/avx512_dot.h"
#elif defined(OCTAVO_SIMD_AVXVNNI)
#include "octavo/simd/avx2.h"
#include "octavo/simd/avxvnni_dot.h"
#elif defined(OCTAVO_SIMD_AVX2)
#include "octavo/simd/avx2.h"
#include "octavo/simd/avx2_dot.h"
#elif defined(OCTAVO_SIMD_NEONDOT)
#include "octavo/simd/neon.h"
#include "octavo/simd/neondot_dot.h"
#elif defined(OCTAVO_SIMD_NEON)
#include "octavo/simd/neon.h"
#include "octavo/simd/neon_dot.h"
#else
#include "octavo/simd/scalar.h"
#endif
#if !defined(OCTAVO_SIMD_NEONDOT)
#include "octavo/simd/dot_rows.h"
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline f32x16 neg(f32x16 a) { return bitcast_f32(bit_xor(bitcast_i32(a), broadcast_i32(INT32_MIN))); }
inline f32x16 abs(f32x16 a) { return bitcast_f32(bit_and(bitcast_i32(a), broadcast_i32(INT32_MAX))); }
inline f32x16 zero_f32() { return broadcast(0.0f); }
inline i32x16 zero_i32() { return broadcast_i32(0); }

// e^x by Cody-Waite reduction and a degree-6 polynomial (Cephes expf coefficients), about 1 ulp. The result
// is scaled in two steps so that it underflows gradually and overflows to infinity. NaN stays NaN.
inline f32x16 exp(f32x16 x) {
  x = max(broadcast(-104.0f), min(broadcast(89.0f), x));
  const i32x16 n = to_i32(mul(x, broadcast(1.44269504088896341f)));
  const f32x16 nf = to_f32(n);
  f32x16 r = fma(nf, broadcast(-0.693359375f), x);
  r = fma(nf, broadcast(2.12194440e-4f), r);
  f32x16 p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(mul(p, r), r, add(r, broadcast(1.0f)));
  const i32x16 half = shift_right_arith<1>(n);
  const i32x16 rest = sub(n, half);
  const i32x16 bias = broadcast_i32(127);
  const f32x16 scale_a = bitcast_f32(shift_left<23>(add(half, bias)));
  const f32x16 scale_b = bitcast_f32(shift_left<23>(add(rest, bias)));
  return mul(mul(p, scale_a), scale_b);
}

// 2^x for x <= 0, zero below -126: what weights of attention need. The integer part comes from adding 1.5 *
// 2^23, the rest goes through a polynomial of degree 5 that is exactly 1 at 0 (minimax, relative error 1.6e-7
// with its roundings). NaN stays NaN.
inline f32x16 exp2_falling(f32x16 x) {
  const f32x16 lowest = broadcast(-126.0f), magic = broadcast(12582912.0f);
  const f32x16 shifted = add(max(lowest, x), magic);
  const f32x16 r = sub(max(lowest, x), sub(shifted, magic));
  f32x16 p = broadcast(0x1.5bba12p-10f);
  p = fma(p, r, broadcast(0x1.3cea88p-7f));
  p = fma(p, r, broadcast(0x1.c6b752p-5f));
  p = fma(p, r, broadcast(0x1.ebf9bcp-3f));
  p = fma(p, r, broadcast(0x1.62e42ap-1f));
  p = fma(p, r, broadcast(1.0f));
  const f32x16 value = bitcast_f32(add(bitcast_i32(p), shift_left<23>(bitcast_i32(shifted))));
  return select(less(x, lowest), zero_f32(), value);
}

// 8-bit floats with Mantissa bits and a smallest normal number of 2^Lowest: nearest even, what is beyond
// `largest` becomes it, NaN is 0x7f.
template <int Mantissa, int Lowest>
inline void store_float8(uint8_t* p, f32x16 x, float largest) {
  const i32x16 sign = bit_and(shift_right_arith<31>(bitcast_i32(x)), broadcast_i32(-128));
  const f32x16 magnitude = min(broadcast(largest), abs(x));  // NaN stays
  const i32x16 bits = bitcast_i32(magnitude);
  const i32x16 odd = bit_and(shift_right<23 - Mantissa>(bits), broadcast_i32(1));
  const i32x16 half = broadcast_i32((1 << (22 - Mantissa)) - 1);
  const i32x16 rounded = shift_right<23 - Mantissa>(add(bits, add(odd, half)));
  const i32x16 normal = sub(rounded, broadcast_i32((127 + Lowest - 1) << Mantissa));
  const i32x16 tiny = to_i32(mul(magnitude, broadcast(bits_float(uint32_t(127 + Mantissa - Lowest) << 23))));
  i32x16 code = select(less(magnitude, broadcast(bits_float(uint32_t(127 + Lowest) << 23))), tiny, normal);
  code = select(equal(magnitude, magnitude), code, broadcast_i32(0x7f));
  store_i8(reinterpret_cast<int8_t*>(p), bit_or(code, sign));
}
inline void store_e4m3(uint8_t* p, f32x16 x) { store_float8<3, -6>(p, x, 448.0f); }
inline void store_e5m2(uint8_t* p, f32x16 x) { store_float8<2, -14>(p, x, 57344.0f); }

// Two 16-bit floats that lie in one 32-bit word: 16 words give the even and the odd elements without a
// shuffle.
struct Pair16 {
  f32x16 even, odd;
};
inline Pair16 load_bf16_pairs(const uint16_t* p) {
  const i32x16 words = load_words(p);
  return {bitcast_f32(shift_left<16>(words)),
          bitcast_f32(bit_and(words, broadcast_i32(int32_t(0xffff0000u))))};
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
