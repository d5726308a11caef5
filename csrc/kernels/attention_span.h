// One span of keys for one tile of query rows: scores, weights and weighted values. See attention.h for the
// whole.
#pragma once

#include "kernels/kv_write.h"
#include "kernels/softcap.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr int kLanes = 16;
inline constexpr int kSpanGroups = int(kSpanKeys) / kLanes;
inline constexpr int kRowChunk = 6;
// Registers, and how many of them 16 lanes take. What is chosen by them changes the speed, never the bits.
inline constexpr int kRegisters = kFloatTileRows == 12 ? 32 : 16;
inline constexpr int kPieces = kRegisters == 32 ? 1 : 2;
// Groups of keys (or of columns) taken beside R rows so that all sums and one operand stay in registers.
inline constexpr int groups_beside(int rows) {
  const int fit = (kRegisters - rows - kPieces) / (kPieces * rows);
  return fit < 1 ? 1 : fit < 8 ? fit : 8;
}
template <int R>
inline constexpr int kBeside = groups_beside(R);

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
  int64_t first[kTileRows];  // first visible key
  int64_t end[kTileRows];    // one past the last
};

inline TileRows tile_rows(const AttentionArgs& a, const AttentionTile& t) {
  TileRows rows;
  const int64_t group = a.heads / a.kv_heads;
  const int64_t first_row = a.query_start[t.seq];
  const int64_t num_tokens = a.query_start[t.seq + 1] - first_row;
  const int64_t first_position = a.seq_lens[t.seq] - num_tokens;
  rows.count = t.row_end - t.row_begin;
  for (int r = 0; r < rows.count; ++r) {
    const int64_t token = (t.row_begin + r) / group, head = t.kv_head * group + (t.row_begin + r) % group;
    const int64_t position = first_position + token;
    rows.q[r] = a.q + (first_row + token) * a.q_row_stride + head * a.head_dim;
    rows.first[r] = a.window > 0 ? larger(0, position - a.window + 1) : 0;
    rows.end[r] = position + 1;
  }
  rows.first_key = rows.first[0];  // rows ascend
  rows.end_key = rows.end[rows.count - 1];
  return rows;
}

// Where the span's groups of 16 keys lie; keys [begin, end) and groups [group_begin, group_end) count from
// its start.
template <class Page>
struct SpanPages {
  int64_t start;
  int begin, end;
  int group_begin, group_end;
  const typename Page::Element* k[kSpanGroups];
  const typename Page::Element* v[kSpanGroups];
};

template <class Page>
inline SpanPages<Page> span_pages(const AttentionArgs& a, const AttentionTile& t, const TileRows& rows,
                                  int64_t span) {
  using Element = typename Page::Element;
  SpanPages<Page> s;
  s.start = span * kSpanKeys;
  s.begin = int(larger(0, rows.first_key - s.start));
  s.end = int(smaller(kSpanKeys, rows.end_key - s.start));
  s.group_begin = s.begin / kLanes;
  s.group_end = (s.end + kLanes - 1) / kLanes;
  for (int g = s.group_begin; g < s.group_end; ++g) {
    const int64_t key = s.start + g * kLanes;
    const int64_t page = a.block_table[t.seq * a.table_stride + key / a.block_size];
    const int64_t base = (page * a.kv_heads + t.kv_head) * a.head_dim * a.block_size,
                  offset = key % a.block_size;
    s.k[g] = static_cast<const Element*>(a.k_cache) + base + offset;
    s.v[g] = static_cast<const Element*>(a.v_cache) + base + offset * a.head_dim;
  }
  return s;
}

// sum[r][c] += scalar(r) * vector(c). The side that takes fewer registers is held, so that all sums stay in
// theirs.
template <int R, int C, class Scalar, class Vector>
inline void add_products(f32x16 (&sum)[R][C], Scalar scalar, Vector vector) {
  if constexpr (R + kPieces < kPieces * C + 1) {
    f32x16 held[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) held[r] = broadcast(scalar(r));
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const f32x16 lanes = vector(c);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r][c] = fma(held[r], lanes, sum[r][c]);
    }
  } else {
    f32x16 held[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) held[c] = vector(c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const f32x16 factor = broadcast(scalar(r));
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = fma(factor, held[c], sum[r][c]);
    }
  }
}

template <int R, int C>
inline void clear_sums(f32x16 (&sum)[R][C]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sum[r][c] = zero_f32();
  }
}

// ---- scores

template <class Page, int R, int C>
inline void score_block(const AttentionArgs& a, const float* const* q, const typename Page::Element* const* k,
                        float* scores) {
  f32x16 sum[R][C];
  clear_sums(sum);
  for (int64_t d = 0; d < a.head_dim; ++d) {
    add_products(
        sum, [&](int r) { return q[r][d]; }, [&](int c) { return Page::wide(k[c] + d * a.block_size); });
  }
  const f32x16 scale = broadcast(a.scale);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store(scores + r * kSpanKeys + c * kLanes, mul(sum[r][c], scale));
  }
}

// R rows at a time, `count` of them a multiple of R, against groups g, g + 1, ..., g + C - 1.
template <class Page, int R, int C>
inline void score_groups(const AttentionArgs& a, const float* const* q, int count, const SpanPages<Page>& s,
                         int g, float* scores) {
  for (int r = 0; r < count; r += R) {
    score_block<Page, R, C>(a, q + r, s.k + g, scores + r * kSpanKeys + g * kLanes);
  }
}

template <class Page, int R>
inline void score_rows(const AttentionArgs& a, const float* const* q, int count, const SpanPages<Page>& s,
                       float* scores) {
  int g = s.group_begin;
  for (; g + kBeside<R> <= s.group_end; g += kBeside<R>)
    score_groups<Page, R, kBeside<R>>(a, q, count, s, g, scores);
  for (; g < s.group_end; ++g) score_groups<Page, R, 1>(a, q, count, s, g, scores);
}

template <class Page>
inline void score_span(const AttentionArgs& a, const TileRows& rows, const SpanPages<Page>& s,
                       float* scores) {
  const int whole = rows.count / kRowChunk * kRowChunk;
  if (whole > 0) score_rows<Page, kRowChunk>(a, rows.q, whole, s, scores);
  const float* const* q = rows.q + whole;
  scores += whole * kSpanKeys;
  switch (rows.count - whole) {
    case 1:
      return score_rows<Page, 1>(a, q, 1, s, scores);
    case 2:
      return score_rows<Page, 2>(a, q, 2, s, scores);
    case 3:
      return score_rows<Page, 3>(a, q, 3, s, scores);
    case 4:
      return score_rows<Page, 4>(a, q, 4, s, scores);
    case 5:
      return score_rows<Page, 5>(a, q, 5, s, scores);
  }
}

// ---- weights

// Keys of a span that one row sees; begin >= end: none.
struct Seen {
  int begin, end;
  int group_begin() const { return begin / kLanes; }
  int group_end() const { return (end + kLanes - 1) / kLanes; }
};

inline Seen seen_by(const TileRows& rows, int r, int64_t start) {
  return {int(larger(0, rows.first[r] - start)), int(smaller(kSpanKeys, rows.end[r] - start))};
}

inline f32x16 hide(f32x16 scores, int group, Seen seen) {  // lanes of unseen keys become -inf
  const i32x16 key = add(iota_i32(), broadcast_i32(group * kLanes));
  const mask16 in = mask_and(less(broadcast_i32(seen.begin - 1), key), less(key, broadcast_i32(seen.end)));
  return select(in, scores, broadcast(-__builtin_inff()));
}

// Caps and hides the scores of one row; returns the highest.
inline float settle_scores(const AttentionArgs& a, float* scores, Seen seen) {
  const f32x16 cap = broadcast(a.softcap);
  f32x16 highest = broadcast(-__builtin_inff());
  for (int g = seen.group_begin(); g < seen.group_end(); ++g) {
    const bool partly = g * kLanes < seen.begin || (g + 1) * kLanes > seen.end;
    f32x16 s = load(scores + g * kLanes);
    if (a.softcap > 0) s = softcap(s, cap);
    if (partly) s = hide(s, g, seen);
    if (partly || a.softcap > 0) store(scores + g * kLanes, s);
    highest = max(s, highest);
  }
  return reduce_max(highest);
}

// Turns settled scores into weights e^(s - highest); returns their sum.
inline float weigh_scores(float* scores, Seen seen, float highest) {
  const f32x16 shift = broadcast(highest);
  f32x16 sum = zero_f32();
  for (int g = seen.group_begin(); g < seen.group_end(); ++g) {
    const f32x16 weight = exp(sub(load(scores + g * kLanes), shift));
    store(scores + g * kLanes, weight);
    sum = add(sum, weight);
  }
  return reduce_add(sum);
}

template <class Page>
inline void clear_unseen(const SpanPages<Page>& s, Seen seen, float* scores) {
  const bool any = seen.begin < seen.end;
  const int begin = any ? seen.group_begin() : s.group_end, end = any ? seen.group_end() : s.group_end;
  for (int g = s.group_begin; g < begin; ++g) store(scores + g * kLanes, zero_f32());
  for (int g = end; g < s.group_end; ++g) store(scores + g * kLanes, zero_f32());
}

// A few rows at a time, maxima first: the rows' chains overlap and their scores stay near.
template <class Page>
inline void weigh_span(const AttentionArgs& a, const TileRows& rows, const SpanPages<Page>& s, float* scores,
                       float* max_out, float* sum_out) {
  for (int chunk = 0; chunk < rows.count; chunk += kRowChunk) {
    const int end = int(smaller(chunk + kRowChunk, rows.count));
    for (int r = chunk; r < end; ++r) {
      const Seen seen = seen_by(rows, r, s.start);
      clear_unseen(s, seen, scores + r * kSpanKeys);
      max_out[r] = settle_scores(a, scores + r * kSpanKeys, seen);
    }
    for (int r = chunk; r < end; ++r) {
      sum_out[r] = weigh_scores(scores + r * kSpanKeys, seen_by(rows, r, s.start), max_out[r]);
    }
  }
}

// ---- values

template <class Page, bool kWhole>
inline f32x16 value_lanes(const typename Page::Element* p, int n) {
  if constexpr (kWhole) return Page::wide(p);
  typename Page::Element lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Page::wide(lanes);
}

// out[r][column ..] = sum over the span's keys of weight[r][key] * v[key][column ..], C vectors of columns at
// a time.
template <class Page, int R, int C, bool kWhole = true>
inline void value_block(const AttentionArgs& a, const SpanPages<Page>& s, const float* weights,
                        int64_t column, float* out) {
  const int lanes = int(smaller(kLanes, a.head_dim - column));
  f32x16 sum[R][C];
  clear_sums(sum);
  for (int g = s.group_begin; g < s.group_end; ++g) {
    const int first = g * kLanes < s.begin ? s.begin : g * kLanes;
    const int end = (g + 1) * kLanes > s.end ? s.end : (g + 1) * kLanes;
    const typename Page::Element* v = s.v[g] + (first - g * kLanes) * a.head_dim + column;
    for (int key = first; key < end; ++key, v += a.head_dim) {
      add_products(
          sum, [&](int r) { return weights[r * kSpanKeys + key]; },
          [&](int c) { return value_lanes<Page, kWhole>(v + c * kLanes, lanes); });
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store_lanes(out + r * a.head_dim + column + c * kLanes, sum[r][c], lanes);
  }
}

template <class Page, int R, int C, bool kWhole = true>
inline void value_columns(const AttentionArgs& a, int count, const SpanPages<Page>& s, const float* weights,
                          int64_t column, float* out) {
  for (int r = 0; r < count; r += R) {
    value_block<Page, R, C, kWhole>(a, s, weights + r * kSpanKeys, column, out + r * a.head_dim);
  }
}

template <class Page, int R>
inline void value_rows(const AttentionArgs& a, int count, const SpanPages<Page>& s, const float* weights,
                       float* out) {
  int64_t column = 0;
  for (; column + kBeside<R> * kLanes <= a.head_dim; column += kBeside<R> * kLanes) {
    value_columns<Page, R, kBeside<R>>(a, count, s, weights, column, out);
  }
  for (; column + kLanes <= a.head_dim; column += kLanes)
    value_columns<Page, R, 1>(a, count, s, weights, column, out);
  if (column < a.head_dim) value_columns<Page, R, 1, false>(a, count, s, weights, column, out);
}

template <class Page>
inline void value_span(const AttentionArgs& a, int rows, const SpanPages<Page>& s, const float* weights,
                       float* out) {
  const int whole = rows / kRowChunk * kRowChunk;
  if (whole > 0) value_rows<Page, kRowChunk>(a, whole, s, weights, out);
  weights += whole * kSpanKeys;
  out += whole * a.head_dim;
  switch (rows - whole) {
    case 1:
      return value_rows<Page, 1>(a, 1, s, weights, out);
    case 2:
      return value_rows<Page, 2>(a, 2, s, weights, out);
    case 3:
      return value_rows<Page, 3>(a, 3, s, weights, out);
    case 4:
      return value_rows<Page, 4>(a, 4, s, weights, out);
    case 5:
      return value_rows<Page, 5>(a, 5, s, weights, out);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
