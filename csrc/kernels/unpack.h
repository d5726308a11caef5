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

// Pair P (0..1) of the 16-block in `line`.
template <int P>
inline GroupPair two_bits(const uint8_t* line) {
  const u8x64 w = load_u8(line), bits = broadcast_u8(3);
  const u8x64 even = P == 0 ? w : shift_right_u8<4>(w);
  const u8x64 odd = P == 0 ? shift_right_u8<2>(w) : shift_right_u8<6>(w);
  return {bit_and(even, bits), bit_and(odd, bits)};
}

// Bit From of each byte, moved to bit To.
template <int From, int To>
inline u8x64 moved_bit(u8x64 plane) {
  const u8x64 moved = From < To ? shift_left_u8<(From < To ? To - From : 0)>(plane)
                                : shift_right_u8<(From < To ? 0 : From - To)>(plane);
  return bit_and(moved, broadcast_u8(1 << To));
}

// Pair P (0..3) of the 32-block whose bit plane is `plane`: bits 2P and 2P + 1 become bit To.
template <int To, int P>
inline GroupPair add_bit(GroupPair g, u8x64 plane) {
  return {bit_or(g.even, moved_bit<2 * P, To>(plane)), bit_or(g.odd, moved_bit<2 * P + 1, To>(plane))};
}

// Pair P (0..1) of the 16-block whose 2-bit plane is `plane`: bits 4P..4P+1 and 4P+2..4P+3 become bits 4..5.
template <int P>
inline GroupPair add_top_two_bits(GroupPair g, u8x64 plane) {
  const u8x64 bits = broadcast_u8(0x30);
  const u8x64 even = P == 0 ? shift_left_u8<4>(plane) : plane;
  const u8x64 odd = P == 0 ? shift_left_u8<2>(plane) : shift_right_u8<2>(plane);
  return {bit_or(g.even, bit_and(even, bits)), bit_or(g.odd, bit_and(odd, bits))};
}

// Always inlined, as is what multiplies: a call would put a tile's sums into memory.
//
// The stored bits of groups 2P, 2P+1 of 32-block `block` inside one super-block of Layout.
template <class Layout, int P>
[[gnu::always_inline]] inline GroupPair stored_pair(const uint8_t* super, int64_t block) {
  constexpr int64_t kLines = Layout::kBits == 8 ? 8 : Layout::kBits < 4 ? 2 : 4;  // of a 32-block
  const uint8_t* lines = super + block * (kLines * kLine);
  if constexpr (Layout::kBits == 8) {
    return {load_u8(lines + 2 * P * kLine), load_u8(lines + (2 * P + 1) * kLine)};
  } else if constexpr (Layout::kBits < 4) {
    const GroupPair g = two_bits<P % 2>(lines + P / 2 * kLine);
    if constexpr (Layout::kBits == 3)
      return add_bit<2, P>(g, load_u8(super + Layout::kPlaneAt + block * kLine));
    return g;
  } else {
    const GroupPair g = nibbles(lines + P * kLine);
    if constexpr (Layout::kBits == 5)
      return add_bit<4, P>(g, load_u8(super + Layout::kPlaneAt + block * kLine));
    if constexpr (Layout::kBits == 6) {
      return add_top_two_bits<P % 2>(g, load_u8(super + Layout::kPlaneAt + (2 * block + P / 2) * kLine));
    }
    return g;
  }
}

// What they stand for.
template <class Layout, int P>
[[gnu::always_inline]] inline GroupPair unpack_pair(const uint8_t* super, int64_t block) {
  const GroupPair g = stored_pair<Layout, P>(super, block);
  if constexpr (Layout::kBits == Layout::kDecodedBits) {
    return g;
  } else {
    return {lookup_u8(Layout::Codes::kTable, g.even), lookup_u8(Layout::Codes::kTable, g.odd)};
  }
}

// ---- unpacked ahead of many rows
//
// Where a tile has few rows, what takes more than masks and a shift to decode is unpacked once for all of
// them, as much at a time as leaves the first cache room for the rows. Nibbles are not: splitting them anew
// costs no more than loading twice the bytes.
inline constexpr int64_t kAheadBlocks = 32;  // 16 KiB
inline constexpr int64_t kBlockBytes = 8 * kLine;
inline constexpr int64_t kAheadRows = 32;  // from so many on

// Three bits and E2M1's codes, whose chains are long, gained nothing.
template <class Layout>
inline constexpr bool kUnpackAhead =
    kFewRegisters && Layout::kBits < 8 && (Layout::kBits > 4 || Layout::kDecodedBits == 8);

template <class Layout, int P>
[[gnu::always_inline]] inline void store_pair(const uint8_t* super, int64_t block, uint8_t* to) {
  const GroupPair g = unpack_pair<Layout, P>(super, block);
  store_u8(to + 2 * P * kLine, g.even);
  store_u8(to + (2 * P + 1) * kLine, g.odd);
}

// 32-block `block` of a super-block: a byte a weight, kBlockBytes.
template <class Layout>
inline void unpack_block(const uint8_t* super, int64_t block, uint8_t* to) {
  store_pair<Layout, 0>(super, block, to);
  store_pair<Layout, 1>(super, block, to);
  store_pair<Layout, 2>(super, block, to);
  store_pair<Layout, 3>(super, block, to);
}

template <int P>
[[gnu::always_inline]] inline GroupPair unpacked_pair(const uint8_t* block) {
  return {load_u8(block + 2 * P * kLine), load_u8(block + (2 * P + 1) * kLine)};
}

// The part [first, first + count) of a panel's 32-blocks that lies unpacked; what is outside of `last` goes
// on from the outputs.
struct AheadPart {
  int64_t first, count;
  bool last;
};

// Calls f for the parts of `blocks` blocks in turn.
template <class F>
inline void for_ahead_parts(int64_t blocks, F&& f) {
  for (int64_t first = 0; first < blocks; first += kAheadBlocks) {
    const int64_t left = blocks - first;
    f(AheadPart{first, left < kAheadBlocks ? left : kAheadBlocks, left <= kAheadBlocks});
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
