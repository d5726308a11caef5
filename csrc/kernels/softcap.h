// cap * tanh(x / cap): bounds logits and attention scores (Gemma 2).
#pragma once

#include "kernels/activation.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline f32x16 softcap(f32x16 x, f32x16 cap) { return mul(tanh(div(x, cap)), cap); }

void softcap_rows(const SoftcapArgs& a, int64_t begin, int64_t end) {
  const f32x16 cap = broadcast(a.cap);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.cols;
    float* out = a.out + row * a.cols;
    int64_t c = 0;
    for (; c + 16 <= a.cols; c += 16) store(out + c, softcap(load(x + c), cap));
    if (c < a.cols) {
      const int n = int(a.cols - c);
      store_tail(out + c, softcap(load_tail(x + c, n), cap), n);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
