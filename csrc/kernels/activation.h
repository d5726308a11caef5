// Activations and the functions under them, each one fixed sequence of float32 operations on every ISA.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

template <int N>
inline f32x16 polynomial(f32x16 x, const float (&coefficients)[N]) {  // highest power first
  f32x16 y = broadcast(coefficients[0]);
  for (int i = 1; i < N; ++i) y = fma(y, x, broadcast(coefficients[i]));
  return y;
}

inline f32x16 with_sign_of(f32x16 magnitude, f32x16 sign) {
  const i32x16 bit = bit_and(bitcast_i32(sign), broadcast_i32(INT32_MIN));
  return bitcast_f32(bit_or(bitcast_i32(magnitude), bit));
}

// tanh: an odd polynomial below 0.625 (Chebyshev fit of (tanh y - y) / y^3 in y^2), else from e^-2|x|. About
// 1 ulp.
inline f32x16 tanh(f32x16 x) {
  static constexpr float kSmall[] = {2.2958413e-3f,  -8.346980e-3f, 2.1769961e-2f,
                                     -5.3959407e-2f, 1.3333304e-1f, -3.3333334e-1f};
  const f32x16 y = abs(x);
  const f32x16 square = mul(y, y);
  const f32x16 small = fma(mul(y, square), polynomial(square, kSmall), y);
  const f32x16 e = exp(mul(y, broadcast(-2.0f)));
  const f32x16 one = broadcast(1.0f);
  const f32x16 large = div(sub(one, e), add(one, e));
  return with_sign_of(select(less(y, broadcast(0.625f)), small, large), x);
}

// The normal distribution function, (1 + erf(x / sqrt 2)) / 2. Near zero from an odd polynomial for erf;
// beyond, with w = 1 / (1 + z / 2), erfc(z) = w exp(-z^2 + g(w)), g a Chebyshev fit, which keeps the left
// tail's relative precision.
inline f32x16 normal_cdf(f32x16 x) {
  static constexpr float kErf[] = {7.882497e-5f,  -8.018856e-4f,  5.1893123e-3f, -2.6854329e-2f,
                                   1.1283597e-1f, -3.7612626e-1f, 1.1283791f};
  static constexpr float kErfc[] = {1.67381e-1f,  -8.0132526e-1f, 1.4355455f,   -1.0600994f,  2.1378274e-1f,
                                    -1.50773e-1f, 8.468209e-2f,   3.765502e-1f, 9.997568e-1f, -1.2655005f};
  const f32x16 half = broadcast(0.5f), one = broadcast(1.0f);
  const f32x16 z = mul(abs(x), broadcast(0.70710678f));
  const f32x16 square = mul(z, z);
  const f32x16 half_erf = mul(half, mul(z, polynomial(square, kErf)));
  const f32x16 w = div(one, fma(z, half, one));
  const f32x16 tail = mul(half, mul(w, exp(fma(neg(z), z, polynomial(w, kErfc)))));
  const mask16 negative = less(x, zero_f32());
  const f32x16 inner = select(negative, sub(half, half_erf), add(half, half_erf));
  const f32x16 outer = select(negative, tail, sub(one, tail));
  return select(less(z, broadcast(0.75f)), inner, outer);
}

inline f32x16 sigmoid(f32x16 x) { return div(broadcast(1.0f), add(broadcast(1.0f), exp(neg(x)))); }

inline f32x16 silu(f32x16 x) { return div(x, add(broadcast(1.0f), exp(neg(x)))); }

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016).
inline f32x16 gelu_tanh(f32x16 x) {
  const f32x16 cubic = fma(mul(x, x), mul(x, broadcast(0.044715f)), x);
  return div(x, add(broadcast(1.0f), exp(mul(cubic, broadcast(-1.5957691216f)))));
}

inline f32x16 gelu(f32x16 x) { return mul(x, normal_cdf(x)); }

template <f32x16 (*Act)(f32x16)>
inline void activate_row(const ActivationArgs& a, int64_t row) {
  const float* gate = a.gate + row * a.in_stride;
  const float* up = a.up ? a.up + row * a.in_stride : nullptr;
  float* out = a.out + row * a.out_stride;
  int64_t c = 0;
  for (; c + 16 <= a.cols; c += 16) {
    const f32x16 y = Act(load(gate + c));
    store(out + c, up ? mul(y, load(up + c)) : y);
  }
  if (c < a.cols) {
    const int n = int(a.cols - c);
    const f32x16 y = Act(load_tail(gate + c, n));
    store_tail(out + c, up ? mul(y, load_tail(up + c, n)) : y, n);
  }
}

void act_mul(const ActivationArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    switch (a.act) {
      case Activation::silu:
        activate_row<silu>(a, row);
        break;
      case Activation::gelu_tanh:
        activate_row<gelu_tanh>(a, row);
        break;
      case Activation::gelu:
        activate_row<gelu>(a, row);
        break;
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
