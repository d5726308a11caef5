// GGUF blocks, row-major, as llama.cpp writes them (ggml-common.h states the structs): decoding one block to
// unsigned weights and raw scales, which is all that packing needs.
#pragma once

#include <cstdint>
#include <cstring>

#include "octavo/packed_format.h"

namespace octavo {
namespace {

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t x;
  memcpy(&x, p, 2);
  return x;
}

// 32 weights q[k] in [0, 2^Bits) and the bits of the scale (f16 or e8m0) and, if any, of the f16 minimum.
struct Block32 {
  uint8_t q[32];
  uint16_t scale, min;
};

inline void low_nibbles_first(const uint8_t* p, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = p[i] & 15;
    q[i + 16] = p[i] >> 4;
  }
}

inline void add_fifth_bits(const uint8_t* p, uint8_t* q) {
  uint32_t bits;
  memcpy(&bits, p, 4);
  for (int i = 0; i < 32; ++i) q[i] = uint8_t(q[i] | ((bits >> i & 1) << 4));
}

template <class Layout>
void decode(const uint8_t* p, Block32& out) {
  if constexpr (Layout::kScale == BlockScale::kHalfE8M0) {
    out.scale = *p++;
  } else {
    out.scale = read_u16(p);
    p += 2;
  }
  if constexpr (Layout::kHasMin) {
    out.min = read_u16(p);
    p += 2;
  }
  if constexpr (Layout::kBits == 8) {
    for (int i = 0; i < 32; ++i) out.q[i] = uint8_t(p[i] ^ 0x80);
  } else {
    low_nibbles_first(p + (Layout::kBits == 5 ? 4 : 0), out.q);
    if constexpr (Layout::kBits == 5) add_fifth_bits(p, out.q);
  }
}

// 256 weights, sub-scales and minimums as bytes, f16 bits of d and dmin.
struct Block256 {
  uint8_t q[256];
  uint8_t scales[16], mins[16];
  uint16_t d, dmin;
};

// The 6-bit scales and minimums of Q4_K and Q5_K.
inline void decode_scales6(const uint8_t* p, Block256& out) {
  for (int i = 0; i < 4; ++i) {
    out.scales[i] = p[i] & 63;
    out.mins[i] = p[i + 4] & 63;
    out.scales[i + 4] = uint8_t((p[i + 8] & 15) | (p[i] >> 6) << 4);
    out.mins[i + 4] = uint8_t(p[i + 8] >> 4 | (p[i + 4] >> 6) << 4);
  }
}

inline void decode_q45k(const uint8_t* p, const uint8_t* high, Block256& out) {
  for (int i = 0; i < 256; ++i) {
    const int j = i / 64, half = i / 32 % 2, lane = i % 32;
    out.q[i] = uint8_t(p[32 * j + lane] >> (4 * half) & 15);
    if (high != nullptr) out.q[i] = uint8_t(out.q[i] | (high[lane] >> (2 * j + half) & 1) << 4);
  }
}

inline void decode_q6k(const uint8_t* low, const uint8_t* high, Block256& out) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, lane = i % 32;
    const uint8_t nibble = uint8_t(low[64 * half + 32 * (quarter % 2) + lane] >> (quarter / 2 * 4) & 15);
    out.q[i] = uint8_t(nibble | (high[32 * half + lane] >> (2 * quarter) & 3) << 4);
  }
}

inline uint8_t two_bits_of(const uint8_t* p, int i) {
  return uint8_t(p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
}

// Scales and minimums in nibbles 16, quants 64, d, dmin.
inline void decode_q2k(const uint8_t* p, Block256& out) {
  for (int i = 0; i < 16; ++i) {
    out.scales[i] = p[i] & 15;
    out.mins[i] = p[i] >> 4;
  }
  for (int i = 0; i < 256; ++i) out.q[i] = two_bits_of(p + 16, i);
  out.d = read_u16(p + 80);
  out.dmin = read_u16(p + 82);
}

// Third bits 32, quants 64, six-bit scales 12 (low nibbles 8, then the upper bits), d.
inline void decode_q3k(const uint8_t* p, Block256& out) {
  const uint8_t* scales = p + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = scales[i % 8] >> (i / 8 * 4) & 15, high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
    out.scales[i] = uint8_t(low | high << 4);
  }
  for (int i = 0; i < 256; ++i) out.q[i] = uint8_t(two_bits_of(p + 32, i) | (p[i % 32] >> (i / 32) & 1) << 2);
  out.d = read_u16(p + 108);
}

template <class Layout>
void decode(const uint8_t* p, Block256& out) {
  if constexpr (Layout::kBits == 2) {
    decode_q2k(p, out);
  } else if constexpr (Layout::kBits == 3) {
    decode_q3k(p, out);
  } else if constexpr (Layout::kBits == 6) {
    decode_q6k(p, p + 128, out);
    memcpy(out.scales, p + 192, 16);
    out.d = read_u16(p + 208);
  } else {
    out.d = read_u16(p);
    out.dmin = read_u16(p + 2);
    decode_scales6(p + 4, out);
    const uint8_t* rest = p + 16;
    if constexpr (Layout::kBits == 5) {
      decode_q45k(rest + 32, rest, out);
    } else {
      decode_q45k(rest, nullptr, out);
    }
  }
}

}  // namespace
}  // namespace octavo
