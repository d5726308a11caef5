// bfloat16 weights on matrix tiles (AMX-BF16): a numeric class of its own.
//
// A value of a row is split into hi = bf16(x) and lo = bf16(x - hi), which leaves 2^-18 of it at most. Both
// are multiplied with the weights; these products are exact, and added in float32. One chain per output, 32 k
// at a time, ascending:
//   acc = acc + (sum of hi * w over even k, in order, + the same over odd k), then once more with lo
// which is what TDPBF16PS computes (to nearest even; subnormals count as zero). An output depends on its own
// row and column only, so its bits do not depend on the number of rows, on tiles or on threads. They do
// differ from those of the float32 chain of the other units (linear_float.h). Against exact sums of random
// rows the error is 5.4 times that chain's at 576 k, 3.0 times at 2048, 1.5 times at 8192; rounding the rows
// to bfloat16 would make it hundreds of times larger. Weights must be finite.
#pragma once

#include "kernels/tile_outputs.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline i32x16 round_to_bf16(i32x16 bits) {
  return add(bits, add(bit_and(shift_right<16>(bits), broadcast_i32(1)), broadcast_i32(0x7fff)));
}
inline void store_upper_halves(uint16_t* p, i32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(shift_right<16>(a).v));
}

// hi and lo of 16 values. What would round to infinity is cut instead; infinity and NaN have no lo.
inline void split(f32x16 x, uint16_t* hi, uint16_t* lo) {
  const i32x16 bits = bitcast_i32(x), size = bit_and(bits, broadcast_i32(0x7fffffff));
  const i32x16 cut = select(equal(x, x), bits, broadcast_i32(0x7fc00000));
  const i32x16 top = select(less(size, broadcast_i32(0x7f7f8000)), round_to_bf16(bits), cut);
  const f32x16 rest = sub(x, bitcast_f32(bit_and(top, broadcast_i32(int32_t(0xffff0000u)))));
  store_upper_halves(hi, top);
  const mask16 finite = less(size, broadcast_i32(0x7f800000));
  store_upper_halves(lo, round_to_bf16(bitcast_i32(select(finite, rest, zero_f32()))));
}

// Rows [begin, end) of [rows / together][k / 32][hi, lo][together][32], with zeros behind the last k.
inline void split_rows(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t together = rows_together(a), halves = (a.cols + kTileK - 1) / kTileK * 2;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t lane = r % together;
    auto* out = reinterpret_cast<uint16_t*>(a.blocks + (r - lane) * a.row_bytes) + lane * kTileK;
    const float* x = a.x + r * a.x_stride;
    for (int64_t i = 0; i < halves; ++i) {
      const int64_t left = a.cols - 16 * i < 16 ? a.cols - 16 * i : 16;
      const f32x16 value = left == 16 ? load(x + 16 * i) : load_tail(x + 16 * i, left > 0 ? int(left) : 0);
      uint16_t* hi = out + i / 2 * together * 2 * kTileK + i % 2 * 16;
      split(value, hi, hi + together * kTileK);
    }
  }
}

// R x P tiles of outputs, the sums of row tile r and panel p in tile r * P + p.
template <int R, int P>
struct SplitTiles {
  static_assert(R * P <= 4);

  const uint8_t* rows;  // hi of the first tile and block; lo behind it
  int64_t row_tile;     // from one tile of rows to the next
  int64_t part;         // from hi to lo
  const uint8_t* w;
  int64_t panel_bytes;

  // f(c, r, p) with constants, for the tiles that there are.
  template <class F>
  static void for_sums(F&& f) {
    f(Rows<0>{}, 0, 0);
    if constexpr (R * P > 1) f(Rows<1>{}, 1 / P, 1 % P);
    if constexpr (R * P > 2) f(Rows<2>{}, 2 / P, 2 % P);
    if constexpr (R * P > 3) f(Rows<3>{}, 3 / P, 3 % P);
  }

  // Products of up to two panels, whose weights are in tiles 6 and 7, with a part of the rows in 4 and 5.
  template <int First>
  static void products() {
    tile_dot_bf16<First, 4, 6>();
    if constexpr (P > 1) tile_dot_bf16<First + 1, 4, 7>();
    if constexpr (R > 1) tile_dot_bf16<P, 5, 6>();
    if constexpr (R > 1 && P > 1) tile_dot_bf16<P + 1, 5, 7>();
  }

  template <int Panel>
  void load_weights(const uint8_t* at) const {
    tile_load<6>(at + Panel * panel_bytes, kLine);
    if constexpr (P > 1) tile_load<7>(at + (Panel + 1) * panel_bytes, kLine);
  }

  void block(int64_t b) const {
    const uint8_t *hi = rows + b * 2 * part, *at = w + b * kTileBytes;
    tile_load<4>(hi, kLine);
    if constexpr (P == 4) {
      tile_load<5>(hi + part, kLine);
      load_weights<0>(at);
      four<0>();
      load_weights<2>(at);
      four<2>();
    } else {
      load_weights<0>(at);
      if constexpr (R > 1) tile_load<5>(hi + row_tile, kLine);
      products<0>();
      tile_load<4>(hi + part, kLine);
      if constexpr (R > 1) tile_load<5>(hi + row_tile + part, kLine);
      products<0>();
    }
  }

  // hi in tile 4, lo in 5.
  template <int First>
  static void four() {
    tile_dot_bf16<First, 4, 6>();
    tile_dot_bf16<First + 1, 4, 7>();
    tile_dot_bf16<First, 5, 6>();
    tile_dot_bf16<First + 1, 5, 7>();
  }
};

struct SplitKernel {
  static constexpr int64_t kChunk =
      64;  // blocks: 256 KiB of two tiles of rows, which stay in the second level
  static constexpr int64_t kGroup = 16;  // panels that all rows pass together: 1 MiB of a chunk

  struct Chunk {
    int64_t first, count;  // blocks
    bool last;
  };

  // The last k of P panels, fewer than a tile takes: with zeros behind.
  template <int P>
  static void last_block(const LinearArgs& args, int64_t panel, uint8_t (&padded)[P][kTileBytes]) {
    const int64_t block = args.a.cols / kTileK, bytes = (args.a.cols % kTileK + 1) / 2 * kLine;
    memset(padded, 0, sizeof padded);
    for (int p = 0; p < P; ++p) memcpy(padded[p], weights(args, panel + p, block), size_t(bytes));
  }

  static const uint8_t* weights(const LinearArgs& args, int64_t panel, int64_t block) {
    return args.w.base + panel * args.w.panel_bytes + block * kTileBytes;
  }

  template <int R, int P>
  static void tile(const LinearArgs& args, const Chunk& c, int64_t panel, int64_t row) {
    using Tiles = SplitTiles<R, P>;
    Tiles::for_sums([&](auto t, int r, int p) OCTAVO_INLINE_LAMBDA {
      constexpr int T = decltype(t)::value;
      if (c.first == 0) return tile_zero<T>();
      load_tile_sums<T>(args, panel + p, row + r * kTileM);
    });
    const int64_t part = rows_together(args.a) * kLine, row_bytes = args.a.row_bytes;
    Tiles tiles{args.a.blocks + row * row_bytes + c.first * 2 * part, kTileM * row_bytes, part,
                weights(args, panel, c.first), args.w.panel_bytes};
    const int64_t full = args.a.cols / kTileK - c.first;
    const int64_t count = full < c.count ? full : c.count;
    for (int64_t b = 0; b < count; ++b) {
      if (row == 0) prefetch<P>(args, weights(args, panel, c.first + b));
      tiles.block(b);
    }
    if (count < c.count) {
      alignas(64) uint8_t padded[P][kTileBytes];
      last_block<P>(args, panel, padded);
      tiles.rows += count * 2 * part;
      tiles.w = padded[0];
      tiles.panel_bytes = kTileBytes;
      tiles.block(0);
    }
    Tiles::for_sums([&](auto t, int r, int p) OCTAVO_INLINE_LAMBDA {
      store_tile_sums<decltype(t)::value>(args, panel + p, row + r * kTileM, c.last);
    });
  }

  template <int P>
  [[gnu::always_inline]] static void prefetch(const LinearArgs& args, const uint8_t* w) {
    for (int p = 0; p < P; ++p) prefetch_ahead(w + p * args.w.panel_bytes, kAhead, kTileBytes);
  }
  static constexpr int64_t kAhead = 1024;

  static Chunk chunk_at(const LinearArgs& args, int64_t first) {
    const int64_t left = (args.a.cols + kTileK - 1) / kTileK - first;
    return {first, left < kChunk ? left : kChunk, left <= kChunk};
  }

  static bool more(const LinearArgs& args, int64_t first) { return first * kTileK < args.a.cols; }

  template <int R>
  static void row_tiles(const LinearArgs& args, const Chunk& c, int64_t begin, int64_t end, int64_t row) {
    int64_t panel = begin;
    for (; panel + 2 <= end; panel += 2) tile<R, 2>(args, c, panel, row);
    if (panel < end) tile<R, 1>(args, c, panel, row);
  }

  static void many(const LinearArgs& args, int64_t begin, int64_t end) {
    for (int64_t first = 0; more(args, first); first += kChunk) {
      const Chunk c = chunk_at(args, first);
      int64_t row = 0;
      for (; row + kTileM < args.a.rows; row += 2 * kTileM) row_tiles<2>(args, c, begin, end, row);
      if (row < args.a.rows) row_tiles<1>(args, c, begin, end, row);
    }
  }

  // One tile of rows: weights are read once, four panels together.
  static void few(const LinearArgs& args, int64_t begin, int64_t end) {
    const Chunk all{0, (args.a.cols + kTileK - 1) / kTileK, true};
    int64_t panel = begin;
    for (; panel + 4 <= end; panel += 4) tile<1, 4>(args, all, panel, 0);
    for (; panel < end; ++panel) tile<1, 1>(args, all, panel, 0);
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    tiles_begin(64, int(rows_together(args.a)));
    if (!args.a.tiled) {
      few(args, begin, end);
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
