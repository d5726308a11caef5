// y = x W^T (+ bias): quantises the rows once per form, then shares the panels of all weights among the
// threads.
#pragma once

#include <cstdint>

#include "pack/packed_matrix.h"

namespace octavo {

// weights share cols; their outputs lie side by side in out [rows, sum of weight rows]. bias may be null.
// Throws std::bad_alloc when the workspace cannot grow.
void linear(const float* x, int64_t x_stride, int64_t rows, const PackedMatrix* const* weights, int count,
            const float* bias, float* out, int64_t out_stride);

}  // namespace octavo
