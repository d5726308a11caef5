// Draws one token a row without sorting the vocabulary.
//
// A token's rank is (scaled logit falling, id rising), scaled = (logit - max) * (1 / temperature) <= 0. Its
// mass is an integer, e^scaled in units of 2^-40, so sums are exact in any order. Every filter and the draw
// itself ask the same question: which is the first token in rank order at which a running count, or a running
// mass, reaches a number? That is a radix select over the 31 magnitude bits of `scaled`: a histogram of the
// top 11 bits of all tokens, then of the next 10 and the last 10 bits of the tokens that share the bits found
// so far. One pass over the row sums up all mass and sets the few tokens near the best one aside; the answer
// nearly always lies among those. Filters in vLLM's order: temperature, min_p, top_k, top_p.
#pragma once

#include "kernels/argmax.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr float kGreedyTemperature = 1e-5f;
inline constexpr float kMassUnit = 0x1p40f;
inline constexpr float kLowestScaled = -28.5f;  // below it the mass is zero
inline constexpr float kNearScaled = -8.0f;     // below it the mass fits 31 bits
inline constexpr int kNearTokens = 4096;
inline constexpr int kBins = 2048;
inline constexpr int kKeyBits = 31, kTopShift = 20, kMidShift = 10;

struct Totals {
  uint64_t count = 0;
  uint64_t mass = 0;

  bool reach(bool by_mass, uint64_t need) const { return (by_mass ? mass : count) >= need; }
};

struct Histogram {
  uint64_t mass[kBins];
  uint32_t count[kBins];
};

// A row of logits whose tokens with a scaled logit below `lowest` are out.
struct SampleRow {
  const float* logits;
  int64_t vocab;
  f32x16 top;      // the largest logit
  f32x16 inverse;  // 1 / temperature
  f32x16 lowest;
};

// The best tokens, by id: those whose key is at most `floor`, which sinks when there are too many.
struct NearTokens {
  int count = 0;
  bool complete = true;  // false: more than kNearTokens share the best logit
  float floor = -kNearScaled;
  int32_t ids[kNearTokens];
  uint32_t keys[kNearTokens];
  float weights[kNearTokens];

  void add(int64_t id, uint32_t key, float weight) {
    if (count == kNearTokens) make_room();
    if (key > float_bits(floor) || !complete) return;
    ids[count] = int32_t(id);
    keys[count] = key;
    weights[count++] = weight;
  }
  void make_room() {
    while (count > kNearTokens / 2 && floor > 0.0f) {
      floor -= 1.0f;
      drop_below_floor();
    }
    complete = count < kNearTokens;
  }
  void drop_below_floor() {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      ids[kept] = ids[i];
      keys[kept] = keys[i];
      weights[kept] = weights[i];
      kept += keys[i] <= float_bits(floor);
    }
    count = kept;
  }
};

inline f32x16 scaled_lanes(const SampleRow& row, int64_t i) {
  return mul(sub(load_logits(row.logits, i, row.vocab), row.top), row.inverse);
}

inline i32x16 key_lanes(f32x16 scaled) { return bit_and(bitcast_i32(scaled), broadcast_i32(INT32_MAX)); }

inline uint64_t mass_of(float weight) { return uint64_t(__builtin_llrintf(weight * kMassUnit)); }

// Calls visit(id, key, weight) for each token whose key >> shift equals prefix, by rising id, until it
// returns false.
template <class Visit>
inline void for_each_token(const SampleRow& row, int shift, uint32_t prefix, Visit visit) {
  const float low = bits_float(prefix << shift), high = bits_float((prefix << shift) | ((1u << shift) - 1));
  const f32x16 near = broadcast(-low), far = broadcast(shift < kKeyBits ? -high : -__builtin_inff());
  for (int64_t i = 0; i < row.vocab; i += 16) {
    const f32x16 scaled = scaled_lanes(row, i);
    mask16 in = less_equal(row.lowest, scaled);
    if (shift < kKeyBits) in = mask_and(in, mask_and(less_equal(scaled, near), less_equal(far, scaled)));
    uint32_t bits = mask_bits(in);
    if (!bits) continue;
    float weights[16];
    int32_t keys[16];
    store(weights, exp(scaled));
    store(keys, key_lanes(scaled));
    for (; bits; bits &= bits - 1) {
      const int lane = __builtin_ctz(bits);
      if (!visit(i + lane, uint32_t(keys[lane]), weights[lane])) return;
    }
  }
}

template <class Visit>
inline void for_each_token(const NearTokens& near, int shift, uint32_t prefix, Visit visit) {
  for (int i = 0; i < near.count; ++i) {
    if (near.keys[i] >> shift == prefix && !visit(near.ids[i], near.keys[i], near.weights[i])) return;
  }
}

inline Totals totals_of(const NearTokens& near) {
  Totals totals;
  for (int i = 0; i < near.count; ++i) totals.mass += mass_of(near.weights[i]);
  totals.count = uint64_t(near.count);
  return totals;
}

// Sums up the row and sets its near tokens aside.
inline Totals survey(const SampleRow& row, NearTokens* near) {
  const f32x16 border = broadcast(kNearScaled), unit = broadcast(kMassUnit);
  i32x16 low_sum = zero_i32(), high_sum = zero_i32();  // halves of 16 bits: no overflow below 2^20 tokens
  Totals all;
  for (int64_t i = 0; i < row.vocab; i += 16) {
    const f32x16 scaled = scaled_lanes(row, i);
    const mask16 in = less_equal(row.lowest, scaled);
    if (!mask_bits(in)) continue;
    const mask16 far = mask_and(in, less(scaled, border));
    const f32x16 weights = exp(scaled);
    const i32x16 mass = select(far, to_i32(mul(weights, unit)), zero_i32());
    low_sum = add(low_sum, bit_and(mass, broadcast_i32(0xffff)));
    high_sum = add(high_sum, shift_right<16>(mass));
    all.count += uint64_t(__builtin_popcount(mask_bits(in)));
    uint32_t bits = mask_bits(in) & ~mask_bits(far);
    if (!bits) continue;
    float lane_weights[16];
    int32_t keys[16];
    store(lane_weights, weights);
    store(keys, key_lanes(scaled));
    for (; bits; bits &= bits - 1) {
      const int lane = __builtin_ctz(bits);
      all.mass += mass_of(lane_weights[lane]);
      near->add(i + lane, uint32_t(keys[lane]), lane_weights[lane]);
    }
  }
  int32_t low[16], high[16];
  store(low, low_sum);
  store(high, high_sum);
  for (int lane = 0; lane < 16; ++lane)
    all.mass += uint64_t(uint32_t(low[lane])) + (uint64_t(uint32_t(high[lane])) << 16);
  return all;
}

template <class Tokens>
inline void fill_histogram(const Tokens& tokens, int shift, uint32_t prefix, int next_shift,
                           Histogram* bins) {
  memset(bins, 0, sizeof *bins);
  const uint32_t mask = (1u << (shift - next_shift)) - 1;
  for_each_token(tokens, shift, prefix, [&](int64_t, uint32_t key, float weight) {
    const uint32_t bin = (key >> next_shift) & mask;
    bins->mass[bin] += mass_of(weight);
    bins->count[bin] += 1;
    return true;
  });
}

// Moves `before` past whole bins until the next one reaches `need`; returns that bin.
inline uint32_t crossing_bin(const Histogram& bins, bool by_mass, uint64_t need, Totals* before) {
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    const Totals with = {before->count + bins.count[bin], before->mass + bins.mass[bin]};
    if (with.reach(by_mass, need)) return bin;
    *before = with;
  }
  return kBins - 1;  // not reached: need is at most the total
}

// The first token in rank order at which the running total reaches need, and that total.
struct Cut {
  Totals upto;
  int64_t token = -1;
};

template <class Tokens>
inline Cut find_cut(const Tokens& tokens, bool by_mass, uint64_t need) {
  Cut cut;
  Histogram bins;
  fill_histogram(tokens, kKeyBits, 0, kTopShift, &bins);
  uint32_t prefix = crossing_bin(bins, by_mass, need, &cut.upto);
  fill_histogram(tokens, kTopShift, prefix, kMidShift, &bins);
  prefix = prefix << (kTopShift - kMidShift) | crossing_bin(bins, by_mass, need, &cut.upto);
  fill_histogram(tokens, kMidShift, prefix, 0, &bins);
  const uint32_t key = prefix << kMidShift | crossing_bin(bins, by_mass, need, &cut.upto);
  for_each_token(tokens, 0, key, [&](int64_t id, uint32_t, float weight) {
    cut.upto.count += 1;
    cut.upto.mass += mass_of(weight);
    cut.token = id;
    return !cut.upto.reach(by_mass, need);
  });
  return cut;
}

inline uint64_t share_of(double share,
                         uint64_t mass) {  // the least integer >= share * mass, within [1, mass]
  const double need = __builtin_ceil(share * double(mass));
  return need < 1.0 ? 1 : need >= double(mass) ? mass : uint64_t(need);
}

// floor(uniform * mass) + 1, computed with the 53 bits that a double in [0, 1) has.
inline uint64_t drawn(double uniform, uint64_t mass) {
  const uint64_t bits = uint64_t(uniform * 0x1p53);
  return uint64_t((unsigned __int128)(bits)*mass >> 53) + 1;
}

inline int64_t draw(const SampleArgs& a, int64_t r, float top) {
  const float log_min_p = a.log_min_p[r];
  const SampleRow row = {a.logits + r * a.row_stride, a.vocab, broadcast(top),
                         broadcast(1.0f / a.temperature[r]),
                         broadcast(log_min_p > kLowestScaled ? log_min_p : kLowestScaled)};
  NearTokens near;
  const Totals all = survey(row, &near);
  const Totals near_totals = totals_of(near);
  const auto cut_at = [&](bool by_mass, uint64_t need) {
    const bool is_near = near.complete && near_totals.reach(by_mass, need);
    return is_near ? find_cut(near, by_mass, need) : find_cut(row, by_mass, need);
  };
  uint64_t mass = all.mass;
  if (a.top_k[r] > 0 && uint64_t(a.top_k[r]) < all.count)
    mass = cut_at(false, uint64_t(a.top_k[r])).upto.mass;
  if (a.top_p[r] < 1.0f) mass = cut_at(true, share_of(double(a.top_p[r]), mass)).upto.mass;
  return cut_at(true, drawn(a.uniform[r], mass)).token;
}

void sample(const SampleArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.logits + r * a.row_stride;
    const RowMaximum best = row_maximum(x, a.vocab);
    const bool greedy = a.temperature[r] < kGreedyTemperature;
    if (greedy || best.has_nan || best.value == -__builtin_inff()) {
      a.out[r] = greedy_token(x, a.vocab, best);
    } else if (best.value == __builtin_inff()) {
      a.out[r] = -1;
    } else {
      a.out[r] = draw(a, r, best.value);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
