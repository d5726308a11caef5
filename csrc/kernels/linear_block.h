// Matrix kernels for the block formats (one scale per 32 k): Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//
// Per output one chain, whatever the number of rows, panels or threads: blocks in ascending k,
//   acc = fma(float(idot), scale_w * scale_a, acc), then acc = fma(min_w, fsum_a, acc) if the format has
//   minimums.
// idot is an exact integer, so tiling inside a block cannot change a bit.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Where a tile reads its weights: straight from the packed panel ...
template <class Layout>
struct PackedBlocks {
  using L = Layout;
  const uint8_t* panel;

  const uint8_t* super(int64_t block) const { return panel + (block / 2) * L::kSuperBytes; }
  template <int P>
  GroupPair pair(int64_t block) const {
    return unpack_pair<L, P>(super(block), int(block % 2));
  }
  const uint16_t* halves(int64_t block, int at) const {
    return reinterpret_cast<const uint16_t*>(super(block) + at) + 16 * (block % 2);
  }
  f32x16 scale(int64_t block) const { return load_f16(halves(block, L::kScalesAt)); }
  f32x16 min(int64_t block) const { return load_f16(halves(block, L::kMinsAt)); }
};

// ... or from a panel that was unpacked to bytes and floats once for many rows.
template <class Layout>
struct UnpackedBlocks {
  using L = Layout;
  static constexpr int64_t kBlockBytes = 8 * kLine + (L::kHasMin ? 2 : 1) * kLine;
  uint8_t* memory;

  uint8_t* at(int64_t block) const { return memory + block * kBlockBytes; }
  template <int P>
  GroupPair pair(int64_t block) const {
    const uint8_t* line = at(block) + 2 * P * kLine;
    return {load_u8(line), load_u8(line + kLine)};
  }
  float* floats(int64_t block) const { return reinterpret_cast<float*>(at(block) + 8 * kLine); }
  f32x16 scale(int64_t block) const { return load(floats(block)); }
  f32x16 min(int64_t block) const { return load(floats(block) + 16); }

  template <int P>
  void put(int64_t block, GroupPair g) const {
    store_u8(at(block) + 2 * P * kLine, g.even);
    store_u8(at(block) + (2 * P + 1) * kLine, g.odd);
  }
  void fill(PackedBlocks<L> packed, int64_t first, int64_t count) const {
    for (int64_t b = 0; b < count; ++b) {
      put<0>(b, packed.template pair<0>(first + b));
      put<1>(b, packed.template pair<1>(first + b));
      put<2>(b, packed.template pair<2>(first + b));
      put<3>(b, packed.template pair<3>(first + b));
      store(floats(b), packed.scale(first + b));
      if constexpr (L::kHasMin) store(floats(b) + 16, packed.min(first + b));
    }
  }
};

// M rows of activations, from one 32-block on.
template <int M>
struct BlockRows {
  const int8_t* q[M];
  const float* scales[M];
  const float* fsums[M];
  const int32_t* sums[M];

  BlockRows(const ActivationRows& a, int64_t row, int64_t block) {
    for (int m = 0; m < M; ++m) {
      q[m] = a.q + (row + m) * a.q_stride + 32 * block;
      scales[m] = a.scales + (row + m) * a.scale_stride + block;
      fsums[m] = a.fsums + (row + m) * a.scale_stride + block;
      sums[m] = a.sums + (row + m) * a.sum_stride + block;
    }
  }
};

template <int Bits, int M>
struct BlockDot {
  DotChain<Bits> chain[M];
  i32x16 total[M];

  void clear() {
    for (int m = 0; m < M; ++m) chain[m].clear();
  }
  // After pair P of the block: folds when the chain is full, or at the end.
  template <int P>
  void fold() {
    constexpr int kPairs = DotChain<Bits>::kSteps / 2 < 4 ? DotChain<Bits>::kSteps / 2 : 4;
    if constexpr ((P + 1) % kPairs == 0) {
      for (int m = 0; m < M; ++m) {
        total[m] = P < kPairs ? chain[m].total() : add(total[m], chain[m].total());
        if constexpr (P < 3) chain[m].clear();
      }
    }
  }
  template <int P, class Source>
  void pair(const Source& w, int64_t block, const BlockRows<M>& a) {
    const GroupPair g = w.template pair<P>(block);
    for (int m = 0; m < M; ++m) {
      const int8_t* q = a.q[m] + 32 * block + 8 * P;
      chain[m].step(g.even, broadcast_4xs8(q));
      chain[m].step(g.odd, broadcast_4xs8(q + 4));
    }
    fold<P>();
  }
};

// Advances acc[M] over `count` blocks.
template <int M, class Source>
inline void block_tile(const Source& w, const BlockRows<M>& a, int64_t count, f32x16 (&acc)[M]) {
  using L = typename Source::L;
  constexpr int kOffset = L::kBits == 8 ? DotChain<8>::kOffset : L::kZero;
  for (int64_t b = 0; b < count; ++b) {
    BlockDot<L::kBits, M> dot;
    dot.clear();
    dot.template pair<0>(w, b, a);
    dot.template pair<1>(w, b, a);
    dot.template pair<2>(w, b, a);
    dot.template pair<3>(w, b, a);
    const f32x16 scale = w.scale(b);
    for (int m = 0; m < M; ++m) {
      i32x16 idot = dot.total[m];
      if constexpr (kOffset != 0) idot = sub(idot, broadcast_i32(kOffset * a.sums[m][b]));
      acc[m] = fma(to_f32(idot), mul(scale, broadcast(a.scales[m][b])), acc[m]);
      if constexpr (L::kHasMin) acc[m] = fma(w.min(b), broadcast(a.fsums[m][b]), acc[m]);
    }
  }
}

template <class Layout>
struct BlockKernel {
  static constexpr int kTileRows = kIntTileRows;
  static constexpr int64_t kChunkBlocks = 32;  // 1024 k: the unpacked panel stays in L1 or near it

  static int64_t blocks(const PackedView& w) { return (w.cols + Layout::kSuper - 1) / Layout::kSuper * 2; }

  // Few rows: unpack in registers.
  template <int M>
  static void direct(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[M];
    for (int m = 0; m < M; ++m) acc[m] = zero_f32();
    const PackedBlocks<Layout> w{args.w.base + panel * args.w.panel_bytes};
    block_tile<M>(w, BlockRows<M>(args.a, row, 0), blocks(args.w), acc);
    store_outputs<M>(args, panel, row, acc);
  }

  // Many rows: the outputs hold the chain between two chunks of k.
  template <int M>
  static void unpacked(const LinearArgs& args, int64_t panel, int64_t row, const UnpackedBlocks<Layout>& w,
                       int64_t first, int64_t count) {
    f32x16 acc[M];
    load_outputs<M>(args, panel, row, first == 0, acc);
    block_tile<M>(w, BlockRows<M>(args.a, row, first), count, acc);
    if (first + count == blocks(args.w)) return store_outputs<M>(args, panel, row, acc);
    store_partial<M>(args, panel, row, acc);
  }

  static void many(const LinearArgs& args, int64_t panel, void* scratch) {
    const PackedBlocks<Layout> packed{args.w.base + panel * args.w.panel_bytes};
    const UnpackedBlocks<Layout> w{static_cast<uint8_t*>(scratch)};
    for (int64_t first = 0; first < blocks(args.w); first += kChunkBlocks) {
      const int64_t left = blocks(args.w) - first;
      const int64_t count = left < kChunkBlocks ? left : kChunkBlocks;
      w.fill(packed, first, count);
      for_row_tiles<kTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        unpacked<decltype(m)::value>(args, panel, row, w, first, count);
      });
    }
  }

  static void few(const LinearArgs& args, int64_t panel) {
    for_row_tiles<kTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
      direct<decltype(m)::value>(args, panel, row);
    });
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end, void* scratch) {
    for (int64_t panel = begin; panel < end; ++panel) {
      if (args.a.rows <= kDirectRows) {
        few(args, panel);
      } else {
        many(args, panel, scratch);
      }
    }
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
