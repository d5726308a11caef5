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

#include "kernels/attention_span.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// A partial result of `rows` rows: maxima [rows], sums [rows], values [rows, head_dim].
struct Partial {
  float* max;
  float* sum;
  float* values;
};

inline Partial partial_at(float* memory, int rows) { return {memory, memory + rows, memory + 2 * rows}; }

// One span of a tile into `out`. Fetches the values while the keys are computed on, and the keys of `next`
// while the values are.
template <class Page>
inline void attend_span(const AttentionArgs& a, const TileRows& rows, const SpanPages<Page>& pages,
                        const SpanPages<Page>& next, const AttentionScratch& scratch, Partial out) {
  if (rows.count <= kFewRows) {
    const Ahead<Page> keys = keys_ahead(a, pages, next);
    score_few<Page>(a, rows.count, scratch.q, pages, scratch.scores, values_ahead(pages));
    weigh_span<Page>(a, rows, pages, scratch.scores, out.max, out.sum, keys);
    value_few<Page>(a, rows.count, pages, scratch.scores, out.values, keys);
    return;
  }
  SpanPages<F32Page> wide;
  wide.start = pages.start;
  wide.begin = pages.begin;
  wide.end = pages.end;
  wide.group_begin = pages.group_begin;
  wide.group_end = pages.group_end;
  widen_keys<Page>(a, pages, scratch.keys, wide);
  score_many(a, rows.count, scratch.q, wide, scratch.scores);
  weigh_span<Page>(a, rows, pages, scratch.scores, out.max, out.sum, NothingAhead());
  widen_values<Page>(a, pages, scratch.values, wide);
  value_many(a, rows.count, wide, scratch.scores, out.values);
}

// Factors that bring a state and a span to their common maximum. Garbage for rows that see nothing of the
// span.
struct MergeFactors {
  float top[kTileRows];
  float keep[kTileRows];
  float take[kTileRows];
};

inline MergeFactors merge_factors(int rows, const float* state_max, const float* span_max) {
  static_assert(kTileRows % kLanes == 0);
  MergeFactors f;
  for (int r = 0; r < rows; r += kLanes) {
    const int n = int(smaller(kLanes, rows - r));
    const f32x16 before = load_lanes(state_max + r, n), other = load_lanes(span_max + r, n);
    const f32x16 top = max(before, other);
    store(f.top + r, top);
    store(f.keep + r, exp2_falling(sub(before, top)));
    store(f.take + r, exp2_falling(sub(other, top)));
  }
  return f;
}

// state = state (+) span, row by row. Rows that see nothing of the span stay as they are.
inline void merge_span(const AttentionArgs& a, int rows, Partial state, Partial span) {
  const MergeFactors f = merge_factors(rows, state.max, span.max);
  for (int r = 0; r < rows; ++r) {
    if (span.sum[r] == 0.0f) continue;
    state.max[r] = f.top[r];
    state.sum[r] = __builtin_fmaf(span.sum[r], f.take[r], state.sum[r] * f.keep[r]);
    const f32x16 keep = broadcast(f.keep[r]), take = broadcast(f.take[r]);
    float* to = state.values + r * a.head_dim;
    const float* from = span.values + r * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; d += kLanes) {
      const int n = int(smaller(kLanes, a.head_dim - d));
      store_lanes(to + d, fma(load_lanes(from + d, n), take, mul(load_lanes(to + d, n), keep)), n);
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

// What a row's values are multiplied by in the end: 1 / sum, the sink's part in it.
inline float final_scale(const AttentionArgs& a, int64_t head, float highest, float sum) {
  if (!a.sinks) return 1.0f / sum;
  const float sink = a.sinks[head] * kLog2E, top = sink > highest ? sink : highest;
  float powers[kLanes];
  store(powers,
        exp2_falling(sub(select(less(iota_i32(), broadcast_i32(1)), broadcast(highest), broadcast(sink)),
                         broadcast(top))));
  return powers[0] / __builtin_fmaf(sum, powers[0], powers[1]);
}

inline void write_rows(const AttentionArgs& a, const AttentionTile& t, int rows, Partial state) {
  const int64_t group = a.heads / a.kv_heads;
  for (int r = 0; r < rows; ++r) {
    const int64_t token = a.query_start[t.seq] + (t.row_begin + r) / group;
    const int64_t head = t.kv_head * group + (t.row_begin + r) % group;
    float* out = a.out + (token * a.heads + head) * a.head_dim;
    const f32x16 scale = broadcast(final_scale(a, head, state.max[r], state.sum[r]));
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

// The pages that come after those of a unit: none if there is no next one.
template <class Page>
inline SpanPages<Page> first_pages(const AttentionArgs& a, const AttentionUnit* next) {
  if (!next) return {};
  const TileRows rows = tile_rows(a, *next->tile);
  return span_pages<Page>(a, *next->tile, rows, next->partial ? next->span : span_begin(rows));
}

template <class Page>
inline void attend_unit(const AttentionArgs& a, const AttentionUnit& unit, const AttentionUnit* next,
                        float* memory) {
  const AttentionTile& t = *unit.tile;
  const AttentionScratch scratch = attention_scratch(a, memory);
  const TileRows rows = tile_rows(a, t);
  pack_rows(a, rows, scratch.q);
  const bool one = unit.partial != nullptr;
  const int64_t begin = one ? unit.span : span_begin(rows), end = one ? unit.span + 1 : span_end(rows);
  const Partial state = partial_at(scratch.state, rows.count);
  const Partial out = partial_at(one ? unit.partial : scratch.span, rows.count);
  if (!one) clear_state(a, rows.count, state);
  SpanPages<Page> pages = span_pages<Page>(a, t, rows, begin);
  for (int64_t span = begin; span < end; ++span) {
    const SpanPages<Page> after =
        span + 1 < end ? span_pages<Page>(a, t, rows, span + 1) : first_pages<Page>(a, next);
    attend_span<Page>(a, rows, pages, after, scratch, out);
    if (!one) merge_span(a, rows.count, state, out);
    pages = after;
  }
  if (!one) write_rows(a, t, rows.count, state);
}

// All of a tile, or one span of it into a partial for attention_merge.
void attention_unit(const AttentionArgs& a, const AttentionUnit& unit, const AttentionUnit* next,
                    float* scratch) {
  switch (a.type) {
    case KvType::f32:
      return attend_unit<F32Page>(a, unit, next, scratch);
    case KvType::bf16:
      return attend_unit<Bf16Page>(a, unit, next, scratch);
    case KvType::f16:
      return attend_unit<F16Page>(a, unit, next, scratch);
    case KvType::e4m3:
      return attend_unit<E4m3Page>(a, unit, next, scratch);
    case KvType::e5m2:
      return attend_unit<E5m2Page>(a, unit, next, scratch);
    case KvType::i8:
      return attend_unit<I8Page>(a, unit, next, scratch);
  }
}

// Merges `count` consecutive partials of a tile, the same way as attention_unit does.
void attention_merge(const AttentionArgs& a, const AttentionTile& t, const float* partials, int64_t count,
                     float* scratch) {
  const int rows = t.row_end - t.row_begin;
  const Partial state = partial_at(scratch, rows);
  clear_state(a, rows, state);
  for (int64_t i = 0; i < count; ++i) {
    merge_span(a, rows, state, partial_at(const_cast<float*>(partials) + i * rows * (a.head_dim + 2), rows));
  }
  write_rows(a, t, rows, state);
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
