// Several decode steps in one call: the token that a step draws is the next step's input, so nothing outside
// is needed until a sequence ends or the caller wants to look.
#pragma once

#include "octavo/layer_args.h"
#include "runtime/program.h"

namespace octavo {

// Stop ids of all sequences: those of sequence s are ids[starts[s]] to ids[starts[s + 1] - 1].
struct StopIds {
  const int64_t* ids;
  const int64_t* starts;  // [S + 1]
};

// S sequences of one row each. What is not const is advanced as the steps go: token_ids, positions, seq_lens
// and the slots of each group are those of the first step before, and of the step after the last one
// afterwards.
struct DecodeBatch {
  int64_t seqs;
  int64_t block_size;
  int64_t* token_ids;
  int64_t* positions;
  int32_t* seq_lens;
  const int32_t* query_start;
  const GroupPages* groups;
  int64_t num_groups;
  StopIds stops;
  const int64_t* rows;     // [S]: 0, 1, 2, ...
  const double* uniforms;  // [steps, S]; null: every sequence is greedy
  SampleArgs sampling;     // logits, vocabulary and parameters; `uniform` and `out` are set here
};

// Runs up to `steps` steps and writes their tokens to out [steps, S]. Ends early after a step that drew a
// stop id, and before one whose logits cannot be sampled (NaN or infinite), which is not counted. Returns the
// steps counted.
int64_t decode(const Program& body, const Program& head, const DecodeBatch& batch, int64_t steps,
               int64_t* out);

}  // namespace octavo
