// Activations quantised in pairs of rows, as kernels/linear_squares.h multiplies them: values are those of
// quantise.h.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Blocks of the two rows that `row` belongs to.
template <class Pair>
inline Pair* pair_blocks(const ActivationRows& a, int64_t row) {
  return reinterpret_cast<Pair*>(a.blocks + row / 2 * 2 * a.row_bytes);
}

inline void put_row(const RowBlock32& block, int64_t lane, PairBlock32& out) {
  for (int i = 0; i < 4; ++i) memcpy(out.q[i][lane], block.q + 8 * i, 8);
  out.scale[lane][0] = out.scale[lane][1] = block.scale;
  out.fsum[lane][0] = out.fsum[lane][1] = block.fsum;
}

inline void quantise_pairs_block32(const ActivationRows& a, int64_t begin, int64_t end) {
  if (!a.tiled) return quantise_rows_block32(a, begin, end);
  const int64_t count = padded_blocks(a.cols);
  for (int64_t r = begin; r < end; ++r) {
    PairBlock32* out = pair_blocks<PairBlock32>(a, r);
    const float* x = a.x + r * a.x_stride;
    for (int64_t b = 0; b < count; b += kBlocksTogether) {
      const int together = count - b < kBlocksTogether ? int(count - b) : kBlocksTogether;
      RowBlock32 made[kBlocksTogether];
      quantise_blocks32(x + 32 * b, a.cols - 32 * b, together, made);
      for (int i = 0; i < together; ++i) put_row(made[i], r % 2, out[b + i]);
    }
  }
}

// Int16 pairs, of which each int16 is 128 * high + low.
template <int Octs>
inline void put_sums(const int32_t* pairs, int64_t lane, PairSums (&out)[Octs]) {
  for (int i = 0; i < 8 * Octs; ++i) {
    const int sum = int16_t(uint32_t(pairs[i / 2]) >> (16 * (i % 2)));
    out[i / 8].low[lane][i % 8] = int8_t(sum & 127);
    out[i / 8].high[lane][i % 8] = int8_t(sum >> 7);
  }
}

inline void put_row(const RowBlock256& block, int64_t lane, PairBlock256& out) {
  for (int i = 0; i < 32; ++i) memcpy(out.q[i][lane], block.q + 8 * i, 8);
  put_sums(block.sums, lane, out.sums16);
  put_sums(block.sums64, lane, out.sums32);
  out.scale[lane][0] = out.scale[lane][1] = block.scale;
}

inline void quantise_pairs_block256(const ActivationRows& a, int64_t begin, int64_t end) {
  if (!a.tiled) return quantise_rows_block256(a, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    PairBlock256* out = pair_blocks<PairBlock256>(a, r);
    for (int64_t b = 0; b < a.cols / 256; ++b) {
      RowBlock256 made;
      quantise_block256(a.x + r * a.x_stride + 256 * b, made);
      put_row(made, r % 2, out[b]);
    }
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
