// The residual sum and the embedding's factor: one operation an element, exact in any order.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

template <class F>
inline void each_element(float* out, const float* x, const float* y, int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(out + i, f(load(x + i), load(y + i)));
  if (i < count) {
    const int n = int(count - i);
    store_tail(out + i, f(load_tail(x + i, n), load_tail(y + i, n)), n);
  }
}

void add_rows(const AddArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float *x = a.x + row * a.x_stride, *y = a.y + row * a.y_stride;
    each_element(a.out + row * a.cols, x, y, a.cols, [](f32x16 u, f32x16 v) { return add(u, v); });
  }
}

void scale_rows(const ScaleArgs& a, int64_t begin, int64_t end) {
  const f32x16 factor = broadcast(a.factor);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.cols;
    each_element(a.out + row * a.cols, x, x, a.cols, [&](f32x16 u, f32x16) { return mul(u, factor); });
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
