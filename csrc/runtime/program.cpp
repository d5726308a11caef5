#include "runtime/program.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>

#include "octavo/thread_pool.h"
#include "runtime/attention.h"
#include "runtime/layers.h"
#include "runtime/linear.h"

namespace octavo {
namespace {

AttentionArgs of_step(AttentionArgs args, const Step& step, int64_t group) {
  const GroupPages& pages = step.groups[group];
  args.query_start = step.query_start;
  args.seq_lens = step.seq_lens;
  args.block_table = pages.block_table;
  args.table_stride = pages.table_stride;
  return args;
}

struct Runner {
  const Step& step;

  void operator()(const EmbeddingOp& op) const {
    op.weight->read_rows(step.token_ids, step.rows, op.out, op.weight->cols());
  }
  void operator()(const LinearOp& op) const {
    linear(op.x, op.x_stride, step.rows, op.weights.data(), int(op.weights.size()), op.bias, op.out,
           op.out_stride);
  }
  void operator()(const NormOp& op) const { run_norm(op.args, op.centred, step.rows * op.per_token); }
  void operator()(const RopeOp& op) const {
    RopeArgs args = op.args;
    args.positions = step.positions;
    run_rope(args, step.rows);
  }
  void operator()(const ActivationOp& op) const { run_act_mul(op.args, step.rows); }
  void operator()(const SoftcapOp& op) const { run_softcap(op.args, step.rows); }
  void operator()(const AddOp& op) const { run_add(op.args, step.rows); }
  void operator()(const ScaleOp& op) const { run_scale(op.args, step.rows); }
  void operator()(const SelectOp& op) const {
    SelectArgs args = op.args;
    args.ids = step.token_ids;
    run_select(args, step.rows);
  }
  void operator()(const KvWriteOp& op) const {
    KvWriteArgs args = op.args;
    args.slots = step.groups[op.group].slots;
    run_write_kv(args, step.rows);
  }
  void operator()(const RouteOp& op) const { run_route(op.args, step.rows); }
  void operator()(const ExpertsOp& op) const { run_experts(*op.experts, op.args, step.rows); }
  void operator()(const AttentionOp& op) const {
    run_attention(of_step(op.args, step, op.group), step.num_seqs);
  }
};

// Layers ask for the same things: each is checked once a step, for the first op that asks.
class Checker {
 public:
  explicit Checker(const Step& step)
      : step_(step), written_(size_t(step.num_groups)), read_(size_t(step.num_groups)) {}

  void operator()(const EmbeddingOp& op) {
    check_range("token_ids", step_.token_ids, step_.rows, 0, op.weight->rows());
  }
  void operator()(const SelectOp& op) { check_range("rows", step_.token_ids, step_.rows, 0, op.x_rows); }
  void operator()(const RopeOp& op) {
    if (op.max_position == max_position_) return;
    max_position_ = op.max_position;
    check_range("positions", step_.positions, step_.rows, 0, op.max_position);
  }
  void operator()(const KvWriteOp& op) {
    if (!first(written_, op.group)) return;
    check_range("slot_mapping", step_.groups[op.group].slots, step_.rows, -1,
                op.num_blocks * op.args.block_size);
  }
  void operator()(const AttentionOp& op) {
    if (!first(read_, op.group)) return;
    check_attention(of_step(op.args, step_, op.group), step_.num_seqs, step_.rows, op.num_blocks);
  }
  template <class Other>
  void operator()(const Other&) {}

 private:
  bool first(std::vector<bool>& seen, int64_t group) const {
    if (group >= step_.num_groups) {
      throw std::invalid_argument("the step has " + std::to_string(step_.num_groups) +
                                  " page groups, the program reads group " + std::to_string(group));
    }
    const bool before = seen[size_t(group)];
    seen[size_t(group)] = true;
    return !before;
  }

  const Step& step_;
  std::vector<bool> written_, read_;
  int64_t max_position_ = -1;
};

}  // namespace

void Program::check(const Step& step) const {
  Checker checker(step);
  for (const Op& op : ops_) std::visit(checker, op);
}

void Program::run(const Step& step) const {
  if (step.rows <= 0) return;
  const auto turn = ThreadPool::instance().exclusive();
  check(step);
  const Runner runner{step};
  for (const Op& op : ops_) std::visit(runner, op);
}

std::vector<int64_t> Program::run_timed(const Step& step) const {
  using Clock = std::chrono::steady_clock;
  const auto turn = ThreadPool::instance().exclusive();
  check(step);
  const Runner runner{step};
  std::vector<int64_t> times;
  for (const Op& op : ops_) {
    const auto begin = Clock::now();
    std::visit(runner, op);
    times.push_back(std::chrono::nanoseconds(Clock::now() - begin).count());
  }
  return times;
}

const char* Program::name(int64_t op) const {
  static constexpr std::array<const char*, std::variant_size_v<Op>> kNames = {
      "embedding", "linear",      "norm",     "rope",      "act_mul", "softcap", "add",
      "scale",     "select_rows", "write_kv", "attention", "route",   "experts"};
  return kNames[ops_[size_t(op)].index()];
}

std::vector<int64_t> Program::weight_bytes() const {
  const auto bytes_of = [](const auto& op) {
    int64_t bytes = 0;
    if constexpr (requires { op.weights; }) {
      for (const PackedMatrix* weight : op.weights) bytes += weight->nbytes();
    }
    return bytes;
  };
  std::vector<int64_t> bytes;
  for (const Op& op : ops_) bytes.push_back(std::visit(bytes_of, op));
  return bytes;
}

}  // namespace octavo
