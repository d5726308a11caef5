// Writes the keys and values of a step into their pages, rounded to the page's type (nearest even).
#pragma once

#include "octavo/layer_args.h"
#include "octavo/simd.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline constexpr int64_t kMaxHeadDim = 512;

// Element types of the pages: `wide` reads 16 elements, `wide_pairs` 32 of them, where kPairs says that this
// is cheaper.
struct F32Page {
  using Element = float;
  static constexpr bool kPairs = false;
  static f32x16 wide(const float* p) { return load(p); }
  static void narrow(float* p, f32x16 x) { store(p, x); }
};
struct Bf16Page {
  using Element = uint16_t;
  static constexpr bool kPairs = true;
  static Pair16 wide_pairs(const uint16_t* p) { return load_bf16_pairs(p); }
  static f32x16 wide(const uint16_t* p) { return load_bf16(p); }
  static void narrow(uint16_t* p, f32x16 x) { store_bf16(p, x); }
};
struct F16Page {
  using Element = uint16_t;
  static constexpr bool kPairs = false;
  static f32x16 wide(const uint16_t* p) { return load_f16(p); }
  static void narrow(uint16_t* p, f32x16 x) { store_f16(p, x); }
};

template <class Page>
inline void narrow_row(typename Page::Element* out, const float* x,
                       int64_t n) {  // writes up to a multiple of 16
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Page::narrow(out + i, load(x + i));
  if (i < n) Page::narrow(out + i, load_tail(x + i, int(n - i)));
}

template <class Page>
inline void write_token(const KvWriteArgs& a, int64_t token) {
  using Element = typename Page::Element;
  const int64_t slot = a.slots[token];
  const int64_t block = slot / a.block_size, offset = slot % a.block_size;
  for (int64_t head = 0; head < a.kv_heads; ++head) {
    Element row[kMaxHeadDim];
    const int64_t page = (block * a.kv_heads + head) * a.head_dim * a.block_size;
    narrow_row<Page>(row, a.k + token * a.k_row_stride + head * a.head_dim, a.head_dim);
    Element* keys = static_cast<Element*>(a.k_cache) + page + offset;
    for (int64_t d = 0; d < a.head_dim; ++d) keys[d * a.block_size] = row[d];
    narrow_row<Page>(row, a.v + token * a.v_row_stride + head * a.head_dim, a.head_dim);
    Element* values = static_cast<Element*>(a.v_cache) + page + offset * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; ++d) values[d] = row[d];
  }
}

template <class Page>
inline void write_tokens(const KvWriteArgs& a, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    if (a.slots[token] >= 0) write_token<Page>(a, token);
  }
}

void write_kv(const KvWriteArgs& a, int64_t begin, int64_t end) {
  switch (a.type) {
    case KvType::f32:
      return write_tokens<F32Page>(a, begin, end);
    case KvType::bf16:
      return write_tokens<Bf16Page>(a, begin, end);
    case KvType::f16:
      return write_tokens<F16Page>(a, begin, end);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
