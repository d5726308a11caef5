// Scalar conversions between the 16-bit floats and float32. `static` on purpose: ISA translation units must
// not emit weak symbols (see csrc/README.md).
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {
namespace {

[[maybe_unused]] inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

[[maybe_unused]] inline float bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

[[maybe_unused]] inline float bf16_to_float(uint16_t h) { return bits_float(uint32_t(h) << 16); }

// Round to nearest even; NaN stays a (quiet) NaN.
[[maybe_unused]] inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

[[maybe_unused]] inline float f16_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1fu)
    return bits_float(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0u));
  if (exponent != 0) return bits_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
  // Zero and subnormal: fraction * 2^-24 is exact in float32.
  const float magnitude = float(fraction) * 0x1p-24f;
  return bits_float(sign | float_bits(magnitude));
}

// Round to nearest even, with overflow to infinity and gradual underflow, as F16C does.
[[maybe_unused]] inline uint16_t float_to_f16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return uint16_t(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the fraction to steps of 2^-24
    return uint16_t(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

// 8-bit floats as torch and the OCP specification have them. e5m2 is the upper half of a 16-bit float; e4m3
// has no infinity and the one magnitude 0x7f as NaN.
[[maybe_unused]] inline float e5m2_to_float(uint8_t x) { return f16_to_float(uint16_t(x << 8)); }

[[maybe_unused]] inline float e4m3_to_float(uint8_t x) {
  const uint32_t magnitude = x & 0x7fu;
  const uint16_t half = uint16_t((x & 0x80u) << 8 | (magnitude == 0x7fu ? 0x7f80u : magnitude << 7));
  return f16_to_float(half) * 256.0f;  // the exponents' biases differ by 8
}

}  // namespace
}  // namespace octavo
