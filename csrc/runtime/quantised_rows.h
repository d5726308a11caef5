// Where quantised rows lie while a product is computed.
#pragma once

#include <cstdint>
#include <memory>

#include "octavo/linear_args.h"

namespace octavo {

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Grow-only memory; used under ThreadPool::exclusive().
class Workspace {
 public:
  // Contents are lost when it grows. Throws std::bad_alloc.
  uint8_t* reserve(int64_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  int64_t size_ = 0;
};

// Kernels that work on tiles of rows may read as many rows beyond the last one.
constexpr int64_t kRowsRead = 15;

// The form in which the kernels of a format take their rows.
RowForm row_form(Format format);

// Sets the size of a quantised row and whether rows lie in tiles, from how many there are.
void shape_rows(RowForm form, ActivationRows& a);

}  // namespace octavo
