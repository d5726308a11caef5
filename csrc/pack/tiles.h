// Writing decoded rows into a packed super-block, and reading them back, one row at a time (packed_format.h).
#pragma once

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

// Four weights of k-group `group` (inside the super-block) of one row, a byte each in one word. The
// super-block is zero before its groups are put.
template <class Layout>
void put_group(uint8_t* super, int row, int group, const uint8_t* weights) {
  const uint32_t q = read_u32(weights);
  if constexpr (Layout::kBits == 8) {
    or_u32(super + group * kLine + 4 * row, q);
  } else {
    or_u32(super + group / 2 * kLine + 4 * row, (q & 0x0f0f0f0fu) << (4 * (group % 2)));
    uint8_t* plane = super + Layout::kPlaneAt + 4 * row;
    if constexpr (Layout::kBits == 5)
      or_u32(plane + group / 8 * kLine, (q >> 4 & 0x01010101u) << (group % 8));
    if constexpr (Layout::kBits == 6)
      or_u32(plane + group / 4 * kLine, (q >> 4 & 0x03030303u) << (2 * (group % 4)));
  }
}

template <class Layout>
void get_group(const uint8_t* super, int row, int group, uint8_t* weights) {
  uint32_t q;
  if constexpr (Layout::kBits == 8) {
    q = read_u32(super + group * kLine + 4 * row);
  } else {
    q = read_u32(super + group / 2 * kLine + 4 * row) >> (4 * (group % 2)) & 0x0f0f0f0fu;
    const uint8_t* plane = super + Layout::kPlaneAt + 4 * row;
    if constexpr (Layout::kBits == 5)
      q |= (read_u32(plane + group / 8 * kLine) >> (group % 8) & 0x01010101u) << 4;
    if constexpr (Layout::kBits == 6)
      q |= (read_u32(plane + group / 4 * kLine) >> (2 * (group % 4)) & 0x03030303u) << 4;
  }
  memcpy(weights, &q, 4);
}

inline uint16_t* halves(uint8_t* p) { return reinterpret_cast<uint16_t*>(p); }
inline const uint16_t* halves(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }

// Block `block` (0 or 1) of a 64-k super-block.
template <class Layout>
void put_block(uint8_t* super, int row, int block, const Block32& b) {
  for (int g = 0; g < 8; ++g) put_group<Layout>(super, row, 8 * block + g, b.q + 4 * g);
  halves(super + Layout::kScalesAt)[16 * block + row] = b.scale;
  if constexpr (Layout::kHasMin) halves(super + Layout::kMinsAt)[16 * block + row] = b.min;
}

template <class Layout>
void get_block(const uint8_t* super, int row, int block, float* out) {
  const float scale = f16_to_float(halves(super + Layout::kScalesAt)[16 * block + row]);
  float min = 0.0f;
  if constexpr (Layout::kHasMin) min = f16_to_float(halves(super + Layout::kMinsAt)[16 * block + row]);
  for (int g = 0; g < 8; ++g) {
    uint8_t q[4];
    get_group<Layout>(super, row, 8 * block + g, q);
    for (int c = 0; c < 4; ++c) {
      const float product = scale * float(int(q[c]) - Layout::kZero);
      out[4 * g + c] = Layout::kHasMin ? product + min : product;
    }
  }
}

template <class Layout>
void put_block(uint8_t* super, int row, int, const Block256& b) {
  for (int g = 0; g < 64; ++g) put_group<Layout>(super, row, g, b.q + 4 * g);
  for (int i = 0; i < Layout::kSubs; ++i) {
    super[Layout::kScalesAt + 32 * (i / 2) + 2 * row + i % 2] = b.scales[i];
    if constexpr (Layout::kHasMin) super[Layout::kMinsAt + 32 * (i / 2) + 2 * row + i % 2] = b.mins[i];
  }
  halves(super + Layout::kDAt)[row] = b.d;
  if constexpr (Layout::kHasMin) halves(super + Layout::kDAt)[16 + row] = b.dmin;
}

// d * subscale first, then times q, then minus dmin * submin: the order of llama.cpp's and gguf's
// dequantisation.
template <class Layout>
void get_sub_block(const uint8_t* super, int row, int sub, float* out) {
  const int at = 32 * (sub / 2) + 2 * row + sub % 2;
  const uint8_t raw = super[Layout::kScalesAt + at];
  const float scale =
      f16_to_float(halves(super + Layout::kDAt)[row]) * (Layout::kHasMin ? float(raw) : float(int8_t(raw)));
  float min = 0.0f;
  if constexpr (Layout::kHasMin) {
    min = f16_to_float(halves(super + Layout::kDAt)[16 + row]) * float(super[Layout::kMinsAt + at]);
  }
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
