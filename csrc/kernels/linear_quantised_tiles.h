// Quantised weights on matrix tiles (AMX-BF16 with AVX512-FP16): a numeric class of its own, for any number
// of rows.
//
// A weight becomes h = float16(scale * q + min), one rounding (K formats: scale and min are themselves
// float16 products of d and the sub-scale), then w = bfloat16(h), to nearest, ties away from zero. A row is
// rounded to bfloat16, to nearest even. Products are exact; per output one chain, 32 k at a time, ascending:
//   acc = acc + (sum over even places, in order, + sum over odd places)
// which is what TDPBF16PS computes (subnormals count as zero). The 32 k lie in the places that unpacking
// gives them (kPlaces). An output depends on its row and column only, never on rows, tiles or threads.
//
// Both roundings cost about a third of what eight-bit rows cost (linear_block.h), and no float work is left
// inside the product.
//
// Exponents. A float16 shifted right by three bits is a bfloat16 2^-112 times as large. So weights are
// unpacked 2^shift times as large as they are, which uses float16's range, and rows are taken 2^(112 - shift)
// times as large: sums come out right.
#pragma once

#include "kernels/tile_outputs.h"
#include "octavo/simd/halves.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int64_t kUnitK = 64;  // k that are unpacked at a time
constexpr int64_t kUnitBytes = 2 * kTileBytes;

// ---- rows

// k of each place of 32: an unpacked line holds the even and the odd bytes of four k apart.
alignas(64) constexpr uint16_t kPlaces[32] = {0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,  11, 12, 14, 13, 15,
                                              16, 18, 17, 19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31};

// Each of sixteen twice: the lower or the upper half of a line.
alignas(64) constexpr uint16_t kTwice[2][32] = {
    {0, 0, 1, 1, 2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,
     8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15},
    {16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 22, 23, 23,
     24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31}};

// The nearest bfloat16 in the upper half of each lane; NaN stays NaN.
inline i32x16 round_rows(f32x16 x) {
  const i32x16 bits = bitcast_i32(x);
  const i32x16 rounded =
      add(bits, add(bit_and(shift_right<16>(bits), broadcast_i32(1)), broadcast_i32(0x7fff)));
  return select(equal(x, x), rounded, broadcast_i32(0x7fc00000));
}

// Rows [begin, end) of [rows / together][k / 32][together][32], zeros behind the last k up to a unit.
inline void round_rows_bf16(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t together = rows_together(a), blocks = (a.cols + kUnitK - 1) / kUnitK * 2;
  const f32x16 scale = broadcast(bits_float(uint32_t(127 + 112 - a.shift) << 23));
  const i32x16 order = add_i16(add_i16(load(reinterpret_cast<const int32_t*>(kPlaces)),
                                       load(reinterpret_cast<const int32_t*>(kPlaces))),
                               broadcast_i16(1));
  for (int64_t r = begin; r < end; ++r) {
    const int64_t lane = r % together;
    auto* out = reinterpret_cast<int32_t*>(a.blocks + (r - lane) * a.row_bytes + lane * kLine);
    const float* x = a.x + r * a.x_stride;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t left = a.cols - 32 * b;
      const i32x16 low = round_rows(mul(load_upto(x + 32 * b, left), scale));
      const i32x16 high = round_rows(mul(load_upto(x + 32 * b + 16, left - 16), scale));
      store(out + b * together * (kLine / 4), pick_i16(low, order, high));
    }
  }
}

// ---- weights

struct Affine {
  f16x32 scale, min;  // of each of 16 outputs, twice
};

// Float16 h to bfloat16, 2^-112 times as large.
inline i32x16 shorten(f16x32 h) { return bit_and(round_shift_i16<3>(i32x16{h.bits}), broadcast_i16(0x8fff)); }

// A small integer as float16.
constexpr uint16_t half_of(int value) {
  const int size = value < 0 ? -value : value;
  int exponent = 0;
  while (size >> (exponent + 1) != 0) ++exponent;
  if (size == 0) return 0;
  const int mantissa = (size << (10 - exponent)) & 0x3ff;
  return uint16_t((value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | mantissa);
}

// What stored bits stand for, less the scale.
template <class Layout>
struct TileCodes {
  static constexpr bool kTable = Layout::kBits <= 5;
  i32x16 table;  // of the low five bits: repeated if the weights have fewer

  TileCodes() {
    uint16_t values[32];
    for (int i = 0; i < 32; ++i)
      values[i] = half_of(decoded(i % (1 << (kTable ? Layout::kBits : 5))) - Layout::kZero);
    table = load(reinterpret_cast<const int32_t*>(values));
  }
  static constexpr int decoded(int q) {
    if constexpr (Layout::kBits == Layout::kDecodedBits) {
      return q;
    } else {
      return Layout::Codes::kTable[q];
    }
  }
  // Of the low bits of int16 lanes; what lies above is dropped.
  f16x32 operator()(i32x16 q) const {
    if constexpr (kTable) return {pick_i16(table, q).v};
    const f16x32 biased = {and_or(q, broadcast_i16((1 << Layout::kBits) - 1), broadcast_i16(0x6400)).v};
    return sub(biased, f16x32{broadcast_i16(0x6400 + Layout::kZero).v});  // 1024 + q
  }
};

template <class Layout>
inline void put_line(const TileCodes<Layout>& codes, i32x16 q, const Affine& w, uint8_t* out) {
  const f16x32 value = codes(q);
  constexpr bool kAffine = Layout::kHasMin || Layout::kHasZeros;
  store_u8(out, bitcast_u8(shorten(kAffine ? fma(value, w.scale, w.min) : mul(value, w.scale))));
}

// Two k-groups of four: four lines, of two k each.
template <class Layout, int P>
inline void put_pair(const TileCodes<Layout>& codes, const uint8_t* super, int block, const Affine& w,
                     uint8_t* out) {
  if constexpr (Layout::kBits == 4) {
    const i32x16 line = bitcast_i32(load_u8(super + (4 * block + P) * kLine));
    put_line(codes, line, w, out);
    put_line(codes, shift_right_i16<8>(line), w, out + kLine);
    put_line(codes, shift_right_i16<4>(line), w, out + 2 * kLine);
    put_line(codes, shift_right_i16<12>(line), w, out + 3 * kLine);
  } else {
    const GroupPair g = stored_pair<Layout, P>(super, block);
    put_line(codes, bitcast_i32(g.even), w, out);
    put_line(codes, shift_right_i16<8>(bitcast_i32(g.even)), w, out + kLine);
    put_line(codes, bitcast_i32(g.odd), w, out + 2 * kLine);
    put_line(codes, shift_right_i16<8>(bitcast_i32(g.odd)), w, out + 3 * kLine);
  }
}

// 32 k of a panel to one right operand; `low` is the scale of the first sixteen, `high` of the others.
template <class Layout>
inline void put_block(const TileCodes<Layout>& codes, const uint8_t* super, int block, const Affine& low,
                      const Affine& high, uint8_t* out) {
  put_pair<Layout, 0>(codes, super, block, low, out);
  put_pair<Layout, 1>(codes, super, block, low, out + 4 * kLine);
  put_pair<Layout, 2>(codes, super, block, high, out + 8 * kLine);
  put_pair<Layout, 3>(codes, super, block, high, out + 12 * kLine);
}

// The scales of one panel, and unpacking of a unit of it.
template <class Layout>
struct TileWeights {
  const uint8_t* panel;
  TileCodes<Layout> codes;
  f16x32 enlarge;  // 2^shift
  f32x16 large;

  TileWeights(const LinearArgs& args, int64_t p)
      : panel(args.w.base + p * args.w.panel_bytes),
        enlarge{broadcast_i16(uint16_t((15 + args.a.shift) << 10)).v},
        large(broadcast(bits_float(uint32_t(127 + args.a.shift) << 23))) {}

  // Half of a line of float16, each twice, enlarged.
  f16x32 enlarged(const uint8_t* line, int half) const {
    const auto* order = reinterpret_cast<const int32_t*>(kTwice[half]);
    return mul(f16x32{pick_i16(bitcast_i32(load_u8(line)), load(order)).v}, enlarge);
  }

  // 32 k.
  [[gnu::always_inline]] void unpack_block(int64_t b, uint8_t* out) const {
    constexpr int64_t kBlocks = Layout::kSuper / kTileK, kStreamed = Layout::kSuperBytes / kBlocks;
    const uint8_t* s = panel + b / kBlocks * Layout::kSuperBytes;
    prefetch_ahead(s + b % kBlocks * kStreamed, kAhead, kStreamed);
    if constexpr (!requires { Layout::kSub; }) {
      const Affine w = block_scale(s, int(b % kBlocks));
      put_block<Layout>(codes, s, int(b % kBlocks), w, w, out);
    } else {
      put_k_block(s, int(b % kBlocks), out);
    }
  }
  void unpack(int64_t unit, uint8_t* out) const {
    unpack_block(2 * unit, out);
    unpack_block(2 * unit + 1, out + kTileBytes);
  }

 private:
  static constexpr int64_t kAhead = 2560 / kLine * kLine;

  Affine block_scale(const uint8_t* s, int block) const {
    Affine w;
    if constexpr (Layout::kScale == BlockScale::kHalfE8M0) {
      const f32x16 power = half_e8m0(load_u8_i32(s + Layout::kScalesAt + 16 * block));
      w.scale = w.min = to_f16_twice(mul(power, large));
    } else if constexpr (Layout::kScale == BlockScale::kF32) {
      const f32x16 scale = mul(group_scale<Layout>(s, block), large);
      w.scale = w.min = to_f16_twice(scale);
      if constexpr (Layout::kHasZeros) w.min = to_f16_twice(mul(minus_zero_point<Layout>(s, block), scale));
    } else {
      w.scale = w.min = enlarged(s + Layout::kScalesAt, block);
    }
    if constexpr (Layout::kHasMin) w.min = enlarged(s + Layout::kMinsAt, block);
    return w;
  }

  // The lower or the upper int16 of each pair, in [-512, 511], as float16 twice.
  static f16x32 halves(i32x16 pair, bool upper) {
    const i32x16 one = upper ? shift_right<16>(pair) : bit_and(pair, broadcast_i32(0xffff));
    const i32x16 raised = add_i16(bit_or(one, shift_left<16>(one)), broadcast_i16(512));
    return sub(f16x32{bit_or(raised, broadcast_i16(0x6400)).v}, f16x32{broadcast_i16(0x6600).v});
  }

  // Sub-block `sub` of a super-block: its scale and minimum.
  Affine sub_block(const PackedSupers<Layout>& w, const f16x32& d, const f16x32& minus_dmin, int sub) const {
    Affine both;
    both.scale = both.min = mul(d, halves(w.scale_pair(0, sub / 2), sub % 2));
    if constexpr (Layout::kHasMin) both.min = mul(minus_dmin, halves(w.min_pair(0, sub / 2), sub % 2));
    return both;
  }
  void put_k_block(const uint8_t* s, int block, uint8_t* out) const {
    constexpr int kSubs = kTileK / Layout::kSub;
    const PackedSupers<Layout> w{s, false};
    const f16x32 d = enlarged(s + Layout::kDAt, 0);
    const f16x32 minus_dmin =
        Layout::kHasMin ? mul(enlarged(s + Layout::kDAt, 1), f16x32{broadcast_i16(0xbc00).v}) : d;
    const Affine low = sub_block(w, d, minus_dmin, kSubs * block);
    const Affine high = kSubs == 1 ? low : sub_block(w, d, minus_dmin, kSubs * block + 1);
    put_block<Layout>(codes, s, block, low, high, out);
  }
};

// ---- products

template <class Layout>
struct QuantisedTileKernel {
  static constexpr int64_t kFewRows = 64;  // four tiles of rows: sums stay in tiles through all k
  static constexpr int64_t kChunk = 5;     // units of four panels: 40 KiB
  static constexpr int64_t kGroup = 24;

  static int64_t num_units(const LinearArgs& args) { return (args.a.cols + kUnitK - 1) / kUnitK; }

  // f(Rows<i>) for i < R <= 4.
  template <int R, class F>
  [[gnu::always_inline]] static void for_tiles(F&& f) {
    f(Rows<0>{});
    if constexpr (R > 1) f(Rows<1>{});
    if constexpr (R > 2) f(Rows<2>{});
    if constexpr (R > 3) f(Rows<3>{});
  }

  // R tiles of rows: sums stay in tiles through all k. Weights are unpacked kLead blocks ahead of the tiles,
  // also across panels, so that both kinds of work overlap.
  template <int R>
  static void few(const LinearArgs& args, int64_t begin, int64_t end) {
    constexpr int64_t kRing = 8, kLead = 3;
    alignas(64) uint8_t ring[kRing][kTileBytes];
    const int64_t blocks = 2 * num_units(args), line = rows_together(args.a) * kLine;
    const int64_t row_tile = kTileM * args.a.row_bytes;
    int64_t slot = 0, done = 0, done_panel = begin;
    const auto multiply = [&](int64_t from) OCTAVO_INLINE_LAMBDA {
      if (done == 0) for_tiles<R>([](auto t) OCTAVO_INLINE_LAMBDA { tile_zero<decltype(t)::value>(); });
      const uint8_t* rows = args.a.blocks + done * line;
      tile_load<6>(ring[from % kRing], kLine);
      for_tiles<R>([&](auto t) OCTAVO_INLINE_LAMBDA {
        constexpr int T = decltype(t)::value;
        tile_load<4 + T % 2>(rows + T * row_tile, kLine);
        tile_dot_bf16<T, 4 + T % 2, 6>();
      });
      if (++done < blocks) return;
      for_tiles<R>([&](auto t) OCTAVO_INLINE_LAMBDA {
        store_tile_sums<decltype(t)::value>(args, done_panel, decltype(t)::value * kTileM, true);
      });
      ++done_panel, done = 0;
    };
    for (int64_t panel = begin; panel < end; ++panel) {
      const TileWeights<Layout> weights(args, panel);
      for (int64_t b = 0; b < blocks; ++b, ++slot) {
        weights.unpack_block(b, ring[slot % kRing]);
        if (slot >= kLead) multiply(slot - kLead);
      }
    }
    for (int64_t i = slot - (slot < kLead ? slot : kLead); i < slot; ++i) multiply(i);
  }

  struct Chunk {
    int64_t first, count;  // units
    bool last;
  };

  // One tile of rows and P panels.
  template <int P>
  static void block(const LinearArgs& args, const uint8_t (*w)[kChunk][kUnitBytes], const Chunk& c,
                    int64_t panel, int64_t row) {
    for_tiles<P>([&](auto t) OCTAVO_INLINE_LAMBDA {
      if (c.first == 0) return tile_zero<decltype(t)::value>();
      load_tile_sums<decltype(t)::value>(args, panel + decltype(t)::value, row);
    });
    const uint8_t* x = args.a.blocks + row * args.a.row_bytes + c.first * kUnitBytes;
    for (int64_t b = 0; b < 2 * c.count; ++b) {
      tile_load<4>(x + b * kTileBytes, kLine);
      for_tiles<P>([&](auto t) OCTAVO_INLINE_LAMBDA {
        constexpr int T = decltype(t)::value;
        tile_load<6 + T % 2>(w[T][0] + b * kTileBytes, kLine);
        tile_dot_bf16<T, 4, 6 + T % 2>();
      });
    }
    for_tiles<P>([&](auto t) OCTAVO_INLINE_LAMBDA {
      store_tile_sums<decltype(t)::value>(args, panel + decltype(t)::value, row, c.last);
    });
  }

  // All rows meet a chunk of P panels, which stays in the first-level cache.
  template <int P>
  static void panels(const LinearArgs& args, const Chunk& c, int64_t panel,
                     uint8_t (*w)[kChunk][kUnitBytes]) {
    for (int p = 0; p < P; ++p) {
      const TileWeights<Layout> weights(args, panel + p);
      for (int64_t u = 0; u < c.count; ++u) weights.unpack(c.first + u, w[p][u]);
    }
    for (int64_t row = 0; row < args.a.rows; row += kTileM) block<P>(args, w, c, panel, row);
  }

  // A chunk of the rows stays in the second level while the panels of a group pass.
  static void many(const LinearArgs& args, int64_t begin, int64_t end) {
    alignas(64) uint8_t weights[4][kChunk][kUnitBytes];
    const int64_t units = num_units(args), chunks = (units + kChunk - 1) / kChunk;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t first = units * i / chunks, count = units * (i + 1) / chunks - first;
      const Chunk c = {first, count, i + 1 == chunks};
      int64_t panel = begin;
      for (; panel + 4 <= end; panel += 4) panels<4>(args, c, panel, weights);
      if (panel + 2 <= end) panels<2>(args, c, panel, weights), panel += 2;
      if (panel < end) panels<1>(args, c, panel, weights);
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    tiles_begin(64, int(rows_together(args.a)));
    const int64_t tiles = (args.a.rows + kTileM - 1) / kTileM;
    if (tiles <= 4) {
      with_rows<4>(tiles, [&](auto n) OCTAVO_INLINE_LAMBDA { few<decltype(n)::value>(args, begin, end); });
    } else {
      for (int64_t first = begin; first < end; first += kGroup) {
        many(args, first, end - first < kGroup ? end : first + kGroup);
      }
    }
    tiles_end();
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
