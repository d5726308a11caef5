// Collects the matrix kernels into the table.
#pragma once

#include "kernels/quantise.h"
#include "kernels/row_tiles.h"
#include "kernels/unpack.h"

#include "kernels/linear_block.h"
#include "kernels/linear_float.h"
#include "kernels/linear_super.h"
#if defined(OCTAVO_TILES)
#include "kernels/linear_block_tiles.h"
#include "kernels/linear_super_tiles.h"

#include "kernels/linear_float_tiles.h"
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

#if defined(OCTAVO_TILES)
template <class Layout>
using BestBlockKernel = TiledBlockKernel<Layout>;
template <class Layout>
using BestSuperKernel = TiledSuperKernel<Layout>;
constexpr auto kQuantiseBlock256 = quantise_tiled_block256;
constexpr auto kSplitRows = split_rows;
constexpr auto kLinearBF16 = SplitKernel::run;
constexpr int64_t kTiledFrom = kMinTileRows;
#else
template <class Layout>
using BestBlockKernel = BlockKernel<Layout>;
template <class Layout>
using BestSuperKernel = SuperKernel<Layout>;
constexpr auto kQuantiseBlock256 = quantise_rows_block256;
constexpr void (*kSplitRows)(const ActivationRows&, int64_t, int64_t) = nullptr;
constexpr auto kLinearBF16 = FloatKernel<PackedBF16>::run;
constexpr int64_t kTiledFrom = INT64_MAX;
#endif

inline void fill_linear(LinearKernels& table) {
  table.quantise[kRowsFloat] = nullptr;
  table.quantise[kRowsBF16] = kSplitRows;
  table.quantise[kRowsBlock32] = quantise_rows_block32;
  table.quantise[kRowsBlock256] = kQuantiseBlock256;
  table.tiled_from[kRowsFloat] = table.tiled_from[kRowsBlock32] = INT64_MAX;
  table.quantise[kRowsBlock256Untiled] = quantise_rows_block256;
  table.tiled_from[kRowsBlock256] = kTiledFrom;
  table.tiled_from[kRowsBlock256Untiled] = INT64_MAX;
  table.tiled_from[kRowsBF16] = 17;  // fewer rows are one tile, as high as they need
  table.linear[kF32] = FloatKernel<PackedF32>::run;
  table.linear[kBF16] = kLinearBF16;
  table.linear[kF16] = FloatKernel<PackedF16>::run;
  table.linear[kQ4_0] = BestBlockKernel<LayoutQ4_0>::run;
  table.linear[kQ4_1] = BestBlockKernel<LayoutQ4_1>::run;
  table.linear[kQ5_0] = BestBlockKernel<LayoutQ5_0>::run;
  table.linear[kQ5_1] = BestBlockKernel<LayoutQ5_1>::run;
  table.linear[kQ8_0] = BestBlockKernel<LayoutQ8_0>::run;
  table.linear[kQ4_K] = BestSuperKernel<LayoutQ4_K>::run;
  table.linear[kQ5_K] = BestSuperKernel<LayoutQ5_K>::run;
  table.linear[kQ6_K] = BestSuperKernel<LayoutQ6_K>::run;
  table.linear[kQ2_K] = SuperKernel<LayoutQ2_K>::run;
  table.linear[kQ3_K] = SuperKernel<LayoutQ3_K>::run;
  table.linear[kIQ4_NL] = BestBlockKernel<LayoutIQ4_NL>::run;
  table.linear[kMXFP4] = BlockKernel<LayoutMXFP4>::run;
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
