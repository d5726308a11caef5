// Paged attention, prefill and decode alike.
//
// The query rows of a tile (tokens x heads of one KV group) share each K and V line that is read. Keys are
// taken in spans of kSpanKeys aligned to absolute positions. Within a span: scores with keys in lanes (one
// fma chain over head_dim each), the span's maximum, weights, their sum in 16 lanes (key % 16) and the fixed
// tree, then the weighted values with head_dim in lanes (one fma chain over the keys, ascending). Spans are
// merged in ascending order as in online softmax (Milakov and Gimelshein, 2018). A row's chains depend on its
// own position only: not on the tile, the chunk of the prefill, the other sequences or the thread. A key that
// a row may not see has weight zero exactly.
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

inline f32x16 hide(f32x16 scores, int group, int begin,
                   int end) {  // lanes outside of [begin, end) become -inf
  const i32x16 key = add(iota_i32(), broadcast_i32(group * kLanes));
  const mask16 seen = mask_and(less(broadcast_i32(begin - 1), key), less(key, broadcast_i32(end)));
  return select(seen, scores, broadcast(-__builtin_inff()));
}

// Turns the scores of one row into weights e^(s - max); keys [begin, end) of the span are visible.
inline void weigh_row(const AttentionArgs& a, float* scores, int begin, int end, float* max_out,
                      float* sum_out) {
  const int group_begin = begin / kLanes, group_end = (end + kLanes - 1) / kLanes;
  const f32x16 cap = broadcast(a.softcap);
  f32x16 highest = broadcast(-__builtin_inff());
  for (int g = group_begin; g < group_end; ++g) {
    f32x16 s = load(scores + g * kLanes);
    if (a.softcap > 0) s = softcap(s, cap);
    if (g * kLanes < begin || (g + 1) * kLanes > end) s = hide(s, g, begin, end);
    if (a.softcap > 0 || g == group_begin || g == group_end - 1) store(scores + g * kLanes, s);
    highest = max(s, highest);
  }
  const float top = reduce_max(highest);
  const f32x16 shift = broadcast(top);
  f32x16 sum = zero_f32();
  for (int g = group_begin; g < group_end; ++g) {
    const f32x16 weight = exp(sub(load(scores + g * kLanes), shift));
    store(scores + g * kLanes, weight);
    sum = add(sum, weight);
  }
  *max_out = top;
  *sum_out = reduce_add(sum);
}

template <class Page>
inline void weigh_span(const AttentionArgs& a, const TileRows& rows, const SpanPages<Page>& s, float* scores,
                       float* max_out, float* sum_out) {
  for (int r = 0; r < rows.count; ++r) {
    float* row = scores + r * kSpanKeys;
    const int begin = int(larger(0, rows.first[r] - s.start)),
              end = int(smaller(kSpanKeys, rows.end[r] - s.start));
    const int seen_begin = begin < end ? begin / kLanes : s.group_end;
    const int seen_end = begin < end ? (end + kLanes - 1) / kLanes : s.group_end;
    for (int g = s.group_begin; g < seen_begin; ++g) store(row + g * kLanes, zero_f32());
    for (int g = seen_end; g < s.group_end; ++g) store(row + g * kLanes, zero_f32());
    max_out[r] = -__builtin_inff();
    sum_out[r] = 0.0f;
    if (begin < end) weigh_row(a, row, begin, end, max_out + r, sum_out + r);
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

// ---- spans and their merge

// A partial result of `rows` rows: maxima [rows], sums [rows], values [rows, head_dim].
struct Partial {
  float* max;
  float* sum;
  float* values;
};

inline Partial partial_at(float* memory, int rows) { return {memory, memory + rows, memory + 2 * rows}; }

template <class Page>
inline void attend_span(const AttentionArgs& a, const AttentionTile& t, const TileRows& rows, int64_t span,
                        Partial out, float* scores) {
  const SpanPages<Page> pages = span_pages<Page>(a, t, rows, span);
  score_span<Page>(a, rows, pages, scores);
  weigh_span<Page>(a, rows, pages, scores, out.max, out.sum);
  value_span<Page>(a, rows.count, pages, scores, out.values);
}

inline float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(broadcast(x)));
  return lanes[0];
}

// state = state (+) span, row by row. Rows that see nothing of the span stay as they are.
inline void merge_span(const AttentionArgs& a, int rows, Partial state, Partial span) {
  for (int r = 0; r < rows; ++r) {
    if (span.sum[r] == 0.0f) continue;
    const float top = state.max[r] > span.max[r] ? state.max[r] : span.max[r];
    const float keep = exp_of(state.max[r] - top), take = exp_of(span.max[r] - top);
    state.max[r] = top;
    state.sum[r] = __builtin_fmaf(span.sum[r], take, state.sum[r] * keep);
    const f32x16 keep16 = broadcast(keep), take16 = broadcast(take);
    float* to = state.values + r * a.head_dim;
    const float* from = span.values + r * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; d += kLanes) {
      const int n = int(smaller(kLanes, a.head_dim - d));
      store_lanes(to + d, fma(load_lanes(from + d, n), take16, mul(load_lanes(to + d, n), keep16)), n);
    }
  }
}

inline void clear_state(const AttentionArgs& a, int rows, Partial state) {
  for (int r = 0; r < rows; ++r) {
    state.max[r] = -__builtin_inff();
    state.sum[r] = 0.0f;
  }
  for (int64_t i = 0; i < rows * a.head_dim; ++i) state.values[i] = 0.0f;
}

inline void write_rows(const AttentionArgs& a, const AttentionTile& t, int rows, Partial state) {
  const int64_t group = a.heads / a.kv_heads;
  for (int r = 0; r < rows; ++r) {
    const int64_t token = a.query_start[t.seq] + (t.row_begin + r) / group;
    const int64_t head = t.kv_head * group + (t.row_begin + r) % group;
    float* out = a.out + (token * a.heads + head) * a.head_dim;
    const f32x16 scale = broadcast(1.0f / state.sum[r]);
    for (int64_t d = 0; d < a.head_dim; d += kLanes) {
      const int n = int(smaller(kLanes, a.head_dim - d));
      // fma with +0: a zero has one sign, however many keys of weight zero went into it
      store_lanes(out + d, fma(load_lanes(state.values + r * a.head_dim + d, n), scale, zero_f32()), n);
    }
  }
}

// ---- entry points

inline int64_t span_begin(const TileRows& rows) { return rows.first_key / kSpanKeys; }
inline int64_t span_end(const TileRows& rows) { return (rows.end_key + kSpanKeys - 1) / kSpanKeys; }

template <class Page>
inline void attend_tile(const AttentionArgs& a, const AttentionTile& t, float* scratch) {
  const TileRows rows = tile_rows(a, t);
  float* scores = scratch;
  float* memory = scores + kTileRows * kSpanKeys;
  const Partial state = partial_at(memory, rows.count);
  const Partial span = partial_at(memory + rows.count * (a.head_dim + 2), rows.count);
  clear_state(a, rows.count, state);
  for (int64_t s = span_begin(rows); s < span_end(rows); ++s) {
    attend_span<Page>(a, t, rows, s, span, scores);
    merge_span(a, rows.count, state, span);
  }
  write_rows(a, t, rows.count, state);
}

// All of a tile, spans in turn.
void attention_tile(const AttentionArgs& a, const AttentionTile& t, float* scratch) {
  switch (a.type) {
    case KvType::f32:
      return attend_tile<F32Page>(a, t, scratch);
    case KvType::bf16:
      return attend_tile<Bf16Page>(a, t, scratch);
    case KvType::f16:
      return attend_tile<F16Page>(a, t, scratch);
  }
}

// One span of a tile into a partial of (row_end - row_begin) * (head_dim + 2) floats, for attention_merge.
void attention_span(const AttentionArgs& a, const AttentionTile& t, int64_t span, float* partial,
                    float* scratch) {
  const TileRows rows = tile_rows(a, t);
  const Partial out = partial_at(partial, rows.count);
  switch (a.type) {
    case KvType::f32:
      return attend_span<F32Page>(a, t, rows, span, out, scratch);
    case KvType::bf16:
      return attend_span<Bf16Page>(a, t, rows, span, out, scratch);
    case KvType::f16:
      return attend_span<F16Page>(a, t, rows, span, out, scratch);
  }
}

// Merges `count` consecutive partials of a tile, the same way as attention_tile does.
void attention_merge(const AttentionArgs& a, const AttentionTile& t, float* partials, int64_t count,
                     float* scratch) {
  const int rows = t.row_end - t.row_begin;
  const Partial state = partial_at(scratch, rows);
  clear_state(a, rows, state);
  for (int64_t i = 0; i < count; ++i) {
    merge_span(a, rows, state, partial_at(partials + i * rows * (a.head_dim + 2), rows));
  }
  write_rows(a, t, rows, state);
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
