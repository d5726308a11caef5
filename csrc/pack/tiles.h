// Writing decoded rows into a packed super-block, and reading them back, one row at a time (packed_format.h).
#pragma once

#include "octavo/float16.h"
#include "octavo/packed_format.h"
#include "pack/gguf_blocks.h"

namespace octavo {
namespace {

// Four weights of k-group `group` (inside the super-block) of one row.
template <class Layout>
void put_group(uint8_t* super, int row, int group, const uint8_t* q) {
  if constexpr (Layout::kBits == 8) {
    memcpy(super + group * kLine + 4 * row, q, 4);
  } else {
    uint8_t* line = super + group / 2 * kLine + 4 * row;
    for (int c = 0; c < 4; ++c) line[c] = uint8_t(line[c] | (q[c] & 15) << (4 * (group % 2)));
    if constexpr (Layout::kBits == 5) {
      uint8_t* plane = super + Layout::kPlaneAt + group / 8 * kLine + 4 * row;
      for (int c = 0; c < 4; ++c) plane[c] = uint8_t(plane[c] | (q[c] >> 4) << (group % 8));
    }
    if constexpr (Layout::kBits == 6) {
      uint8_t* plane = super + Layout::kPlaneAt + group / 4 * kLine + 4 * row;
      for (int c = 0; c < 4; ++c) plane[c] = uint8_t(plane[c] | (q[c] >> 4) << (2 * (group % 4)));
    }
  }
}

template <class Layout>
void get_group(const uint8_t* super, int row, int group, uint8_t* q) {
  if constexpr (Layout::kBits == 8) {
    memcpy(q, super + group * kLine + 4 * row, 4);
  } else {
    const uint8_t* line = super + group / 2 * kLine + 4 * row;
    for (int c = 0; c < 4; ++c) q[c] = uint8_t(line[c] >> (4 * (group % 2)) & 15);
    if constexpr (Layout::kBits == 5) {
      const uint8_t* plane = super + Layout::kPlaneAt + group / 8 * kLine + 4 * row;
      for (int c = 0; c < 4; ++c) q[c] = uint8_t(q[c] | (plane[c] >> (group % 8) & 1) << 4);
    }
    if constexpr (Layout::kBits == 6) {
      const uint8_t* plane = super + Layout::kPlaneAt + group / 4 * kLine + 4 * row;
      for (int c = 0; c < 4; ++c) q[c] = uint8_t(q[c] | (plane[c] >> (2 * (group % 4)) & 3) << 4);
    }
  }
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
