// Matrix kernels for float32, bfloat16 and float16 weights, and for e4m3 with scales, w = code * scale:
// float32 FMA always (on current CPUs a bf16 dot product is slower than widening, and rounds its own way).
// One chain per output: acc = fma(w, x, acc), k ascending.
//
// Few rows read the weights as they lie, in one pass. For many rows the weights of a few panels and a chunk
// of k are widened once; they stay in the second-level cache while the rows pass in tiles, and a tile's share
// of the rows stays in the first. The outputs hold the chains between chunks, which is exact.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct PackedF32 {
  static constexpr bool kPairs = false;
  static constexpr int64_t kStepBytes = 64;  // one k of 16 rows
  static f32x16 at(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};

struct PackedF16 {
  static constexpr bool kPairs = false;
  static constexpr int64_t kStepBytes = 32;
  static f32x16 at(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};

// Two k a line: the even one in the low halves of 32-bit lanes, the odd one in the high halves.
struct PackedBF16 {
  static constexpr bool kPairs = true;
  static constexpr int64_t kStepBytes = 32;
  static f32x16 even(i32x16 line) { return bitcast_f32(shift_left<16>(line)); }
  static f32x16 odd(i32x16 line) { return bitcast_f32(bit_and(line, broadcast_i32(int32_t(0xffff0000u)))); }
};

struct PackedE4M3 {
  static constexpr bool kPairs = false;
  static constexpr int64_t kStepBytes = 16;
  static f32x16 at(const uint8_t* panel, int64_t k, const uint8_t* scales) {
    return mul(load_e4m3(panel + k * kStepBytes), load(reinterpret_cast<const float*>(scales)));
  }
};

template <class Source>
constexpr bool kScaled = false;
template <>
constexpr bool kScaled<PackedE4M3> = true;

// acc[p][m] += weight k of panel p x row m.
template <int M>
inline void multiply_add(f32x16 w, const float* const (&x)[M], int64_t k, f32x16 (&acc)[M]) {
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) acc[m] = fma(w, broadcast(x[m][k]), acc[m]);
}

// ---- few rows: M rows x P neighbouring panels, all of k. With one row several panels keep enough
// independent chains in flight.

// Bytes that are asked for ahead in each panel.
constexpr int64_t kFloatAhead = 1024;

template <class Source, int M, int P>
inline void float_columns(const uint8_t* w, int64_t panel_bytes, const float* const (&x)[M], int64_t count,
                          f32x16 (&acc)[P][M]) {
  if constexpr (Source::kPairs) {
    int64_t k = 0;
    for (; k + 2 <= count; k += 2) {
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        const uint8_t* at = w + p * panel_bytes + k * 32;
        prefetch_ahead(at, kFloatAhead, 64);
        const i32x16 line = load(reinterpret_cast<const int32_t*>(at));
        multiply_add<M>(Source::even(line), x, k, acc[p]);
        multiply_add<M>(Source::odd(line), x, k + 1, acc[p]);
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P && k < count; ++p) {
      const i32x16 line = load(reinterpret_cast<const int32_t*>(w + p * panel_bytes + k * 32));
      multiply_add<M>(Source::even(line), x, k, acc[p]);
    }
  } else {
    for (int64_t k = 0; k < count; ++k) {
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        const uint8_t* at = w + p * panel_bytes + k * Source::kStepBytes;
        prefetch_ahead(at, kFloatAhead, Source::kStepBytes);
        multiply_add<M>(Source::at(at), x, k, acc[p]);
      }
    }
  }
}

// The same of e4m3; count is all of a panel's k, a multiple of 32.
template <int M, int P>
inline void scaled_columns(const uint8_t* w, int64_t panel_bytes, const float* const (&x)[M], int64_t count,
                           f32x16 (&acc)[P][M]) {
  constexpr int64_t kPart = 4;  // a line
  for (int64_t k = 0; k < count; k += kPart) {
    const int64_t scales = LayoutE4M3::scales_of(count, k / LayoutE4M3::kGroup);
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* panel = w + p * panel_bytes;
      prefetch_ahead(panel + k * PackedE4M3::kStepBytes, kFloatAhead, kLine);
      OCTAVO_UNROLL
      for (int i = 0; i < kPart; ++i)
        multiply_add<M>(PackedE4M3::at(panel, k + i, panel + scales), x, k + i, acc[p]);
    }
  }
}

template <class Source>
struct FewRows {
  static constexpr int kRegisterRows = Source::kPairs ? kPairTileRows : kFloatTileRows;
  static constexpr int kTileRows = kRegisterRows < 8 ? kRegisterRows : 8;  // more pointers need spilling
  static constexpr int kGroup = 4;  // panels that all rows go through before the next ones

  template <int M, int P>
  static void tile(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[P][M];
    const float* x[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) x[m] = args.a.x + (row + m) * args.a.x_stride;
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) load_outputs<M>(args, panel + p, row, true, acc[p]);
    const uint8_t* w = args.w.base + panel * args.w.panel_bytes;
    if constexpr (kScaled<Source>) {
      scaled_columns<M, P>(w, args.w.panel_bytes, x, args.a.cols, acc);
    } else {
      float_columns<Source, M, P>(w, args.w.panel_bytes, x, args.a.cols, acc);
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) store_outputs<M>(args, panel + p, row, acc[p]);
  }

  // The fewer rows, the more panels, so that enough chains hide the latency.
  template <int M>
  static constexpr int panels_for() {
    return M == 1 ? 4 : M * kFloatPanels * 2 <= kFloatTileRows ? 2 * kFloatPanels : kFloatPanels;
  }

  template <int M>
  static void columns(const LinearArgs& args, int64_t begin, int64_t end, int64_t row) {
    constexpr int kTogether = panels_for<M>();
    int64_t panel = begin;
    for (; panel + kTogether <= end; panel += kTogether) tile<M, kTogether>(args, panel, row);
    if constexpr (kTogether > 1) {
      for (; panel < end; ++panel) tile<M, 1>(args, panel, row);
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kGroup) {
      const int64_t last = end - first < kGroup ? end : first + kGroup;
      for_even_tiles<kTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        columns<decltype(m)::value>(args, first, last, row);
      });
    }
  }
};

// ---- many rows

constexpr int64_t kFloatChunk = 256;               // k: 12 KiB of 12 rows
constexpr int64_t kFloatGroup = 8 * kFloatPanels;  // panels whose chunk is widened together: 128 or 256 KiB
constexpr int64_t kStepsAhead = 16;                // k asked for ahead of a tile's weights

// A chunk of a tile's rows, dense: rows of a power of two apart would fall on the same cache sets.
struct RowsChunk {
  alignas(64) float x[kFloatTileRows][kFloatChunk];

  void copy(const ActivationRows& a, int64_t row, int rows, int64_t first, int64_t count) {
    for (int m = 0; m < rows; ++m) {
      memcpy(x[m], a.x + (row + m) * a.x_stride + first, size_t(count) * sizeof(float));
    }
  }
};

// Widens k in [0, count) of a panel: k goes to to[k * step]. Pairs may write one k more, which is padding.
template <class Source>
inline void widen_panel(const uint8_t* w, int64_t count, float* to, int64_t step) {
  if constexpr (Source::kPairs) {
    for (int64_t k = 0; k < count; k += 2, to += 2 * step) {
      const i32x16 line = load(reinterpret_cast<const int32_t*>(w + k * Source::kStepBytes));
      store(to, Source::even(line));
      store(to + step, Source::odd(line));
    }
  } else {
    for (int64_t k = 0; k < count; ++k, to += step) store(to, Source::at(w + k * Source::kStepBytes));
  }
}

// The same of k in [first, first + count) of an e4m3 panel.
inline void widen_scaled(const LinearArgs& args, int64_t panel, int64_t first, int64_t count, float* to,
                         int64_t step) {
  const uint8_t* w = args.w.base + panel * args.w.panel_bytes;
  for (int64_t k = first; k < first + count; ++k, to += step) {
    const int64_t scales = LayoutE4M3::scales_of(args.a.cols, k / LayoutE4M3::kGroup);
    store(to, PackedE4M3::at(w, k, w + scales));
  }
}

// What a tile computes: rows [row, row + M) of panels [panel, panel + P), k in [first, first + count).
struct ChunkTile {
  int64_t row, panel, first, count;
  const uint8_t* ahead;  // weights as they lie that are wanted next: a step a k is asked for
  int64_t ahead_step;
};

// Outputs often lie a power of two apart, so that caches do not keep them between chunks: they are asked for
// a tile ahead.
template <int M, int P>
[[gnu::always_inline]] inline void prefetch_outputs(const LinearArgs& args, int64_t panel, int64_t row) {
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) __builtin_prefetch(output(args, panel + p, row + m), 1);
  }
}

// Asks for k in [0, Count) of M rows.
template <int M, int Count>
[[gnu::always_inline]] inline void prefetch_rows(const float* x, int64_t stride) {
  for (int m = 0; m < M; ++m) {
    OCTAVO_UNROLL
    for (int i = 0; i < Count; i += 16) __builtin_prefetch(x + m * stride + i, 0, 2);
  }
}

// w: the tile's widened weights [k][P][16].
template <int M, int P>
[[gnu::noinline]] void chunk_tile(const LinearArgs& args, const ChunkTile& t, const float* w,
                                  const RowsChunk& rows) {
  f32x16 acc[P][M];
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) load_outputs<M>(args, t.panel + p, t.row, t.first == 0, acc[p]);
  const int64_t count = t.count;
  for (int64_t k = 0; k < count; ++k) {
    f32x16 weight[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) weight[p] = load(w + (k * P + p) * kPanelRows);
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      __builtin_prefetch(w + ((k + kStepsAhead) * P + p) * kPanelRows);
      __builtin_prefetch(t.ahead + p * args.w.panel_bytes + k * t.ahead_step, 0, 2);
    }
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      const f32x16 x = broadcast(rows.x[m][k]);
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) acc[p][m] = fma(weight[p], x, acc[p][m]);
    }
  }
  const bool last = t.first + count == args.a.cols;
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    if (last) {
      store_outputs<M>(args, t.panel + p, t.row, acc[p]);
    } else {
      store_partial<M>(args, t.panel + p, t.row, acc[p]);
    }
  }
}

template <class Source>
struct ManyRows {
  static constexpr int P = kFloatPanels;

  // f(Rows<panels>, first panel) over [begin, end) in tiles of P, then single panels.
  template <class F>
  static void for_panels(int64_t begin, int64_t end, F&& f) {
    int64_t panel = begin;
    for (; panel + P <= end; panel += P) f(Rows<P>{}, panel);
    if constexpr (P > 1) {
      for (; panel < end; ++panel) f(Rows<1>{}, panel);
    }
  }

  static const uint8_t* weights(const LinearArgs& args, int64_t panel, int64_t k) {
    return args.w.base + panel * args.w.panel_bytes + k * Source::kStepBytes;
  }

  struct Chunk {
    int64_t begin, end;    // panels
    int64_t first, count;  // k
  };

  // The first tile of rows takes the next chunk of weights along: memory is not waited for between chunks.
  static void aim_ahead(const LinearArgs& args, const Chunk& c, ChunkTile& t) {
    const bool same_panels = c.first + c.count < args.a.cols;
    t.ahead =
        same_panels ? weights(args, t.panel, c.first + c.count) : weights(args, t.panel + c.end - c.begin, 0);
    t.ahead_step = Source::kStepBytes;
  }

  template <int M, int N>
  static void tile(const LinearArgs& args, const Chunk& c, const float* w, const RowsChunk& rows,
                   int64_t panel, int64_t row) {
    ChunkTile t{row, panel, c.first, c.count, weights(args, panel, c.first), 0};
    if (row == 0) aim_ahead(args, c, t);
    const bool more = panel + N < c.end;
    if (c.first != 0) prefetch_outputs<M, N>(args, more ? panel + N : c.begin, more ? row : row + M);
    constexpr int kShare = int(kFloatChunk * P / kFloatGroup);  // of the next tile's rows
    const int64_t k = (panel - c.begin) / P * kShare;
    if (row + 2 * M <= args.a.rows && k < c.count) {
      prefetch_rows<M, kShare>(args.a.x + (row + M) * args.a.x_stride + c.first + k, args.a.x_stride);
    }
    chunk_tile<M, N>(args, t, w, rows);
  }

  static void all_rows(const LinearArgs& args, const Chunk& c, const float* wide) {
    RowsChunk rows;
    for_even_tiles<kFloatTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
      rows.copy(args.a, row, decltype(m)::value, c.first, c.count);
      for_panels(c.begin, c.end, [&](auto n, int64_t panel) OCTAVO_INLINE_LAMBDA {
        const float* w = wide + (panel - c.begin) * kFloatChunk * kPanelRows;
        tile<decltype(m)::value, decltype(n)::value>(args, c, w, rows, panel, row);
      });
    });
  }

  static void group(const LinearArgs& args, int64_t begin, int64_t end, float* wide) {
    for (int64_t first = 0; first < args.a.cols; first += kFloatChunk) {
      const int64_t count = args.a.cols - first < kFloatChunk ? args.a.cols - first : kFloatChunk;
      for_panels(begin, end, [&](auto n, int64_t panel) OCTAVO_INLINE_LAMBDA {
        constexpr int N = decltype(n)::value;
        float* to = wide + (panel - begin) * kFloatChunk * kPanelRows;
        for (int p = 0; p < N; ++p) {
          if constexpr (kScaled<Source>) {
            widen_scaled(args, panel + p, first, count, to + p * kPanelRows, N * kPanelRows);
          } else {
            widen_panel<Source>(weights(args, panel + p, first), count, to + p * kPanelRows, N * kPanelRows);
          }
        }
      });
      all_rows(args, {begin, end, first, count}, wide);
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    alignas(64) float wide[kFloatGroup * kFloatChunk * kPanelRows];
    for (int64_t first = begin; first < end; first += kFloatGroup) {
      group(args, first, end - first < kFloatGroup ? end : first + kFloatGroup, wide);
    }
  }
};

template <class Source>
struct FloatKernel {
  static constexpr int64_t kFewRows = 16;  // up to here widening in registers costs less

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (args.a.rows <= kFewRows) {
      FewRows<Source>::run(args, begin, end);
    } else {
      ManyRows<Source>::run(args, begin, end);
    }
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
