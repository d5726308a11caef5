// Cuts the attention of a step into tiles and spans and runs them over the pool.
#pragma once

#include "octavo/layer_args.h"

namespace octavo {

// Throws std::invalid_argument when lengths contradict each other or a page lies outside of the cache.
void check_attention(const AttentionArgs& args, int64_t num_seqs, int64_t num_rows, int64_t num_blocks);

void run_attention(const AttentionArgs& args, int64_t num_seqs);

}  // namespace octavo
