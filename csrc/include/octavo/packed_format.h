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
//   H2: bf16 pairs [k/2][16][2]; f16 [k][16]; F1: f32 [k][16]
//
// Scales of the block formats (32 k): f16 [2][16] a super-block of 64, then f16 [2][16] minimums if any.
// Scales of the K formats (256 k): sub-scales as byte pairs [subs/2][16][2], minimums alike, then f16 d [16],
// dmin [16].
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
  kFormatCount
};

// The form in which a format wants its activations.
enum RowForm : int32_t { kRowsFloat, kRowsBF16, kRowsBlock32, kRowsBlock256, kRowFormCount };

namespace {

constexpr int kPanelRows = 16;
constexpr int kLine = 64;

template <int Bits_, int Zero_, bool HasMin_>
struct BlockLayout {  // Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
  static constexpr int kBits = Bits_;
  static constexpr int kZero = Zero_;
  static constexpr bool kHasMin = HasMin_;
  static constexpr int kBlock = 32;
  static constexpr int kSuper = 64;
  static constexpr int kPlaneAt = kBits == 8 ? 64 * 16 : 64 * 8;
  static constexpr int kScalesAt = kPlaneAt + (kBits == 5 ? 2 * kLine : 0);
  static constexpr int kMinsAt = kScalesAt + kLine;
  static constexpr int kSuperBytes = kHasMin ? kMinsAt + kLine : kMinsAt;
};

template <int Bits_, int Zero_, bool HasMin_, int Sub_>
struct SuperLayout {  // Q4_K, Q5_K, Q6_K
  static constexpr int kBits = Bits_;
  static constexpr int kZero = Zero_;
  static constexpr bool kHasMin = HasMin_;
  static constexpr int kSub = Sub_;
  static constexpr int kSuper = 256;
  static constexpr int kSubs = kSuper / kSub;
  static constexpr int kPlaneAt = 256 * 8;
  static constexpr int kScalesAt = kPlaneAt + (kBits == 5 ? 8 * kLine : kBits == 6 ? 16 * kLine : 0);
  static constexpr int kMinsAt = kScalesAt + kSubs * 16;
  static constexpr int kDAt = kMinsAt + (kHasMin ? kSubs * 16 : 0);
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

}  // namespace

}  // namespace octavo
