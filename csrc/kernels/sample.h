// Draws one token a row without sorting the vocabulary.
//
// A token's rank is (scaled logit falling, id rising), scaled = (logit - max) * (1 / temperature) <= 0. Its
// mass is an integer, e^scaled in units of 2^-40, so sums are exact in any order. Every filter and the draw
// itself ask the same question: which is the first token in rank order at which a running count, or a running
// mass, reaches a number? That is a radix select over the 31 magnitude bits of `scaled`: a histogram of the
// top 11 bits of all tokens, then of the next 10 and the last 10 bits of the tokens that share the bits found
// so far. The answer nearly always lies among the few tokens near the best one, so these are gathered first,
// from the blocks whose maxima say that they have some. With top_k the k-th best block maximum bounds the
// k-th best token: then nothing else of the row is looked at. Filters in vLLM's order: temperature, min_p,
// top_k, top_p.
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
inline constexpr int kNearTokens = 32768;
inline constexpr int kMaxBlocks = (1 << 20) / kBlockTokens;
// Gathering looks this much further down each time until what is asked for is among the near tokens.
inline constexpr float kFirstReach = 4.0f, kReachStep = 1.5f;
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

// Tokens with a key of at most `bound`, by id.
struct NearTokens {
  int count = 0;
  bool complete = true;  // false: there are more than kNearTokens
  int32_t ids[kNearTokens];
  uint32_t keys[kNearTokens];
  float weights[kNearTokens];
};

// The best logit of each block of a row, as keys.
struct BlockKeys {
  int count;
  int32_t keys[kMaxBlocks + 16];
};

// The largest logit of each block; room for a whole vector behind the last is filled with -inf.
inline RowMaximum block_maxima(const float* x, int64_t n, float* maxima, int* count) {
  const f32x16 none = broadcast(-__builtin_inff());
  mask16 sane = equal(none, none);
  f32x16 highest = none;
  *count = 0;
  for (int64_t begin = 0; begin < n; begin += kBlockTokens) {
    f32x16 block = none;
    raise_maximum(x, begin, begin + kBlockTokens < n ? begin + kBlockTokens : n, &block, &sane);
    maxima[(*count)++] = reduce_max(block);
    highest = max(block, highest);
  }
  store(maxima + *count, none);
  return {reduce_max(highest), mask_bits(sane) != 0xffffu};
}

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

// Sums up the row. A mass is hi * 2^20 + lo with hi = rint(e^scaled * 2^20): both parts and their sums over a
// block fit 32 bits, and splitting is exact.
inline Totals survey(const SampleRow& row) {
  const f32x16 unit = broadcast(0x1p20f);
  static_assert(kMassUnit == 0x1p40f && kBlockTokens <= 1 << 11);
  Totals all;
  int64_t count = 0, high_total = 0, low_total = 0;
  for (int64_t begin = 0; begin < row.vocab; begin += kBlockTokens) {
    const int64_t end = begin + kBlockTokens < row.vocab ? begin + kBlockTokens : row.vocab;
    i32x16 high_sum = zero_i32(), low_sum = zero_i32();
    for (int64_t i = begin; i < end; i += 16) {
      const f32x16 scaled = scaled_lanes(row, i);
      const mask16 in = less_equal(row.lowest, scaled);
      if (!mask_bits(in)) continue;
      count += __builtin_popcount(mask_bits(in));
      const f32x16 mass = mul(select(in, exp(scaled), zero_f32()), unit);
      const i32x16 high = to_i32(mass);
      high_sum = add(high_sum, high);
      low_sum = add(low_sum, to_i32(mul(sub(mass, to_f32(high)), unit)));
    }
    high_total += reduce_add(high_sum);
    low_total += reduce_add(low_sum);
  }
  all.count = uint64_t(count);
  all.mass = uint64_t(high_total * (1 << 20) + low_total);
  return all;
}

// The least key that at least k blocks reach: at least k tokens are as good. k is at most the number of
// blocks.
inline uint32_t bound_of(const BlockKeys& blocks, int k) {
  uint32_t bound = 0;
  for (int bit = kKeyBits - 1; bit >= 0; --bit) {
    const uint32_t below = bound | ((1u << bit) - 1);  // the largest bound with this bit clear
    int count = 0;
    for (int i = 0; i < blocks.count; i += 16)
      count += 16 - __builtin_popcount(mask_bits(less(broadcast_i32(int32_t(below)), load(blocks.keys + i))));
    if (count < k) bound |= 1u << bit;
  }
  return bound;
}

inline void gather_block(const SampleRow& row, int64_t begin, int64_t end, uint32_t bound, NearTokens* near) {
  const i32x16 limit = broadcast_i32(int32_t(bound));
  for (int64_t i = begin; i < end; i += 16) {
    const f32x16 scaled = scaled_lanes(row, i);
    const i32x16 key = key_lanes(scaled);
    uint32_t bits = mask_bits(less_equal(row.lowest, scaled)) & ~mask_bits(less(limit, key));
    if (!bits) continue;
    float weights[16];
    int32_t keys[16];
    store(weights, exp(scaled));
    store(keys, key);
    for (; bits; bits &= bits - 1) {
      if (near->count == kNearTokens) {
        near->complete = false;
        return;
      }
      const int lane = __builtin_ctz(bits);
      near->ids[near->count] = int32_t(i + lane);
      near->keys[near->count] = uint32_t(keys[lane]);
      near->weights[near->count++] = weights[lane];
    }
  }
}

inline void gather(const SampleRow& row, const BlockKeys& blocks, uint32_t bound, NearTokens* near) {
  near->count = 0;
  near->complete = true;
  for (int block = 0; block < blocks.count && near->complete; ++block) {
    if (uint32_t(blocks.keys[block]) > bound) continue;
    const int64_t begin = block * kBlockTokens, end = begin + kBlockTokens;
    gather_block(row, begin, end < row.vocab ? end : row.vocab, bound, near);
  }
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

// Cuts of a row, sought among its near tokens first.
struct RowCuts {
  const SampleRow& row;
  const BlockKeys& blocks;
  NearTokens* near;
  Totals near_totals;
  float reach = 0.0f;

  void gather_to(uint32_t bound) {
    gather(row, blocks, bound, near);
    near_totals = totals_of(*near);
  }
  Cut at(bool by_mass, uint64_t need) {
    while (near->complete && !near_totals.reach(by_mass, need)) {
      reach += reach == 0.0f ? kFirstReach : kReachStep;
      gather_to(float_bits(reach));
    }
    return near->complete ? find_cut(*near, by_mass, need) : find_cut(row, by_mass, need);
  }
};

inline int64_t draw(const SampleArgs& a, int64_t r, const SampleRow& row, const BlockKeys& blocks) {
  NearTokens near;
  RowCuts cuts = {row, blocks, &near, {}};
  const bool few = a.top_k[r] > 0 && a.top_k[r] <= blocks.count;
  if (few) cuts.gather_to(bound_of(blocks, a.top_k[r]));
  // Near tokens that are fewer than k are all that min_p left.
  const bool enough = few && near.complete;
  const Totals all = enough ? cuts.near_totals : survey(row);
  uint64_t mass = all.mass;
  if (a.top_k[r] > 0 && uint64_t(a.top_k[r]) < all.count)
    mass = cuts.at(false, uint64_t(a.top_k[r])).upto.mass;
  if (a.top_p[r] < 1.0f) mass = cuts.at(true, share_of(double(a.top_p[r]), mass)).upto.mass;
  return cuts.at(true, drawn(a.uniform[r], mass)).token;
}

inline int64_t sample_row(const SampleArgs& a, int64_t r) {
  const float* x = a.logits + r * a.row_stride;
  BlockKeys blocks;
  float maxima[kMaxBlocks + 16];
  const RowMaximum best = block_maxima(x, a.vocab, maxima, &blocks.count);
  const bool greedy = a.temperature[r] < kGreedyTemperature;
  if (greedy || best.has_nan || best.value == -__builtin_inff()) return greedy_token(x, a.vocab, best);
  if (best.value == __builtin_inff()) return -1;
  const float log_min_p = a.log_min_p[r];
  const SampleRow row = {x, a.vocab, broadcast(best.value), broadcast(1.0f / a.temperature[r]),
                         broadcast(log_min_p > kLowestScaled ? log_min_p : kLowestScaled)};
  for (int i = 0; i < blocks.count; i += 16) {
    store(blocks.keys + i, key_lanes(mul(sub(load(maxima + i), row.top), row.inverse)));
  }
  return draw(a, r, row, blocks);
}

void sample(const SampleArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) a.out[r] = sample_row(a, r);
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
