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
};

// The step's rows, and what quantise_rows made of them. Strides are in elements; q rows are padded with zeros
// to the format's super-block. Block32: scales, sums and fsums have one entry per 32 k. Block256: scales one
// per 256 k, sums one per 32 k holding the sums of its two 16-halves as int16 pair (low half first), sums64
// one per 64 k holding the sums of its two 32-halves alike.
struct ActivationRows {
  const float* x;
  int64_t x_stride;
  int64_t rows;
  int64_t cols;
  int8_t* q;
  int64_t q_stride;
  float* scales;
  int64_t scale_stride;
  int32_t* sums;
  int64_t sum_stride;
  int32_t* sums64;  // Block256 only; stride sum_stride / 2
  float* fsums;     // Block32 only; stride scale_stride
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
  // Quantises rows [begin, end) of a.x.
  void (*quantise[kRowFormCount])(const ActivationRows& a, int64_t begin, int64_t end);
  // Computes panels [begin, end).
  void (*linear[kFormatCount])(const LinearArgs& args, int64_t begin, int64_t end);
};

}  // namespace octavo
