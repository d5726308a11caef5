// Log softmax of the chosen token and of the k best, with the rank of the chosen one. No memory but the
// outputs.
#pragma once

#include "kernels/argmax.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Natural logarithm in double from plain arithmetic (the series of atanh), so that no libm decides the bits.
inline double log_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = int(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double f = (m - 1.0) / (m + 1.0), square = f * f;
  double series = 0.0;
  for (int power = 23; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return exponent * 0.6931471805599453 + 2.0 * f * series;
}

// log of the sum of e^(x - top): float32 lanes within 1024 tokens, double between.
inline double log_sum_exp(const float* x, int64_t n, float top) {
  constexpr int64_t kChunk = 1024;
  const f32x16 shift = broadcast(top);
  double sum = 0.0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = begin + kChunk < n ? begin + kChunk : n;
    f32x16 lanes = zero_f32();
    for (int64_t i = begin; i < end; i += 16) lanes = add(lanes, exp(sub(load_logits(x, i, n), shift)));
    sum += double(reduce_add(lanes));
  }
  return log_of(sum);
}

inline int64_t rank_of(const float* x, int64_t n, int64_t token) {
  const f32x16 chosen = broadcast(x[token]);
  int64_t rank = 1;
  for (int64_t i = 0; i < n; i += 16) {
    const f32x16 v = load_logits(x, i, n);
    rank += __builtin_popcount(mask_bits(less(chosen, v)));
    if (i > token) continue;
    const uint32_t before = token - i < 16 ? (1u << (token - i)) - 1 : 0xffffu;
    rank += __builtin_popcount(mask_bits(equal(chosen, v)) & before);
  }
  return rank;
}

// The k best so far as a heap with the worst at its root; worse means smaller, or equal with a higher id.
struct BestTokens {
  float* values;
  int64_t* ids;
  int64_t size;

  bool worse(int64_t i, int64_t j) const {
    return values[i] < values[j] || (values[i] == values[j] && ids[i] > ids[j]);
  }
  void swap(int64_t i, int64_t j) {
    const float value = values[i];
    const int64_t id = ids[i];
    values[i] = values[j];
    ids[i] = ids[j];
    values[j] = value;
    ids[j] = id;
  }
  void sift_down(int64_t i, int64_t n) {
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n && worse(child + 1, child)) ++child;
      if (!worse(child, i)) return;
      swap(i, child);
      i = child;
    }
  }
  void replace_worst(float value, int64_t id) {
    values[0] = value;
    ids[0] = id;
    sift_down(0, size);
  }
  void start(const float* x) {  // with the first `size` tokens
    for (int64_t i = 0; i < size; ++i) {
      values[i] = x[i];
      ids[i] = i;
    }
    for (int64_t i = size / 2 - 1; i >= 0; --i) sift_down(i, size);
  }
  void sort() {  // best first
    for (int64_t n = size - 1; n > 0; --n) {
      swap(0, n);
      sift_down(0, n);
    }
  }
};

inline void find_best(const float* x, int64_t n, BestTokens best) {
  if (best.size == 0) return;
  best.start(x);
  for (int64_t i = best.size / 16 * 16; i < n; i += 16) {
    uint32_t bits = mask_bits(less(broadcast(best.values[0]), load_logits(x, i, n)));
    for (; bits; bits &= bits - 1) {
      const int64_t id = i + __builtin_ctz(bits);
      if (id >= best.size && best.values[0] < x[id]) best.replace_worst(x[id], id);
    }
  }
  best.sort();
}

void logprobs(const LogprobArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.logits + row * a.row_stride;
    float* values = a.values + row * (a.k + 1);
    int64_t* ids = a.ids + row * (a.k + 1);
    const float top = row_maximum(x, a.vocab).value;
    const double norm = double(top) + log_sum_exp(x, a.vocab, top);
    values[0] = x[a.token_ids[row]];
    ids[0] = a.token_ids[row];
    find_best(x, a.vocab, {values + 1, ids + 1, a.k});
    for (int64_t i = 0; i <= a.k; ++i) values[i] = float(double(values[i]) - norm);
    a.ranks[row] = rank_of(x, a.vocab, a.token_ids[row]);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
