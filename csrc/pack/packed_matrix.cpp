#include "pack/packed_matrix.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "octavo/thread_pool.h"
#include "pack/float_blocks.h"
#include "pack/group_blocks.h"
#include "pack/slabs.h"
#include "pack/tiles.h"

namespace octavo {
namespace {

template <class Layout, class Block>
struct QuantisedPacker {
  static constexpr int kBlock = sizeof(Block::q);
  static constexpr int kBlocksPerSuper = Layout::kSuper / kBlock;

  static void pack_panel(uint8_t* panel, const uint8_t* source, int rows, int64_t cols, int block_bytes) {
    const int64_t blocks = cols / kBlock;
    for (int row = 0; row < rows; ++row) {
      const uint8_t* p = source + row * blocks * block_bytes;
      for (int64_t b = 0; b < blocks; ++b, p += block_bytes) {
        Block block;
        decode<Layout>(p, block);
        put_block<Layout>(panel + b / kBlocksPerSuper * Layout::kSuperBytes, row, int(b % kBlocksPerSuper),
                          block);
      }
    }
  }

  static void read_row(const uint8_t* panel, int row, int64_t cols, float* out) {
    constexpr int step = read_step();
    for (int64_t k = 0; k < cols; k += step) {
      const uint8_t* super = panel + k / Layout::kSuper * Layout::kSuperBytes;
      const int index = int(k % Layout::kSuper / step);
      if constexpr (kBlock == 32) {
        get_block<Layout>(super, row, index, out + k);
      } else {
        get_sub_block<Layout>(super, row, index, out + k);
      }
    }
  }

  // A bound of the magnitudes.
  static float largest(const uint8_t* panel, int64_t cols) {
    float bound = 0.0f;
    for (int64_t k = 0; k < cols; k += Layout::kSuper, panel += Layout::kSuperBytes) {
      for (int row = 0; row < kPanelRows; ++row) bound = std::max(bound, largest_of_row<Layout>(panel, row));
    }
    return bound;
  }

 private:
  static constexpr int read_step() {
    if constexpr (kBlock == 32) {
      return 32;
    } else {
      return Layout::kSub;
    }
  }
};

template <class T>
T read_as(const uint8_t* p) {
  T x;
  memcpy(&x, p, sizeof x);
  return x;
}

// Plain floats [k][16], or for bf16 [k/2][16][2].
template <class T, bool Pairs>
struct FloatPacker {
  static int64_t index(int64_t k, int row) {
    return Pairs ? k / 2 * 2 * kPanelRows + 2 * row + k % 2 : k * kPanelRows + row;
  }
  static void pack_panel(uint8_t* panel, const uint8_t* source, int rows, int64_t cols, int) {
    T* to = reinterpret_cast<T*>(panel);
    for (int row = 0; row < rows; ++row) {
      const uint8_t* from = source + row * cols * int64_t(sizeof(T));
      for (int64_t k = 0; k < cols; ++k) to[index(k, row)] = read_as<T>(from + k * int64_t(sizeof(T)));
    }
  }
  static void read_row(const uint8_t* panel, int row, int64_t cols, float* out) {
    const T* from = reinterpret_cast<const T*>(panel);
    for (int64_t k = 0; k < cols; ++k) out[k] = widen(from[index(k, row)]);
  }
  static float largest(const uint8_t*, int64_t) { return 1.0f; }  // nobody asks
  static float widen(T x) {
    if constexpr (sizeof(T) == 4) {
      return x;
    } else {
      return Pairs ? bf16_to_float(x) : f16_to_float(x);
    }
  }
};

struct Packer {
  FormatInfo info;
  void (*pack_panel)(uint8_t* panel, const uint8_t* source, int rows, int64_t cols, int block_bytes);
  void (*read_row)(const uint8_t* panel, int row, int64_t cols, float* out);
  float (*largest)(const uint8_t* panel, int64_t cols);
  void (*pack_groups)(uint8_t* panel, const GroupSource& source, int64_t first, int rows) = nullptr;
};

template <class T, bool Pairs>
constexpr Packer float_packer(const char* name) {
  constexpr int step = Pairs ? 2 : 1;
  using P = FloatPacker<T, Pairs>;
  return {
      {name, 1, sizeof(T), step, step * kPanelRows * int(sizeof(T))}, P::pack_panel, P::read_row, P::largest};
}

template <class Layout, class Block>
constexpr Packer quantised_packer(const char* name, int block_bytes) {
  using P = QuantisedPacker<Layout, Block>;
  return {{name, P::kBlock, block_bytes, Layout::kSuper, Layout::kSuperBytes},
          P::pack_panel,
          P::read_row,
          P::largest};
}

template <class Layout>
constexpr Packer group_packer(const char* name) {
  using P = QuantisedPacker<Layout, Block32>;
  return {{name, Layout::kBlock, 0, Layout::kSuper, Layout::kSuperBytes},
          nullptr,
          P::read_row,
          P::largest,
          GroupPacker<Layout>::pack_panel};
}

constexpr Packer kPackers[kFormatCount] = {
    float_packer<float, false>("f32"),
    float_packer<uint16_t, true>("bf16"),
    float_packer<uint16_t, false>("f16"),
    quantised_packer<LayoutQ4_0, Block32>("q4_0", 18),
    quantised_packer<LayoutQ4_1, Block32>("q4_1", 20),
    quantised_packer<LayoutQ5_0, Block32>("q5_0", 22),
    quantised_packer<LayoutQ5_1, Block32>("q5_1", 24),
    quantised_packer<LayoutQ8_0, Block32>("q8_0", 34),
    quantised_packer<LayoutQ4_K, Block256>("q4_k", 144),
    quantised_packer<LayoutQ5_K, Block256>("q5_k", 176),
    quantised_packer<LayoutQ6_K, Block256>("q6_k", 210),
    quantised_packer<LayoutQ2_K, Block256>("q2_k", 84),
    quantised_packer<LayoutQ3_K, Block256>("q3_k", 110),
    quantised_packer<LayoutIQ4_NL, Block32>("iq4_nl", 18),
    quantised_packer<LayoutMXFP4, Block32>("mxfp4", 17),
    group_packer<LayoutInt4G32>("int4_g32"),
    group_packer<LayoutInt4G128>("int4_g128"),
    group_packer<LayoutInt8G128>("int8_g128"),
    {{"e4m3_g128", 32, 0, LayoutE4M3::kGroup, LayoutE4M3::kSuperBytes},
     nullptr,
     E4M3Packer::read_row,
     E4M3Packer::largest,
     E4M3Packer::pack_panel},
};

// False if some block cannot be rounded.
template <class Layout, class T, bool Pairs>
bool quantise_panel(uint8_t* panel, const uint8_t* source, int rows, int64_t cols) {
  for (int row = 0; row < rows; ++row) {
    for (int64_t b = 0; b < cols / 32; ++b, source += 32 * sizeof(T)) {
      float x[32];
      for (int i = 0; i < 32; ++i)
        x[i] = FloatPacker<T, Pairs>::widen(read_as<T>(source + i * int64_t(sizeof(T))));
      Block32 block;
      if (!encode<Layout>(x, block)) return false;
      put_block<Layout>(panel + b / Layout::kBlocks * Layout::kSuperBytes, row, int(b % Layout::kBlocks),
                        block);
    }
  }
  return true;
}

using QuantisePanel = bool (*)(uint8_t* panel, const uint8_t* source, int rows, int64_t cols);

template <class Layout>
QuantisePanel quantiser_from(Format source) {
  if (source == kF32) return quantise_panel<Layout, float, false>;
  if (source == kBF16) return quantise_panel<Layout, uint16_t, true>;
  return source == kF16 ? quantise_panel<Layout, uint16_t, false> : nullptr;
}

// Null where there is none.
QuantisePanel quantiser(Format format, Format source) {
  if (format == kQ8_0) return quantiser_from<LayoutQ8_0>(source);
  return format == kIQ4_NL ? quantiser_from<LayoutIQ4_NL>(source) : nullptr;
}

// The largest power of two, within float16's normal range, that keeps weights below 2^15.
int32_t shift_below_2_15(float largest) {
  if (!std::isfinite(largest)) return -14;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return largest > 0.0f ? std::clamp(15 - exponent, -14, 15) : 0;
}

}  // namespace

const FormatInfo& format_info(Format format) { return kPackers[format].info; }

Format format_by_name(const char* name) {
  for (int i = 0; i < kFormatCount; ++i) {
    if (strcmp(kPackers[i].info.name, name) == 0) return Format(i);
  }
  return kFormatCount;
}

PackedMatrix::PackedMatrix(Format format, int64_t rows, int64_t cols) : format_(format) {
  const FormatInfo& info = format_info(format);
  const int64_t panel_bytes =
      ((cols + info.super - 1) / info.super * info.super_bytes + kLine - 1) / kLine * kLine;
  view_ = {nullptr, panel_bytes, rows, cols, 0};
  memory_ = weight_memory(size_t(nbytes()));
  view_.base = memory_.get();
}

template <class F>
void PackedMatrix::fill_panels(F&& pack_panel) {
  const Packer& packer = kPackers[format_];
  std::atomic<float> largest = 0.0f;
  ThreadPool::instance().parallel_for_owners(panels(), kOwnedPanels, [&](int64_t begin, int64_t end, int) {
    float found = 0.0f;
    for (int64_t panel = begin; panel < end; ++panel) {
      uint8_t* to = memory_.get() + panel * view_.panel_bytes;
      memset(to, 0, size_t(view_.panel_bytes));  // padding, and first touch by an owner
      const int64_t first = panel * kPanelRows;
      pack_panel(to, first, int(std::min<int64_t>(kPanelRows, view_.rows - first)));
      found = std::max(found, packer.largest(to, view_.cols));
    }
    for (float before = largest; before < found && !largest.compare_exchange_weak(before, found);) {
    }
  });
  view_.shift = shift_below_2_15(largest);
}

void PackedMatrix::fill(const uint8_t* source) {
  const Packer& packer = kPackers[format_];
  const int64_t row_bytes = view_.cols / packer.info.block * packer.info.block_bytes;
  fill_panels([&](uint8_t* panel, int64_t first, int rows) {
    packer.pack_panel(panel, source + first * row_bytes, rows, view_.cols, packer.info.block_bytes);
  });
}

void PackedMatrix::fill_groups(const GroupSource& source) {
  const Packer& packer = kPackers[format_];
  fill_panels(
      [&](uint8_t* panel, int64_t first, int rows) { packer.pack_groups(panel, source, first, rows); });
}

bool quantises(Format format, Format source) { return quantiser(format, source) != nullptr; }

bool PackedMatrix::quantise(const uint8_t* source, Format source_format) {
  const QuantisePanel kernel = quantiser(format_, source_format);
  const int64_t row_bytes = view_.cols * format_info(source_format).block_bytes;
  std::atomic<bool> good = true;
  fill_panels([&](uint8_t* panel, int64_t first, int rows) {
    if (!kernel(panel, source + first * row_bytes, rows, view_.cols)) good = false;
  });
  return good;
}

void PackedMatrix::read_rows(const int64_t* ids, int64_t count, float* out, int64_t stride) const {
  const Packer& packer = kPackers[format_];
  ThreadPool::instance().parallel_for(count, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* panel = view_.base + ids[i] / kPanelRows * view_.panel_bytes;
      packer.read_row(panel, int(ids[i] % kPanelRows), view_.cols, out + i * stride);
    }
  });
}

}  // namespace octavo
