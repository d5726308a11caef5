// Tries every operation of simd.h. Compiled in each instruction-set unit: see isa/register.inl.
#pragma once

#include "native/probe_table.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// NaNs are all alike: which of two comes out of an operation is nobody's promise.
inline void put(ProbeResults& out, const char* name, float x) {
  out.put(name, x == x ? float_bits(x) : 0x7fc00000u);
}
inline void put(ProbeResults& out, const char* name, f32x16 x) {
  float lanes[16];
  store(lanes, x);
  for (float lane : lanes) put(out, name, lane);
}
inline void put(ProbeResults& out, const char* name, i32x16 x) {
  int32_t lanes[16];
  store(lanes, x);
  for (int32_t lane : lanes) out.put(name, uint32_t(lane));
}
inline void put(ProbeResults& out, const char* name, u8x64 x) {
  uint32_t words[16];
  store_u8(words, x);
  for (uint32_t word : words) out.put(name, word);
}
inline void put(ProbeResults& out, const char* name, mask16 m) { out.put(name, mask_bits(m)); }

inline void try_floats(f32x16 a, f32x16 b, f32x16 c, ProbeResults& out) {
  put(out, "add", add(a, b));
  put(out, "sub", sub(a, b));
  put(out, "mul", mul(a, b));
  put(out, "div", div(a, b));
  put(out, "sqrt", sqrt(a));
  put(out, "fma", fma(a, b, c));
  put(out, "min", min(a, b));
  put(out, "max", max(a, b));
  put(out, "neg", neg(a));
  put(out, "abs", abs(a));
  put(out, "exp", exp(a));
  put(out, "exp2_falling", exp2_falling(neg(abs(a))));
  put(out, "to_i32", to_i32(a));
  put(out, "less", less(a, b));
  put(out, "less_equal", less_equal(a, b));
  put(out, "equal", equal(a, b));
  put(out, "mask_and", mask_and(less(a, b), less(b, c)));
  put(out, "mask_or", mask_or(less(a, b), less(b, c)));
  put(out, "select", select(less(a, b), c, a));
  put(out, "interleave_low", interleave_low(a, b));
  put(out, "interleave_high", interleave_high(a, b));
  put(out, "reduce_add", reduce_add(a));
  put(out, "reduce_max", reduce_max(a));
}

inline void try_integers(i32x16 a, i32x16 b, ProbeResults& out) {
  put(out, "integer add", add(a, b));
  put(out, "integer sub", sub(a, b));
  put(out, "integer mul", mul(a, b));
  put(out, "bit_and", bit_and(a, b));
  put(out, "bit_or", bit_or(a, b));
  put(out, "bit_xor", bit_xor(a, b));
  put(out, "shift_left", shift_left<5>(a));
  put(out, "shift_right", shift_right<5>(a));
  put(out, "shift_right_arith", shift_right_arith<5>(a));
  put(out, "integer min", min(a, b));
  put(out, "integer max", max(a, b));
  put(out, "to_f32", to_f32(a));
  put(out, "integer less", less(a, b));
  put(out, "integer equal", equal(a, bit_and(a, b)));
  put(out, "integer select", select(less(a, b), iota_i32(), b));
  put(out, "integer reduce_add", reduce_add(a));
  // Two products of -32768 * -32768 are beyond an int32.
  const i32x16 even = bit_and(b, broadcast_i32(0x7fff7fff));
  put(out, "dot2_i16", dot2_i16(a, even));
}

inline void try_bytes(const uint8_t* p, ProbeResults& out) {
  const u8x64 a = load_u8(p), b = load_u8(p + 64);
  put(out, "bytes bit_and", bit_and(a, b));
  put(out, "bytes bit_or", bit_or(a, broadcast_u8(0x41)));
  put(out, "shift_right_u8", shift_right_u8<3>(a));
  put(out, "shift_right_u8 by 0", shift_right_u8<0>(a));
  put(out, "shift_left_u8", shift_left_u8<3>(a));
  put(out, "lookup_u8", lookup_u8(p + 128, bit_and(a, broadcast_u8(0x0f))));
  put(out, "bitcast_u8", bitcast_u8(bitcast_i32(a)));
  put(out, "load_words", load_words(p + 1));
  put(out, "load_i8", load_i8(reinterpret_cast<const int8_t*>(p)));
  put(out, "load_u8_i32", load_u8_i32(p));
  put(out, "broadcast_4xs8", broadcast_4xs8(reinterpret_cast<const int8_t*>(p)));
  put(out, "load_u8_pairs", load_u8_pairs(p));
  put(out, "load_i8_pairs", load_i8_pairs(reinterpret_cast<const int8_t*>(p)));
  int8_t narrow[16];
  store_i8(narrow, load_i8(reinterpret_cast<const int8_t*>(p)));
  for (int8_t x : narrow) out.put("store_i8", uint32_t(x));
}

template <class T, class Store>
inline void put_stored(ProbeResults& out, const char* name, Store store_to, f32x16 x) {
  T narrow[16];
  store_to(narrow, x);
  for (T element : narrow) out.put(name, element);
}

inline void try_narrow_floats(const ProbeOperands& in, int64_t i, ProbeResults& out) {
  const f32x16 x = load(in.a + i);
  put_stored<uint16_t>(out, "store_bf16", [](uint16_t* p, f32x16 v) { store_bf16(p, v); }, x);
  put_stored<uint16_t>(out, "store_f16", [](uint16_t* p, f32x16 v) { store_f16(p, v); }, x);
  put_stored<uint8_t>(out, "store_e4m3", [](uint8_t* p, f32x16 v) { store_e4m3(p, v); }, x);
  put_stored<uint8_t>(out, "store_e5m2", [](uint8_t* p, f32x16 v) { store_e5m2(p, v); }, x);
  const uint8_t* bytes = in.bytes + 2 * i;
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(bytes);
  put(out, "load_bf16", load_bf16(halves));
  put(out, "load_f16", load_f16(halves));
  put(out, "load_e4m3", load_e4m3(bytes));
  put(out, "load_e5m2", load_e5m2(bytes));
  put(out, "load_bf16_pairs", load_bf16_pairs(halves).even);
  put(out, "load_bf16_pairs", load_bf16_pairs(halves).odd);
}

inline void try_tails(const float* p, ProbeResults& out) {
  for (int n = 0; n <= 16; ++n) {
    put(out, "load_tail", load_tail(p, n));
    float lanes[16] = {};
    store_tail(lanes, load(p), n);
    for (float lane : lanes) put(out, "store_tail", lane);
  }
}

// 61 k-groups of activations in [-127, 127], random or all at one extreme.
constexpr int kDotGroups = 61;
struct DotActivations {
  int8_t q[kDotGroups][4];
  int32_t sum = 0;

  DotActivations(const uint8_t* bytes, int extreme) {
    for (int i = 0; i < kDotGroups; ++i) {
      for (int j = 0; j < 4; ++j) {
        const uint8_t byte = bytes[61 * i + j];
        q[i][j] = extreme == 0 ? int8_t(byte == 0x80 ? 1 : byte) : extreme % 2 == 0 ? 127 : -127;
        sum += q[i][j];
      }
    }
  }
  ClassSums sums(int first, int end) const {
    uint32_t low = 0, high = 0;
    for (int i = first; i < end; ++i) {
      low -= uint32_t(q[i][0] + q[i][1]);
      high -= uint32_t(q[i][2] + q[i][3]);
    }
    return {int32_t((low & 0xffffu) | high << 16)};
  }
};

// They meet weights below 2^Bits, random or all at one extreme, in as many chains as they need; scaled by
// sub-scales of five bits as well.
template <int Bits>
inline void try_dot_chain(const ProbeOperands& in, int extreme, ProbeResults& out) {
  using Chain = DotChain<Bits>;
  i32x16 total = zero_i32(), scaled = zero_i32();
  const i32x16 scale = dot_scale_high(bit_and(load_words(in.bytes), broadcast_i32(0x001f001f)));
  const DotActivations a(in.bytes, extreme);
  for (int first = 0; first < kDotGroups; first += Chain::kSteps) {
    const int end = kDotGroups - first < Chain::kSteps ? kDotGroups : first + Chain::kSteps;
    Chain chain;
    chain.start(a.sums(first, end));
    for (int i = first; i < end; ++i) {
      const uint8_t all = extreme < 3 ? (1 << Bits) - 1 : 0;
      const u8x64 w = extreme == 0 ? shift_right_u8<8 - Bits>(load_u8(in.bytes + 61 * i)) : broadcast_u8(all);
      chain.step(w, broadcast_4xs8(a.q[i]));
    }
    total = add(total, chain.total());
    if constexpr (Bits < 8) scaled = add(scaled, chain.scaled(scale));
  }
  const int32_t centre = Chain::kCentre * a.sum;
  const i32x16 factor = bit_and(load_words(in.bytes), broadcast_i32(0x001f0000));
  put(out, "DotChain", add(total, broadcast_i32(centre)));
  put(out, "DotChain scaled",
      add(scaled, mul(shift_right<16>(factor), broadcast_i32(Bits < 8 ? centre : 0))));
}

void probe(const ProbeOperands& in, ProbeResults& out) {
  for (int64_t i = 0; i < ProbeOperands::kFloats; i += 16) {
    const f32x16 a = load(in.a + i), b = load(in.b + i);
    try_floats(a, b, load(in.c + i), out);
    try_integers(bitcast_i32(a), bitcast_i32(b), out);
    try_integers(load_words(in.bytes + i), load_words(in.bytes + 2 * i), out);
    put(out, "bitcast_f32", bitcast_f32(bitcast_i32(a)));
    try_narrow_floats(in, i, out);
    try_bytes(in.bytes + i, out);
  }
  try_tails(in.a, out);
  for (int extreme = 0; extreme < 5; ++extreme) {
    try_dot_chain<2>(in, extreme, out);
    try_dot_chain<3>(in, extreme, out);
    try_dot_chain<4>(in, extreme, out);
    try_dot_chain<5>(in, extreme, out);
    try_dot_chain<6>(in, extreme, out);
    try_dot_chain<8>(in, extreme, out);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
