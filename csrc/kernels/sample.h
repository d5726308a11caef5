// Draws one token a row without sorting the vocabulary.
//
// A token's rank is (scaled logit falling, id rising), scaled = (logit - max) * (1 / temperature) <= 0. Its
// mass is an integer, e^scaled in units of 2^-40, so sums are exact in any order. Every filter and the draw
// itself ask the same question: which is the first token in rank order at which a running count, or a running
// mass, reaches a number? That is a radix select over the 31 magnitude bits of `scaled`: a histogram of the
// top 11 bits of all tokens, then of the next 10 and the last 10 bits of the tokens that share the bits found
// so far. Filters in vLLM's order: temperature, min_p, top_k, top_p.
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
inline constexpr int kBins = 2048;
inline constexpr int kTopShift = 20, kMidShift = 10;

struct Histogram {
  uint64_t mass[kBins];
  uint32_t count[kBins];
};

// What is left of a row: tokens up to `last` in rank order. `cut_key` is its magnitude key, `cut_ties` how
// many tokens of that key belong (the first ones by id).
struct Cut {
  uint32_t key;
  uint64_t count;  // tokens up to and including the cut
  uint64_t mass;
  int64_t token;
};

struct SampleRow {
  const float* logits;
  int64_t vocab;
  f32x16 top;      // the largest logit
  f32x16 inverse;  // 1 / temperature
  f32x16 lowest;   // scaled logits below it are out
};

inline f32x16 scaled_lanes(const SampleRow& row, int64_t i) {
  return mul(sub(load_logits(row.logits, i, row.vocab), row.top), row.inverse);
}

inline uint64_t mass_of(float weight) { return uint64_t(int64_t(weight * kMassUnit + 0.5f)); }

// Calls visit(id, key, weight) for each token above `lowest` whose key >> shift equals prefix (shift 31: all
// tokens).
template <class Visit>
inline void for_each_token(const SampleRow& row, int shift, uint32_t prefix, Visit visit) {
  const float low = bits_float(prefix << shift), high = bits_float((prefix << shift) | ((1u << shift) - 1));
  const f32x16 near = broadcast(-low), far = broadcast(shift < 31 ? -high : -__builtin_inff());
  for (int64_t i = 0; i < row.vocab; i += 16) {
    const f32x16 scaled = scaled_lanes(row, i);
    mask16 in = less_equal(row.lowest, scaled);
    if (shift < 31) in = mask_and(in, mask_and(less_equal(scaled, near), less_equal(far, scaled)));
    uint32_t bits = mask_bits(in);
    if (!bits) continue;
    float weights[16];
    int32_t keys[16];
    store(weights, exp(scaled));
    store(keys, bit_and(bitcast_i32(scaled), broadcast_i32(INT32_MAX)));
    for (; bits; bits &= bits - 1) {
      const int lane = __builtin_ctz(bits);
      if (!visit(i + lane, uint32_t(keys[lane]), weights[lane])) return;
    }
  }
}

inline void fill_histogram(const SampleRow& row, int shift, uint32_t prefix, int next_shift,
                           Histogram* bins) {
  memset(bins, 0, sizeof *bins);
  const uint32_t mask = (1u << (shift - next_shift)) - 1;
  for_each_token(row, shift, prefix, [&](int64_t, uint32_t key, float weight) {
    const uint32_t bin = (key >> next_shift) & mask;
    bins->mass[bin] += mass_of(weight);
    bins->count[bin] += 1;
    return true;
  });
}

// Moves `before` past whole bins until the next one reaches `need`; returns that bin.
inline uint32_t crossing_bin(const Histogram& bins, bool by_mass, uint64_t need, Cut* before) {
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    const uint64_t reached = by_mass ? before->mass + bins.mass[bin] : before->count + bins.count[bin];
    if (reached >= need) return bin;
    before->mass += bins.mass[bin];
    before->count += bins.count[bin];
  }
  return kBins - 1;  // not reached: need is at most the total
}

// The first token in rank order at which the running mass (or count) reaches need; 1 <= need <= the row's
// total.
inline Cut find_cut(const SampleRow& row, const Histogram& top_bins, bool by_mass, uint64_t need) {
  Cut cut = {0, 0, 0, -1};
  uint32_t prefix = crossing_bin(top_bins, by_mass, need, &cut);
  Histogram bins;
  fill_histogram(row, kTopShift, prefix, kMidShift, &bins);
  prefix = prefix << (kTopShift - kMidShift) | crossing_bin(bins, by_mass, need, &cut);
  fill_histogram(row, kMidShift, prefix, 0, &bins);
  cut.key = prefix << kMidShift | crossing_bin(bins, by_mass, need, &cut);
  for_each_token(row, 0, cut.key, [&](int64_t id, uint32_t, float weight) {
    cut.mass += mass_of(weight);
    cut.count += 1;
    cut.token = id;
    return (by_mass ? cut.mass : cut.count) < need;
  });
  return cut;
}

inline void total(const Histogram& bins, uint64_t* count, uint64_t* mass) {
  *count = *mass = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    *count += bins.count[bin];
    *mass += bins.mass[bin];
  }
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

inline int64_t draw(const SampleArgs& a, int64_t r, float top, float log_min_p) {
  SampleRow row;
  row.logits = a.logits + r * a.row_stride;
  row.vocab = a.vocab;
  row.top = broadcast(top);
  row.inverse = broadcast(1.0f / a.temperature[r]);
  row.lowest = broadcast(log_min_p > kLowestScaled ? log_min_p : kLowestScaled);
  Histogram bins;
  fill_histogram(row, 31, 0, kTopShift, &bins);
  uint64_t count, mass;
  total(bins, &count, &mass);
  if (a.top_k[r] > 0 && uint64_t(a.top_k[r]) < count)
    mass = find_cut(row, bins, false, uint64_t(a.top_k[r])).mass;
  if (a.top_p[r] < 1.0f) mass = find_cut(row, bins, true, share_of(double(a.top_p[r]), mass)).mass;
  return find_cut(row, bins, true, drawn(a.uniform[r], mass)).token;
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
      a.out[r] = draw(a, r, best.value, a.log_min_p[r]);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
