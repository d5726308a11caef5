// A weight matrix in the packed layout (octavo/packed_format.h), owning its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "octavo/linear_args.h"

namespace octavo {

struct FormatInfo {
  const char* name;
  int block;        // cols must be a multiple
  int block_bytes;  // of the source, row-major GGUF; 0: packed from a GroupSource
  int super;        // k per packed super-block
  int super_bytes;  // packed, 16 rows
};

const FormatInfo& format_info(Format format);
// kFormatCount if the name is unknown.
Format format_by_name(const char* name);
// Whether floats of `source` can be rounded to it here.
bool quantises(Format format, Format source);

// How the quants of a group format lie in a checkpoint: bytes [rows][cols], signed integers or e4m3; words of
// consecutive k [rows][cols / n]; the same as AutoGPTQ has them, [cols / n][rows]; or words of eight rows
// [cols][rows / 8].
enum class QuantOrder { kBytes, kWords, kGPTQ, kAWQ };

// A matrix in a group format. scales and zeros are [rows][groups]; zeros is null where the format has none.
struct GroupSource {
  QuantOrder order;
  int64_t rows, cols;
  const uint8_t* quants;
  const float* scales;
  const uint8_t* zeros;
};

// Threads own panels (ThreadPool::share_begin) in groups of so many: they fill them, so that they lie in the
// memory of the node that reads them.
inline constexpr int64_t kOwnedPanels = 4;

class PackedMatrix {
 public:
  // Allocates memory; `fill` sets all of it. Throws std::bad_alloc.
  PackedMatrix(Format format, int64_t rows, int64_t cols);

  Format format() const { return format_; }
  int64_t rows() const { return view_.rows; }
  int64_t cols() const { return view_.cols; }
  int64_t panels() const { return (view_.rows + kPanelRows - 1) / kPanelRows; }
  int64_t nbytes() const { return panels() * view_.panel_bytes; }
  const PackedView& view() const { return view_; }

  // Row-major source of rows() x cols() in the format's GGUF blocks (or plain floats), on all threads of the
  // pool.
  void fill(const uint8_t* source);

  // The same of a format whose block_bytes are 0.
  void fill_groups(const GroupSource& source);

  // The same from plain floats, rounded; quantises(format(), source_format) must hold. False if a value is
  // not finite, or too large for a scale.
  bool quantise(const uint8_t* source, Format source_format);

  // Rows ids[i] as float32: out[i * stride ...]. Ids must lie in [0, rows()).
  void read_rows(const int64_t* ids, int64_t count, float* out, int64_t stride) const;

 private:
  // pack_panel(panel memory, first row, rows) for every panel, on all threads of the pool.
  template <class F>
  void fill_panels(F&& pack_panel);

  Format format_;
  std::shared_ptr<uint8_t> memory_;
  PackedView view_;
};

}  // namespace octavo
