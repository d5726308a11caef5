// Arguments of the matrix kernels: plain pointers, sizes and strides.
#pragma once

#include <cstdint>

#include "octavo/packed_format.h"

namespace octavo {

// A packed matrix as the kernels see it.
struct PackedView {
  const uint8_t* base;
  int64_t panel_bytes;
  int64_t rows;  // outputs; the last panel is padded to 16
  int64_t cols;
  int32_t shift;  // weights times 2^shift are below 2^15: for the kernels that unpack to float16
};

// 32 k of a row, quantised for the block formats: q * scale is near x; fsum = scale * (sum of q). class_sums
// holds minus the sums of q over k % 4 < 2 (the low half) and over k % 4 >= 2 as an int16 pair.
struct RowBlock32 {
  int8_t q[32];
  float scale;
  float fsum;
  int32_t sum;
  int32_t class_sums;
};

// 256 k of a row, quantised for the K formats. sums[i] holds the sums of the two 16-halves of 32 k as an
// int16 pair (low half first), sums64[i] those of the two 32-halves of 64 k, class_sums[i] those of
// RowBlock32 of 16 k.
struct RowBlock256 {
  int8_t q[256];
  int32_t sums[8];
  int32_t sums64[4];
  int32_t class_sums[16];
  float scale;
  int32_t padding[3];
};

// RowBlock32 of two rows (kernels/linear_squares.h): eight k of each side by side, and each number twice.
struct PairBlock32 {
  int8_t q[4][2][8];
  float scale[2][2];
  float fsum[2][2];
};

// Eight neighbouring sums of the quants of each of two rows: 128 * high + low.
struct PairSums {
  int8_t low[2][8];
  int8_t high[2][8];
};

// RowBlock256 of two rows likewise, with their sums over sub-blocks of 16 and of 32.
struct PairBlock256 {
  int8_t q[32][2][8];
  PairSums sums16[2];
  PairSums sums32[1];
  float scale[2][2];
};
static_assert(sizeof(PairBlock32) <= 2 * sizeof(RowBlock32) &&
              sizeof(PairBlock256) <= 2 * sizeof(RowBlock256));

// Bytes of 32 k of a row in two bfloat16 parts (kernels/linear_float_tiles.h), and in one
// (linear_quantised_tiles.h).
constexpr int64_t kSplitBytes = 128;
constexpr int64_t kRoundedBytes = 64;

// The step's rows, and what `quantise` made of them: row r is a sequence of row blocks from blocks + r *
// row_bytes on, padded with zeros to the format's super-block. x_stride is in elements.
struct ActivationRows {
  const float* x;
  int64_t x_stride;
  int64_t rows;
  int64_t cols;
  uint8_t* blocks;
  int64_t row_bytes;
  int32_t shift;  // that of the weights they meet, for kRowsRounded
  bool tiled;     // n rows from n * t on lie together from blocks + n * t * row_bytes on (16, or 2 in pairs)
};

// out[r][c] = x[r] . w[c] (+ bias[c]) for the columns of the given panels. out points at the weight's first
// column.
struct LinearArgs {
  PackedView w;
  ActivationRows a;
  float* out;
  int64_t out_stride;
  const float* bias;  // may be null
};

struct LinearKernels {
  // The form in which a format wants its rows.
  RowForm rows[kFormatCount];
  // Quantises rows [begin, end) of a.x into a.blocks; null where the kernels read a.x.
  void (*quantise[kRowFormCount])(const ActivationRows& a, int64_t begin, int64_t end);
  // Computes panels [begin, end).
  void (*linear[kFormatCount])(const LinearArgs& args, int64_t begin, int64_t end);
  // Rows are tiled from so many rows on.
  int64_t tiled_from[kRowFormCount];
};

}  // namespace octavo
