// Matrix kernels for float32, bfloat16 and float16 weights: float32 FMA always (on current CPUs a bf16 dot
// product is slower than widening, and rounds its own way). One chain per output: acc = fma(w, x, acc), k
// ascending.
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
  static constexpr int64_t kStepBytes = 64;  // two k of 16 rows
  static f32x16 even(i32x16 line) { return bitcast_f32(shift_left<16>(line)); }
  static f32x16 odd(i32x16 line) { return bitcast_f32(bit_and(line, broadcast_i32(int32_t(0xffff0000u)))); }
};

// M rows x P neighbouring panels. With one row several panels keep enough independent chains in flight.
template <int M>
inline void multiply_add(f32x16 w, const float* const (&x)[M], int64_t k, f32x16 (&acc)[M]) {
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) acc[m] = fma(w, broadcast(x[m][k]), acc[m]);
}

template <class Source, int M, int P>
inline void float_tile(const uint8_t* w, int64_t panel_bytes, const float* const (&x)[M], int64_t count,
                       f32x16 (&acc)[P][M]) {
  if constexpr (Source::kPairs) {
    int64_t k = 0;
    for (; k + 2 <= count; k += 2) {
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        const i32x16 line = load(reinterpret_cast<const int32_t*>(w + p * panel_bytes + k * 32));
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
        multiply_add<M>(Source::at(w + p * panel_bytes + k * Source::kStepBytes), x, k, acc[p]);
      }
    }
  }
}

template <class Source>
struct FloatKernel {
  static constexpr int kTileRows = Source::kPairs ? kPairTileRows : kFloatTileRows;
  static constexpr int kGroup = 4;  // panels that few rows go through together
  static constexpr int64_t kFewRows = 8;
  // k of a chunk for many rows, so that a panel's share stays in the first-level cache: 16 KiB.
  static constexpr int64_t kChunk = 16384 * (Source::kPairs ? 2 : 1) / Source::kStepBytes;

  static int64_t bytes_of(int64_t k) { return (Source::kPairs ? k / 2 : k) * Source::kStepBytes; }

  // Columns of P panels for M rows over k in [first, first + count). The outputs hold the chain between
  // chunks.
  template <int M, int P>
  static void tile(const LinearArgs& args, int64_t panel, int64_t row, int64_t first, int64_t count) {
    f32x16 acc[P][M];
    const float* x[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) x[m] = args.a.x + (row + m) * args.a.x_stride + first;
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) load_outputs<M>(args, panel + p, row, first == 0, acc[p]);
    const uint8_t* w = args.w.base + panel * args.w.panel_bytes + bytes_of(first);
    float_tile<Source, M, P>(w, args.w.panel_bytes, x, count, acc);
    const bool last = first + count == args.a.cols;
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      if (last) {
        store_outputs<M>(args, panel + p, row, acc[p]);
      } else {
        store_partial<M>(args, panel + p, row, acc[p]);
      }
    }
  }

  static void many(const LinearArgs& args, int64_t panel) {
    for (int64_t first = 0; first < args.a.cols; first += kChunk) {
      const int64_t count = args.a.cols - first < kChunk ? args.a.cols - first : kChunk;
      for_row_tiles<kTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        tile<decltype(m)::value, 1>(args, panel, row, first, count);
      });
    }
  }

  // Panels in flight for M rows: the fewer rows, the more panels, so that enough chains hide the latency.
  template <int M>
  static constexpr int panels_for() {
    return M == 1 ? 4 : M == 2 ? 2 : 1;
  }

  template <int M>
  static void few_rows(const LinearArgs& args, int64_t begin, int64_t end, int64_t row) {
    constexpr int kTogether = panels_for<M>();
    int64_t panel = begin;
    for (; panel + kTogether <= end; panel += kTogether) tile<M, kTogether>(args, panel, row, 0, args.a.cols);
    if constexpr (kTogether > 1) {
      for (; panel < end; ++panel) tile<M, 1>(args, panel, row, 0, args.a.cols);
    }
  }

  // Groups of panels in the outer loop: their weights are read from memory once.
  static void few(const LinearArgs& args, int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kGroup) {
      const int64_t last = end - first < kGroup ? end : first + kGroup;
      for_row_tiles<kTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        few_rows<decltype(m)::value>(args, first, last, row);
      });
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (args.a.rows <= kFewRows) return few(args, begin, end);
    for (int64_t panel = begin; panel < end; ++panel) many(args, panel);
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
