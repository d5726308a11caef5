// Matrix kernels for the block formats (one scale per 32 k): Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, and
// for those whose scales serve a group of blocks: int4 with zero points, int8.
//
// Per output one chain, whatever the number of rows, panels or threads: blocks in ascending k,
//   acc = fma(float(idot), scale_w * scale_a, acc), then acc = fma(min_w, fsum_a, acc) if the format has
//   minimums.
// Zero points are part of idot: zero * (sum of q_a) is an integer below 2^24, which a float subtracts
// exactly. idot is an exact integer, so tiling inside a block cannot change a bit.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Blocks in a row of activations, which quantise_rows_block32 pads to whole 64 k.
inline int64_t padded_blocks(int64_t cols) { return (cols + 63) / 64 * 2; }

// 2^(exponent - 128), subnormal ones included; 255 is no NaN but 2^127, as llama.cpp has it.
inline f32x16 half_e8m0(i32x16 exponent) {
  const i32x16 step = broadcast_i32(0x00200000);  // the fraction bits of 2^-128
  const i32x16 normal = shift_left<23>(sub(exponent, broadcast_i32(1)));
  return bitcast_f32(select(less(exponent, broadcast_i32(2)), add(step, mul(step, exponent)), normal));
}

// Of the group that `block` of a super-block belongs to.
template <class L>
inline i32x16 group_words(const uint8_t* super, int block) {
  return load(reinterpret_cast<const int32_t*>(super + L::scales_of(block)));
}
template <class L>
inline f32x16 group_scale(const uint8_t* super, int block) {
  const i32x16 words = group_words<L>(super, block);
  return bitcast_f32(L::kHasZeros ? bit_and(words, broadcast_i32(int32_t(~kZeroPointBits))) : words);
}
template <class L>
inline f32x16 minus_zero_point(const uint8_t* super, int block) {
  return neg(to_f32(bit_and(group_words<L>(super, block), broadcast_i32(int32_t(kZeroPointBits)))));
}

// A panel, unpacked in registers as it is read.
template <class Layout>
struct PackedBlocks {
  using L = Layout;
  const uint8_t* panel;
  bool cold;  // not read yet in this product

  [[gnu::always_inline]] void prefetch(int64_t block) const {
    constexpr int64_t kPart = L::kSuperBytes / L::kBlocks;
    constexpr int64_t kDistance = (1024 + L::kSuperBytes - 1) / L::kSuperBytes * L::kSuperBytes;
    if (cold) prefetch_ahead(super(block) + block % L::kBlocks * kPart, kDistance, kPart);
  }
  const uint8_t* super(int64_t block) const { return panel + block / L::kBlocks * L::kSuperBytes; }
  template <int P>
  GroupPair pair(int64_t block) const {
    return unpack_pair<L, P>(super(block), block % L::kBlocks);
  }
  const uint16_t* halves(int64_t block, int at) const {
    return reinterpret_cast<const uint16_t*>(super(block) + at) + 16 * (block % 2);
  }
  f32x16 scale(int64_t block) const {
    if constexpr (L::kScale == BlockScale::kHalfE8M0) {
      return half_e8m0(load_u8_i32(super(block) + L::kScalesAt + 16 * (block % L::kBlocks)));
    } else if constexpr (L::kScale == BlockScale::kF32) {
      return group_scale<L>(super(block), int(block % L::kBlocks));
    } else {
      return load_f16(halves(block, L::kScalesAt));
    }
  }
  f32x16 min(int64_t block) const {
    if constexpr (L::kHasMin) return load_f16(halves(block, L::kMinsAt));
    return zero_f32();
  }
  f32x16 minus_zero(int64_t block) const {
    if constexpr (L::kHasZeros) return minus_zero_point<L>(super(block), int(block % L::kBlocks));
    return zero_f32();
  }
};

// The same, of which `part` was unpacked before.
template <class Layout>
struct UnpackedBlocks : PackedBlocks<Layout> {
  const uint8_t* bytes;
  int64_t first;

  UnpackedBlocks(const uint8_t* panel, const uint8_t* unpacked, AheadPart part)
      : PackedBlocks<Layout>{panel, false}, bytes(unpacked), first(part.first) {}
  template <int P>
  GroupPair pair(int64_t block) const {
    return unpacked_pair<P>(bytes + (block - first) * kBlockBytes);
  }
};

template <int Bits, int M>
struct BlockDot {
  static constexpr int kPairs = DotChain<Bits>::kSteps / 2 < 4 ? DotChain<Bits>::kSteps / 2 : 4;
  DotRows<Bits, M> rows;
  i32x16 before[M];  // of chains that were full before the block was

  [[gnu::always_inline]] void start(int64_t block, const RowBlock32* const (&a)[M]) {
    rows.start([&](int m) OCTAVO_INLINE_LAMBDA { return ClassSums{a[m][block].class_sums}; });
  }
  // After pair P of the block.
  template <int P>
  [[gnu::always_inline]] void fold_if_full() {
    if constexpr (P < 3 && (P + 1) % kPairs == 0) {
      OCTAVO_UNROLL
      for (int m = 0; m < M; ++m) before[m] = P < kPairs ? rows.total(m) : add(before[m], rows.total(m));
      static_assert(DotChain<Bits>::kCentre == 0 || Bits == 8);
      rows.start([](int) { return ClassSums{}; });
    }
  }
  [[gnu::always_inline]] i32x16 total(int m) const {
    return kPairs < 4 ? add(before[m], rows.total(m)) : rows.total(m);
  }
  template <int P, class Source>
  [[gnu::always_inline]] void pair(const Source& w, int64_t block, const RowBlock32* const (&a)[M]) {
    const GroupPair g = w.template pair<P>(block);
    const int8_t* q[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) q[m] = a[m][block].q + 8 * P;
    rows.step(g.even, g.odd, q);
    fold_if_full<P>();
  }
};

// Advances acc[M] over blocks [begin, end).
template <int M, class Source>
inline void block_tile(const Source& w, const RowBlock32* const (&a)[M], int64_t begin, int64_t end,
                       f32x16 (&acc)[M]) {
  using L = typename Source::L;
  constexpr int kOffset = L::kZero - DotChain<L::kDecodedBits>::kCentre;  // left to remove
  for (int64_t b = begin; b < end; ++b) {
    w.prefetch(b);
    BlockDot<L::kDecodedBits, M> dots;
    dots.start(b, a);
    dots.template pair<0>(w, b, a);
    dots.template pair<1>(w, b, a);
    dots.template pair<2>(w, b, a);
    dots.template pair<3>(w, b, a);
    const f32x16 scale = w.scale(b), min = w.min(b), minus_zero = w.minus_zero(b);
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      i32x16 idot = dots.total(m);
      if constexpr (kOffset != 0) idot = sub(idot, broadcast_i32(kOffset * a[m][b].sum));
      f32x16 dot = to_f32(idot);
      if constexpr (L::kHasZeros) dot = fma(minus_zero, broadcast(float(a[m][b].sum)), dot);
      acc[m] = fma(dot, mul(scale, broadcast(a[m][b].scale)), acc[m]);
      if constexpr (L::kHasMin) acc[m] = fma(min, broadcast(a[m][b].fsum), acc[m]);
    }
    make_room(acc);
  }
}

template <class Layout>
struct BlockKernel {
  using Row = const RowBlock32*;
  template <int M>
  static void find_rows(const LinearArgs& args, int64_t row, Row (&a)[M]) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) a[m] = row_blocks<RowBlock32>(args.a, row + m);
  }

  template <int M>
  static void tile(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[M];
    Row a[M];
    load_outputs<M>(args, panel, row, true, acc);
    find_rows<M>(args, row, a);
    const PackedBlocks<Layout> w{args.w.base + panel * args.w.panel_bytes, row == 0};
    block_tile<M>(w, a, 0, padded_blocks(args.w.cols), acc);
    store_outputs<M>(args, panel, row, acc);
  }

  template <int M>
  static void unpacked_tile(const LinearArgs& args, const UnpackedBlocks<Layout>& w, AheadPart part,
                            int64_t panel, int64_t row) {
    f32x16 acc[M];
    Row a[M];
    load_outputs<M>(args, panel, row, part.first == 0, acc);
    find_rows<M>(args, row, a);
    block_tile<M>(w, a, part.first, part.first + part.count, acc);
    part.last ? store_outputs<M>(args, panel, row, acc) : store_partial<M>(args, panel, row, acc);
  }

  static void run_panel(const LinearArgs& args, int64_t panel) {
    for_row_tiles<int_tile_rows(Layout::kDecodedBits)>(
        args.a.rows,
        [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA { tile<decltype(m)::value>(args, panel, row); });
  }

  static void run_panel_ahead(const LinearArgs& args, int64_t panel) {
    alignas(kLine) uint8_t bytes[kAheadBlocks * kBlockBytes];
    const PackedBlocks<Layout> packed{args.w.base + panel * args.w.panel_bytes, true};
    for_ahead_parts(padded_blocks(args.w.cols), [&](AheadPart part) {
      for (int64_t i = 0; i < part.count; ++i) {
        const int64_t block = part.first + i;
        packed.prefetch(block);
        unpack_block<Layout>(packed.super(block), block % Layout::kBlocks, bytes + i * kBlockBytes);
      }
      const UnpackedBlocks<Layout> w(packed.panel, bytes, part);
      for_row_tiles<int_tile_rows(Layout::kDecodedBits)>(
          args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
            unpacked_tile<decltype(m)::value>(args, w, part, panel, row);
          });
    });
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      if constexpr (kUnpackAhead<Layout>) {
        if (args.a.rows >= kAheadRows) {
          run_panel_ahead(args, panel);
          continue;
        }
      }
      run_panel(args, panel);
    }
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
