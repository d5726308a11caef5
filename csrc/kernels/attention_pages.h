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

// Lines to be read soon, handed out a few at a time while others are computed on. One head's part of a page
// is contiguous; the processor's own prefetching ends with it.
struct Ahead {
  const char* from[kSpanGroups];
  int count = 0;
  int next = 0;
  int64_t bytes = 0;  // of each
  const char* line = nullptr;
  const char* end = nullptr;

  void fetch(int lines) {
    for (; lines > 0; --lines, line += 64) {
      if (line >= end) {
        if (next >= count) return;
        line = from[next++];
        end = line + bytes;
      }
      __builtin_prefetch(line, 0, 2);
    }
  }
};

struct NothingAhead {
  void fetch(int) {}
};

// The keys (or the values) of a span, page by page.
template <class Page>
inline Ahead ahead_of(const AttentionArgs& a, const SpanPages<Page>& s,
                      const typename Page::Element* const* groups) {
  Ahead ahead;
  const int step = int(smaller(a.block_size / kLanes, kSpanGroups));
  const bool keys = groups == s.k;
  ahead.bytes = int64_t(sizeof(typename Page::Element)) * a.head_dim * (keys ? a.block_size : step * kLanes);
  for (int g = s.group_begin; g < s.group_end; g = (g / step + 1) * step)
    ahead.from[ahead.count++] = reinterpret_cast<const char*>(groups[g]);
  return ahead;
}

// Lines that reading `elements` of a page takes, rounded up.
template <class Page>
inline int lines_of(int64_t elements) {
  return int((elements * int64_t(sizeof(typename Page::Element)) + 63) / 64);
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
