// The query rows of a tile: which keys they see, and how many of them a register tile takes.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr int kLanes = 16;
// Registers, and how many of them 16 lanes take. What is chosen by them changes the speed, never the bits.
inline constexpr int kRegisters = kFloatTileRows == 12 ? 32 : 16;
inline constexpr int kPieces = kRegisters == 32 ? 1 : 2;
// Rows of a register tile: of the large one, and at most of a small one.
inline constexpr int kRowChunk = kRegisters == 32 ? 12 : 6;
inline constexpr int kFewRows = kRegisters == 32 ? 8 : 6;

// Groups of keys (or of columns) taken beside R rows, a power of two: all sums and one side stay in
// registers.
inline constexpr int groups_beside(int rows) {
  const int fit = (kRegisters - 1 - (rows > 8 ? 2 : 4) * kPieces) / (kPieces * rows);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
template <int R>
inline constexpr int kBeside = groups_beside(R);

template <int R>
struct RowCount {};

// Calls visit(RowCount<R>(), first row) for chunks that cover all rows.
template <class Visit>
inline void for_row_chunks(int count, Visit visit) {
  int r = 0;
  if (count > kFewRows) {
    for (; r + kRowChunk <= count; r += kRowChunk) visit(RowCount<kRowChunk>(), r);
    if (count - r > kFewRows) {
      visit(RowCount<6>(), r);
      r += 6;
    }
  }
  switch (count - r) {
    case 1:
      return visit(RowCount<1>(), r);
    case 2:
      return visit(RowCount<2>(), r);
    case 3:
      return visit(RowCount<3>(), r);
    case 4:
      return visit(RowCount<4>(), r);
    case 5:
      return visit(RowCount<5>(), r);
    case 6:
      return visit(RowCount<6>(), r);
    case 7:
      if constexpr (kFewRows >= 7) visit(RowCount<7>(), r);
      return;
    case 8:
      if constexpr (kFewRows >= 8) visit(RowCount<8>(), r);
      return;
  }
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The first n of 16 lanes; whole vectors go past the masked forms, which are slow on some processors.
inline f32x16 load_lanes(const float* p, int n) { return n == kLanes ? load(p) : load_tail(p, n); }
inline void store_lanes(float* p, f32x16 a, int n) { n == kLanes ? store(p, a) : store_tail(p, a, n); }

struct TileRows {
  int count;
  int64_t first_key;  // of all rows
  int64_t end_key;
  const float* q[kTileRows];
  int64_t head[kTileRows];
  int64_t first[kTileRows];  // first visible key
  int64_t end[kTileRows];    // one past the last, and one past the row's own position
};

inline TileRows tile_rows(const AttentionArgs& a, const AttentionTile& t) {
  TileRows rows;
  const int64_t group = a.heads / a.kv_heads;
  const int64_t first_row = a.query_start[t.seq];
  const int64_t num_tokens = a.query_start[t.seq + 1] - first_row;
  const int64_t first_position = a.seq_lens[t.seq] - num_tokens;
  rows.count = t.row_end - t.row_begin;
  int64_t token = t.row_begin / group, in_group = t.row_begin % group;
  for (int r = 0; r < rows.count; ++r) {
    const int64_t position = first_position + token;
    rows.head[r] = t.kv_head * group + in_group;
    rows.q[r] = a.q + (first_row + token) * a.q_row_stride + rows.head[r] * a.head_dim;
    rows.first[r] = a.window > 0 ? larger(0, position - a.window + 1) : 0;
    rows.end[r] = position + 1;
    if (++in_group == group) {
      in_group = 0;
      ++token;
    }
  }
  rows.first_key = rows.first[0];  // rows ascend
  rows.end_key = rows.end[rows.count - 1];
  return rows;
}

// Copies the rows to where a register tile reads them in turn: chunk by chunk [head_dim, rows of the chunk].
// In place their distance is often a power of two, and a cache keeps few lines of such.
inline void pack_rows(const AttentionArgs& a, const TileRows& rows, float* packed) {
  for_row_chunks(rows.count, [&]<int R>(RowCount<R>, int first) {
    float* to = packed + first * a.head_dim;
    for (int r = 0; r < R; ++r) {
      const float* q = rows.q[first + r];
      for (int64_t d = 0; d < a.head_dim; ++d) to[d * R + r] = q[d];
    }
  });
}

// Keys of a span that one row sees; begin >= end: none.
struct Seen {
  int begin, end;
  int group_begin() const { return begin / kLanes; }
  int group_end() const { return (end + kLanes - 1) / kLanes; }
};

inline Seen seen_by(const TileRows& rows, int r, int64_t start) {
  return {int(larger(0, rows.first[r] - start)), int(smaller(kSpanKeys, rows.end[r] - start))};
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
