// The block formats on matrix tiles, for many rows: the chain of linear_block.h, so the same bits.
//
// Two panels and a span of k are unpacked to signed bytes and float scales in the first-level cache and meet
// all rows before the next span. While the floats of one 32-block are added up in registers, the tiles
// multiply the next.
#pragma once

#include "octavo/simd/tiles.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int kBlockTileRows = 12;         // x 2 panels: 24 accumulators stay in registers
constexpr int64_t kMinBlockTileRows = 20;  // below, register tiles are faster
constexpr int64_t kTileSpanBlocks = 24;

inline u8x64 sub_u8(u8x64 a, u8x64 b) { return {_mm512_sub_epi8(a.v, b.v)}; }

struct alignas(64) BlockSpan {  // of one panel
  uint8_t q[kTileSpanBlocks][8][kLine];
  float scale[kTileSpanBlocks][16];
  float min[kTileSpanBlocks][16];
};

template <class Layout, int P>
inline void unpack_signed(const PackedBlocks<Layout>& w, int64_t block, uint8_t (*lines)[kLine]) {
  const GroupPair g = w.template pair<P>(block);
  const u8x64 zero = broadcast_u8(Layout::kZero);
  store_u8(lines[2 * P], sub_u8(g.even, zero));
  store_u8(lines[2 * P + 1], sub_u8(g.odd, zero));
}

template <class Layout>
inline void unpack_span(const PackedBlocks<Layout>& w, int64_t first, int64_t count, BlockSpan& span) {
  for (int64_t b = 0; b < count; ++b) {
    w.prefetch(first + b);
    unpack_signed<Layout, 0>(w, first + b, span.q[b]);
    unpack_signed<Layout, 1>(w, first + b, span.q[b]);
    unpack_signed<Layout, 2>(w, first + b, span.q[b]);
    unpack_signed<Layout, 3>(w, first + b, span.q[b]);
    store(span.scale[b], w.scale(first + b));
    if constexpr (Layout::kHasMin) store(span.min[b], w.min(first + b));
  }
}

// M rows x P panels.
template <int M, int P, bool HasMin>
struct BlockTile {
  using Dots = int32_t[P][M][16];
  const BlockSpan* w;
  const RowBlock32* a;  // the first row
  int64_t row_bytes;

  const RowBlock32& row(int m, int64_t block) const {
    return reinterpret_cast<const RowBlock32*>(reinterpret_cast<const uint8_t*>(a) + m * row_bytes)[block];
  }
  [[gnu::always_inline]] void multiply(int64_t block, Dots& dots) const {
    tile_zero<0>();
    tile_load<4>(a[block].q, row_bytes);
    tile_load<6>(w[0].q[block], kLine);
    tile_dot<int8_t, 0, 4, 6>();
    if constexpr (P == 2) {
      tile_zero<1>();
      tile_load<7>(w[1].q[block], kLine);
      tile_dot<int8_t, 1, 4, 7>();
    }
    tile_store<0>(dots[0], kLine);
    if constexpr (P == 2) tile_store<1>(dots[1], kLine);
  }
  [[gnu::always_inline]] void add_up(int64_t block, const Dots& dots, f32x16 (&acc)[P][M]) const {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      const f32x16 scale = broadcast(row(m, block).scale);
      const f32x16 sum = HasMin ? broadcast(row(m, block).fsum) : scale;
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        acc[p][m] = fma(to_f32(load(dots[p][m])), mul(load(w[p].scale[block]), scale), acc[p][m]);
        if constexpr (HasMin) acc[p][m] = fma(load(w[p].min[block]), sum, acc[p][m]);
      }
    }
  }
  [[gnu::always_inline]] void run(int64_t count, f32x16 (&acc)[P][M]) const {
    alignas(64) Dots dots[2];
    multiply(0, dots[0]);
    for (int64_t b = 0; b < count; ++b) {
      if (b + 1 < count) multiply(b + 1, dots[(b + 1) % 2]);
      add_up(b, dots[b % 2], acc);
    }
  }
};

template <class Layout>
struct TiledBlockKernel {
  // Blocks [first, first + count) of P panels; the outputs hold the chain between spans.
  template <int M, int P>
  static void tile(const LinearArgs& args, const BlockSpan* w, int64_t panel, int64_t row, int64_t first,
                   int64_t count) {
    const BlockTile<M, P, Layout::kHasMin> t = {w, row_blocks<RowBlock32>(args.a, row) + first,
                                                args.a.row_bytes};
    f32x16 acc[P][M];
    for (int m = 0; m < M; ++m) {  // outputs are written once and lie far apart
      for (int p = 0; p < P; ++p) __builtin_prefetch(output(args, panel + p, row + m), 1);
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) load_outputs<M>(args, panel + p, row, first == 0, acc[p]);
    t.run(count, acc);
    const bool last = first + count == num_blocks(args);
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      if (last) {
        store_outputs<M>(args, panel + p, row, acc[p]);
      } else {
        store_partial<M>(args, panel + p, row, acc[p]);
      }
    }
  }

  static int64_t num_blocks(const LinearArgs& args) {
    return (args.w.cols + Layout::kSuper - 1) / Layout::kSuper * 2;
  }

  template <int P>
  static void panels(const LinearArgs& args, int64_t panel, BlockSpan* spans) {
    const int64_t blocks = num_blocks(args);
    const int64_t parts = (blocks + kTileSpanBlocks - 1) / kTileSpanBlocks;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = blocks * part / parts, count = blocks * (part + 1) / parts - first;
      for (int p = 0; p < P; ++p) {
        const PackedBlocks<Layout> w{args.w.base + (panel + p) * args.w.panel_bytes, true};
        unpack_span<Layout>(w, first, count, spans[p]);
      }
      int configured = 0;
      for_row_tiles<kBlockTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        constexpr int kRows = decltype(m)::value;
        if (configured != kRows) tiles_begin(32, configured = kRows);
        tile<kRows, P>(args, spans, panel, row, first, count);
      });
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (args.a.rows < kMinBlockTileRows) return BlockKernel<Layout>::run(args, begin, end);
    BlockSpan spans[2];
    int64_t panel = begin;
    for (; panel + 2 <= end; panel += 2) panels<2>(args, panel, spans);
    if (panel < end) panels<1>(args, panel, spans);
    tiles_end();
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
