// Matrix tiles of AMX: eight registers of 16 rows x 64 bytes and their product of bfloat16 (AMX-BF16).
//
//   tiles 0..3  sums, 16 rows x 16 lanes      tiles 4, 5  left operands      tiles 6, 7  right operands
//
// A right operand's row is a line of 16 outputs x 2 k. OCTAVO_EMULATED
// replaces the registers by memory, for tests on other machines.
#pragma once

#if !defined(OCTAVO_EMULATED)
#include <immintrin.h>
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// For products of `rows` rows over `k` (32 or 64) bytes.
inline TileConfig tile_config(int k, int rows) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = uint16_t(t == 4 || t == 5 ? k : 64);
    config.rows[t] = uint8_t(t >= 6 ? k / 4 : rows);
  }
  return config;
}

#if defined(OCTAVO_EMULATED)

thread_local TileConfig current_config;
alignas(64) thread_local int8_t tile_memory[8][16][64];

inline void tiles_begin(int k, int rows = 16) { current_config = tile_config(k, rows); }
inline void tiles_end() {}
template <int T>
inline void tile_zero() {
  memset(tile_memory[T], 0, sizeof tile_memory[T]);
}
template <int T>
inline void tile_load(const void* p, int64_t stride) {
  for (int r = 0; r < current_config.rows[T]; ++r) {
    memcpy(tile_memory[T][r], static_cast<const char*>(p) + r * stride, current_config.bytes_per_row[T]);
  }
}
template <int T>
inline void tile_store(void* p, int64_t stride) {
  for (int r = 0; r < current_config.rows[T]; ++r) {
    memcpy(static_cast<char*>(p) + r * stride, tile_memory[T][r], 64);
  }
}
inline float without_subnormals(float x) { return x < 0x1p-126f && x > -0x1p-126f ? 0.0f : x; }

// Of pairs: the products over even k are summed in order, so are those over odd k, then both and the sum
// added; subnormals count as zero.
template <int Sum, int Left, int Right>
inline void tile_dot_bf16() {
  for (int m = 0; m < current_config.rows[Sum]; ++m) {
    uint16_t left[32];
    float sums[16];
    memcpy(left, tile_memory[Left][m], sizeof left);
    memcpy(sums, tile_memory[Sum][m], sizeof sums);
    for (int n = 0; n < 16; ++n) {
      float part[2] = {0.0f, 0.0f};
      for (int k = 0; k < 32; ++k) {
        uint16_t right;
        memcpy(&right, &tile_memory[Right][k / 2][4 * n + 2 * (k % 2)], 2);
        const float product =
            without_subnormals(bf16_to_float(left[k])) * without_subnormals(bf16_to_float(right));
        part[k % 2] = without_subnormals(part[k % 2] + without_subnormals(product));
      }
      sums[n] = without_subnormals(sums[n] + without_subnormals(part[0] + part[1]));
    }
    memcpy(tile_memory[Sum][m], sums, sizeof sums);
  }
}

#else

// In assembly rather than by intrinsics: GCC 12's do not say which memory they touch.
inline void tiles_begin(int k, int rows = 16) {
  const TileConfig config = tile_config(k, rows);
  asm volatile("ldtilecfg %0" ::"m"(config));
}
inline void tiles_end() { asm volatile("tilerelease"); }
template <int T>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
inline void tile_load(const void* p, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(p), "r"(stride) : "memory");
}
template <int T>
inline void tile_store(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(p), "r"(stride) : "memory");
}
template <int Sum, int Left, int Right>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(Left), "i"(Right));
}

#endif

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
