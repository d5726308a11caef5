#include "runtime/quantised_rows.h"

#include <stdlib.h>

#include <new>

#include "octavo/kernel_table.h"
#include "pack/packed_matrix.h"

namespace octavo {
namespace {

int64_t row_bytes(RowForm form, int64_t cols) {
  if (form == kRowsBF16) return (cols + 31) / 32 * kSplitBytes;  // rows lie in tiles
  if (form == kRowsRounded) return (cols + 63) / 64 * 2 * kRoundedBytes;
  const int64_t bytes = form == kRowsBlock32 ? (cols + 63) / 64 * 2 * int64_t(sizeof(RowBlock32))
                                             : cols / 256 * int64_t(sizeof(RowBlock256));
  return round_up(bytes, 64) + 64;  // not a power of two: rows would all fall on the same cache sets
}

}  // namespace

void Workspace::Free::operator()(uint8_t* p) const { free(p); }

uint8_t* Workspace::reserve(int64_t bytes) {
  if (bytes > size_) {
    memory_.reset();
    size_ = 0;
    const int64_t rounded = round_up(bytes, 4096);
    memory_.reset(static_cast<uint8_t*>(aligned_alloc(4096, size_t(rounded))));
    if (!memory_) throw std::bad_alloc();
    size_ = rounded;
  }
  return memory_.get();
}

RowForm row_form(Format format) { return kernels().linear.rows[format]; }

void shape_rows(RowForm form, ActivationRows& a) {
  a.row_bytes = row_bytes(form, a.cols);
  a.tiled = a.rows >= kernels().linear.tiled_from[form];
}

}  // namespace octavo
