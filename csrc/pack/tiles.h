// Writing decoded rows into a packed super-block, and reading them back, one row at a time (packed_format.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "octavo/float16.h"
#include "octavo/packed_format.h"
#include "pack/gguf_blocks.h"

namespace octavo {
namespace {

inline uint32_t read_u32(const uint8_t* p) {
  uint32_t x;
  memcpy(&x, p, 4);
  return x;
}
inline void or_u32(uint8_t* p, uint32_t bits) {
  bits |= read_u32(p);
  memcpy(p, &bits, 4);
}

// Where k-group `group` of one row has its bits: Bits of each byte of the word at `at`, from `shift` on.
template <int Bits>
struct GroupBits {
  static constexpr int kGroups = 8 / Bits;  // in a line
  static constexpr uint32_t kMask = ((1u << Bits) - 1) * 0x01010101u;
  int at, shift;
  GroupBits(int row, int group) : at(group / kGroups * kLine + 4 * row), shift(Bits * (group % kGroups)) {}
  void put(uint8_t* lines, uint32_t bytes) const { or_u32(lines + at, (bytes & kMask) << shift); }
  uint32_t get(const uint8_t* lines) const { return read_u32(lines + at) >> shift & kMask; }
};

// Four weights of k-group `group` (inside the super-block) of one row, a byte each in one word. The
// super-block is zero before its groups are put.
template <class Layout>
void put_group(uint8_t* super, int row, int group, const uint8_t* weights) {
  const uint32_t q = read_u32(weights);
  GroupBits<Layout::kLowBits>(row, group).put(super, q);
  if constexpr (Layout::kPlaneBits != 0)
    GroupBits<Layout::kPlaneBits>(row, group).put(super + Layout::kPlaneAt, q >> Layout::kLowBits);
}

template <class Layout>
void get_group(const uint8_t* super, int row, int group, uint8_t* weights) {
  uint32_t q = GroupBits<Layout::kLowBits>(row, group).get(super);
  if constexpr (Layout::kPlaneBits != 0)
    q |= GroupBits<Layout::kPlaneBits>(row, group).get(super + Layout::kPlaneAt) << Layout::kLowBits;
  memcpy(weights, &q, 4);
  if constexpr (Layout::kBits != Layout::kDecodedBits) {
    for (int c = 0; c < 4; ++c) weights[c] = Layout::Codes::kTable[weights[c]];
  }
}

inline uint16_t* halves(uint8_t* p) { return reinterpret_cast<uint16_t*>(p); }
inline const uint16_t* halves(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }

// 2^(exponent - 128) with ggml's reading of the ends (kernels/linear_block.h).
inline float half_e8m0(uint32_t exponent) {
  return bits_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

template <class Layout>
float block_scale(const uint8_t* super, int row, int block) {
  const uint8_t* scales = super + Layout::kScalesAt;
  if constexpr (Layout::kScale == BlockScale::kHalfE8M0) {
    return half_e8m0(scales[16 * block + row]);
  } else if constexpr (Layout::kScale == BlockScale::kF32) {
    const uint32_t word = read_u32(super + Layout::scales_of(block) + 4 * row);
    return bits_float(Layout::kHasZeros ? word & ~kZeroPointBits : word);
  }
  return f16_to_float(halves(scales)[16 * block + row]);
}

// What stored weights of a row's block are counted from.
template <class Layout>
int block_zero(const uint8_t* super, int row, int block) {
  if constexpr (Layout::kHasZeros)
    return int(read_u32(super + Layout::scales_of(block) + 4 * row) & kZeroPointBits);
  return Layout::kZero;
}

// Block `block` of a super-block of the block formats.
template <class Layout>
void put_block(uint8_t* super, int row, int block, const Block32& b) {
  for (int g = 0; g < 8; ++g) put_group<Layout>(super, row, 8 * block + g, b.q + 4 * g);
  if constexpr (Layout::kScale == BlockScale::kHalfE8M0) {
    super[Layout::kScalesAt + 16 * block + row] = uint8_t(b.scale);
  } else {
    halves(super + Layout::kScalesAt)[16 * block + row] = b.scale;
  }
  if constexpr (Layout::kHasMin) halves(super + Layout::kMinsAt)[16 * block + row] = b.min;
}

template <class Layout>
void get_block(const uint8_t* super, int row, int block, float* out) {
  const float scale = block_scale<Layout>(super, row, block);
  const int zero = block_zero<Layout>(super, row, block);
  float min = 0.0f;
  if constexpr (Layout::kHasMin) min = f16_to_float(halves(super + Layout::kMinsAt)[16 * block + row]);
  for (int g = 0; g < 8; ++g) {
    uint8_t q[4];
    get_group<Layout>(super, row, 8 * block + g, q);
    for (int c = 0; c < 4; ++c) {
      const float product = scale * float(int(q[c]) - zero);
      out[4 * g + c] = Layout::kHasMin ? product + min : product;
    }
  }
}

// Sub-block `sub` of a row has a byte here in SubScales::kBytes and kNibbles.
inline int sub_at(int row, int sub) { return 32 * (sub / 2) + 2 * row + sub % 2; }

// The int16 of word `word` of a row that serves sub-block `sub` (SubScales::kSixBits).
inline int six_bits_at(int word, int row, int sub) { return word * kLine / 2 + 2 * row + sub % 2; }

inline void put_six_bits(uint16_t* words, int row, int sub, unsigned scale) {
  const int pair = sub / 2;
  if (pair < 6) {
    words[six_bits_at(pair % 3, row, sub)] |= uint16_t(scale << (6 * (pair / 3)));
  } else {
    words[six_bits_at(pair - 6, row, sub)] |= uint16_t((scale & 15) << 12);
    words[six_bits_at(2, row, sub)] |= uint16_t((scale >> 4) << (pair == 6 ? 12 : 14));
  }
}

inline unsigned get_six_bits(const uint16_t* words, int row, int sub) {
  const int pair = sub / 2;
  if (pair < 6) return words[six_bits_at(pair % 3, row, sub)] >> (6 * (pair / 3)) & 63u;
  const unsigned high = words[six_bits_at(2, row, sub)] >> (pair == 6 ? 12 : 14) & 3u;
  return words[six_bits_at(pair - 6, row, sub)] >> 12 | high << 4;
}

template <class Layout>
void put_block(uint8_t* super, int row, int, const Block256& b) {
  for (int g = 0; g < 64; ++g) put_group<Layout>(super, row, g, b.q + 4 * g);
  uint8_t* scales = super + Layout::kScalesAt;
  for (int i = 0; i < Layout::kSubs; ++i) {
    if constexpr (Layout::kScales == SubScales::kSixBits) {
      put_six_bits(halves(scales), row, i, b.scales[i]);
    } else if constexpr (Layout::kScales == SubScales::kNibbles) {
      scales[sub_at(row, i)] = uint8_t(b.scales[i] | b.mins[i] << 4);
    } else {
      scales[sub_at(row, i)] = b.scales[i];
      if constexpr (Layout::kHasMin) super[Layout::kMinsAt + sub_at(row, i)] = b.mins[i];
    }
  }
  halves(super + Layout::kDAt)[row] = b.d;
  if constexpr (Layout::kHasMin) halves(super + Layout::kDAt)[16 + row] = b.dmin;
}

template <class Layout>
int sub_scale(const uint8_t* super, int row, int sub) {
  const uint8_t* scales = super + Layout::kScalesAt;
  if constexpr (Layout::kScales == SubScales::kSixBits)
    return int(get_six_bits(halves(scales), row, sub)) - 32;
  const uint8_t raw = scales[sub_at(row, sub)];
  if constexpr (Layout::kScales == SubScales::kNibbles) return raw & 15;
  return Layout::kHasMin ? int(raw) : int(int8_t(raw));
}

template <class Layout>
int sub_min(const uint8_t* super, int row, int sub) {
  const uint8_t raw = super[Layout::kMinsAt + sub_at(row, sub)];
  return Layout::kScales == SubScales::kNibbles ? raw >> 4 : raw;
}

// The distance from `zero` to the decoded weight that lies farthest from it.
template <class Layout>
constexpr float farthest_from(int zero) {
  return float(std::max((1 << Layout::kDecodedBits) - 1 - zero, zero));
}

// A bound of the magnitudes of a row's weights in a super-block.
template <class Layout>
float largest_of_row(const uint8_t* super, int row) {
  float bound = 0.0f;
  if constexpr (requires { Layout::kSub; }) {
    constexpr float kLargest = farthest_from<Layout>(Layout::kZero);
    const uint16_t* d = halves(super + Layout::kDAt);
    for (int i = 0; i < Layout::kSubs; ++i) {
      const float scale = f16_to_float(d[row]) * float(sub_scale<Layout>(super, row, i));
      float min = 0.0f;
      if constexpr (Layout::kHasMin) min = f16_to_float(d[16 + row]) * float(sub_min<Layout>(super, row, i));
      bound = std::max(bound, std::fabs(scale) * kLargest + std::fabs(min));
    }
  } else {
    for (int i = 0; i < Layout::kBlocks; ++i) {
      float min = 0.0f;
      if constexpr (Layout::kHasMin) min = f16_to_float(halves(super + Layout::kMinsAt)[16 * i + row]);
      const float largest = farthest_from<Layout>(block_zero<Layout>(super, row, i));
      bound = std::max(bound, std::fabs(block_scale<Layout>(super, row, i)) * largest + std::fabs(min));
    }
  }
  return bound;
}

// d * subscale first, then times q, then minus dmin * submin: the order of llama.cpp's and gguf's
// dequantisation.
template <class Layout>
void get_sub_block(const uint8_t* super, int row, int sub, float* out) {
  const uint16_t* d = halves(super + Layout::kDAt);
  const float scale = f16_to_float(d[row]) * float(sub_scale<Layout>(super, row, sub));
  float min = 0.0f;
  if constexpr (Layout::kHasMin) min = f16_to_float(d[16 + row]) * float(sub_min<Layout>(super, row, sub));
  for (int g = 0; g < Layout::kSub / 4; ++g) {
    uint8_t q[4];
    get_group<Layout>(super, row, sub * (Layout::kSub / 4) + g, q);
    for (int c = 0; c < 4; ++c) {
      const float product = scale * float(int(q[c]) - Layout::kZero);
      out[4 * g + c] = Layout::kHasMin ? product - min : product;
    }
  }
}

}  // namespace
}  // namespace octavo
