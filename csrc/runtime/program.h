// A step program: the op calls of one forward pass, recorded once and replayed without Python.
//
// Buffers and weights keep the addresses they had when they were recorded. What changes from step to step
// (the number of rows, ids, positions, lengths, pages) is read from a `Step` at run time, so one program
// serves every batch.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "octavo/layer_args.h"
#include "pack/packed_matrix.h"
#include "runtime/experts.h"

namespace octavo {

// Where the pages of one page group lie in this step.
struct GroupPages {
  const int32_t* block_table;  // [S, table_stride]
  int64_t table_stride;
  const int64_t* slots;  // [M]
};

struct Step {
  int64_t rows;      // M
  int64_t num_seqs;  // S
  const int64_t* token_ids;
  const int64_t* positions;
  const int32_t* query_start;  // [S + 1]
  const int32_t* seq_lens;     // [S]
  const GroupPages* groups;
  int64_t num_groups;
};

struct EmbeddingOp {
  const PackedMatrix* weight;
  float* out;
};
struct LinearOp {
  const float* x;
  int64_t x_stride;
  std::vector<const PackedMatrix*> weights;
  const float* bias;
  float* out;
  int64_t out_stride;
};
struct NormOp {
  NormArgs args;
  bool centred;
  int64_t per_token;  // rows a token
};
struct RopeOp {
  RopeArgs args;
  int64_t max_position;
};
struct ActivationOp {
  ActivationArgs args;
};
struct SoftcapOp {
  SoftcapArgs args;
};
struct AddOp {
  AddArgs args;
};
struct ScaleOp {
  ScaleArgs args;
};
struct SelectOp {
  SelectArgs args;  // ids are the step's token_ids
  int64_t x_rows;
};
struct KvWriteOp {
  KvWriteArgs args;
  int64_t num_blocks;
  int64_t group;
};
struct AttentionOp {
  AttentionArgs args;
  int64_t num_blocks;
  int64_t group;
};

struct RouteOp {
  RouteArgs args;
};
struct ExpertsOp {
  const std::vector<Expert>* experts;
  ExpertsArgs args;
};

using Op = std::variant<EmbeddingOp, LinearOp, NormOp, RopeOp, ActivationOp, SoftcapOp, AddOp, ScaleOp,
                        SelectOp, KvWriteOp, AttentionOp, RouteOp, ExpertsOp>;

class Program {
 public:
  void add(Op op) { ops_.push_back(std::move(op)); }
  int64_t size() const { return int64_t(ops_.size()); }
  // Checks the step against what the ops can take (std::invalid_argument names the first value that does not
  // fit), then runs all ops in order.
  void run(const Step& step) const;
  // The same, with the nanoseconds that each op took.
  std::vector<int64_t> run_timed(const Step& step) const;
  const char* name(int64_t op) const;
  // Bytes of weights that each op reads whole; 0 for ops that read none, or some rows only.
  std::vector<int64_t> weight_bytes() const;

 private:
  void check(const Step& step) const;

  std::vector<Op> ops_;
};

}  // namespace octavo
