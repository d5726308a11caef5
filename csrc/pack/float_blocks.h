// Rounding float weights to block formats: 32 at a time, the same bits on every machine (plain C++, no FMA).
#pragma once

#include "octavo/float16.h"
#include "octavo/packed_format.h"
#include "pack/gguf_blocks.h"

namespace octavo {
namespace {

// Beyond, a float16 scale would overflow.
constexpr float kLargestWeight = 100.0f * 65504.0f;

// The whole number nearest to x, ties to even, held to [-127, 127]; |x| < 2^22. The fraction bits of x + 1.5
// * 2^23 are that number: integer operations that compilers put into lanes, which clamping floats is not.
inline int nearest127(float x) {
  const int nearest = int(float_bits(x + 12582912.0f) - 0x4b400000u);
  const int raised = nearest < -127 ? -127 : nearest;
  return raised > 127 ? 127 : raised;
}

// The weight of the largest magnitude, the positive one of two. NaN counts as larger than infinity.
inline float largest_weight(const float* x) {
  int32_t magnitude = 0, positive = INT32_MIN;
  for (int i = 0; i < 32; ++i) {
    const int32_t bits = int32_t(float_bits(x[i])), without_sign = bits & INT32_MAX;
    magnitude = without_sign > magnitude ? without_sign : magnitude;
    positive = bits > positive ? bits : positive;
  }
  const float found = bits_float(uint32_t(magnitude));
  return positive == magnitude ? found : -found;
}

// Q8_0: the scale is largest / 127, rounded to float16 before the weights are divided by it.
inline void encode_eight_bits(const float* x, float magnitude, Block32& out) {
  out.scale = float_to_f16(magnitude / 127.0f);
  const float scale = f16_to_float(out.scale);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int i = 0; i < 32; ++i) out.q[i] = uint8_t(nearest127(x[i] * inverse) + 128);
}

// For a value -128..127 the nearest code of IQ4_NL: its number and its value.
struct NearestCode {
  uint8_t number[256];
  float value[256];

  constexpr NearestCode() : number(), value() {
    for (int i = 0; i < 256; ++i) {
      int best = 0;
      for (int c = 1; c < 16; ++c) {
        if (distance(i, c) < distance(i, best)) best = c;
      }
      number[i] = uint8_t(best);
      value[i] = float(int(CodesIQ4_NL::kTable[best]) - 128);
    }
  }
  static constexpr int distance(int i, int c) {
    const int d = i - int(CodesIQ4_NL::kTable[c]);
    return d < 0 ? -d : d;
  }
};
constexpr NearestCode kNearestCode;

// Least squares for one assignment of codes: how much of the block it explains, and the scale that does so.
struct CodeFit {
  float explained, scale;
};

// Where the codes nearest to x * factor stand in kNearestCode.
inline void code_indices(const float* x, float factor, int (&index)[32]) {
  for (int i = 0; i < 32; ++i) index[i] = nearest127(x[i] * factor) + 128;
}

// y . code and code . code are summed in four interleaved parts, so that they may lie in lanes.
inline CodeFit fit_codes(const float* y, float factor) {
  int index[32];
  code_indices(y, factor, index);
  float dot[4] = {}, square[4] = {};
  for (int i = 0; i < 32; i += 4) {
    for (int j = 0; j < 4; ++j) {
      const float code = kNearestCode.value[index[i + j]];
      dot[j] = dot[j] + y[i + j] * code;
      square[j] = square[j] + code * code;
    }
  }
  const float dots = (dot[0] + dot[1]) + (dot[2] + dot[3]);
  const float squares = (square[0] + square[1]) + (square[2] + square[3]);
  return {dots * dots / squares, dots / squares};
}

// The scale for codes of IQ4_NL: the largest weight is laid on the lowest code, on the highest, or a little
// beside them; for each the best scale follows from least squares, and the one that leaves the least error is
// taken. More candidates gain less than one percent.
inline float fit_scale(const float* x, float largest) {
  constexpr float kCandidates[] = {-127.0f, 113.0f, -118.0f, 105.0f, -136.0f, 121.0f};
  const float inverse = 1.0f / largest;
  float y[32];
  for (int i = 0; i < 32; ++i) y[i] = x[i] * inverse;
  CodeFit best = {0.0f, 0.0f};
  for (const float candidate : kCandidates) {
    const CodeFit fit = fit_codes(y, candidate);
    if (fit.explained > best.explained) best = fit;
  }
  return largest * best.scale;
}

inline void encode_codes(const float* x, float largest, Block32& out) {
  const bool fits = largest >= 1e-30f || largest <= -1e-30f;  // so that its inverse is finite
  out.scale = float_to_f16(fits ? fit_scale(x, largest) : 0.0f);
  const float scale = f16_to_float(out.scale);
  int index[32];
  code_indices(x, scale != 0.0f ? 1.0f / scale : 0.0f, index);
  for (int i = 0; i < 32; ++i) out.q[i] = kNearestCode.number[index[i]];
}

// False if a weight is not finite, or too large.
template <class Layout>
bool encode(const float* x, Block32& out) {
  const float largest = largest_weight(x), magnitude = largest < 0.0f ? -largest : largest;
  if (!(magnitude <= kLargestWeight)) return false;
  if constexpr (Layout::kBits == 8) {
    encode_eight_bits(x, magnitude, out);
  } else {
    static_assert(Layout::kDecodedBits == CodesIQ4_NL::kBits);
    encode_codes(x, largest, out);
  }
  return true;
}

}  // namespace
}  // namespace octavo
