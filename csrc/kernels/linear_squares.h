// Matrix kernels for many rows where one instruction multiplies two rows by two columns (simd/squares.h).
// Bits are those of linear_block.h and linear_super.h: integers are exact, and each output's chain of float
// operations is the same, in ascending blocks.
//
// Some k of a panel are unpacked into scratch as right operands, zero points taken off; then all rows meet
// them, six at a time, in two halves of eight columns: 12 sums, 12 accumulators and 7 operands would be 31
// registers, of which GCC 12 keeps some in memory. What it pays is counted, not measured; see csrc/README.md.
#pragma once

#include "octavo/simd/squares.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int64_t kSquaresFrom = 6;  // rows; fewer are not worth the scratch and go through DotRows
constexpr int kHalf = kSquares / 2;

// ---- products

// P pairs of rows by eight columns: what is summed in integers.
template <int P>
using SquareSums = i32x4[P][kHalf];

template <int P>
[[gnu::always_inline]] inline void start_sums(SquareSums<P>& sums, int32_t value) {
  OCTAVO_UNROLL
  for (int i = 0; i < P; ++i) {
    OCTAVO_UNROLL
    for (int c = 0; c < kHalf; ++c) sums[i][c] = square_of(value);
  }
}

// Eight k.
template <int P>
[[gnu::always_inline]] inline void add_products(SquareSums<P>& sums, const int8_t* const (&rows)[P],
                                                const int8_t (*columns)[16]) {
  s8x16 right[kHalf];
  OCTAVO_UNROLL
  for (int c = 0; c < kHalf; ++c) right[c] = load_bytes(columns[c]);
  OCTAVO_UNROLL
  for (int i = 0; i < P; ++i) {
    const s8x16 left = load_bytes(rows[i]);
    OCTAVO_UNROLL
    for (int c = 0; c < kHalf; ++c) sums[i][c] = dot8(sums[i][c], left, right[c]);
  }
}

// What the block formats multiply.
template <bool HasMin>
struct BlockProducts {
  using Row = PairBlock32;
  static constexpr int64_t kChunk = 32;  // 20 or 24 KiB of scratch

  struct alignas(64) Unpacked {
    int8_t w[4][kSquares][16];
    float scale[kSquares][4];
    float min[HasMin ? kSquares : 1][4];
  };

  // Columns from 2 * first on.
  template <int P>
  static void multiply(const Unpacked* w, int64_t count, const Row* const (&a)[P], int first,
                       f32x4 (&acc)[P][kHalf]) {
    for (int64_t b = 0; b < count; ++b) {
      SquareSums<P> sums;
      start_sums<P>(sums, kExactStart);
      OCTAVO_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int8_t* rows[P];
        OCTAVO_UNROLL
        for (int i = 0; i < P; ++i) rows[i] = a[i][b].q[k][0];
        add_products<P>(sums, rows, w[b].w[k] + first);
      }
      OCTAVO_UNROLL
      for (int i = 0; i < P; ++i) {
        const f32x4 scale_a = load_square(a[i][b].scale[0]), fsum = load_square(a[i][b].fsum[0]);
        OCTAVO_UNROLL
        for (int c = 0; c < kHalf; ++c) {
          const f32x4 scale = mul(load_square(w[b].scale[first + c]), scale_a);
          acc[i][c] = fma(exact_f32(sums[i][c]), scale, acc[i][c]);
          if constexpr (HasMin) acc[i][c] = fma(load_square(w[b].min[first + c]), fsum, acc[i][c]);
        }
      }
    }
  }
};

// What the K formats multiply.
template <int Sub, bool HasMin>
struct SuperProducts {
  using Row = PairBlock256;
  static constexpr int64_t kChunk = 4;  // 22 to 27 KiB of scratch
  static constexpr int kSubs = 256 / Sub;
  static constexpr int kOcts = kSubs / 8;  // minimums are multiplied by eight sub-blocks at a time

  struct alignas(64) Unpacked {
    int8_t w[32][kSquares][16];
    int32_t scale[kSubs][kSquares][4];
    int8_t mins[HasMin ? kOcts : 1][kSquares][16];
    float d[kSquares][4], dmin[kSquares][4];
  };

  static const PairSums* sums_of(const Row& row) { return Sub == 32 ? row.sums32 : row.sums16; }

  // subscale * dot over all sub-blocks.
  template <int P>
  [[gnu::always_inline]] static void add_sub_blocks(const Unpacked& w, const Row* const (&a)[P], int64_t s,
                                                    int first, SquareSums<P>& isum) {
    constexpr int kDeep = Sub / 8;
    for (int sub = 0; sub < kSubs; ++sub) {
      SquareSums<P> dot;
      start_sums<P>(dot, 0);
      OCTAVO_UNROLL
      for (int k = 0; k < kDeep; ++k) {
        const int8_t* rows[P];
        OCTAVO_UNROLL
        for (int i = 0; i < P; ++i) rows[i] = a[i][s].q[kDeep * sub + k][0];
        add_products<P>(dot, rows, w.w[kDeep * sub + k] + first);
      }
      OCTAVO_UNROLL
      for (int c = 0; c < kHalf; ++c) {
        const i32x4 scale = load_square(w.scale[sub][first + c]);
        OCTAVO_UNROLL
        for (int i = 0; i < P; ++i) isum[i][c] = multiply_add(dot[i][c], scale, isum[i][c]);
      }
    }
  }

  // submin * (sum of the activations) over all sub-blocks.
  static i32x4 imin(const Unpacked& w, const PairSums* sums, int square) {
    i32x4 low = square_of(0), high = square_of(0);
    OCTAVO_UNROLL
    for (int o = 0; o < kOcts; ++o) {
      const s8x16 mins = load_bytes(w.mins[o][square]);
      low = dot8(low, load_bytes(sums[o].low[0]), mins);
      high = dot8(high, load_bytes(sums[o].high[0]), mins);
    }
    return add_128(low, high);
  }

  template <int P>
  static void multiply(const Unpacked* w, int64_t count, const Row* const (&a)[P], int first,
                       f32x4 (&acc)[P][kHalf]) {
    for (int64_t s = 0; s < count; ++s) {
      SquareSums<P> isum;
      start_sums<P>(isum, 0);
      add_sub_blocks<P>(w[s], a, s, first, isum);
      OCTAVO_UNROLL
      for (int i = 0; i < P; ++i) {
        const f32x4 scale_a = load_square(a[i][s].scale[0]);
        OCTAVO_UNROLL
        for (int c = 0; c < kHalf; ++c) {
          const int at = first + c;
          acc[i][c] = fma(to_f32(isum[i][c]), mul(load_square(w[s].d[at]), scale_a), acc[i][c]);
          if constexpr (HasMin) {
            const f32x4 imins = to_f32(imin(w[s], sums_of(a[i][s]), at));
            acc[i][c] = fma(neg(imins), mul(load_square(w[s].dmin[at]), scale_a), acc[i][c]);
          }
        }
      }
    }
  }
};

// Some k of a panel with all rows. One copy for all formats that multiply alike.
template <class Products>
struct SquareTiles {
  using Unpacked = typename Products::Unpacked;
  using Row = typename Products::Row;

  struct Chunk {
    int64_t first, count;  // blocks
    bool last;
  };

  // M = 2 P rows, or one less where they end in the middle of a pair.
  template <int M, int P>
  static void tile(const LinearArgs& args, const Unpacked* w, const Chunk& chunk, int64_t panel,
                   int64_t row) {
    f32x16 rows[M];
    load_outputs<M>(args, panel, row, chunk.first == 0, rows);
    f32x4 acc[2][P][kHalf];
    const Row* a[P];
    for (int i = 0; i < P; ++i) {
      f32x4 squares[kSquares];
      to_squares(rows[2 * i], rows[2 * i + 1 < M ? 2 * i + 1 : 2 * i], squares);
      for (int c = 0; c < kSquares; ++c) acc[c / kHalf][i][c % kHalf] = squares[c];
      a[i] = pair_blocks<const Row>(args.a, row + 2 * i) + chunk.first;
    }
    Products::template multiply<P>(w, chunk.count, a, 0, acc[0]);
    Products::template multiply<P>(w, chunk.count, a, kHalf, acc[1]);
    for (int i = 0; i < P; ++i) {
      f32x4 squares[kSquares];
      for (int c = 0; c < kSquares; ++c) squares[c] = acc[c / kHalf][i][c % kHalf];
      rows[2 * i] = first_row(squares);
      if (2 * i + 1 < M) rows[2 * i + 1] = second_row(squares);
    }
    if (chunk.last) {
      store_outputs<M>(args, panel, row, rows);
    } else {
      store_partial<M>(args, panel, row, rows);
    }
  }

  [[gnu::noinline]] static void multiply(const LinearArgs& args, const Unpacked* w, const Chunk& chunk,
                                         int64_t panel) {
    for_even_tiles<3>((args.a.rows + 1) / 2, [&](auto pairs, int64_t first) OCTAVO_INLINE_LAMBDA {
      constexpr int P = decltype(pairs)::value;
      if (2 * (first + P) <= args.a.rows) {
        tile<2 * P, P>(args, w, chunk, panel, 2 * first);
      } else {
        tile<2 * P - 1, P>(args, w, chunk, panel, 2 * first);
      }
    });
  }
};

// ---- weights

// Unpacked weights less their zero points: what is left is a signed byte.
template <class L>
[[gnu::always_inline]] inline void put_weights(int8_t (*out)[16], GroupPair g, u8x64 zero) {
  if constexpr (L::kZero == 0 && !L::kHasZeros) return put_columns(out, g.even, g.odd);
  put_columns(out, sub(g.even, zero), sub(g.odd, zero));
}

template <class L>
struct BlockSquares {
  using FewRows = BlockKernel<L>;
  using Products = BlockProducts<L::kHasMin>;
  using Unpacked = typename Products::Unpacked;

  static int64_t num_blocks(const LinearArgs& args) { return padded_blocks(args.w.cols); }

  // Of each column; those of groups are at most 16.
  static u8x64 zero_points(const PackedBlocks<L>& w, int64_t block) {
    if constexpr (L::kHasZeros) {
      const i32x16 words = group_words<L>(w.super(block), int(block % L::kBlocks));
      const i32x16 zeros = bit_and(words, broadcast_i32(int32_t(kZeroPointBits)));
      return bitcast_u8(mul(zeros, broadcast_i32(0x01010101)));
    } else {
      return broadcast_u8(L::kZero);
    }
  }
  static void unpack(const uint8_t* panel, int64_t block, Unpacked& out) {
    const PackedBlocks<L> w{panel, true};
    w.prefetch(block);
    const u8x64 zero = zero_points(w, block);
    put_weights<L>(out.w[0], w.template pair<0>(block), zero);
    put_weights<L>(out.w[1], w.template pair<1>(block), zero);
    put_weights<L>(out.w[2], w.template pair<2>(block), zero);
    put_weights<L>(out.w[3], w.template pair<3>(block), zero);
    put_for_both(out.scale, w.scale(block));
    if constexpr (L::kHasMin) put_for_both(out.min, w.min(block));
  }
};

template <class L>
struct SuperSquares {
  using FewRows = SuperKernel<L>;
  using Products = SuperProducts<L::kSub, L::kHasMin>;
  using Unpacked = typename Products::Unpacked;

  static int64_t num_blocks(const LinearArgs& args) { return args.w.cols / L::kSuper; }

  // Four bytes a lane, from int16 of two words.
  static u8x64 four_mins(i32x16 first, i32x16 second) {
    const i32x16 low = bit_or(first, shift_right<8>(first)), high = bit_or(second, shift_right<8>(second));
    return bitcast_u8(bit_or(bit_and(low, broadcast_i32(0xffff)), shift_left<16>(high)));
  }
  static void unpack(const uint8_t* panel, int64_t super, Unpacked& out) {
    const PackedSupers<L> w{panel, true};
    const u8x64 zero = broadcast_u8(L::kZero);
    for (int block = 0; block < 8; ++block) {
      w.template prefetch<8>(super, block);
      put_weights<L>(out.w[4 * block], w.template pair<0>(super, block), zero);
      put_weights<L>(out.w[4 * block + 1], w.template pair<1>(super, block), zero);
      put_weights<L>(out.w[4 * block + 2], w.template pair<2>(super, block), zero);
      put_weights<L>(out.w[4 * block + 3], w.template pair<3>(super, block), zero);
    }
    for (int i = 0; i < L::kSubs / 2; ++i) {
      const i32x16 pair = w.scale_pair(super, i);
      put_for_both(out.scale[2 * i], dot_scale_low(pair));
      put_for_both(out.scale[2 * i + 1], dot_scale_high(pair));
    }
    if constexpr (L::kHasMin) {
      for (int o = 0; o < Products::kOcts; ++o) {
        put_columns(out.mins[o], four_mins(w.min_pair(super, 4 * o), w.min_pair(super, 4 * o + 1)),
                    four_mins(w.min_pair(super, 4 * o + 2), w.min_pair(super, 4 * o + 3)));
      }
      put_for_both(out.dmin, w.dmin(super));
    }
    put_for_both(out.d, w.d(super));
  }
};

template <class Format>
struct SquareKernel {
  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    if (!args.a.tiled) return Format::FewRows::run(args, begin, end);
    constexpr int64_t kChunk = Format::Products::kChunk;
    typename Format::Unpacked w[kChunk];
    const int64_t blocks = Format::num_blocks(args);
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t first = 0; first < blocks; first += kChunk) {
        const int64_t count = blocks - first < kChunk ? blocks - first : kChunk;
        const uint8_t* packed = args.w.base + panel * args.w.panel_bytes;
        for (int64_t b = 0; b < count; ++b) Format::unpack(packed, first + b, w[b]);
        SquareTiles<typename Format::Products>::multiply(args, w, {first, count, first + count == blocks},
                                                         panel);
      }
    }
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
