// Matrix kernels for the K formats (super-blocks of 256 k with integer sub-scales): Q2_K to Q6_K.
//
// Per output one chain over super-blocks in ascending k. Inside one, everything is an exact integer:
//   isum = sum over sub-blocks of subscale * dot, imin = sum of submin * (sum of the activations)
//   acc = fma(float(isum), d_w * d_a, acc), then acc = fma(-float(imin), dmin_w * d_a, acc) if the format has
//   minimums.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Sub-scale pair i (0..7) of SubScales::kSixBits.
inline i32x16 six_bit_pair(const uint8_t* p, int i) {
  const i32x16 six = broadcast_i32(0x003f003f);
  i32x16 pair;
  if (i < 3) {
    pair = bit_and(load_words(p + i * kLine), six);
  } else if (i < 6) {
    pair = bit_and(shift_right<6>(load_words(p + (i - 3) * kLine)), six);
  } else {
    const i32x16 low = shift_right<12>(load_words(p + (i - 6) * kLine)), top = load_words(p + 2 * kLine);
    const i32x16 high = i == 6 ? shift_right<8>(top) : shift_right<10>(top);
    pair = bit_or(bit_and(low, broadcast_i32(0x000f000f)), bit_and(high, broadcast_i32(0x00300030)));
  }
  // Minus 32 in each half: with the sign bits turned over there is no borrow from one to the other.
  return bit_xor(add(pair, broadcast_i32(0x7fe07fe0)), broadcast_i32(int32_t(0x80008000u)));
}

template <class Layout>
struct PackedSupers {
  using L = Layout;
  const uint8_t* panel;
  bool cold;  // not read yet in this product

  // Before part i of 4 or 8 of a super-block is multiplied.
  template <int Parts>
  [[gnu::always_inline]] void prefetch(int64_t s, int i) const {
    constexpr int64_t kPart = L::kSuperBytes / Parts;
    if (cold) prefetch_ahead(super(s) + i * kPart, L::kSuperBytes, kPart);
  }
  const uint8_t* super(int64_t s) const { return panel + s * L::kSuperBytes; }
  template <int P>
  GroupPair pair(int64_t s, int64_t block) const {
    return unpack_pair<L, P>(super(s), block);
  }
  // Sub-scales (or minimums) 2i and 2i + 1 of each row as int16 pairs.
  i32x16 scale_pair(int64_t s, int i) const {
    const uint8_t* p = super(s) + L::kScalesAt;
    if constexpr (L::kScales == SubScales::kSixBits) return six_bit_pair(p, i);
    p += 32 * i;
    if constexpr (L::kScales == SubScales::kNibbles)
      return bit_and(load_u8_pairs(p), broadcast_i32(0x000f000f));
    if constexpr (L::kHasMin) return load_u8_pairs(p);
    return load_i8_pairs(reinterpret_cast<const int8_t*>(p));
  }
  i32x16 min_pair(int64_t s, int i) const {
    const i32x16 pair = load_u8_pairs(super(s) + L::kMinsAt + 32 * i);
    if constexpr (L::kScales == SubScales::kNibbles)
      return bit_and(shift_right<4>(pair), broadcast_i32(0x000f000f));
    return pair;
  }
  const uint16_t* halves(int64_t s) const { return reinterpret_cast<const uint16_t*>(super(s) + L::kDAt); }
  f32x16 d(int64_t s) const { return load_f16(halves(s)); }
  f32x16 dmin(int64_t s) const {
    if constexpr (L::kHasMin) return load_f16(halves(s) + 16);
    return zero_f32();
  }
};

// The same, of which `part` was unpacked before.
template <class Layout>
struct UnpackedSupers : PackedSupers<Layout> {
  const uint8_t* bytes;
  int64_t first;

  UnpackedSupers(const uint8_t* panel, const uint8_t* unpacked, AheadPart part)
      : PackedSupers<Layout>{panel, false}, bytes(unpacked), first(part.first) {}
  template <int P>
  GroupPair pair(int64_t s, int64_t block) const {
    return unpacked_pair<P>(bytes + (8 * s + block - first) * kBlockBytes);
  }
};

// M rows of activations.
template <int M>
using SuperRows = const RowBlock256* [M];

// The integers of M rows over a super-block, so far. `left`: subscale * (sum of the activations), which what
// is left of kZero after the chain's own centre is multiplied with; `imin`: submin * that.
template <class L, int M>
struct SuperSums {
  static constexpr int kLeft = L::kZero - DotChain<L::kBits>::kCentre;
  i32x16 isum[M], left[M], imin[M];

  [[gnu::always_inline]] SuperSums() {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) isum[m] = left[m] = imin[m] = zero_i32();
  }
  [[gnu::always_inline]] i32x16 total(int m) const {
    return kLeft <= 0 ? isum[m] : sub(isum[m], mul(left[m], broadcast_i32(kLeft)));
  }
};

// Adds factors * (sums of the activations) for pair i of sub-blocks.
template <class L, int M>
[[gnu::always_inline]] inline void add_sums(i32x16 (&to)[M], i32x16 factors, const SuperRows<M>& a, int64_t s,
                                            int i) {
  OCTAVO_UNROLL
  for (int m = 0; m < M; ++m) {
    const i32x16 sums = broadcast_i32(L::kSub == 32 ? a[m][s].sums64[i] : a[m][s].sums[i]);
    to[m] = add(to[m], dot2_i16(factors, sums));
  }
}

// One sub-block at a time of a super-block of M rows.
template <class L, int M>
struct SubDot {
  static_assert(4 * DotChain<L::kBits>::kSteps >= L::kSub);  // a chain takes a sub-block
  DotRows<L::kBits, M> rows;

  // `first`: the 16-block with which the sub-block begins.
  [[gnu::always_inline]] SubDot(const SuperRows<M>& a, int64_t s, int first) {
    rows.start([&](int m) OCTAVO_INLINE_LAMBDA {
      const int32_t* sums = a[m][s].class_sums + first;
      return L::kSub == 32 ? ClassSums{sums[0], sums[1]} : ClassSums{sums[0]};
    });
  }
  template <int P, class Source>
  [[gnu::always_inline]] void pair(const Source& w, const SuperRows<M>& a, int64_t s, int block) {
    const GroupPair g = w.template pair<P>(s, block);
    const int8_t* q[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) q[m] = a[m][s].q + 32 * block + 8 * P;
    rows.step(g.even, g.odd, q);
  }
  [[gnu::always_inline]] void fold(i32x16 scale, i32x16 (&isum)[M]) const {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) isum[m] = add(isum[m], rows.scaled(m, scale));
  }
};

// One 32-block with one sub-scale (Q4_K, Q5_K) ...
template <class L, int M, class Source>
[[gnu::always_inline]] inline void sub32(const Source& w, const SuperRows<M>& a, int64_t s, int block,
                                         i32x16 scale, i32x16 (&isum)[M]) {
  SubDot<L, M> dot(a, s, 2 * block);
  dot.template pair<0>(w, a, s, block);
  dot.template pair<1>(w, a, s, block);
  dot.template pair<2>(w, a, s, block);
  dot.template pair<3>(w, a, s, block);
  dot.fold(scale, isum);
}

// ... or with two (Q2_K, Q3_K, Q6_K).
template <class L, int M, class Source>
[[gnu::always_inline]] inline void two_sub16(const Source& w, const SuperRows<M>& a, int64_t s, int block,
                                             i32x16 pair, i32x16 (&isum)[M]) {
  SubDot<L, M> first(a, s, 2 * block);
  first.template pair<0>(w, a, s, block);
  first.template pair<1>(w, a, s, block);
  first.fold(dot_scale_low(pair), isum);
  SubDot<L, M> second(a, s, 2 * block + 1);
  second.template pair<2>(w, a, s, block);
  second.template pair<3>(w, a, s, block);
  second.fold(dot_scale_high(pair), isum);
}

template <class L, int M, class Source>
[[gnu::always_inline]] inline void super_dot(const Source& w, const SuperRows<M>& a, int64_t s,
                                             SuperSums<L, M>& sums) {
  constexpr int kPairs = L::kSubs / 2;
  for (int i = 0; i < kPairs; ++i) {
    w.template prefetch<kPairs>(s, i);
    const i32x16 scales = w.scale_pair(s, i);
    if constexpr (L::kSub == 32) {
      sub32<L>(w, a, s, 2 * i, dot_scale_low(scales), sums.isum);
      sub32<L>(w, a, s, 2 * i + 1, dot_scale_high(scales), sums.isum);
    } else {
      two_sub16<L>(w, a, s, i, scales, sums.isum);
    }
    if constexpr (SuperSums<L, M>::kLeft > 0) add_sums<L>(sums.left, scales, a, s, i);
    if constexpr (SuperSums<L, M>::kLeft < 0)
      add_sums<L>(sums.isum, mul(scales, broadcast_i32(-SuperSums<L, M>::kLeft)), a, s, i);
    if constexpr (L::kHasMin) add_sums<L>(sums.imin, w.min_pair(s, i), a, s, i);
  }
}

template <int M, class Source>
inline void super_tile(const Source& w, const SuperRows<M>& a, int64_t begin, int64_t end, f32x16 (&acc)[M]) {
  using L = typename Source::L;
  for (int64_t s = begin; s < end; ++s) {
    SuperSums<L, M> sums;
    super_dot(w, a, s, sums);
    const f32x16 d = w.d(s), dmin = w.dmin(s);
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      const f32x16 scale_a = broadcast(a[m][s].scale);
      acc[m] = fma(to_f32(sums.total(m)), mul(d, scale_a), acc[m]);
      if constexpr (L::kHasMin) acc[m] = fma(neg(to_f32(sums.imin[m])), mul(dmin, scale_a), acc[m]);
    }
    make_room(acc);
  }
}

template <class Layout>
struct SuperKernel {
  static_assert(kAheadBlocks % 8 == 0);  // whole super-blocks

  template <int M>
  static void find_rows(const LinearArgs& args, int64_t row, SuperRows<M>& a) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) a[m] = row_blocks<RowBlock256>(args.a, row + m);
  }

  template <int M>
  static void tile(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[M];
    SuperRows<M> a;
    load_outputs<M>(args, panel, row, true, acc);
    find_rows<M>(args, row, a);
    const PackedSupers<Layout> w{args.w.base + panel * args.w.panel_bytes, row == 0};
    super_tile<M>(w, a, 0, args.w.cols / Layout::kSuper, acc);
    store_outputs<M>(args, panel, row, acc);
  }

  template <int M>
  static void unpacked_tile(const LinearArgs& args, const UnpackedSupers<Layout>& w, AheadPart part,
                            int64_t panel, int64_t row) {
    f32x16 acc[M];
    SuperRows<M> a;
    load_outputs<M>(args, panel, row, part.first == 0, acc);
    find_rows<M>(args, row, a);
    super_tile<M>(w, a, part.first / 8, (part.first + part.count) / 8, acc);
    part.last ? store_outputs<M>(args, panel, row, acc) : store_partial<M>(args, panel, row, acc);
  }

  // Bits unpacked on the way take registers from the sums.
  static constexpr int kPackedRows = kFewRegisters && Layout::kBits <= 4 ? 4 : int_tile_rows(Layout::kBits);

  static void run_panel(const LinearArgs& args, int64_t panel) {
    for_row_tiles<kPackedRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
      tile<decltype(m)::value>(args, panel, row);
    });
  }

  static void run_panel_ahead(const LinearArgs& args, int64_t panel) {
    alignas(kLine) uint8_t bytes[kAheadBlocks * kBlockBytes];
    const PackedSupers<Layout> packed{args.w.base + panel * args.w.panel_bytes, true};
    for_ahead_parts(args.w.cols / 32, [&](AheadPart part) {
      for (int64_t i = 0; i < part.count; ++i) {
        const int64_t s = (part.first + i) / 8, block = i % 8;
        packed.template prefetch<8>(s, int(block));
        unpack_block<Layout>(packed.super(s), block, bytes + i * kBlockBytes);
      }
      const UnpackedSupers<Layout> w(packed.panel, bytes, part);
      for_row_tiles<int_tile_rows(Layout::kBits)>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
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
