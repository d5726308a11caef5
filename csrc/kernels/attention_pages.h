// The keys and values of one span: where they lie, their copy in float32, and fetching what comes next.
#pragma once

#include "kernels/attention_rows.h"
#include "kernels/kv_write.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr int kSpanGroups = int(kSpanKeys) / kLanes;

// Where the span's groups of 16 keys lie; keys [begin, end) and groups [group_begin, group_end) count from
// its start; where a page holds pairs of groups, those are whole. Element d of key j of group g: k[g][d *
// k_stride + j] and v[g][j * v_stride + d].
template <class Page>
struct SpanPages {
  int64_t start;
  int64_t k_stride, v_stride;
  int begin, end;
  int group_begin = 0, group_end = 0;
  const typename Page::Element* k[kSpanGroups];
  const typename Page::Element* v[kSpanGroups];
  bool scaled = false;  // then the factors of 16 keys and of 16 values
  const float* k_scale[kSpanGroups];
  const float* v_scale[kSpanGroups];
};

template <class Page>
inline SpanPages<Page> span_pages(const AttentionArgs& a, const AttentionTile& t, const TileRows& rows,
                                  int64_t span) {
  using Element = typename Page::Element;
  SpanPages<Page> s;
  s.start = span * kSpanKeys;
  s.k_stride = a.block_size;
  s.v_stride = a.head_dim;
  s.begin = int(larger(0, rows.first_key - s.start));
  s.end = int(smaller(kSpanKeys, rows.end_key - s.start));
  s.group_begin = s.begin / kLanes;
  s.group_end = (s.end + kLanes - 1) / kLanes;
  if (a.block_size >= 2 * kLanes) {
    s.group_begin = s.group_begin / 2 * 2;
    s.group_end = (s.group_end + 1) / 2 * 2;
  }
  for (int g = s.group_begin; g < s.group_end; ++g) {
    const int64_t key = s.start + g * kLanes;
    const int64_t page = a.block_table[t.seq * a.table_stride + key / a.block_size];
    const int64_t dim = a.head_dim + Page::kScaleElements, offset = key % a.block_size;
    const int64_t base = (page * a.kv_heads + t.kv_head) * dim * a.block_size;
    s.k[g] = static_cast<const Element*>(a.k_cache) + base + offset;
    s.v[g] = static_cast<const Element*>(a.v_cache) + base + offset * a.head_dim;
    if constexpr (Page::kScaleElements > 0) {
      const int64_t scales = base + a.head_dim * a.block_size + offset * Page::kScaleElements;
      s.k_scale[g] = reinterpret_cast<const float*>(static_cast<const Element*>(a.k_cache) + scales);
      s.v_scale[g] = reinterpret_cast<const float*>(static_cast<const Element*>(a.v_cache) + scales);
    }
  }
  s.scaled = Page::kScaleElements > 0;
  return s;
}

// ---- fetching ahead

// Where to read ahead while a group of 16 keys is worked on: 16 * head_dim elements each. One head's part of
// a page is contiguous; the processor's own prefetching ends with it.
template <class Page>
struct Ahead {
  const typename Page::Element* from[kSpanGroups];
};
struct NothingAhead {};

// The values of the same keys, in which groups lie one after the other as they are.
template <class Page>
inline Ahead<Page> values_ahead(const SpanPages<Page>& s) {
  Ahead<Page> ahead;
  for (int g = s.group_begin; g < s.group_end; ++g) ahead.from[g] = s.v[g];
  return ahead;
}

// The keys of the next span; groups of a page are interleaved there, so each takes its share of the page.
template <class Page>
inline Ahead<Page> keys_ahead(const AttentionArgs& a, const SpanPages<Page>& s, const SpanPages<Page>& next) {
  Ahead<Page> ahead;
  const int groups = int(smaller(a.block_size / kLanes, kSpanGroups));
  for (int g = s.group_begin; g < s.group_end; ++g) {
    const int first = g / groups * groups;
    const bool there = first >= next.group_begin && first < next.group_end;
    ahead.from[g] = there ? next.k[first] + (g - first) * kLanes * a.head_dim : s.v[g];
  }
  return ahead;
}

template <class Page, int C, int kStep>
inline void fetch(const typename Page::Element* const* from, int64_t element) {
#pragma GCC unroll 8
  for (int c = 0; c < C; c += kStep) __builtin_prefetch(from[c] + element * kStep, 0, 2);
}

// ---- the float32 copy

// n elements, whatever lies behind them.
template <class Page, bool kWhole>
inline f32x16 wide_lanes(const typename Page::Element* p, int n) {
  if constexpr (kWhole) return Page::wide(p);
  typename Page::Element lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Page::wide(lanes);
}

inline int64_t padded_dim(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

// Keys [group, head_dim, 16] for many rows to read.
template <class Page>
inline void widen_keys(const AttentionArgs& a, const SpanPages<Page>& s, float* to,
                       SpanPages<F32Page>& wide) {
  for (int g = s.group_begin; g < s.group_end; ++g) {
    float* keys = to + g * a.head_dim * kLanes;
    for (int64_t d = 0; d < a.head_dim; ++d) store(keys + d * kLanes, Page::wide(s.k[g] + d * s.k_stride));
    wide.k[g] = keys;
  }
  wide.k_stride = kLanes;
}

// Values [key, head_dim padded to 16].
template <class Page>
inline void widen_values(const AttentionArgs& a, const SpanPages<Page>& s, float* to,
                         SpanPages<F32Page>& wide) {
  const int64_t whole = a.head_dim / kLanes * kLanes, rest = a.head_dim - whole;
  wide.v_stride = padded_dim(a.head_dim);
  for (int g = s.group_begin; g < s.group_end; ++g) {
    float* values = to + g * kLanes * wide.v_stride;
    wide.v[g] = values;
    const int first = int(larger(s.begin - g * kLanes, 0)), end = int(smaller(s.end - g * kLanes, kLanes));
    for (int j = first; j < end; ++j) {
      const typename Page::Element* from = s.v[g] + j * s.v_stride;
      float* row = values + j * wide.v_stride;
      for (int64_t d = 0; d < whole; d += kLanes) store(row + d, Page::wide(from + d));
      if (rest > 0) store(row + whole, wide_lanes<Page, false>(from + whole, int(rest)));
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
