// One span of keys for one tile of query rows: scores, weights and weighted values. See attention.h for the
// whole.
#pragma once

#include "kernels/attention_pages.h"
#include "kernels/softcap.h"
#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Memory of one thread.
struct AttentionScratch {
  float* scores;  // [rows, kSpanKeys]
  float* q;       // see pack_rows
  float* keys;    // see widen_keys
  float* values;
  float* state;  // two partials
  float* span;
};

inline AttentionScratch attention_scratch(const AttentionArgs& a, float* memory) {
  AttentionScratch s;
  s.scores = memory;
  s.q = s.scores + kTileRows * kSpanKeys;
  s.keys = s.q + kTileRows * padded_dim(a.head_dim);
  s.values = s.keys + kSpanKeys * padded_dim(a.head_dim);
  s.state = s.values + kSpanKeys * padded_dim(a.head_dim);
  s.span = s.state + kTileRows * (a.head_dim + 2);
  return s;
}

// Vectors c, c + 1, ... that one load of elements gives.
template <class Page, bool kPaired>
struct Lanes {
  static constexpr int kCount = kPaired ? 2 : 1;
  f32x16 lanes[kCount];
  explicit Lanes(const typename Page::Element* p) {
    if constexpr (kPaired) {
      const Pair16 pair = Page::wide_pairs(p);
      lanes[0] = pair.even;
      lanes[1] = pair.odd;
    } else {
      lanes[0] = Page::wide(p);
    }
  }
};

// sum[r][c] += scalar(r) * vector c, the vectors read at address(c). The side that takes fewer registers is
// held, so that all sums stay in theirs.
template <class Page, bool kPaired, int R, int C, class Scalar, class At>
inline void add_products(f32x16 (&sum)[R][C], Scalar scalar, At address) {
  using Read = Lanes<Page, kPaired>;
  if constexpr (R < C) {
    f32x16 held[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) held[r] = broadcast(scalar(r));
#pragma GCC unroll 8
    for (int c = 0; c < C; c += Read::kCount) {
      const Read read(address(c));
#pragma GCC unroll 2
      for (int i = 0; i < Read::kCount; ++i) {
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) sum[r][c + i] = fma(held[r], read.lanes[i], sum[r][c + i]);
      }
    }
  } else {
    f32x16 held[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; c += Read::kCount) {
      const Read read(address(c));
#pragma GCC unroll 2
      for (int i = 0; i < Read::kCount; ++i) held[c + i] = read.lanes[i];
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const f32x16 factor = broadcast(scalar(r));
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = fma(factor, held[c], sum[r][c]);
    }
  }
}

// Puts what was summed in pairs back in order.
template <int R, int C>
inline void unpair(f32x16 (&sum)[R][C]) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c + 1 < C; c += 2) {
      const f32x16 even = sum[r][c], odd = sum[r][c + 1];
      sum[r][c] = interleave_low(even, odd);
      sum[r][c + 1] = interleave_high(even, odd);
    }
  }
}

template <int R, int C>
inline void clear_sums(f32x16 (&sum)[R][C]) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sum[r][c] = zero_f32();
  }
}

// ---- scores

template <class Next>
inline constexpr bool kAhead = true;
template <>
inline constexpr bool kAhead<NothingAhead> = false;

// Scores are kept times log2(e): weights are powers of two. With a cap that factor comes after it.
inline constexpr float kLog2E = 1.44269504088896341f;
inline float score_scale(const AttentionArgs& a) { return a.softcap > 0 ? a.scale : a.scale * kLog2E; }

// R rows, packed as [head_dim, R], against C groups of keys; kPaired: groups of pairs that share a page.
template <class Page, int R, int C, bool kPaired = false, class Next>
[[gnu::noinline]] void score_block(const AttentionArgs& a, const float* q, const SpanPages<Page>& s, int g,
                                   float* scores, const Next& ahead) {
  constexpr int kStep = kPaired ? 2 : 1;
  const typename Page::Element *k[C], *next[C] = {};
  for (int c = 0; c < C; ++c) k[c] = s.k[g + c];
  if constexpr (kAhead<Next>) {
    for (int c = 0; c < C; ++c) next[c] = ahead.from[g + c];
  }
  const int64_t stride = s.k_stride;
  f32x16 sum[R][C];
  clear_sums(sum);
  for (int64_t d = 0; d < a.head_dim; ++d) {
    if constexpr (kAhead<Next>) fetch<Page, C, kStep>(next, d * kLanes);
    add_products<Page, kPaired>(
        sum, [&](int r) { return q[d * R + r]; }, [&](int c) { return k[c] + d * stride; });
  }
  if constexpr (kPaired) unpair(sum);
  const f32x16 scale = broadcast(score_scale(a));
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store(scores + r * kSpanKeys + (g + c) * kLanes, mul(sum[r][c], scale));
  }
}

// Groups of keys in blocks of C, then of C / 2 and so on: f(GroupCount<C>(), first group).
template <int C>
struct GroupCount {};
template <int C, class Visit>
inline void for_groups(int begin, int end, Visit visit) {
  for (; begin + C <= end; begin += C) visit(GroupCount<C>(), begin);
  if constexpr (C > 1) {
    if (begin < end) for_groups<C / 2>(begin, end, visit);
  }
}

template <class Page>
inline void score_few(const AttentionArgs& a, int count, const float* q, const SpanPages<Page>& s,
                      float* scores, const Ahead<Page>& ahead) {
  for_row_chunks(count, [&]<int R>(RowCount<R>, int) {
    if constexpr (R <= kFewRows) {
      for_groups<kBeside<R>>(s.group_begin, s.group_end, [&]<int C>(GroupCount<C>, int g) {
        if constexpr (Page::kPairs && C > 1) {
          if (s.k_stride >= 2 * kLanes) return score_block<Page, R, C, true>(a, q, s, g, scores, ahead);
        }
        score_block<Page, R, C>(a, q, s, g, scores, ahead);
      });
    }
  });
}

// All rows meet a few groups of keys before the next ones: those stay in the first cache.
inline void score_many(const AttentionArgs& a, int count, const float* q, const SpanPages<F32Page>& s,
                       float* scores) {
  const NothingAhead none;
  for_groups<kBeside<kRowChunk>>(s.group_begin, s.group_end, [&]<int C>(GroupCount<C>, int g) {
    for_row_chunks(count, [&]<int R>(RowCount<R>, int row) {
      score_block<F32Page, R, C>(a, q + row * a.head_dim, s, g, scores + row * kSpanKeys, none);
    });
  });
}

// ---- weights

inline f32x16 hide(f32x16 scores, int group, Seen seen) {  // lanes of unseen keys become -inf
  const i32x16 key = add(iota_i32(), broadcast_i32(group * kLanes));
  const mask16 in = mask_and(less(broadcast_i32(seen.begin - 1), key), less(key, broadcast_i32(seen.end)));
  return select(in, scores, broadcast(-__builtin_inff()));
}

// slope * (key - position), in lanes.
inline f32x16 alibi(float slope, int64_t key, int64_t position) {
  const i32x16 distance = add(iota_i32(), broadcast_i32(int32_t(key - position)));
  return mul(to_f32(distance), broadcast(slope * kLog2E));
}

// Finishes the scores of one row: scales of keys, cap, ALiBi, hidden keys. Returns the highest.
template <class Page>
inline float settle_scores(const AttentionArgs& a, const TileRows& rows, int r, const SpanPages<Page>& pages,
                           Seen seen, float* scores) {
  const bool changed = pages.scaled || a.softcap > 0 || a.slopes;
  const f32x16 cap = broadcast(a.softcap);
  f32x16 highest = broadcast(-__builtin_inff());
  for (int g = seen.group_begin(); g < seen.group_end(); ++g) {
    const bool partly = g * kLanes < seen.begin || (g + 1) * kLanes > seen.end;
    f32x16 s = load(scores + g * kLanes);
    if (pages.scaled) s = mul(s, load(pages.k_scale[g]));
    if (a.softcap > 0) s = mul(softcap(s, cap), broadcast(kLog2E));
    if (a.slopes) s = add(s, alibi(a.slopes[rows.head[r]], pages.start + g * kLanes, rows.end[r] - 1));
    if (partly) s = hide(s, g, seen);
    if (partly || changed) store(scores + g * kLanes, s);
    highest = max(s, highest);
  }
  return reduce_max(highest);
}

// Turns settled scores into weights 2^(s - highest), times the scales of values; returns the sum of the
// weights. Row r fetches what the r-th key of each group has to fetch: memory is not to wait for these sums.
template <class Page, class Next>
inline float weigh_scores(const AttentionArgs& a, const SpanPages<Page>& pages, int r, float* scores,
                          Seen seen, float highest, const Next& ahead) {
  const f32x16 shift = broadcast(highest);
  f32x16 sum = zero_f32();
  for (int g = seen.group_begin(); g < seen.group_end(); ++g) {
    if constexpr (kAhead<Next>) {
      const char* next = reinterpret_cast<const char*>(ahead.from[g] + r * pages.v_stride);
      for (int64_t i = 0; i < a.head_dim * int64_t(sizeof(typename Page::Element)); i += 64)
        __builtin_prefetch(next + i, 0, 2);
    }
    const f32x16 weight = exp2_falling(sub(load(scores + g * kLanes), shift));
    store(scores + g * kLanes, pages.scaled ? mul(weight, load(pages.v_scale[g])) : weight);
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
template <class Page, class Next>
inline void weigh_span(const AttentionArgs& a, const TileRows& rows, const SpanPages<Page>& s, float* scores,
                       float* max_out, float* sum_out, const Next& ahead) {
  for (int chunk = 0; chunk < rows.count; chunk += kFewRows) {
    const int end = int(smaller(chunk + kFewRows, rows.count));
    for (int r = chunk; r < end; ++r) {
      const Seen seen = seen_by(rows, r, s.start);
      clear_unseen(s, seen, scores + r * kSpanKeys);
      max_out[r] = settle_scores(a, rows, r, s, seen, scores + r * kSpanKeys);
    }
    for (int r = chunk; r < end; ++r) {
      sum_out[r] =
          weigh_scores(a, s, r, scores + r * kSpanKeys, seen_by(rows, r, s.start), max_out[r], ahead);
    }
  }
}

// ---- values

// out[r][column ..] = sum over the span's keys of weight[r][key] * v[key][column ..], C vectors of columns at
// a time.
template <class Page, int R, int C, bool kWhole = true, class Next>
[[gnu::noinline]] void value_block(const AttentionArgs& a, const SpanPages<Page>& s, const float* weights,
                                   int64_t column, float* out, const Next& ahead) {
  constexpr bool kPaired = Page::kPairs && C > 1;
  constexpr int kStep = kPaired ? 2 : 1;
  const int lanes = int(smaller(kLanes, a.head_dim - column));
  const int64_t stride = s.v_stride;
  f32x16 sum[R][C];
  clear_sums(sum);
  for (int g = s.group_begin; g < s.group_end; ++g) {
    const int first = g * kLanes < s.begin ? s.begin : g * kLanes;
    const int end = (g + 1) * kLanes > s.end ? s.end : (g + 1) * kLanes;
    const typename Page::Element* v = s.v[g] + (first - g * kLanes) * stride + column;
    const typename Page::Element* next = nullptr;
    if constexpr (kAhead<Next>) next = ahead.from[g] + (first - g * kLanes) * stride + column;
    for (int key = first; key < end; ++key, v += stride) {
      if constexpr (kAhead<Next>) {
#pragma GCC unroll 8
        for (int c = 0; c < C; c += kStep) __builtin_prefetch(next + c * kLanes, 0, 2);
        next += stride;
      }
      if constexpr (kWhole) {
        add_products<Page, kPaired>(
            sum, [&](int r) { return weights[r * kSpanKeys + key]; }, [&](int c) { return v + c * kLanes; });
      } else {
        const f32x16 rest = wide_lanes<Page, false>(v, lanes);
        for (int r = 0; r < R; ++r) sum[r][0] = fma(broadcast(weights[r * kSpanKeys + key]), rest, sum[r][0]);
      }
    }
  }
  if constexpr (kPaired) unpair(sum);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store_lanes(out + r * a.head_dim + column + c * kLanes, sum[r][c], lanes);
  }
}

template <class Page>
inline void value_few(const AttentionArgs& a, int count, const SpanPages<Page>& s, const float* weights,
                      float* out, const Ahead<Page>& ahead) {
  for_row_chunks(count, [&]<int R>(RowCount<R>, int) {
    if constexpr (R <= kFewRows) {
      const int whole = int(a.head_dim / kLanes);
      for_groups<kBeside<R>>(0, whole, [&]<int C>(GroupCount<C>, int c) {
        value_block<Page, R, C>(a, s, weights, c * kLanes, out, ahead);
      });
      if (whole * kLanes < a.head_dim)
        value_block<Page, R, 1, false>(a, s, weights, whole * kLanes, out, ahead);
    }
  });
}

inline void value_many(const AttentionArgs& a, int count, const SpanPages<F32Page>& s, const float* weights,
                       float* out) {
  const NothingAhead none;
  const int whole = int(a.head_dim / kLanes);
  for_groups<kBeside<kRowChunk>>(0, whole, [&]<int C>(GroupCount<C>, int c) {
    for_row_chunks(count, [&]<int R>(RowCount<R>, int row) {
      value_block<F32Page, R, C>(a, s, weights + row * kSpanKeys, c * kLanes, out + row * a.head_dim, none);
    });
  });
  if (whole * kLanes == a.head_dim) return;
  for_row_chunks(count, [&]<int R>(RowCount<R>, int row) {
    value_block<F32Page, R, 1, false>(a, s, weights + row * kSpanKeys, whole * kLanes, out + row * a.head_dim,
                                      none);
  });
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
