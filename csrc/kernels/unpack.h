// Unpack policies: from a packed line to two k-groups of unsigned bytes (see packed_format.h).
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct GroupPair {
  u8x64 even, odd;  // k-groups 2p and 2p + 1
};

inline GroupPair nibbles(const uint8_t* line) {
  const u8x64 w = load_u8(line);
  return {bit_and(w, broadcast_u8(0x0f)), shift_right_u8<4>(w)};
}

// Pair P (0..3) of the 32-block whose bit plane is `plane`: bits 2P and 2P + 1 become bit 4.
template <int P>
inline GroupPair add_fifth_bit(GroupPair g, u8x64 plane) {
  const u8x64 bit = broadcast_u8(0x10);
  const u8x64 even =
      P < 2 ? shift_left_u8<(P < 2 ? 4 - 2 * P : 0)>(plane) : shift_right_u8<(P < 2 ? 0 : 2 * P - 4)>(plane);
  const u8x64 odd =
      P < 2 ? shift_left_u8<(P < 2 ? 3 - 2 * P : 0)>(plane) : shift_right_u8<(P < 2 ? 0 : 2 * P - 3)>(plane);
  return {bit_or(g.even, bit_and(even, bit)), bit_or(g.odd, bit_and(odd, bit))};
}

// Pair P (0..1) of the 16-block whose 2-bit plane is `plane`: bits 4P..4P+1 and 4P+2..4P+3 become bits 4..5.
template <int P>
inline GroupPair add_top_two_bits(GroupPair g, u8x64 plane) {
  const u8x64 bits = broadcast_u8(0x30);
  const u8x64 even = P == 0 ? shift_left_u8<4>(plane) : plane;
  const u8x64 odd = P == 0 ? shift_left_u8<2>(plane) : shift_right_u8<2>(plane);
  return {bit_or(g.even, bit_and(even, bits)), bit_or(g.odd, bit_and(odd, bits))};
}

// Groups 2P, 2P+1 of 32-block `block` inside one super-block of Layout.
template <class Layout, int P>
inline GroupPair unpack_pair(const uint8_t* super, int block) {
  if constexpr (Layout::kBits == 8) {
    const uint8_t* line = super + (8 * block + 2 * P) * kLine;
    return {load_u8(line), load_u8(line + kLine)};
  } else {
    const GroupPair g = nibbles(super + (4 * block + P) * kLine);
    if constexpr (Layout::kBits == 5)
      return add_fifth_bit<P>(g, load_u8(super + Layout::kPlaneAt + block * kLine));
    if constexpr (Layout::kBits == 6) {
      return add_top_two_bits<P % 2>(g, load_u8(super + Layout::kPlaneAt + (2 * block + P / 2) * kLine));
    }
    return g;
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
