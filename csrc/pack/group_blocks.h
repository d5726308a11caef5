// Weights with a scale, and maybe a zero point, a group, as AutoAWQ, AutoGPTQ and compressed-tensors lay them
// out in safetensors files.
#pragma once

#include <algorithm>
#include <cstring>

#include "pack/packed_matrix.h"
#include "pack/tiles.h"

namespace octavo {
namespace {

// The place in a word of each of eight neighbouring outputs (AWQ_ORDER in AutoAWQ's packing_utils.py,
// inverted).
constexpr int kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

inline uint32_t quant_word(const GroupSource& s, int64_t index) { return read_u32(s.quants + 4 * index); }

// Weights [k, k + 32) of a row, unsigned.
template <int Bits>
void read_quants(const GroupSource& s, int64_t row, int64_t k, uint8_t* q) {
  constexpr int kPerWord = 32 / Bits;
  constexpr uint32_t kMask = (1u << Bits) - 1;
  for (int i = 0; i < 32; ++i) {
    const int64_t at = k + i;
    if (s.order == QuantOrder::kBytes) {
      q[i] = uint8_t(s.quants[row * s.cols + at] ^ 0x80);
    } else if (s.order == QuantOrder::kAWQ) {
      q[i] = uint8_t(quant_word(s, (at * s.rows + row) / kPerWord) >> (Bits * kAwqPlaces[row % 8]) & kMask);
    } else {
      const int64_t word = at / kPerWord;
      const int64_t index =
          s.order == QuantOrder::kGPTQ ? word * s.rows + row : row * (s.cols / kPerWord) + word;
      q[i] = uint8_t(quant_word(s, index) >> (Bits * (at % kPerWord)) & kMask);
    }
  }
}

template <class Layout>
struct GroupPacker {
  // All rows of a block before the next one: where outputs are neighbours in the source, they share its
  // lines.
  static void pack_panel(uint8_t* panel, const GroupSource& s, int64_t first, int rows) {
    for (int64_t b = 0; b < s.cols / Layout::kBlock; ++b) {
      uint8_t* super = panel + b / Layout::kBlocks * Layout::kSuperBytes;
      const int block = int(b % Layout::kBlocks);
      for (int row = 0; row < rows; ++row) {
        uint8_t q[Layout::kBlock];
        read_quants<Layout::kBits>(s, first + row, b * Layout::kBlock, q);
        for (int g = 0; g < 8; ++g) put_group<Layout>(super, row, 8 * block + g, q + 4 * g);
        const uint32_t word = scale_word(s, first + row, b * Layout::kBlock / Layout::kGroup);
        memcpy(super + Layout::scales_of(block) + 4 * row, &word, sizeof word);
      }
    }
  }

 private:
  static uint32_t scale_word(const GroupSource& s, int64_t row, int64_t group) {
    const int64_t at = row * ((s.cols + Layout::kGroup - 1) / Layout::kGroup) + group;
    uint32_t word;
    memcpy(&word, s.scales + at, sizeof word);
    return Layout::kHasZeros ? ((word + 0x80) & ~kZeroPointBits) | s.zeros[at] : word;  // rounded to 16 bits
  }
};

struct E4M3Packer {
  using L = LayoutE4M3;

  static void pack_panel(uint8_t* panel, const GroupSource& s, int64_t first, int rows) {
    for (int row = 0; row < rows; ++row) {
      const uint8_t* from = s.quants + (first + row) * s.cols;
      for (int64_t k = 0; k < s.cols; ++k) panel[k * kPanelRows + row] = from[k];
      for (int64_t g = 0; g < L::groups(s.cols); ++g) {
        const float scale = s.scales[(first + row) * L::groups(s.cols) + g];
        memcpy(panel + L::scales_of(s.cols, g) + 4 * row, &scale, sizeof scale);
      }
    }
  }
  static void read_row(const uint8_t* panel, int row, int64_t cols, float* out) {
    for (int64_t k = 0; k < cols; ++k) {
      const float scale = bits_float(read_u32(panel + L::scales_of(cols, k / L::kGroup) + 4 * row));
      out[k] = e4m3_to_float(panel[k * kPanelRows + row]) * scale;
    }
  }
  static float largest(const uint8_t*, int64_t) { return 1.0f; }  // nobody asks
};

}  // namespace
}  // namespace octavo
