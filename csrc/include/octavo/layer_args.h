// What the row-wise ops, attention and sampling are given: pointers, sizes and strides. Strides count
// elements. Checked at the border (bindings/); the kernels trust them.
#pragma once

#include <cstdint>

namespace octavo {

// Rows of `cols` floats, laid out as [outer, inner, cols] with a dense last dimension; the output is dense.
struct NormArgs {
  const float* x;
  const float* weight;
  const float* bias;  // layer_norm only; may be null
  float* out;
  int64_t inner;
  int64_t outer_stride;
  int64_t inner_stride;
  int64_t cols;
  float eps;
};

// x [M, heads, head_dim]: the first rot_dim floats of each head turn in place.
struct RopeArgs {
  float* x;
  const int64_t* positions;  // [M]
  const float* cos_sin;      // [max_pos, rot_dim]: cosines | sines
  int64_t heads;
  int64_t row_stride;
  int64_t head_stride;
  int64_t rot_dim;
  bool interleaved;
};

enum class Activation : int32_t { silu = 0, gelu_tanh = 1, gelu = 2 };

// out[r][c] = act(gate[r][c]) * up[r][c]; up may be null (plain activation).
struct ActivationArgs {
  const float* gate;
  const float* up;
  float* out;
  int64_t in_stride;
  int64_t out_stride;
  int64_t cols;
  Activation act;
};

struct SoftcapArgs {
  const float* x;
  float* out;
  int64_t cols;  // both dense
  float cap;
};

// out[r] = x[r] + y[r]; the output is dense.
struct AddArgs {
  const float* x;
  const float* y;
  float* out;
  int64_t x_stride;
  int64_t y_stride;
  int64_t cols;
};

// out = x * factor; both dense.
struct ScaleArgs {
  const float* x;
  float* out;
  int64_t cols;
  float factor;
};

// out[i] = x[ids[i]]; the output is dense.
struct SelectArgs {
  const float* x;
  const int64_t* ids;
  float* out;
  int64_t x_stride;
  int64_t cols;
};

// Chooses top_k experts a row by logit, the lower id first where they are equal. Weights are the softmax over
// all experts, `renormalise`d over the chosen ones or not. With `shared`, one more logit follows: expert
// number `experts` is always taken, last, with the logit's sigmoid as its weight. Slots = top_k + shared.
struct RouteArgs {
  const float* logits;  // [M, experts + shared]
  int64_t row_stride;
  int64_t experts;  // at most kMaxExperts
  int64_t top_k;
  bool renormalise;
  bool shared;
  int32_t* ids;    // [M, slots]
  float* weights;  // [M, slots]
};
inline constexpr int64_t kMaxExperts = 1024;

// out[r] = sum over slots s, ascending, of weights[r][s] * y[places[r][s]]; y and out are dense.
struct CombineArgs {
  const float* y;
  const int32_t* places;  // [M, slots]
  const float* weights;   // [M, slots]
  float* out;
  int64_t slots;
  int64_t cols;
};

enum class KvType : int32_t { f32 = 0, bf16 = 1, f16 = 2, e4m3 = 3, e5m2 = 4, i8 = 5 };

// Pages: K [blocks, kv_heads, head_dim, block_size], V [blocks, kv_heads, block_size, head_dim]. With i8 each
// head's part of a page is followed by block_size floats, the scales of its tokens.
struct KvWriteArgs {
  const float* k;  // [M, kv_heads, head_dim], heads dense
  const float* v;
  int64_t k_row_stride;
  int64_t v_row_stride;
  void* k_cache;
  void* v_cache;
  const int64_t* slots;  // [M]; -1 skips
  int64_t kv_heads;
  int64_t head_dim;
  int64_t block_size;
  KvType type;
};

struct AttentionArgs {
  const float* q;  // [M, heads, head_dim], heads dense
  int64_t q_row_stride;
  float* out;  // [M, heads * head_dim]
  const void* k_cache;
  const void* v_cache;
  const int32_t* query_start;  // [S + 1]
  const int32_t* seq_lens;     // [S]
  const int32_t* block_table;  // [S, table_stride]
  int64_t table_stride;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t block_size;
  KvType type;
  float scale;
  float softcap;                  // 0: off
  int64_t window;                 // 0: off
  const float* sinks = nullptr;   // [heads]: a score that takes part in each row's sum, but has no value
  const float* slopes = nullptr;  // [heads]: ALiBi, slope * (key - position) is added to a score
};

// Keys are taken in spans of this many, aligned to absolute positions. A span has one maximum, one sum and
// one weighted value vector; spans are merged in ascending order. So nothing depends on how the work was cut.
inline constexpr int64_t kSpanKeys = 128;
// Query rows (token x head of the group) that one call handles at most.
inline constexpr int64_t kTileRows = 48;

// Rows [row_begin, row_end) of the (token, head of the group) grid of one sequence and one KV head.
struct AttentionTile {
  int32_t seq;
  int32_t kv_head;
  int32_t row_begin;
  int32_t row_end;
};

// What a thread takes on at a time: a whole tile into the output, or (partial is not null) one of its spans
// into a partial of (row_end - row_begin) * (head_dim + 2) floats.
struct AttentionUnit {
  const AttentionTile* tile;
  int64_t span;
  float* partial;
};

struct SampleArgs {
  const float* logits;  // [R, vocab]
  int64_t row_stride;
  int64_t vocab;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* log_min_p;  // [R]: log(min_p), -inf where off
  const double* uniform;
  int64_t* out;
};

struct LogprobArgs {
  const float* logits;  // [R, vocab]
  int64_t row_stride;
  int64_t vocab;
  const int64_t* token_ids;  // [R]
  int64_t k;
  float* values;   // [R, k + 1]
  int64_t* ids;    // [R, k + 1]
  int64_t* ranks;  // [R]
};

// Every entry takes a range of its units (rows, tokens) or one tile; scratch is at least
// attention_scratch_bytes.
struct LayerKernels {
  void (*rms_norm)(const NormArgs& a, int64_t begin, int64_t end);
  void (*layer_norm)(const NormArgs& a, int64_t begin, int64_t end);
  void (*rope)(const RopeArgs& a, int64_t begin, int64_t end);
  void (*act_mul)(const ActivationArgs& a, int64_t begin, int64_t end);
  void (*softcap)(const SoftcapArgs& a, int64_t begin, int64_t end);
  void (*write_kv)(const KvWriteArgs& a, int64_t begin, int64_t end);
  // `next` is what the thread will probably take on after this unit; null: nothing known.
  void (*attention_unit)(const AttentionArgs& a, const AttentionUnit& unit, const AttentionUnit* next,
                         float* scratch);
  void (*attention_merge)(const AttentionArgs& a, const AttentionTile& tile, const float* partials,
                          int64_t count, float* scratch);
  void (*argmax)(const SampleArgs& a, int64_t begin, int64_t end);
  void (*sample)(const SampleArgs& a, int64_t begin, int64_t end);
  void (*logprobs)(const LogprobArgs& a, int64_t begin, int64_t end);
  void (*add)(const AddArgs& a, int64_t begin, int64_t end);
  void (*scale)(const ScaleArgs& a, int64_t begin, int64_t end);
  void (*route)(const RouteArgs& a, int64_t begin, int64_t end);
  void (*combine)(const CombineArgs& a, int64_t begin, int64_t end);
};

constexpr int64_t attention_scratch_bytes(int64_t head_dim) {
  const int64_t padded = (head_dim + 15) / 16 * 16;
  const int64_t rows = kSpanKeys + padded + 2 * (head_dim + 2);
  return int64_t(sizeof(float)) * (kTileRows * rows + 2 * kSpanKeys * padded);
}

}  // namespace octavo
