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
template <class Source, int M, int P>
inline void float_tile(const uint8_t* w, int64_t panel_bytes, const float* const (&x)[M], int64_t count,
                       f32x16 (&acc)[P][M]) {
  if constexpr (Source::kPairs) {
    int64_t k = 0;
    for (; k + 2 <= count; k += 2) {
      for (int p = 0; p < P; ++p) {
        const i32x16 line =
            load(reinterpret_cast<const int32_t*>(w + p * panel_bytes + k / 2 * Source::kStepBytes));
        for (int m = 0; m < M; ++m) acc[p][m] = fma(Source::even(line), broadcast(x[m][k]), acc[p][m]);
        for (int m = 0; m < M; ++m) acc[p][m] = fma(Source::odd(line), broadcast(x[m][k + 1]), acc[p][m]);
      }
    }
    if (k < count) {
      for (int p = 0; p < P; ++p) {
        const i32x16 line =
            load(reinterpret_cast<const int32_t*>(w + p * panel_bytes + k / 2 * Source::kStepBytes));
        for (int m = 0; m < M; ++m) acc[p][m] = fma(Source::even(line), broadcast(x[m][k]), acc[p][m]);
      }
    }
  } else {
    for (int64_t k = 0; k < count; ++k) {
      for (int p = 0; p < P; ++p) {
        const f32x16 v = Source::at(w + p * panel_bytes + k * Source::kStepBytes);
        for (int m = 0; m < M; ++m) acc[p][m] = fma(v, broadcast(x[m][k]), acc[p][m]);
      }
    }
  }
}

// Widens `count` k of a panel to float32, starting at an even k.
template <class Source>
inline void widen_panel(const uint8_t* w, int64_t count, float* to) {
  if constexpr (Source::kPairs) {
    for (int64_t k = 0; k < count; k += 2) {
      const i32x16 line = load(reinterpret_cast<const int32_t*>(w + k / 2 * Source::kStepBytes));
      store(to + 16 * k, Source::even(line));
      store(to + 16 * (k + 1), Source::odd(line));
    }
  } else {
    for (int64_t k = 0; k < count; ++k) store(to + 16 * k, Source::at(w + k * Source::kStepBytes));
  }
}

template <class Source>
struct FloatKernel {
  static constexpr int64_t kChunk = 512;  // k a chunk: 32 KiB of float32
  static constexpr int kFewPanels = 4;    // panels in flight for one or two rows

  template <int M>
  static void rows_at(const ActivationRows& a, int64_t row, int64_t k, const float* (&x)[M]) {
    for (int m = 0; m < M; ++m) x[m] = a.x + (row + m) * a.x_stride + k;
  }

  template <int M, int P>
  static void direct(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[P][M];
    const float* x[M];
    rows_at<M>(args.a, row, 0, x);
    for (int p = 0; p < P; ++p) {
      for (int m = 0; m < M; ++m) acc[p][m] = zero_f32();
    }
    float_tile<Source, M, P>(args.w.base + panel * args.w.panel_bytes, args.w.panel_bytes, x, args.a.cols,
                             acc);
    for (int p = 0; p < P; ++p) store_outputs<M>(args, panel + p, row, acc[p]);
  }

  template <int M>
  static void chunk(const LinearArgs& args, int64_t panel, int64_t row, const uint8_t* w, int64_t first,
                    int64_t count) {
    f32x16 acc[1][M];
    const float* x[M];
    rows_at<M>(args.a, row, first, x);
    load_outputs<M>(args, panel, row, first == 0, acc[0]);
    float_tile<PackedF32, M, 1>(w, 0, x, count, acc);
    if (first + count == args.a.cols) return store_outputs<M>(args, panel, row, acc[0]);
    store_partial<M>(args, panel, row, acc[0]);
  }

  static void many(const LinearArgs& args, int64_t panel, float* scratch) {
    const uint8_t* packed = args.w.base + panel * args.w.panel_bytes;
    for (int64_t first = 0; first < args.a.cols; first += kChunk) {
      const int64_t count = args.a.cols - first < kChunk ? args.a.cols - first : kChunk;
      widen_panel<Source>(packed + (Source::kPairs ? first / 2 : first) * Source::kStepBytes, count, scratch);
      const uint8_t* w = reinterpret_cast<const uint8_t*>(scratch);
      for_row_tiles<kFloatTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        chunk<decltype(m)::value>(args, panel, row, w, first, count);
      });
    }
  }

  static void few(const LinearArgs& args, int64_t begin, int64_t end) {
    int64_t panel = begin;
    if (args.a.rows == 1) {
      for (; panel + kFewPanels <= end; panel += kFewPanels) direct<1, kFewPanels>(args, panel, 0);
    }
    for (; panel < end; ++panel) {
      for_row_tiles<kFloatTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        direct<decltype(m)::value, 1>(args, panel, row);
      });
    }
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end, void* scratch) {
    if (args.a.rows <= kDirectRows) return few(args, begin, end);
    for (int64_t panel = begin; panel < end; ++panel) many(args, panel, static_cast<float*>(scratch));
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
