// Collects the matrix kernels into the table.
#pragma once

#include "kernels/quantise.h"
#include "kernels/row_tiles.h"
#include "kernels/unpack.h"

#include "kernels/linear_block.h"
#include "kernels/linear_float.h"
#include "kernels/linear_super.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline void fill_linear(LinearKernels& table) {
  table.quantise[kRowsFloat] = nullptr;
  table.quantise[kRowsBlock32] = quantise_rows_block32;
  table.quantise[kRowsBlock256] = quantise_rows_block256;
  table.linear[kF32] = FloatKernel<PackedF32>::run;
  table.linear[kBF16] = FloatKernel<PackedBF16>::run;
  table.linear[kF16] = FloatKernel<PackedF16>::run;
  table.linear[kQ4_0] = BlockKernel<LayoutQ4_0>::run;
  table.linear[kQ4_1] = BlockKernel<LayoutQ4_1>::run;
  table.linear[kQ5_0] = BlockKernel<LayoutQ5_0>::run;
  table.linear[kQ5_1] = BlockKernel<LayoutQ5_1>::run;
  table.linear[kQ8_0] = BlockKernel<LayoutQ8_0>::run;
  table.linear[kQ4_K] = SuperKernel<LayoutQ4_K>::run;
  table.linear[kQ5_K] = SuperKernel<LayoutQ5_K>::run;
  table.linear[kQ6_K] = SuperKernel<LayoutQ6_K>::run;
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
