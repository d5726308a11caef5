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

// M rows of activations.
template <int M>
using SuperRows = const RowBlock256* [M];

template <int Bits, int M>
struct SuperDot {
  DotRows<Bits, M> rows;
  i32x16 isum[M];

  template <int P, class Source>
  [[gnu::always_inline]] void pair(const Source& w, int64_t s, int block, const SuperRows<M>& a) {
    const GroupPair g = w.template pair<P>(s, block);
    const int8_t* q[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) q[m] = a[m][s].q + 32 * block + 8 * P;
    rows.step(g.even, g.odd, q);
  }
  [[gnu::always_inline]] void fold(i32x16 scale) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) isum[m] = add(isum[m], rows.scaled(m, scale));
    rows.clear();
  }
  // Folds in the middle of a sub-block where the chain is too short for all of it.
  template <int Pairs>
  [[gnu::always_inline]] void fold_if_full(i32x16 scale) {
    if constexpr (DotChain<Bits>::kSteps / 2 <= Pairs) fold(scale);
  }
};

// One 32-block with one sub-scale (Q4_K, Q5_K) ...
template <int Bits, int M, class Source>
[[gnu::always_inline]] inline void sub32(SuperDot<Bits, M>& dot, const Source& w, int64_t s, int block,
                                         const SuperRows<M>& a, i32x16 scale) {
  dot.template pair<0>(w, s, block, a);
  dot.template pair<1>(w, s, block, a);
  dot.template fold_if_full<2>(scale);
  dot.template pair<2>(w, s, block, a);
  dot.template pair<3>(w, s, block, a);
  dot.fold(scale);
}

// ... or with two (Q2_K, Q3_K, Q6_K).
template <int Bits, int M, class Source>
[[gnu::always_inline]] inline void two_sub16(SuperDot<Bits, M>& dot, const Source& w, int64_t s, int block,
                                             const SuperRows<M>& a, i32x16 pair) {
  const i32x16 low = dot_scale_low(pair), high = dot_scale_high(pair);
  dot.template pair<0>(w, s, block, a);
  dot.template fold_if_full<1>(low);
  dot.template pair<1>(w, s, block, a);
  dot.fold(low);
  dot.template pair<2>(w, s, block, a);
  dot.template fold_if_full<1>(high);
  dot.template pair<3>(w, s, block, a);
  dot.fold(high);
}

// Of the activations, the sums that belong to pair i of sub-blocks.
template <int Sub>
inline i32x16 sum_pair(const RowBlock256& a, int i) {
  return broadcast_i32(Sub == 32 ? a.sums64[i] : a.sums[i]);
}

// side: the sums of submin * (sum of the activations), or of subscale * that, which kZero is multiplied with.
template <int M, class Source>
[[gnu::always_inline]] inline void super_dot(const Source& w, const SuperRows<M>& a, int64_t s,
                                             SuperDot<Source::L::kBits, M>& dot, i32x16 (&side)[M]) {
  using L = typename Source::L;
  constexpr int kPairs = L::kSubs / 2;
  for (int i = 0; i < kPairs; ++i) {
    w.template prefetch<kPairs>(s, i);
    const i32x16 scales = w.scale_pair(s, i);
    const i32x16 beside = L::kHasMin ? w.min_pair(s, i) : scales;
    if constexpr (L::kSub == 32) {
      sub32<L::kBits, M>(dot, w, s, 2 * i, a, dot_scale_low(scales));
      sub32<L::kBits, M>(dot, w, s, 2 * i + 1, a, dot_scale_high(scales));
    } else {
      two_sub16<L::kBits, M>(dot, w, s, i, a, scales);
    }
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) side[m] = add(side[m], dot2_i16(beside, sum_pair<L::kSub>(a[m][s], i)));
  }
}

template <int M, class Source>
inline void super_tile(const Source& w, const SuperRows<M>& a, int64_t count, f32x16 (&acc)[M]) {
  using L = typename Source::L;
  for (int64_t s = 0; s < count; ++s) {
    SuperDot<L::kBits, M> dot;
    i32x16 side[M];
    dot.rows.clear();
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) dot.isum[m] = side[m] = zero_i32();
    super_dot<M>(w, a, s, dot, side);
    const f32x16 d = w.d(s), dmin = w.dmin(s);
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      if constexpr (L::kZero != 0) dot.isum[m] = sub(dot.isum[m], mul(side[m], broadcast_i32(L::kZero)));
      const f32x16 scale_a = broadcast(a[m][s].scale);
      acc[m] = fma(to_f32(dot.isum[m]), mul(d, scale_a), acc[m]);
      if constexpr (L::kHasMin) acc[m] = fma(neg(to_f32(side[m])), mul(dmin, scale_a), acc[m]);
    }
    make_room(acc);
  }
}

template <class Layout>
struct SuperKernel {
  template <int M>
  static void tile(const LinearArgs& args, int64_t panel, int64_t row) {
    f32x16 acc[M];
    SuperRows<M> a;
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      acc[m] = zero_f32();
      a[m] = row_blocks<RowBlock256>(args.a, row + m);
    }
    const PackedSupers<Layout> w{args.w.base + panel * args.w.panel_bytes, row == 0};
    super_tile<M>(w, a, args.w.cols / Layout::kSuper, acc);
    store_outputs<M>(args, panel, row, acc);
  }

  static void run(const LinearArgs& args, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      for_row_tiles<kIntTileRows>(args.a.rows, [&](auto m, int64_t row) OCTAVO_INLINE_LAMBDA {
        tile<decltype(m)::value>(args, panel, row);
      });
    }
  }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
