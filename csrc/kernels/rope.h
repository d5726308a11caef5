// Rotary position embedding (Su et al., 2021), in place. Products are rounded on their own, as plain torch
// does.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr int64_t kMaxRotDim = 1024;

inline void rotate_halves(float* first, float* second, const float* cosines, const float* sines,
                          int64_t half) {
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const f32x16 a = load(first + i), b = load(second + i), c = load(cosines + i), s = load(sines + i);
    store(first + i, sub(mul(a, c), mul(b, s)));
    store(second + i, add(mul(b, c), mul(a, s)));
  }
  if (i < half) {
    const int n = int(half - i);
    const f32x16 a = load_tail(first + i, n), b = load_tail(second + i, n);
    const f32x16 c = load_tail(cosines + i, n), s = load_tail(sines + i, n);
    store_tail(first + i, sub(mul(a, c), mul(b, s)), n);
    store_tail(second + i, add(mul(b, c), mul(a, s)), n);
  }
}

inline void rotate_pairs(float* x, const float* cosines, const float* sines, int64_t half) {
  float even[kMaxRotDim / 2], odd[kMaxRotDim / 2];
  for (int64_t i = 0; i < half; ++i) {
    even[i] = x[2 * i];
    odd[i] = x[2 * i + 1];
  }
  rotate_halves(even, odd, cosines, sines, half);
  for (int64_t i = 0; i < half; ++i) {
    x[2 * i] = even[i];
    x[2 * i + 1] = odd[i];
  }
}

void rope(const RopeArgs& a, int64_t begin, int64_t end) {
  const int64_t half = a.rot_dim / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* cosines = a.cos_sin + a.positions[row] * a.rot_dim;
    const float* sines = cosines + half;
    for (int64_t head = 0; head < a.heads; ++head) {
      float* x = a.x + row * a.row_stride + head * a.head_stride;
      if (a.interleaved) {
        rotate_pairs(x, cosines, sines, half);
      } else {
        rotate_halves(x, x + half, cosines, sines, half);
      }
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
