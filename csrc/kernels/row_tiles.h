// What all matrix kernels share: cutting rows into register tiles, and moving accumulators to and from the
// outputs.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

#define OCTAVO_INLINE_LAMBDA __attribute__((always_inline))

// Where registers are few: a tile's accumulators wait in memory while a block's integers are summed.
template <int M, class Vector>
[[gnu::always_inline]] inline void make_room([[maybe_unused]] Vector (&acc)[M]) {
  if constexpr (kFewRegisters && M > 2) asm("" : "+m"(acc));
}

template <int N>
struct Rows {
  static constexpr int value = N;
};

// The next smaller tile: tails are made of powers of two, so that few sizes are compiled.
constexpr int next_tile(int tile) { return tile > 8 ? 8 : tile > 4 ? 4 : tile > 2 ? 2 : 1; }

// Calls f(Rows<n>, first row) over rows [row, rows) in tiles of Tile, then smaller ones.
template <int Tile, class F>
inline void for_row_tiles(int64_t rows, F&& f, int64_t row = 0) {
  for (; row + Tile <= rows; row += Tile) f(Rows<Tile>{}, row);
  if constexpr (Tile > 1) {
    if (row < rows) for_row_tiles<next_tile(Tile)>(rows, f, row);
  }
}

// Calls f(Rows<n>) for 1 <= n <= Largest.
template <int Largest, class F>
inline void with_rows(int64_t n, F&& f) {
  if constexpr (Largest > 1) {
    if (n < Largest) return with_rows<Largest - 1>(n, f);
  }
  f(Rows<Largest>{});
}

// Calls f(Rows<n>, first row) over all rows in as few tiles of at most Tile as will do, of sizes that differ
// by one at most: every size is compiled, but no small tile is left over.
template <int Tile, class F>
inline void for_even_tiles(int64_t rows, F&& f) {
  const int64_t tiles = (rows + Tile - 1) / Tile;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = rows * i / tiles;
    with_rows<Tile>(rows * (i + 1) / tiles - first, [&](auto n) OCTAVO_INLINE_LAMBDA { f(n, first); });
  }
}

// Asks for the `bytes` that lie `distance` behind p (past the end of the weights it does nothing). The
// hardware's own prefetch stops at 4 KiB pages; asking whole super-blocks ahead, at least 1 KiB, brought a
// third more bandwidth here.
// Always inlined: GCC takes a function of prefetches alone for one without effect and drops its calls.
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* p, int64_t distance, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(p + distance + i);
}

// Row `row` in quantised form.
template <class Block>
inline const Block* row_blocks(const ActivationRows& a, int64_t row) {
  return reinterpret_cast<const Block*>(a.blocks + row * a.row_bytes);
}

// Columns of the panel that exist.
inline int panel_width(const LinearArgs& args, int64_t panel) {
  const int64_t left = args.w.rows - panel * kPanelRows;
  return left < kPanelRows ? int(left) : kPanelRows;
}

inline float* output(const LinearArgs& args, int64_t panel, int64_t row) {
  return args.out + row * args.out_stride + panel * kPanelRows;
}

template <int M>
inline void load_outputs(const LinearArgs& args, int64_t panel, int64_t row, bool first, f32x16 (&acc)[M]) {
  const int width = panel_width(args, panel);
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) {
    if (first) {
      acc[m] = zero_f32();
    } else {
      const float* out = output(args, panel, row + m);
      acc[m] = width == kPanelRows ? load(out) : load_tail(out, width);
    }
  }
}

template <int M>
inline void store_partial(const LinearArgs& args, int64_t panel, int64_t row, const f32x16 (&acc)[M]) {
  const int width = panel_width(args, panel);
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) {
    float* out = output(args, panel, row + m);
    if (width == kPanelRows) {
      store(out, acc[m]);
    } else {
      store_tail(out, acc[m], width);
    }
  }
}

// The bias is added last, in one rounding.
template <int M>
inline void store_outputs(const LinearArgs& args, int64_t panel, int64_t row, f32x16 (&acc)[M]) {
  if (args.bias != nullptr) {
    const f32x16 bias = load_tail(args.bias + panel * kPanelRows, panel_width(args, panel));
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) acc[m] = add(acc[m], bias);
  }
  store_partial<M>(args, panel, row, acc);
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
