// Collects the matrix kernels into the table.
#pragma once

#include "kernels/quantise.h"
#include "kernels/row_tiles.h"
#include "kernels/unpack.h"

#include "kernels/linear_block.h"
#include "kernels/linear_float.h"
#include "kernels/linear_super.h"
#if defined(OCTAVO_TILES)
#include "kernels/linear_float_tiles.h"
#include "kernels/linear_quantised_tiles.h"
#elif defined(OCTAVO_SQUARES)
#include "kernels/quantise_pairs.h"

#include "kernels/linear_squares.h"
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

#if defined(OCTAVO_TILES)
template <class Layout>
using BestBlockKernel = QuantisedTileKernel<Layout>;
template <class Layout>
using BestSuperKernel = QuantisedTileKernel<Layout>;
constexpr RowForm kBlockRows = kRowsRounded, kSuperRows = kRowsRounded, kBF16Rows = kRowsBF16;
constexpr auto kLinearBF16 = SplitKernel::run;
#else
#if defined(OCTAVO_SQUARES)
template <class Layout>
using BestBlockKernel = SquareKernel<BlockSquares<Layout>>;
template <class Layout>
using BestSuperKernel = SquareKernel<SuperSquares<Layout>>;
#else
template <class Layout>
using BestBlockKernel = BlockKernel<Layout>;
template <class Layout>
using BestSuperKernel = SuperKernel<Layout>;
#endif
constexpr RowForm kBlockRows = kRowsBlock32, kSuperRows = kRowsBlock256, kBF16Rows = kRowsFloat;
constexpr auto kLinearBF16 = FloatKernel<PackedBF16>::run;
#endif

template <Format F>
inline void fill_format(LinearKernels& table, RowForm rows,
                        void (*kernel)(const LinearArgs&, int64_t, int64_t)) {
  table.rows[F] = rows;
  table.linear[F] = kernel;
}

inline void fill_rows(LinearKernels& table) {
  for (int form = 0; form < kRowFormCount; ++form) {
    table.quantise[form] = nullptr;
    table.tiled_from[form] = INT64_MAX;
  }
  table.quantise[kRowsBlock32] = quantise_rows_block32;
  table.quantise[kRowsBlock256] = quantise_rows_block256;
#if defined(OCTAVO_TILES)
  table.quantise[kRowsBF16] = split_rows;
  table.quantise[kRowsRounded] = round_rows_bf16;
  table.tiled_from[kRowsBF16] = table.tiled_from[kRowsRounded] = kTileM + 1;  // fewer rows are one lower tile
#elif defined(OCTAVO_SQUARES)
  table.quantise[kRowsBlock32] = quantise_pairs_block32;
  table.quantise[kRowsBlock256] = quantise_pairs_block256;
  table.tiled_from[kRowsBlock32] = table.tiled_from[kRowsBlock256] = kSquaresFrom;
#endif
}

inline void fill_linear(LinearKernels& table) {
  fill_rows(table);
  fill_format<kF32>(table, kRowsFloat, FloatKernel<PackedF32>::run);
  fill_format<kBF16>(table, kBF16Rows, kLinearBF16);
  fill_format<kF16>(table, kRowsFloat, FloatKernel<PackedF16>::run);
  fill_format<kE4M3G128>(table, kRowsFloat, FloatKernel<PackedE4M3>::run);
  fill_format<kQ4_0>(table, kBlockRows, BestBlockKernel<LayoutQ4_0>::run);
  fill_format<kQ4_1>(table, kBlockRows, BestBlockKernel<LayoutQ4_1>::run);
  fill_format<kQ5_0>(table, kBlockRows, BestBlockKernel<LayoutQ5_0>::run);
  fill_format<kQ5_1>(table, kBlockRows, BestBlockKernel<LayoutQ5_1>::run);
  fill_format<kQ8_0>(table, kBlockRows, BestBlockKernel<LayoutQ8_0>::run);
  fill_format<kQ4_K>(table, kSuperRows, BestSuperKernel<LayoutQ4_K>::run);
  fill_format<kQ5_K>(table, kSuperRows, BestSuperKernel<LayoutQ5_K>::run);
  fill_format<kQ6_K>(table, kSuperRows, BestSuperKernel<LayoutQ6_K>::run);
  fill_format<kQ2_K>(table, kSuperRows, BestSuperKernel<LayoutQ2_K>::run);
  fill_format<kQ3_K>(table, kSuperRows, BestSuperKernel<LayoutQ3_K>::run);
  fill_format<kIQ4_NL>(table, kBlockRows, BestBlockKernel<LayoutIQ4_NL>::run);
  fill_format<kMXFP4>(table, kBlockRows, BestBlockKernel<LayoutMXFP4>::run);
  fill_format<kInt4G32>(table, kBlockRows, BestBlockKernel<LayoutInt4G32>::run);
  fill_format<kInt4G128>(table, kBlockRows, BestBlockKernel<LayoutInt4G128>::run);
  fill_format<kInt8G128>(table, kBlockRows, BestBlockKernel<LayoutInt8G128>::run);
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
