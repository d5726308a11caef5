// Matrix kernels on int8 tiles (AMX) for many rows: the chains of linear_block.h and linear_super.h to the
// bit.
//
// A panel is unpacked once per chunk of k into scratch as signed bytes; then tiles of 16 rows sweep over it.
// The dot products of a block are exact integers, so it does not matter that a tile computes them.
//
// Block formats leave the tile after each 32 k, where the float chain goes on. K formats need not leave it
// before 256 k: a weight times its sub-scale is split as 128 * high + low, both bytes, and the two parts are
// multiplied apart.
#pragma once

#include "octavo/simd/tiles.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int kTileM = 16;
// With fewer rows, weights are better read once in registers.
constexpr int64_t kMinTileRows = 9;

inline u8x64 sub_u8(u8x64 a, u8x64 b) { return {_mm512_sub_epi8(a.v, b.v)}; }

// ---- activations

static_assert(sizeof(TileBlock32) <= 16 * sizeof(RowBlock32) &&
              sizeof(TileBlock256) <= 16 * sizeof(RowBlock256));

inline void quantise_tiled_block32(const ActivationRows& a, int64_t begin, int64_t end) {
  if (!a.tiled) return quantise_rows_block32(a, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    const int lane = int(r % kTileM);
    auto* out = reinterpret_cast<TileBlock32*>(a.blocks + (r - lane) * a.row_bytes);
    for (int64_t b = 0; b < (a.cols + 63) / 64 * 2; ++b) {
      RowBlock32 block;
      quantise_block32(a.x + r * a.x_stride + 32 * b, a.cols - 32 * b, block);
      memcpy(out[b].q[lane], block.q, 32);
      out[b].scale[lane] = block.scale;
      out[b].fsum[lane] = block.fsum;
    }
  }
}

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
    }
  }
}

// ---- block formats

template <class Layout>
struct BlockPanel {
  static constexpr int kBlocks =
      64;  // of 32 k: the unpacked chunk stays within reach of the first-level cache
  alignas(64) uint8_t lines[kBlocks][8 * kLine];
  alignas(64) float scale[kBlocks][16];
  alignas(64) float min[Layout::kHasMin ? kBlocks : 1][16];

  template <int P>
  void unpack_line_pair(const PackedBlocks<Layout>& w, int64_t block, uint8_t* out) {
    GroupPair g = w.template pair<P>(block);
    if constexpr (Layout::kZero != 0) {
      const u8x64 zero = broadcast_u8(Layout::kZero);
      g = {sub_u8(g.even, zero), sub_u8(g.odd, zero)};
    }
    store_u8(out + 2 * P * kLine, g.even);
    store_u8(out + (2 * P + 1) * kLine, g.odd);
  }

  void unpack(const PackedBlocks<Layout>& w, int64_t first, int64_t count) {
    for (int64_t b = 0; b < count; ++b) {
      w.prefetch(first + b);
      unpack_line_pair<0>(w, first + b, lines[b]);
      unpack_line_pair<1>(w, first + b, lines[b]);
      unpack_line_pair<2>(w, first + b, lines[b]);
      unpack_line_pair<3>(w, first + b, lines[b]);
      store(scale[b], w.scale(first + b));
      if constexpr (Layout::kHasMin) store(min[b], w.min(first + b));
    }
  }
};

// Sums of 16 rows x 16 outputs on their way from the tile to the float chain.
struct TileSums {
  alignas(64) int32_t at[kTileM][16];
};

// Blocks whose products are under way at a time: a product takes several times as long as the next one may
// start.
constexpr int kDepth = 4;
// Groups of that many blocks between a product and the chain that takes it in.
constexpr int kLag = 3;

template <int Sum>
inline void block_dots(const TileBlock32& rows, const uint8_t* lines, TileSums& out) {
  tile_zero<Sum>();
  tile_load<4 + Sum % 2>(rows.q, 32);
  tile_load<6 + Sum % 2>(lines, kLine);
  tile_dot<Sum, 4 + Sum % 2, 6 + Sum % 2>();
  tile_store<Sum>(out.at, 64);
}

// Blocks b .. b + 3, as far as they exist.
inline void group_dots(const TileBlock32* rows, const uint8_t (*lines)[8 * kLine], int64_t count,
                       TileSums (&out)[kDepth]) {
  block_dots<0>(rows[0], lines[0], out[0]);
  if (count > 1) block_dots<1>(rows[1], lines[1], out[1]);
  if (count > 2) block_dots<2>(rows[2], lines[2], out[2]);
  if (count > 3) block_dots<3>(rows[3], lines[3], out[3]);
}

template <class Layout>
inline void block_chain(const BlockPanel<Layout>& w, int64_t block, const TileSums& sums,
                        const TileBlock32& a, f32x16 (&acc)[kTileM]) {
  const f32x16 scale = load(w.scale[block]);
  OCTAVO_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    acc[m] = fma(to_f32(load(sums.at[m])), mul(scale, broadcast(a.scale[m])), acc[m]);
    if constexpr (Layout::kHasMin) acc[m] = fma(load(w.min[block]), broadcast(a.fsum[m]), acc[m]);
  }
}

// Advances acc over blocks [first, first + count) of 16 rows. The chain follows the tiles at a distance: what
// a tile has just stored cannot be read at once.
template <class Layout>
inline void block_sweep(const BlockPanel<Layout>& w, const ActivationRows& a, int64_t row, int64_t first,
                        int64_t count, f32x16 (&acc)[kTileM]) {
  const auto* x = reinterpret_cast<const TileBlock32*>(a.blocks + row * a.row_bytes) + first;
  TileSums ring[kLag + 1][kDepth];
  const int64_t groups = (count + kDepth - 1) / kDepth;
  for (int64_t g = 0; g < groups + kLag; ++g) {
    const int64_t next = g * kDepth;
    if (next < count) group_dots(x + next, w.lines + next, count - next, ring[g % (kLag + 1)]);
    if (g < kLag) continue;
    const int64_t begin = next - kLag * kDepth, end = begin + kDepth < count ? begin + kDepth : count;
    for (int64_t b = begin; b < end; ++b)
      block_chain(w, b, ring[(g - kLag) % (kLag + 1)][b - begin], x[b], acc);
  }
}

// ---- K formats

template <class Layout>
struct SuperPanel {
  static constexpr int kSupers = 4;  // of 256 k
  alignas(64) uint8_t low[kSupers][64 * kLine];
  alignas(64) uint8_t high[kSupers][64 * kLine];

  // One line times the sub-scale of its rows (an int16 twice in each word).
  static void split(u8x64 line, i32x16 scale, uint8_t* low_out, uint8_t* high_out) {
    const __m512i byte = _mm512_set1_epi16(0xff), seven = _mm512_set1_epi16(0x7f);
    const __m512i zero = _mm512_set1_epi16(Layout::kZero);
    const __m512i even = _mm512_sub_epi16(_mm512_and_si512(line.v, byte), zero);
    const __m512i odd = _mm512_sub_epi16(_mm512_srli_epi16(line.v, 8), zero);
    const __m512i p = _mm512_mullo_epi16(even, scale.v), q = _mm512_mullo_epi16(odd, scale.v);
    const __m512i low =
        _mm512_or_si512(_mm512_and_si512(p, seven), _mm512_slli_epi16(_mm512_and_si512(q, seven), 8));
    const __m512i high_p = _mm512_and_si512(_mm512_srai_epi16(p, 7), byte);
    const __m512i high = _mm512_or_si512(high_p, _mm512_slli_epi16(_mm512_srai_epi16(q, 7), 8));
    store_u8(low_out, {low});
    store_u8(high_out, {high});
  }

  template <int P>
  void unpack_line_pair(const PackedSupers<Layout>& w, int64_t s, int block, i32x16 scale, uint8_t* lo,
                        uint8_t* hi) {
    const GroupPair g = w.template pair<P>(s, block);
    split(g.even, scale, lo + 2 * P * kLine, hi + 2 * P * kLine);
    split(g.odd, scale, lo + (2 * P + 1) * kLine, hi + (2 * P + 1) * kLine);
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
    unpack_line_pair<0>(w, s, block, first, lo, hi);
    unpack_line_pair<1>(w, s, block, first, lo, hi);
    unpack_line_pair<2>(w, s, block, second, lo, hi);
    unpack_line_pair<3>(w, s, block, second, lo, hi);
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
template <int Low, int High>
inline void super_dots(const TileBlock256& rows, const uint8_t* low, const uint8_t* high, SuperSums& out) {
  tile_zero<Low>();
  tile_zero<High>();
  for (int i = 0; i < 4; ++i) {
    tile_load<4>(rows.q[i], 64);
    tile_load<6>(low + i * 16 * kLine, kLine);
    tile_dot<Low, 4, 6>();
    tile_load<7>(high + i * 16 * kLine, kLine);
    tile_dot<High, 4, 7>();
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
    const i32x16 isum = add(load(sums.low.at[m]), shift_left<7>(load(sums.high.at[m])));
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
  SuperSums sums[2];
  super_dots<0, 1>(x[0], panel.low[0], panel.high[0], sums[0]);
  for (int64_t s = 0; s < count; s += 2) {
    if (s + 1 < count) super_dots<2, 3>(x[s + 1], panel.low[s + 1], panel.high[s + 1], sums[1]);
    super_chain(w, first + s, sums[0], x[s], acc);
    if (s + 1 == count) break;
    if (s + 2 < count) super_dots<0, 1>(x[s + 2], panel.low[s + 2], panel.high[s + 2], sums[0]);
    super_chain(w, first + s + 1, sums[1], x[s + 1], acc);
  }
}

// ---- both

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
struct TiledBlockKernel {
  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (!args.a.tiled) return BlockKernel<Layout>::run(args, begin, end);
    BlockPanel<Layout> scratch;
    tiles_begin(32);
    const int64_t blocks = (args.w.cols + 63) / 64 * 2;
    for (int64_t panel = begin; panel < end; ++panel) {
      const PackedBlocks<Layout> w{args.w.base + panel * args.w.panel_bytes, true};
      sweep_panel(
          args, panel, blocks, scratch.kBlocks,
          [&](int64_t first, int64_t count) { scratch.unpack(w, first, count); },
          [&](int64_t row, int64_t first, int64_t count, f32x16(&acc)[kTileM])
              OCTAVO_INLINE_LAMBDA { block_sweep(scratch, args.a, row, first, count, acc); });
    }
    tiles_end();
  }
};

template <class Layout>
struct TiledSuperKernel {
  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (!args.a.tiled) return SuperKernel<Layout>::run(args, begin, end);
    SuperPanel<Layout> scratch;
    tiles_begin(64);
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
