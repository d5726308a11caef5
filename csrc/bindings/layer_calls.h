// The flat arguments of the layer ops as structs: shared by the ops that run at once and those that are
// recorded.
#pragma once

#include <cstdint>

#include "octavo/layer_args.h"

namespace octavo {

using Address = uintptr_t;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

inline NormArgs norm_args(Address x, Address weight, Address bias, Address out, int64_t inner,
                          int64_t outer_stride, int64_t inner_stride, int64_t cols, float eps) {
  return {at<float>(x), at<float>(weight), at<float>(bias), at<float>(out),
          inner,        outer_stride,      inner_stride,    cols,
          eps};
}

inline RopeArgs rope_args(Address x, Address positions, Address cos_sin, int64_t heads, int64_t row_stride,
                          int64_t head_stride, int64_t rot_dim, bool interleaved) {
  return {at<float>(x), at<int64_t>(positions), at<float>(cos_sin), heads, row_stride, head_stride, rot_dim,
          interleaved};
}

inline ActivationArgs activation_args(Address gate, Address up, Address out, int64_t cols, int64_t in_stride,
                                      int act) {
  return {at<float>(gate), at<float>(up), at<float>(out), in_stride, cols, cols, Activation(act)};
}

inline RouteArgs route_args(Address logits, int64_t row_stride, int64_t experts, int64_t top_k,
                            bool renormalise, bool shared, Address ids, Address weights) {
  return {at<float>(logits), row_stride, experts,          top_k,
          renormalise,       shared,     at<int32_t>(ids), at<float>(weights)};
}

inline KvWriteArgs kv_write_args(Address k, Address v, int64_t k_row_stride, int64_t v_row_stride,
                                 Address k_cache, Address v_cache, Address slots, int64_t kv_heads,
                                 int64_t head_dim, int64_t block_size, int type) {
  return {at<float>(k),       at<float>(v), k_row_stride, v_row_stride, at<void>(k_cache), at<void>(v_cache),
          at<int64_t>(slots), kv_heads,     head_dim,     block_size,   KvType(type)};
}

inline AttentionArgs attention_args(Address q, int64_t q_row_stride, Address out, Address k_cache,
                                    Address v_cache, Address query_start, Address seq_lens,
                                    Address block_table, int64_t table_stride, int64_t heads,
                                    int64_t kv_heads, int64_t head_dim, int64_t block_size, int type,
                                    float scale, float cap, int64_t window, Address sinks, Address slopes) {
  return {at<float>(q),
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
          window,
          at<float>(sinks),
          at<float>(slopes)};
}

}  // namespace octavo
