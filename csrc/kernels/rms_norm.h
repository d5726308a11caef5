// Root mean square normalisation. Sums run in 16 lanes (lane c % 16 takes column c, ascending), then the
// fixed tree.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline const float* norm_row(const NormArgs& a, int64_t row) {
  return a.x + row / a.inner * a.outer_stride + row % a.inner * a.inner_stride;
}

inline float sum_of_squares(const float* x, int64_t cols) {
  f32x16 sum = zero_f32();
  int64_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    const f32x16 v = load(x + c);
    sum = fma(v, v, sum);
  }
  if (c < cols) {
    const f32x16 v = load_tail(x + c, int(cols - c));
    sum = fma(v, v, sum);
  }
  return reduce_add(sum);
}

void rms_norm(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = norm_row(a, row);
    float* out = a.out + row * a.cols;
    const float mean = sum_of_squares(x, a.cols) / float(a.cols);
    const f32x16 scale = broadcast(1.0f / __builtin_sqrtf(mean + a.eps));
    int64_t c = 0;
    for (; c + 16 <= a.cols; c += 16) store(out + c, mul(mul(load(x + c), scale), load(a.weight + c)));
    if (c < a.cols) {
      const int n = int(a.cols - c);
      store_tail(out + c, mul(mul(load_tail(x + c, n), scale), load_tail(a.weight + c, n)), n);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
