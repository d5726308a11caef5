// Activation quantisation with llama.cpp's values: Q8_0/Q8_1 (32 k) for the block formats, Q8_K (256 k) for
// the K ones.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// As llama.cpp stores it; where that would be infinite, x itself.
inline f32x16 round_to_f16(f32x16 x) {
  uint16_t bits[16];
  store_f16(bits, x);
  return select(less(abs(x), broadcast(65520.0f)), load_f16(bits), x);
}

inline f32x16 load_upto(const float* x, int64_t left) {
  return left >= 16 ? load(x) : left > 0 ? load_tail(x, int(left)) : zero_f32();
}

// Sixteen blocks at a time, so that what is one number a block takes one operation for all.
constexpr int kBlocksTogether = 16;

struct Extremes32 {
  float amax[kBlocksTogether] = {};
  float poison[kBlocksTogether] = {};  // 0, or NaN where x holds a NaN or an infinity: it must surface

  void find(const float* x, int64_t left, int count) {
    const f32x16 infinity = broadcast(__builtin_inff());
    for (int b = 0; b < count; ++b) {
      const f32x16 x0 = abs(load_upto(x + 32 * b, left - 32 * b));
      const f32x16 x1 = abs(load_upto(x + 32 * b + 16, left - 32 * b - 16));
      amax[b] = reduce_max(max(x0, x1));
      const mask16 finite = mask_and(less(x0, infinity), less(x1, infinity));
      poison[b] = mask_bits(finite) == 0xffffu ? 0.0f : __builtin_nanf("");
    }
  }
};

inline int32_t pack_pair(int32_t low, int32_t high) {
  return int32_t((uint32_t(low) & 0xffffu) | (uint32_t(high) << 16));
}

// Of quants whose lanes are k % 16: two sums for the price of one, the second 2^16 times as large.
struct TwoSums {
  int32_t first, second;  // over k % 4 < 2, k % 4 >= 2

  explicit TwoSums(i32x16 q) {
    const mask16 is_first = equal(bit_and(iota_i32(), broadcast_i32(2)), zero_i32());
    const int32_t both = reduce_add(select(is_first, q, shift_left<16>(q)));
    first = int16_t(both);
    second = (both - first) >> 16;
  }
  int32_t total() const { return first + second; }
  int32_t negated() const { return pack_pair(-first, -second); }
};

inline TwoSums quantise_values32(const float* x, int64_t left, float inverse, int8_t* q) {
  const i32x16 q0 = to_i32(mul(load_upto(x, left), broadcast(inverse)));
  const i32x16 q1 = to_i32(mul(load_upto(x + 16, left - 16), broadcast(inverse)));
  store_i8(q, q0);
  store_i8(q + 16, q1);
  return TwoSums(add(q0, q1));
}

// d = amax / 127 rounded to f16, q = nearest_even(x * (127 / amax)), fsum = f16(d * sum q) with the unrounded
// d. A block so small that d rounds to zero is zero.
inline void quantise_blocks32(const float* x, int64_t left, int count, RowBlock32* out) {
  Extremes32 found;
  found.find(x, left, count);
  const f32x16 amax = load(found.amax), poison = load(found.poison), zero = zero_f32();
  const f32x16 d = div(amax, broadcast(127.0f)), d16 = add(round_to_f16(d), poison);
  float inverse[kBlocksTogether], scale[kBlocksTogether], fsum[kBlocksTogether];
  int32_t sum[kBlocksTogether] = {};
  store(scale, d16);
  store(inverse, select(less(zero, d16), div(broadcast(127.0f), amax), zero));
  for (int b = 0; b < count; ++b) {
    const TwoSums sums = quantise_values32(x + 32 * b, left - 32 * b, inverse[b], out[b].q);
    sum[b] = sums.total();
    out[b].class_sums = sums.negated();
  }
  store(fsum, add(round_to_f16(mul(d, to_f32(load(sum)))), poison));
  for (int b = 0; b < count; ++b) {
    out[b].scale = scale[b];
    out[b].fsum = fsum[b];
    out[b].sum = sum[b];
  }
}

inline void quantise_rows_block32(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t count = (a.cols + 63) / 64 * 2;
  for (int64_t r = begin; r < end; ++r) {
    RowBlock32* out = reinterpret_cast<RowBlock32*>(a.blocks + r * a.row_bytes);
    const float* x = a.x + r * a.x_stride;
    for (int64_t b = 0; b < count; b += kBlocksTogether) {
      const int together = count - b < kBlocksTogether ? int(count - b) : kBlocksTogether;
      quantise_blocks32(x + 32 * b, a.cols - 32 * b, together, out + b);
    }
  }
}

// The element of largest magnitude with its sign; the first one if several tie.
inline float signed_extreme(const float* x, float amax) {
  for (int i = 0; i < 256; i += 16) {
    const uint32_t hits = mask_bits(equal(abs(load(x + i)), broadcast(amax)));
    if (hits != 0) return x[i + __builtin_ctz(hits)];
  }
  return 0.0f;
}

// iscale = -127 / extreme, q = min(127, nearest_even(iscale * x)), d = 1 / iscale.
inline void quantise_block256(const float* x, RowBlock256& out) {
  f32x16 largest = zero_f32(), poison = zero_f32();
  for (int i = 0; i < 256; i += 16) {
    largest = max(largest, abs(load(x + i)));
    poison = fma(load(x + i), zero_f32(), poison);
  }
  const float amax = reduce_max(largest);
  const float extreme = amax < 1e-30f ? 0.0f : signed_extreme(x, amax);  // below, 127 / amax would overflow
  const float iscale = extreme != 0.0f ? -127.0f / extreme : 0.0f;
  int32_t s[16];
  for (int i = 0; i < 16; ++i) {
    const i32x16 v = min(broadcast_i32(127), to_i32(mul(broadcast(iscale), load(x + 16 * i))));
    store_i8(out.q + 16 * i, v);
    const TwoSums sums(v);
    s[i] = sums.total();
    out.class_sums[i] = sums.negated();
  }
  for (int i = 0; i < 8; ++i) out.sums[i] = pack_pair(s[2 * i], s[2 * i + 1]);
  for (int i = 0; i < 4; ++i) out.sums64[i] = pack_pair(s[4 * i] + s[4 * i + 1], s[4 * i + 2] + s[4 * i + 3]);
  out.scale = (extreme != 0.0f ? 1.0f / iscale : 0.0f) + reduce_add(poison);
}

inline void quantise_rows_block256(const ActivationRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    RowBlock256* out = reinterpret_cast<RowBlock256*>(a.blocks + r * a.row_bytes);
    for (int64_t b = 0; b < a.cols / 256; ++b) quantise_block256(a.x + r * a.x_stride + 256 * b, out[b]);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
