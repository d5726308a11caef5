// Activation quantisation with llama.cpp's values: Q8_0/Q8_1 (32 k) for the block formats, Q8_K (256 k) for
// the K ones.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// As llama.cpp stores it; where that would be infinite, x itself.
inline float round_to_f16(float x) {
  const bool fits = x < 65520.0f && x > -65520.0f;
  return fits ? f16_to_float(float_to_f16(x)) : x;
}

inline f32x16 load_upto(const float* x, int64_t left) {
  return left >= 16 ? load(x) : left > 0 ? load_tail(x, int(left)) : zero_f32();
}

// d = amax / 127 rounded to f16, q = nearest_even(x * (127 / amax)), fsum = f16(d * sum q) with the unrounded
// d. A block so small that d rounds to zero is zero. A NaN or infinity in x makes the whole block NaN: it
// must surface.
inline void quantise_block32(const float* x, int64_t left, RowBlock32& out) {
  const f32x16 x0 = load_upto(x, left), x1 = load_upto(x + 16, left - 16);
  const float amax = reduce_max(max(abs(x0), abs(x1)));
  const float poison = reduce_add(fma(x0, zero_f32(), mul(x1, zero_f32())));  // 0, or NaN
  const float d = amax / 127.0f;
  const float d16 = round_to_f16(d) + poison;
  const f32x16 inverse = broadcast(d16 > 0.0f ? 127.0f / amax : 0.0f);
  const i32x16 q0 = to_i32(mul(x0, inverse)), q1 = to_i32(mul(x1, inverse));
  store_i8(out.q, q0);
  store_i8(out.q + 16, q1);
  out.sum = reduce_add(add(q0, q1));
  out.scale = d16;
  out.fsum = round_to_f16(d * float(out.sum)) + poison;
}

inline void quantise_rows_block32(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t count = (a.cols + 63) / 64 * 2;
  for (int64_t r = begin; r < end; ++r) {
    RowBlock32* out = reinterpret_cast<RowBlock32*>(a.blocks + r * a.row_bytes);
    for (int64_t b = 0; b < count; ++b)
      quantise_block32(a.x + r * a.x_stride + 32 * b, a.cols - 32 * b, out[b]);
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

inline int32_t pack_pair(int32_t low, int32_t high) {
  return int32_t((uint32_t(low) & 0xffffu) | (uint32_t(high) << 16));
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
    s[i] = reduce_add(v);
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
