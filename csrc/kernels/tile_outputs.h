// Sums of matrix tiles (tiles 0..3) to and from the outputs.
#pragma once

#include "octavo/simd/tiles.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int kTileM = 16;
constexpr int kTileK = 32;            // k of a tile of bfloat16
constexpr int64_t kTileBytes = 1024;  // of 16 rows, or of 16 outputs

// Rows that lie side by side: a tile's, or all if they are fewer.
inline int64_t rows_together(const ActivationRows& a) { return a.tiled ? kTileM : a.rows; }

// Outputs of a tile on their way to or from where a tile cannot be moved directly.
struct TileDetour {
  alignas(64) float at[kTileM][kPanelRows];
};

inline int tile_rows_at(const LinearArgs& args, int64_t row) {
  return args.a.rows - row < kTileM ? int(args.a.rows - row) : kTileM;
}

// A tile has as many rows as lie together: fewer outputs than that need a detour.
inline bool is_whole_tile(const LinearArgs& args, int64_t panel, int64_t row) {
  return panel_width(args, panel) == kPanelRows && tile_rows_at(args, row) == rows_together(args.a);
}

template <int T>
inline void load_tile_sums(const LinearArgs& args, int64_t panel, int64_t row) {
  if (is_whole_tile(args, panel, row)) return tile_load<T>(output(args, panel, row), args.out_stride * 4);
  TileDetour sums{};
  for (int m = 0; m < tile_rows_at(args, row); ++m) {
    store(sums.at[m], load_tail(output(args, panel, row + m), panel_width(args, panel)));
  }
  tile_load<T>(sums.at, kLine);
}

// After the last k the bias is added, in one rounding.
template <int T>
inline void store_tile_sums(const LinearArgs& args, int64_t panel, int64_t row, bool last) {
  const bool biased = last && args.bias != nullptr;
  if (!biased && is_whole_tile(args, panel, row)) {
    return tile_store<T>(output(args, panel, row), args.out_stride * 4);
  }
  TileDetour sums;
  tile_store<T>(sums.at, kLine);
  const int width = panel_width(args, panel);
  const f32x16 bias = biased ? load_tail(args.bias + panel * kPanelRows, width) : zero_f32();
  for (int m = 0; m < tile_rows_at(args, row); ++m) {
    const f32x16 sum = load(sums.at[m]);
    store_tail(output(args, panel, row + m), biased ? add(sum, bias) : sum, width);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
