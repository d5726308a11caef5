// The kernels around the matrices, run at once. Tensors come as addresses: reading one through DLPack costs
// more than most of these kernels. Types, shapes and strides are checked by the Python op; what depends on
// the contents is checked here.
#include "bindings/layers.h"

#include "bindings/layer_calls.h"
#include "runtime/attention.h"
#include "runtime/layers.h"

namespace octavo {
namespace nb = nanobind;
namespace {

void norm(bool centred, Address x, Address weight, Address bias, Address out, int64_t outer, int64_t inner,
          int64_t outer_stride, int64_t inner_stride, int64_t cols, float eps) {
  run_norm(norm_args(x, weight, bias, out, inner, outer_stride, inner_stride, cols, eps), centred,
           outer * inner);
}

void rope(Address x, Address positions, Address cos_sin, int64_t rows, int64_t heads, int64_t row_stride,
          int64_t head_stride, int64_t rot_dim, int64_t max_position, bool interleaved) {
  check_range("positions", at<int64_t>(positions), rows, 0, max_position);
  run_rope(rope_args(x, positions, cos_sin, heads, row_stride, head_stride, rot_dim, interleaved), rows);
}

void act_mul(Address gate, Address up, Address out, int64_t rows, int64_t cols, int64_t in_stride, int act) {
  run_act_mul(activation_args(gate, up, out, cols, in_stride, act), rows);
}

void softcap(Address x, Address out, int64_t rows, int64_t cols, float cap) {
  run_softcap({at<float>(x), at<float>(out), cols, cap}, rows);
}

void add(Address x, Address y, Address out, int64_t rows, int64_t x_stride, int64_t y_stride, int64_t cols) {
  run_add({at<float>(x), at<float>(y), at<float>(out), x_stride, y_stride, cols}, rows);
}

void scale(Address x, Address out, int64_t rows, int64_t cols, float factor) {
  run_scale({at<float>(x), at<float>(out), cols, factor}, rows);
}

void select_rows(Address x, int64_t x_stride, int64_t x_rows, Address ids, int64_t count, int64_t cols,
                 Address out) {
  check_range("rows", at<int64_t>(ids), count, 0, x_rows);
  run_select({at<float>(x), at<int64_t>(ids), at<float>(out), x_stride, cols}, count);
}

void write_kv(Address k, Address v, int64_t k_row_stride, int64_t v_row_stride, Address k_cache,
              Address v_cache, Address slots, int64_t tokens, int64_t num_blocks, int64_t kv_heads,
              int64_t head_dim, int64_t block_size, int type) {
  check_range("slot_mapping", at<int64_t>(slots), tokens, -1, num_blocks * block_size);
  run_write_kv(kv_write_args(k, v, k_row_stride, v_row_stride, k_cache, v_cache, slots, kv_heads, head_dim,
                             block_size, type),
               tokens);
}

void paged_attention(Address q, int64_t q_row_stride, Address out, Address k_cache, Address v_cache,
                     Address query_start, Address seq_lens, Address block_table, int64_t rows,
                     int64_t num_seqs, int64_t table_stride, int64_t num_blocks, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t block_size, int type, float scale, float cap,
                     int64_t window, Address sinks, Address slopes) {
  const AttentionArgs args =
      attention_args(q, q_row_stride, out, k_cache, v_cache, query_start, seq_lens, block_table, table_stride,
                     heads, kv_heads, head_dim, block_size, type, scale, cap, window, sinks, slopes);
  check_attention(args, num_seqs, rows, num_blocks);
  run_attention(args, num_seqs);
}

void argmax(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address out) {
  run_argmax(
      {at<float>(logits), row_stride, vocab, nullptr, nullptr, nullptr, nullptr, nullptr, at<int64_t>(out)},
      rows);
}

void sample(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address temperature,
            Address top_k, Address top_p, Address log_min_p, Address uniform, Address out) {
  run_sample({at<float>(logits), row_stride, vocab, at<float>(temperature), at<int32_t>(top_k),
              at<float>(top_p), at<float>(log_min_p), at<double>(uniform), at<int64_t>(out)},
             rows);
}

void logprobs(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address token_ids, int64_t k,
              Address values, Address ids, Address ranks) {
  check_range("token_ids", at<int64_t>(token_ids), rows, 0, vocab);
  run_logprobs({at<float>(logits), row_stride, vocab, at<int64_t>(token_ids), k, at<float>(values),
                at<int64_t>(ids), at<int64_t>(ranks)},
               rows);
}

}  // namespace

void bind_layers(nb::module_& m) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  m.def("norm", &norm, Released());
  m.def("rope", &rope, Released());
  m.def("act_mul", &act_mul, Released());
  m.def("softcap", &softcap, Released());
  m.def("add", &add, Released());
  m.def("scale", &scale, Released());
  m.def("select_rows", &select_rows, Released());
  m.def("write_kv", &write_kv, Released());
  m.def("paged_attention", &paged_attention, Released());
  m.def("argmax", &argmax, Released());
  m.def("sample", &sample, Released());
  m.def("logprobs", &logprobs, Released());
}

}  // namespace octavo
