// Around the experts of a mixture: which ones a token takes, and the weighted sum of what they gave. A
// token's result depends on its own row only: sums run in a fixed order, over experts by id and over slots
// ascending.
#pragma once

#include "kernels/activation.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// The logits that are still to be chosen from, and e^(logit - largest) of each.
struct RouterRow {
  alignas(64) float left[kMaxExperts];
  alignas(64) float powers[kMaxExperts];
  float sum;

  // A NaN or an infinity among the logits makes the sum, and with it every weight, NaN.
  void fill(const float* logits, int64_t count) {
    const f32x16 lowest = broadcast(-__builtin_inff());
    f32x16 largest = lowest, total = zero_f32();
    for (int64_t i = 0; i < count; i += 16) {
      const f32x16 x = load_logits(logits, i, count);
      store(left + i, select(equal(x, x), x, lowest));
      largest = max(largest, load(left + i));
    }
    const f32x16 top = broadcast(reduce_max(largest));
    for (int64_t i = 0; i < count; i += 16) {
      const f32x16 power = exp(sub(load_logits(logits, i, count), top));
      store(powers + i, power);
      total = add(total, i + 16 <= count ? power : load_tail(powers + i, int(count - i)));
    }
    sum = reduce_add(total);
  }

  // The expert of the largest logit, the lowest id of several.
  int64_t take(int64_t count) {
    f32x16 largest = load(left);
    for (int64_t i = 16; i < count; i += 16) largest = max(largest, load(left + i));
    const f32x16 top = broadcast(reduce_max(largest));
    int64_t id = 0;
    for (int64_t i = 0; i < count; i += 16) {
      const uint32_t hits = mask_bits(equal(load(left + i), top));
      if (hits == 0) continue;
      id = i + __builtin_ctz(hits);
      break;
    }
    left[id] = -__builtin_inff();
    return id;
  }
  // Its share of all. Where nothing above -inf is left, an expert is taken again: for nothing.
  float weight(int64_t id) {
    const float power = powers[id];
    powers[id] = 0.0f;
    return power / sum;
  }

 private:
  static f32x16 load_logits(const float* logits, int64_t i, int64_t count) {
    if (i + 16 <= count) return load(logits + i);
    alignas(64) float row[16];
    for (int64_t lane = 0; lane < 16; ++lane) row[lane] = i + lane < count ? logits[i + lane] : kAbsent;
    return load(row);
  }
  static constexpr float kAbsent = -__builtin_inff();
};

inline void route_row(const RouteArgs& a, RouterRow& row, const float* logits, int32_t* ids, float* weights) {
  row.fill(logits, a.experts);
  float chosen = 0.0f;
  for (int64_t s = 0; s < a.top_k; ++s) {
    const int64_t id = row.take(a.experts);
    ids[s] = int32_t(id);
    weights[s] = row.weight(id);
    chosen += weights[s];
  }
  for (int64_t s = 0; s < a.top_k && a.renormalise; ++s) weights[s] /= chosen;
  if (a.shared) {
    float gate[16];
    store(gate, sigmoid(broadcast(logits[a.experts])));
    ids[a.top_k] = int32_t(a.experts);
    weights[a.top_k] = gate[0];
  }
}

void route_rows(const RouteArgs& a, int64_t begin, int64_t end) {
  const int64_t slots = a.top_k + a.shared;
  RouterRow row;
  for (int64_t r = begin; r < end; ++r)
    route_row(a, row, a.logits + r * a.row_stride, a.ids + r * slots, a.weights + r * slots);
}

// One row's sum of 16 columns, or of `count` where fewer are left.
template <class Load>
inline f32x16 combined(const CombineArgs& a, int64_t row, Load&& load_from) {
  const int32_t* places = a.places + row * a.slots;
  const float* weights = a.weights + row * a.slots;
  f32x16 sum = mul(broadcast(weights[0]), load_from(a.y + places[0] * a.cols));
  for (int64_t s = 1; s < a.slots; ++s)
    sum = fma(broadcast(weights[s]), load_from(a.y + places[s] * a.cols), sum);
  return sum;
}

void combine_rows(const CombineArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    float* out = a.out + r * a.cols;
    int64_t c = 0;
    for (; c + 16 <= a.cols; c += 16)
      store(out + c, combined(a, r, [&](const float* y) { return load(y + c); }));
    if (c < a.cols) {
      const int n = int(a.cols - c);
      store_tail(out + c, combined(a, r, [&](const float* y) { return load_tail(y + c, n); }), n);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
