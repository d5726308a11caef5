#include "runtime/decode.h"

#include <algorithm>
#include <cmath>

#include "octavo/thread_pool.h"
#include "runtime/layers.h"

namespace octavo {
namespace {

Step step_of(const DecodeBatch& b) {
  return {b.seqs, b.seqs, b.token_ids, b.positions, b.query_start, b.seq_lens, b.groups, b.num_groups};
}

Step head_step_of(const DecodeBatch& b) {
  return {b.seqs, b.seqs, b.rows, b.positions, b.query_start, b.seq_lens, nullptr, 0};
}

void draw(const DecodeBatch& b, int64_t step, int64_t* tokens) {
  SampleArgs args = b.sampling;
  args.out = tokens;
  if (b.uniforms == nullptr) return run_argmax(args, b.seqs);
  args.uniform = b.uniforms + step * b.seqs;
  run_sample(args, b.seqs);
}

bool all_good(const DecodeBatch& b, const int64_t* tokens) {
  for (int64_t s = 0; s < b.seqs; ++s) {
    if (tokens[s] < 0 || !std::isfinite(b.sampling.logits[s * b.sampling.row_stride + tokens[s]]))
      return false;
  }
  return true;
}

bool any_stops(const StopIds& stops, const int64_t* tokens, int64_t seqs) {
  for (int64_t s = 0; s < seqs; ++s) {
    const int64_t* end = stops.ids + stops.starts[s + 1];
    if (std::find(stops.ids + stops.starts[s], end, tokens[s]) != end) return true;
  }
  return false;
}

// Tokens whose page the scheduler did not keep are not written anywhere.
int64_t slot_of(const GroupPages& group, int64_t seq, int64_t position, int64_t block_size) {
  const int64_t block = group.block_table[seq * group.table_stride + position / block_size];
  return block == 0 ? -1 : block * block_size + position % block_size;
}

// Makes the drawn tokens the next step's input. Past the end of the block table there are no slots; the
// caller does not ask for a step there, and the check of the program would refuse it.
void advance(const DecodeBatch& b, const int64_t* tokens) {
  for (int64_t s = 0; s < b.seqs; ++s) {
    b.token_ids[s] = tokens[s];
    ++b.positions[s];
    ++b.seq_lens[s];
    for (int64_t g = 0; g < b.num_groups; ++g) {
      const GroupPages& group = b.groups[g];
      if (b.positions[s] < group.table_stride * b.block_size) {
        const_cast<int64_t*>(group.slots)[s] = slot_of(group, s, b.positions[s], b.block_size);
      }
    }
  }
}

}  // namespace

int64_t decode(const Program& body, const Program& head, const DecodeBatch& batch, int64_t steps,
               int64_t* out) {
  const auto turn = ThreadPool::instance().exclusive();
  for (int64_t step = 0; step < steps; ++step) {
    int64_t* tokens = out + step * batch.seqs;
    body.run(step_of(batch));
    head.run(head_step_of(batch));
    draw(batch, step, tokens);
    if (!all_good(batch, tokens)) return step;
    advance(batch, tokens);
    if (any_stops(batch.stops, tokens, batch.seqs)) return step + 1;
  }
  return steps;
}

}  // namespace octavo
