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
  static constexpr int kScaleElements = 0;
  static constexpr bool kPairs = false;
  static f32x16 wide(const float* p) { return load(p); }
  static void narrow(float* p, f32x16 x) { store(p, x); }
};
struct Bf16Page {
  using Element = uint16_t;
  static constexpr int kScaleElements = 0;
  static constexpr bool kPairs = true;
  static Pair16 wide_pairs(const uint16_t* p) { return load_bf16_pairs(p); }
  static f32x16 wide(const uint16_t* p) { return load_bf16(p); }
  static void narrow(uint16_t* p, f32x16 x) { store_bf16(p, x); }
};
struct F16Page {
  using Element = uint16_t;
  static constexpr int kScaleElements = 0;
  static constexpr bool kPairs = false;
  static f32x16 wide(const uint16_t* p) { return load_f16(p); }
  static void narrow(uint16_t* p, f32x16 x) { store_f16(p, x); }
};

struct E4m3Page {
  using Element = uint8_t;
  static constexpr int kScaleElements = 0;
  static constexpr bool kPairs = false;
  static f32x16 wide(const uint8_t* p) { return load_e4m3(p); }
  static void narrow(uint8_t* p, f32x16 x) { store_e4m3(p, x); }
};
struct E5m2Page {
  using Element = uint8_t;
  static constexpr int kScaleElements = 0;
  static constexpr bool kPairs = false;
  static f32x16 wide(const uint8_t* p) { return load_e5m2(p); }
  static void narrow(uint8_t* p, f32x16 x) { store_e5m2(p, x); }
};
struct I8Page {
  using Element = int8_t;
  static constexpr int kScaleElements = 4;
  static constexpr bool kPairs = false;
  static f32x16 wide(const int8_t* p) { return to_f32(load_i8(p)); }
  static void narrow(int8_t* p, f32x16 x) { store_i8(p, to_i32(x)); }
};

inline f32x16 load_some(const float* x, int64_t i, int64_t n) {
  return i + 16 <= n ? load(x + i) : load_tail(x + i, int(n - i));
}

// Writes up to a multiple of 16; returns the scale, which is NaN where the page's type has no finite numbers
// for the row.
template <class Page>
inline float narrow_row(typename Page::Element* out, const float* x, int64_t n) {
  f32x16 poison = zero_f32();
  for (int64_t i = 0; i < n; i += 16) {
    Page::narrow(out + i, load_some(x, i, n));
    poison = fma(Page::wide(out + i), zero_f32(), poison);
  }
  const float bad = reduce_add(poison);
  return bad == bad ? 1.0f : bad;
}

// int8: x / scale with scale = max |x| / 127.
template <>
inline float narrow_row<I8Page>(int8_t* out, const float* x, int64_t n) {
  f32x16 largest = zero_f32(), poison = zero_f32();
  for (int64_t i = 0; i < n; i += 16) {
    const f32x16 lanes = load_some(x, i, n);
    largest = max(abs(lanes), largest);
    poison = fma(lanes, zero_f32(), poison);
  }
  const float top = reduce_max(largest), bad = reduce_add(poison);
  const bool usable = bad == bad && top > 0.0f;
  const f32x16 inverse = broadcast(usable ? 127.0f / top : 0.0f);
  for (int64_t i = 0; i < n; i += 16)
    I8Page::narrow(out + i, usable ? mul(load_some(x, i, n), inverse) : zero_f32());
  return bad == bad ? top / 127.0f : bad;
}

// A key and a value of a token, narrowed.
template <class Page>
struct NarrowedToken {
  typename Page::Element key[kMaxHeadDim], value[kMaxHeadDim];
  float k_scale, v_scale;

  NarrowedToken(const float* k, const float* v, int64_t n) {
    k_scale = narrow_row<Page>(key, k, n);
    v_scale = narrow_row<Page>(value, v, n);
    if (k_scale != k_scale || v_scale != v_scale) poison(n);
  }

  // What is not finite becomes a key of NaN, so that all who see it are NaN, and a value of zero: the rows of
  // a tile that do not see it multiply its value by a weight of 0, and must get 0.
  void poison(int64_t n) {
    const f32x16 fill = Page::kScaleElements > 0 ? zero_f32() : broadcast(__builtin_nanf(""));
    for (int64_t i = 0; i < n; i += 16) {
      Page::narrow(key + i, fill);
      Page::narrow(value + i, zero_f32());
    }
    k_scale = __builtin_nanf("");
    v_scale = 0.0f;
  }
};

template <class Page>
inline void write_token(const KvWriteArgs& a, int64_t token) {
  using Element = typename Page::Element;
  const int64_t slot = a.slots[token];
  const int64_t block = slot / a.block_size, offset = slot % a.block_size;
  for (int64_t head = 0; head < a.kv_heads; ++head) {
    const int64_t page = (block * a.kv_heads + head) * (a.head_dim + Page::kScaleElements) * a.block_size;
    const int64_t scales = page + a.head_dim * a.block_size + offset * Page::kScaleElements;
    const NarrowedToken<Page> row(a.k + token * a.k_row_stride + head * a.head_dim,
                                  a.v + token * a.v_row_stride + head * a.head_dim, a.head_dim);
    Element* keys = static_cast<Element*>(a.k_cache) + page + offset;
    for (int64_t d = 0; d < a.head_dim; ++d) keys[d * a.block_size] = row.key[d];
    Element* values = static_cast<Element*>(a.v_cache) + page + offset * a.head_dim;
    for (int64_t d = 0; d < a.head_dim; ++d) values[d] = row.value[d];
    if constexpr (Page::kScaleElements > 0) {
      memcpy(static_cast<Element*>(a.k_cache) + scales, &row.k_scale, sizeof row.k_scale);
      memcpy(static_cast<Element*>(a.v_cache) + scales, &row.v_scale, sizeof row.v_scale);
    }
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
    case KvType::e4m3:
      return write_tokens<E4m3Page>(a, begin, end);
    case KvType::e5m2:
      return write_tokens<E5m2Page>(a, begin, end);
    case KvType::i8:
      return write_tokens<I8Page>(a, begin, end);
  }
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
