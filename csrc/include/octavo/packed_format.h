// How weights lie in memory after packing. One tile geometry for every format and ISA:
//
//   panel   = 16 output rows, contiguous in k; the last panel is padded with zero rows
//   k-group = 4 neighbours in k; a 64-byte line = 16 rows x 4 k, byte 4 * row + (k % 4)
//
// Quantised weights are stored unsigned (q + offset). A panel is a sequence of super-blocks of kSuper k,
// quants first, then what the tile still needs, then the scales, so that each line stays 64-byte aligned:
//
//   T8: a byte a weight, one line a k-group
//   T4: line i = k-group 2i in the low nibbles, 2i + 1 in the high ones
//   T5: T4, then per 32 k one line whose bit j is bit 4 of k-group j
//   T6: T4, then per 16 k one line whose bits 2j, 2j+1 are bits 4, 5 of k-group j
//   T2: line i = k-groups 4i to 4i + 3, two bits each, the first lowest
//   T3: T2, then per 32 k one line whose bit j is bit 2 of k-group j
//   H2: bf16 pairs [k/2][16][2]; f16 [k][16]; F1: f32 [k][16]
//   F8: e4m3 [k][16] of a whole panel, k padded to 128, then its scales, f32 [k/128][16]
//
// Scales of the block formats (32 k): f16 [2][16] a super-block of 64, then f16 [2][16] minimums if any; or
// powers of two as bytes [4][16] a super-block of 128.
// Scales of the group formats (int4 with zero points, int8): a line a group, f32 [16], whose low bytes are
// the zero points if there are any: what is stored as f16 or bf16 leaves them free. Scales of the K formats
// (256 k): sub-scales as byte pairs [subs/2][16][2] and minimums alike, or packed (see SubScales), then f16 d
// [16], dmin [16].
#pragma once

#include <cstdint>

namespace octavo {

enum Format : int32_t {
  kF32,
  kBF16,
  kF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kMXFP4,
  kInt4G32,
  kInt4G128,
  kInt8G128,
  kE4M3G128,
  kFormatCount
};

// The form in which a format wants its activations.
enum RowForm : int32_t { kRowsFloat, kRowsBF16, kRowsBlock32, kRowsBlock256, kRowsRounded, kRowFormCount };

namespace {

constexpr int kPanelRows = 16;
constexpr int kLine = 64;

// What stored bits stand for: themselves ...
struct PlainCodes {};

// ... or an entry of a table of unsigned bytes, here IQ4_NL's signed ones (ggml-common.h) plus 128 ...
struct CodesIQ4_NL {
  static constexpr int kBits = 8;
  static constexpr uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};
};

// ... or twice the values of OCP's E2M1 plus 12.
struct CodesE2M1 {
  static constexpr int kBits = 5;
  static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
};

// Of a weight's bits, those in the lines of quants; the others lie in a plane.
constexpr int low_bits(int bits) { return bits == 8 ? 8 : bits < 4 ? 2 : 4; }

template <int Bits, class Codes>
constexpr int decoded_bits() {
  if constexpr (requires { Codes::kBits; }) {
    return Codes::kBits;
  } else {
    return Bits;
  }
}

// A scale of a block: f16; the exponent of a power of two (e8m0), halved as E2M1's values are doubled; or
// f32, of a group of blocks.
enum class BlockScale { kF16, kHalfE8M0, kF32 };

// A weight is scale * (decoded - kZero) (+ minimum), decoded below 2^kDecodedBits.
template <int Bits_, int Zero_, bool HasMin_, class Codes_ = PlainCodes, BlockScale Scale_ = BlockScale::kF16>
struct BlockLayout {  // Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4
  using Codes = Codes_;
  static constexpr int kBits = Bits_;
  static constexpr int kDecodedBits = decoded_bits<Bits_, Codes>();
  static constexpr int kZero = Zero_;
  static constexpr bool kHasMin = HasMin_;
  static constexpr bool kHasZeros = false;
  static constexpr BlockScale kScale = Scale_;
  static constexpr int kBlock = 32;
  static constexpr int kSuper = kScale == BlockScale::kF16 ? 64 : 128;  // so that scales fill a line
  static constexpr int kBlocks = kSuper / kBlock;
  static constexpr int kLowBits = low_bits(kBits), kPlaneBits = kBits - kLowBits;
  static constexpr int kPlaneAt = kSuper * 2 * kLowBits;
  static constexpr int kScalesAt = kPlaneAt + kSuper * 2 * kPlaneBits;
  static constexpr int kMinsAt = kScalesAt + kLine;
  static constexpr int kSuperBytes = kHasMin ? kMinsAt + kLine : kMinsAt;
};

// A weight is scale * (decoded - kZero - zero point), one scale and zero point for kGroup k of a row.
template <int Bits_, int Group_, bool HasZeros_>
struct GroupLayout {  // AWQ, GPTQ, compressed-tensors
  using Codes = PlainCodes;
  static constexpr int kBits = Bits_;
  static constexpr int kDecodedBits = Bits_;
  static constexpr int kZero = HasZeros_ ? 0 : 1 << (Bits_ - 1);
  static constexpr bool kHasMin = false;
  static constexpr bool kHasZeros = HasZeros_;
  static constexpr BlockScale kScale = BlockScale::kF32;
  static constexpr int kBlock = 32;
  static constexpr int kGroup = Group_;
  static constexpr int kSuper = kGroup < 64 ? 64 : kGroup;  // rows are padded to 64
  static constexpr int kBlocks = kSuper / kBlock;
  static constexpr int kLowBits = kBits, kPlaneBits = 0;
  static constexpr int kPlaneAt = kSuper * 2 * kLowBits;
  static constexpr int kScalesAt = kPlaneAt;
  static constexpr int kSuperBytes = kScalesAt + kSuper / kGroup * kLine;
  static_assert(kBits == 4 || kBits == 8);

  // Where the scales of a block lie in its super-block.
  static constexpr int scales_of(int block) { return kScalesAt + block * kBlock / kGroup * kLine; }
};

constexpr uint32_t kZeroPointBits = 0xff;

// e4m3 with f32 scales.
struct LayoutE4M3 {
  static constexpr int kGroup = 128;
  static constexpr int kGroupBytes = kGroup * kPanelRows;
  static constexpr int kSuperBytes = kGroupBytes + kLine;  // with its scales

  static constexpr int64_t groups(int64_t cols) { return (cols + kGroup - 1) / kGroup; }
  // Of 16 rows, from the panel on.
  static constexpr int64_t scales_of(int64_t cols, int64_t group) {
    return groups(cols) * kGroupBytes + group * kLine;
  }
};

// How a K format keeps its sub-scales: bytes, with minimums in bytes of their own; nibbles, the minimum in
// the high one; or six bits, 32 more than they mean. Those lie in three words of a row, a line each. Of each
// word's two int16, the low one serves even sub-blocks, the high one odd ones: bits 0 to 5 and 6 to 11 of
// word w are sub-scale pairs w and w + 3; bits 12 to 15 are the low bits of pair 6 in word 0, of pair 7 in
// word 1, and in word 2 the upper two bits of pair 6, then of pair 7.
enum class SubScales { kBytes, kNibbles, kSixBits };

template <int Bits_, int Zero_, bool HasMin_, int Sub_, SubScales Scales_ = SubScales::kBytes>
struct SuperLayout {  // Q2_K to Q6_K
  using Codes = PlainCodes;
  static constexpr int kBits = Bits_;
  static constexpr int kDecodedBits = Bits_;
  static constexpr int kZero = Zero_;
  static constexpr bool kHasMin = HasMin_;
  static constexpr bool kHasZeros = false;
  static constexpr SubScales kScales = Scales_;
  static constexpr int kSub = Sub_;
  static constexpr int kSuper = 256;
  static constexpr int kSubs = kSuper / kSub;
  static constexpr int kLowBits = low_bits(kBits), kPlaneBits = kBits - kLowBits;
  static constexpr int kPlaneAt = kSuper * 2 * kLowBits;
  static constexpr int kScalesAt = kPlaneAt + kSuper * 2 * kPlaneBits;
  static constexpr int kScaleBytes = kScales == SubScales::kSixBits ? 3 * kLine : kSubs * 16;
  static constexpr int kMinsAt = kScales == SubScales::kNibbles ? kScalesAt : kScalesAt + kScaleBytes;
  static constexpr int kDAt = kScalesAt + kScaleBytes * (kHasMin && kScales == SubScales::kBytes ? 2 : 1);
  static constexpr int kSuperBytes = kDAt + kLine;  // d, then dmin or padding
};

using LayoutQ4_0 = BlockLayout<4, 8, false>;
using LayoutQ4_1 = BlockLayout<4, 0, true>;
using LayoutQ5_0 = BlockLayout<5, 16, false>;
using LayoutQ5_1 = BlockLayout<5, 0, true>;
using LayoutQ8_0 = BlockLayout<8, 128, false>;
using LayoutQ4_K = SuperLayout<4, 0, true, 32>;
using LayoutQ5_K = SuperLayout<5, 0, true, 32>;
using LayoutQ6_K = SuperLayout<6, 32, false, 16>;
using LayoutQ2_K = SuperLayout<2, 0, true, 16, SubScales::kNibbles>;
using LayoutQ3_K = SuperLayout<3, 4, false, 16, SubScales::kSixBits>;
using LayoutIQ4_NL = BlockLayout<4, 128, false, CodesIQ4_NL>;
using LayoutInt4G32 = GroupLayout<4, 32, true>;
using LayoutInt4G128 = GroupLayout<4, 128, true>;
using LayoutInt8G128 = GroupLayout<8, 128, false>;
using LayoutMXFP4 = BlockLayout<4, 12, false, CodesE2M1, BlockScale::kHalfE8M0>;

}  // namespace

}  // namespace octavo
