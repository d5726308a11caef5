// The row-wise kernels over the thread pool: how much work is worth a second thread.
#pragma once

#include "octavo/layer_args.h"

namespace octavo {

void run_norm(const NormArgs& args, bool centred, int64_t rows);  // rows = outer * inner
void run_rope(const RopeArgs& args, int64_t rows);
void run_act_mul(const ActivationArgs& args, int64_t rows);
void run_softcap(const SoftcapArgs& args, int64_t rows);
void run_write_kv(const KvWriteArgs& args, int64_t tokens);
void run_add(const AddArgs& args, int64_t rows);
void run_scale(const ScaleArgs& args, int64_t rows);
void run_select(const SelectArgs& args, int64_t count);
void run_argmax(const SampleArgs& args, int64_t rows);
void run_sample(const SampleArgs& args, int64_t rows);
void run_logprobs(const LogprobArgs& args, int64_t rows);

// Throws std::invalid_argument that names the first value outside of [low, limit).
void check_range(const char* name, const int64_t* values, int64_t count, int64_t low, int64_t limit);

}  // namespace octavo
