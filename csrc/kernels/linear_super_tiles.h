// The K formats on matrix tiles (AMX) for many rows: the chain of linear_super.h to the bit.
//
// A panel is unpacked once per chunk of k into scratch; then tiles of 16 rows sweep over it. They need not
// leave the tiles before 256 k: a weight times its sub-scale is split as 2^kShift * high + low, both bytes,
// and the two parts are multiplied apart.
#pragma once

#include "octavo/simd/tiles.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int kTileM = 16;
// With fewer rows, weights are better read once in registers.
constexpr int64_t kMinTileRows = 9;

static_assert(sizeof(TileBlock256) <= 16 * sizeof(RowBlock256));

inline void quantise_tiled_block256(const ActivationRows& a, int64_t begin, int64_t end) {
  if (!a.tiled) return quantise_rows_block256(a, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    const int lane = int(r % kTileM);
    auto* out = reinterpret_cast<TileBlock256*>(a.blocks + (r - lane) * a.row_bytes);
    for (int64_t b = 0; b < a.cols / 256; ++b) {
      RowBlock256 block;
      quantise_block256(a.x + r * a.x_stride + 256 * b, block);
      for (int i = 0; i < 4; ++i) {
        memcpy(out[b].q[i][lane], block.q + 64 * i, 64);
        out[b].sums64[i][lane] = block.sums64[i];
      }
      out[b].scale[lane] = block.scale;
      // Rows that only fill the tile: whatever floats lie there may be subnormal, which costs hundreds of
      // cycles.
      for (int absent = lane + 1; absent < kTileM && r + 1 == a.rows; ++absent) out[b].scale[absent] = 0.0f;
    }
  }
}

// Sums of 16 rows x 16 outputs on their way from the tile to the float chain.
struct TileSums {
  alignas(64) int32_t at[kTileM][16];
};

template <int N>
inline i32x16 shift_left_i16(i32x16 a) {
  return {_mm512_slli_epi16(a.v, N)};
}
template <int N>
inline i32x16 shift_right_i16(i32x16 a) {
  return {_mm512_srai_epi16(a.v, N)};
}
inline i32x16 mul_i16(i32x16 a, i32x16 b) { return {_mm512_mullo_epi16(a.v, b.v)}; }

// Unsigned weights below 32 and sub-scales below 64 (an int16 twice in each word): the upper or lower three
// bits of the scale times q is a byte without carry, so that one 16-bit product makes two of them.
template <class Layout>
struct WeightSplit {
  using Weight = uint8_t;
  static constexpr int kShift = 3;
  i32x16 upper, lower;

  explicit WeightSplit(i32x16 scale)
      : upper(bit_and(shift_right<kShift>(scale), broadcast_i32(0x00070007))),
        lower(bit_and(scale, broadcast_i32(0x00070007))) {}
  void put(u8x64 line, uint8_t* low, uint8_t* high) const {
    store_u8(low, bitcast_u8(mul_i16(bitcast_i32(line), lower)));
    store_u8(high, bitcast_u8(mul_i16(bitcast_i32(line), upper)));
  }
};

// Signed sub-scales times q - 32 lie in [-4096, 4096]: the lower seven bits, not negative, and the rest.
template <>
struct WeightSplit<LayoutQ6_K> {
  using Weight = int8_t;
  static constexpr int kShift = 7;
  i32x16 scale;

  explicit WeightSplit(i32x16 scale_) : scale(scale_) {}
  static i32x16 join(i32x16 even, i32x16 odd) {  // low bytes of int16 lanes
    return bit_or(bit_and(even, broadcast_i32(0x00ff00ff)), shift_left_i16<8>(odd));
  }
  void put(u8x64 line, uint8_t* low, uint8_t* high) const {
    const i32x16 centred = bitcast_i32(sub_u8(line, broadcast_u8(LayoutQ6_K::kZero)));
    const i32x16 even = mul_i16(shift_right_i16<8>(shift_left_i16<8>(centred)), scale);
    const i32x16 odd = mul_i16(shift_right_i16<8>(centred), scale);
    store_u8(low, bitcast_u8(bit_and(join(even, odd), broadcast_i32(0x7f7f7f7f))));
    store_u8(high, bitcast_u8(join(shift_right_i16<7>(even), shift_right_i16<7>(odd))));
  }
};

template <class Layout>
struct SuperPanel {
  static constexpr int kSupers = 4;  // of 256 k
  alignas(64) uint8_t low[kSupers][64 * kLine];
  alignas(64) uint8_t high[kSupers][64 * kLine];

  template <int P>
  void unpack_line_pair(const PackedSupers<Layout>& w, int64_t s, int block, const WeightSplit<Layout>& split,
                        uint8_t* lo, uint8_t* hi) {
    const GroupPair g = w.template pair<P>(s, block);
    split.put(g.even, lo + 2 * P * kLine, hi + 2 * P * kLine);
    split.put(g.odd, lo + (2 * P + 1) * kLine, hi + (2 * P + 1) * kLine);
  }

  // An int16 in the low (or high) half of each word, in both halves.
  static i32x16 both_low(i32x16 pair) {
    return bit_or(bit_and(pair, broadcast_i32(0xffff)), shift_left<16>(pair));
  }
  static i32x16 both_high(i32x16 pair) {
    return bit_or(shift_right<16>(pair), bit_and(pair, broadcast_i32(int32_t(0xffff0000u))));
  }

  void unpack_block(const PackedSupers<Layout>& w, int64_t s, int block, uint8_t* lo, uint8_t* hi) {
    i32x16 first, second;  // sub-scales of the two halves
    if constexpr (Layout::kSub == 32) {
      const i32x16 pair = w.scale_pair(s, block / 2);
      first = second = block % 2 == 0 ? both_low(pair) : both_high(pair);
    } else {
      const i32x16 pair = w.scale_pair(s, block);
      first = both_low(pair);
      second = both_high(pair);
    }
    const WeightSplit<Layout> a(first), b(second);
    unpack_line_pair<0>(w, s, block, a, lo, hi);
    unpack_line_pair<1>(w, s, block, a, lo, hi);
    unpack_line_pair<2>(w, s, block, b, lo, hi);
    unpack_line_pair<3>(w, s, block, b, lo, hi);
  }

  void unpack(const PackedSupers<Layout>& w, int64_t first, int64_t count) {
    for (int64_t s = 0; s < count; ++s) {
      for (int block = 0; block < 8; ++block) {
        w.template prefetch<8>(first + s, block);
        unpack_block(w, first + s, block, low[s] + 8 * block * kLine, high[s] + 8 * block * kLine);
      }
    }
  }
};

struct SuperSums {
  TileSums low, high;
};

// The exact sums of one super-block of 16 rows; Low and High are the tiles that hold them.
template <class Weight, int Low, int High>
inline void super_dots(const TileBlock256& rows, const uint8_t* low, const uint8_t* high, SuperSums& out) {
  tile_zero<Low>();
  tile_zero<High>();
  for (int i = 0; i < 4; ++i) {
    tile_load<4>(rows.q[i], 64);
    tile_load<6>(low + i * 16 * kLine, kLine);
    tile_dot<Weight, Low, 4, 6>();
    tile_load<7>(high + i * 16 * kLine, kLine);
    tile_dot<Weight, High, 4, 7>();
  }
  tile_store<Low>(out.low.at, 64);
  tile_store<High>(out.high.at, 64);
}

template <class Layout>
inline void super_chain(const PackedSupers<Layout>& w, int64_t s, const SuperSums& sums,
                        const TileBlock256& a, f32x16 (&acc)[kTileM]) {
  const f32x16 d = w.d(s);
  f32x16 dmin = d;
  i32x16 mins[4];
  if constexpr (Layout::kHasMin) {
    dmin = w.dmin(s);
    OCTAVO_UNROLL
    for (int i = 0; i < 4; ++i) mins[i] = w.min_pair(s, i);
  }
  OCTAVO_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    const f32x16 scale = broadcast(a.scale[m]);
    const i32x16 isum =
        add(load(sums.low.at[m]), shift_left<WeightSplit<Layout>::kShift>(load(sums.high.at[m])));
    acc[m] = fma(to_f32(isum), mul(d, scale), acc[m]);
    if constexpr (Layout::kHasMin) {
      i32x16 imin = zero_i32();
      OCTAVO_UNROLL
      for (int i = 0; i < 4; ++i) imin = add(imin, dot2_i16(mins[i], broadcast_i32(a.sums64[i][m])));
      acc[m] = fma(neg(to_f32(imin)), mul(dmin, scale), acc[m]);
    }
  }
}

template <class Layout>
inline void super_sweep(const SuperPanel<Layout>& panel, const PackedSupers<Layout>& w,
                        const ActivationRows& a, int64_t row, int64_t first, int64_t count,
                        f32x16 (&acc)[kTileM]) {
  const auto* x = reinterpret_cast<const TileBlock256*>(a.blocks + row * a.row_bytes) + first;
  using Weight = typename WeightSplit<Layout>::Weight;
  SuperSums sums[2];
  super_dots<Weight, 0, 1>(x[0], panel.low[0], panel.high[0], sums[0]);
  for (int64_t s = 0; s < count; s += 2) {
    if (s + 1 < count) super_dots<Weight, 2, 3>(x[s + 1], panel.low[s + 1], panel.high[s + 1], sums[1]);
    super_chain(w, first + s, sums[0], x[s], acc);
    if (s + 1 == count) break;
    if (s + 2 < count) super_dots<Weight, 0, 1>(x[s + 2], panel.low[s + 2], panel.high[s + 2], sums[0]);
    super_chain(w, first + s + 1, sums[1], x[s + 1], acc);
  }
}

// Accumulators of 16 rows to and from the outputs; rows beyond the last one are computed and dropped.
inline void load_tile(const LinearArgs& args, int64_t panel, int64_t row, int rows, bool first,
                      f32x16 (&acc)[kTileM]) {
  const int width = panel_width(args, panel);
  OCTAVO_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    acc[m] = first || m >= rows ? zero_f32() : load_tail(output(args, panel, row + m), width);
  }
}

inline void store_tile(const LinearArgs& args, int64_t panel, int64_t row, int rows, bool last,
                       const f32x16 (&acc)[kTileM]) {
  const int width = panel_width(args, panel);
  const bool biased = last && args.bias != nullptr;
  const f32x16 bias = biased ? load_tail(args.bias + panel * kPanelRows, width) : zero_f32();
  OCTAVO_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    if (m < rows) store_tail(output(args, panel, row + m), biased ? add(acc[m], bias) : acc[m], width);
  }
}

// Sweeps all rows over each chunk of `step` units of k of one panel. unpack(first, count) fills the scratch,
// sweep(row, first, count, acc) advances 16 rows.
template <class Unpack, class Sweep>
inline void sweep_panel(const LinearArgs& args, int64_t panel, int64_t units, int64_t step, Unpack&& unpack,
                        Sweep&& sweep) {
  for (int64_t first = 0; first < units; first += step) {
    const int64_t count = units - first < step ? units - first : step;
    unpack(first, count);
    for (int64_t row = 0; row < args.a.rows; row += kTileM) {
      const int rows = args.a.rows - row < kTileM ? int(args.a.rows - row) : kTileM;
      f32x16 acc[kTileM];
      load_tile(args, panel, row, rows, first == 0, acc);
      sweep(row, first, count, acc);
      store_tile(args, panel, row, rows, first + count == units, acc);
    }
  }
}

template <class Layout>
struct TiledSuperKernel {
  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (!args.a.tiled) return SuperKernel<Layout>::run(args, begin, end);
    SuperPanel<Layout> scratch;
    tiles_begin(64, args.a.rows < kTileM ? int(args.a.rows) : kTileM);
    for (int64_t panel = begin; panel < end; ++panel) {
      const PackedSupers<Layout> w{args.w.base + panel * args.w.panel_bytes, true};
      sweep_panel(
          args, panel, args.w.cols / 256, scratch.kSupers,
          [&](int64_t first, int64_t count) { scratch.unpack(w, first, count); },
          [&](int64_t row, int64_t first, int64_t count, f32x16(&acc)[kTileM])
              OCTAVO_INLINE_LAMBDA { super_sweep(scratch, w, args.a, row, first, count, acc); });
    }
    tiles_end();
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
