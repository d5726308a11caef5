// The kernels around the matrices. Tensors come as addresses: reading one through DLPack costs more than most
// of these kernels. Types, shapes and strides are checked by the Python op; what depends on the contents is
// checked here.
#include "bindings/layers.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"
#include "runtime/attention.h"

namespace octavo {
namespace nb = nanobind;
namespace {

using Address = uintptr_t;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// Elements that one thread should at least have, for work of a few nanoseconds an element or much less.
constexpr int64_t kCheapElements = 32768;
constexpr int64_t kCostlyElements = 8192;

template <class Args>
void over_rows(void (*kernel)(const Args&, int64_t, int64_t), const Args& args, int64_t rows, int64_t grain) {
  ThreadPool::instance().parallel_for(rows, grain,
                                      [&](int64_t begin, int64_t end, int) { kernel(args, begin, end); });
}

int64_t grain_of(int64_t elements, int64_t cols) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, cols));
}

void check_range(const char* name, const int64_t* values, int64_t count, int64_t low, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < low || values[i] >= limit) {
      throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) + "] is " +
                                  std::to_string(values[i]) + ", must be at least " + std::to_string(low) +
                                  " and below " + std::to_string(limit));
    }
  }
}

void norm(bool centred, Address x, Address weight, Address bias, Address out, int64_t outer, int64_t inner,
          int64_t outer_stride, int64_t inner_stride, int64_t cols, float eps) {
  const NormArgs args = {at<float>(x), at<float>(weight), at<float>(bias), at<float>(out),
                         inner,        outer_stride,      inner_stride,    cols,
                         eps};
  const auto kernel = centred ? kernels().layer.layer_norm : kernels().layer.rms_norm;
  over_rows(kernel, args, outer * inner, grain_of(kCheapElements, cols));
}

void rope(Address x, Address positions, Address cos_sin, int64_t rows, int64_t heads, int64_t row_stride,
          int64_t head_stride, int64_t rot_dim, int64_t max_position, bool interleaved) {
  check_range("positions", at<int64_t>(positions), rows, 0, max_position);
  const RopeArgs args = {
      at<float>(x), at<int64_t>(positions), at<float>(cos_sin), heads, row_stride, head_stride, rot_dim,
      interleaved};
  over_rows(kernels().layer.rope, args, rows, grain_of(kCheapElements, heads * rot_dim));
}

void act_mul(Address gate, Address up, Address out, int64_t rows, int64_t cols, int64_t in_stride, int act) {
  const ActivationArgs args = {at<float>(gate), at<float>(up), at<float>(out), in_stride, cols, cols,
                               Activation(act)};
  over_rows(kernels().layer.act_mul, args, rows, grain_of(kCostlyElements, cols));
}

void softcap(Address x, Address out, int64_t rows, int64_t cols, float cap) {
  const SoftcapArgs args = {at<float>(x), at<float>(out), cols, cap};
  over_rows(kernels().layer.softcap, args, rows, grain_of(kCostlyElements, cols));
}

void write_kv(Address k, Address v, int64_t k_row_stride, int64_t v_row_stride, Address k_cache,
              Address v_cache, Address slots, int64_t tokens, int64_t num_blocks, int64_t kv_heads,
              int64_t head_dim, int64_t block_size, int type) {
  check_range("slot_mapping", at<int64_t>(slots), tokens, -1, num_blocks * block_size);
  const KvWriteArgs args = {at<float>(k),      at<float>(v),      k_row_stride,       v_row_stride,
                            at<void>(k_cache), at<void>(v_cache), at<int64_t>(slots), kv_heads,
                            head_dim,          block_size,        KvType(type)};
  over_rows(kernels().layer.write_kv, args, tokens, grain_of(kCheapElements, kv_heads * head_dim));
}

void paged_attention(Address q, int64_t q_row_stride, Address out, Address k_cache, Address v_cache,
                     Address query_start, Address seq_lens, Address block_table, int64_t rows,
                     int64_t num_seqs, int64_t table_stride, int64_t num_blocks, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t block_size, int type, float scale, float cap,
                     int64_t window) {
  const AttentionArgs args = {at<float>(q),
                              q_row_stride,
                              at<float>(out),
                              at<void>(k_cache),
                              at<void>(v_cache),
                              at<int32_t>(query_start),
                              at<int32_t>(seq_lens),
                              at<int32_t>(block_table),
                              table_stride,
                              heads,
                              kv_heads,
                              head_dim,
                              block_size,
                              KvType(type),
                              scale,
                              cap,
                              window};
  check_attention(args, num_seqs, rows, num_blocks);
  run_attention(args, num_seqs);
}

void argmax(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address out) {
  const SampleArgs args = {at<float>(logits), row_stride, vocab,   nullptr,         nullptr,
                           nullptr,           nullptr,    nullptr, at<int64_t>(out)};
  over_rows(kernels().layer.argmax, args, rows, grain_of(kCheapElements, vocab));
}

void sample(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address temperature,
            Address top_k, Address top_p, Address log_min_p, Address uniform, Address out) {
  const SampleArgs args = {at<float>(logits),      row_stride,          vocab,
                           at<float>(temperature), at<int32_t>(top_k),  at<float>(top_p),
                           at<float>(log_min_p),   at<double>(uniform), at<int64_t>(out)};
  over_rows(kernels().layer.sample, args, rows, grain_of(kCostlyElements, vocab));
}

void logprobs(Address logits, int64_t row_stride, int64_t rows, int64_t vocab, Address token_ids, int64_t k,
              Address values, Address ids, Address ranks) {
  check_range("token_ids", at<int64_t>(token_ids), rows, 0, vocab);
  const LogprobArgs args = {
      at<float>(logits), row_stride,        vocab, at<int64_t>(token_ids), k, at<float>(values),
      at<int64_t>(ids),  at<int64_t>(ranks)};
  over_rows(kernels().layer.logprobs, args, rows, grain_of(kCostlyElements, vocab));
}

}  // namespace

void bind_layers(nb::module_& m) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  m.def("norm", &norm, Released());
  m.def("rope", &rope, Released());
  m.def("act_mul", &act_mul, Released());
  m.def("softcap", &softcap, Released());
  m.def("write_kv", &write_kv, Released());
  m.def("paged_attention", &paged_attention, Released());
  m.def("argmax", &argmax, Released());
  m.def("sample", &sample, Released());
  m.def("logprobs", &logprobs, Released());
}

}  // namespace octavo
