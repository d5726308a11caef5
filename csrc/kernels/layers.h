// Collects the kernels around the matrices; one op per file, included here.
#pragma once

#include "kernels/activation.h"
#include "kernels/argmax.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/kv_write.h"
#include "kernels/layer_norm.h"
#include "kernels/logprobs.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sample.h"
#include "kernels/softcap.h"
#include "octavo/layer_args.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

inline void fill_layers(LayerKernels& table) {
  table = {rms_norm,       layer_norm,      rope,        act_mul, softcap_rows, write_kv,
           attention_unit, attention_merge, argmax,      sample,  logprobs,     add_rows,
           scale_rows,     route_rows,      combine_rows};
}

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
