// The largest logit of a row, lowest id first among equals.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct RowMaximum {
  float value;
  bool has_nan;
};

inline f32x16 load_logits(const float* x, int64_t i, int64_t n) {  // absent lanes are -inf
  if (i + 16 <= n) return load(x + i);
  const int rest = int(n - i);
  return select(less(iota_i32(), broadcast_i32(rest)), load_tail(x + i, rest), broadcast(-__builtin_inff()));
}

// A row's largest logit is found block by block; sampling keeps what the blocks have, to look only into those
// that matter.
inline constexpr int64_t kBlockTokens = 256;

// Raises `highest` over [begin, end) and clears lanes of `sane` that hold NaN. Four chains overlap.
inline void raise_maximum(const float* x, int64_t begin, int64_t end, f32x16* highest, mask16* sane) {
  f32x16 top[4];
  for (int j = 0; j < 4; ++j) top[j] = broadcast(-__builtin_inff());
  int64_t i = begin;
  for (; i + 64 <= end; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const f32x16 v = load(x + i + 16 * j);
      *sane = mask_and(*sane, equal(v, v));
      top[j] = max(v, top[j]);
    }
  }
  for (; i < end; i += 16) {
    const f32x16 v = load_logits(x, i, end);
    *sane = mask_and(*sane, equal(v, v));
    top[0] = max(v, top[0]);
  }
  *highest = max(max(max(top[0], top[1]), max(top[2], top[3])), *highest);
}

inline RowMaximum row_maximum(const float* x, int64_t n) {
  f32x16 highest = broadcast(-__builtin_inff());
  mask16 sane = equal(highest, highest);
  raise_maximum(x, 0, n, &highest, &sane);
  return {reduce_max(highest), mask_bits(sane) != 0xffffu};
}

inline int64_t first_equal(const float* x, int64_t n, float value) {  // n if there is none
  const f32x16 wanted = broadcast(value);
  for (int64_t i = 0; i < n; i += 16) {
    const uint32_t bits = mask_bits(equal(load_logits(x, i, n), wanted));
    if (bits) return i + __builtin_ctz(bits);
  }
  return n;
}

// -1 for a row with NaN or with nothing above -inf.
inline int64_t greedy_token(const float* x, int64_t n, RowMaximum best) {
  if (best.has_nan || best.value == -__builtin_inff()) return -1;
  return first_equal(x, n, best.value);
}

void argmax(const SampleArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.logits + row * a.row_stride;
    a.out[row] = greedy_token(x, a.vocab, row_maximum(x, a.vocab));
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
