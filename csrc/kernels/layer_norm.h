// Layer normalisation: mean first, then the variance of the centred row. Sums as in rms_norm.h.
#pragma once

#include "kernels/rms_norm.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline float mean_of(const float* x, int64_t cols) {
  f32x16 sum = zero_f32();
  int64_t c = 0;
  for (; c + 16 <= cols; c += 16) sum = add(sum, load(x + c));
  if (c < cols) sum = add(sum, load_tail(x + c, int(cols - c)));
  return reduce_add(sum) / float(cols);
}

inline float variance_of(const float* x, int64_t cols, float mean) {
  const f32x16 centre = broadcast(mean);
  f32x16 sum = zero_f32();
  int64_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    const f32x16 v = sub(load(x + c), centre);
    sum = fma(v, v, sum);
  }
  if (c < cols) {
    const int n = int(cols - c);
    const f32x16 v = select(less(iota_i32(), broadcast_i32(n)), sub(load_tail(x + c, n), centre), zero_f32());
    sum = fma(v, v, sum);
  }
  return reduce_add(sum) / float(cols);
}

inline f32x16 scale_and_shift(f32x16 centred, f32x16 scale, f32x16 weight, f32x16 bias) {
  return add(mul(mul(centred, scale), weight), bias);
}

void layer_norm(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = norm_row(a, row);
    float* out = a.out + row * a.cols;
    const float mean = mean_of(x, a.cols);
    const f32x16 centre = broadcast(mean);
    const f32x16 scale = broadcast(1.0f / __builtin_sqrtf(variance_of(x, a.cols, mean) + a.eps));
    int64_t c = 0;
    for (; c + 16 <= a.cols; c += 16) {
      const f32x16 bias = a.bias ? load(a.bias + c) : zero_f32();
      store(out + c, scale_and_shift(sub(load(x + c), centre), scale, load(a.weight + c), bias));
    }
    if (c < a.cols) {
      const int n = int(a.cols - c);
      const f32x16 bias = a.bias ? load_tail(a.bias + c, n) : zero_f32();
      const f32x16 centred = sub(load_tail(x + c, n), centre);
      store_tail(out + c, scale_and_shift(centred, scale, load_tail(a.weight + c, n), bias), n);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
