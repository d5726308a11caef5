// Step programs. A program under construction has the ops' own functions as methods, with the same arguments:
// an op that is given a program instead of the module records its call.
#include "bindings/program.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/experts.h"
#include "bindings/layer_calls.h"
#include "runtime/decode.h"
#include "runtime/program.h"

namespace octavo {
namespace nb = nanobind;
namespace {

// Addresses of the tensors that stand for a step's inputs while recording.
struct InputNames {
  Address token_ids, positions, query_start, seq_lens;
  std::vector<Address> block_tables, slots;  // per page group
};

using Groups = std::vector<std::tuple<Address, int64_t, Address>>;

std::vector<GroupPages> pages_of(const Groups& groups) {
  std::vector<GroupPages> pages;
  for (const auto& [table, stride, slots] : groups)
    pages.push_back({at<int32_t>(table), stride, at<int64_t>(slots)});
  return pages;
}

class Recorder {
 public:
  // `rows` is the number of tokens that the recorded calls are made with.
  Recorder(int64_t rows, Address token_ids, Address positions, Address query_start, Address seq_lens,
           std::vector<Address> block_tables, std::vector<Address> slots)
      : rows_(rows),
        inputs_{token_ids, positions, query_start, seq_lens, std::move(block_tables), std::move(slots)} {}

  void read_rows(const nb::object& weight, Address ids, int64_t count, Address out) {
    expect_rows(count);
    expect_input("ids", ids, inputs_.token_ids);
    program_.add(EmbeddingOp{keep(weight), at<float>(out)});
  }
  void linear(Address x, int64_t x_stride, int64_t rows, const nb::list& weights, Address bias, Address out,
              int64_t out_stride) {
    expect_rows(rows);
    std::vector<const PackedMatrix*> list;
    for (const auto& weight : weights) list.push_back(keep(nb::borrow<nb::object>(weight)));
    program_.add(
        LinearOp{at<float>(x), x_stride, std::move(list), at<float>(bias), at<float>(out), out_stride});
  }
  void norm(bool centred, Address x, Address weight, Address bias, Address out, int64_t outer, int64_t inner,
            int64_t outer_stride, int64_t inner_stride, int64_t cols, float eps) {
    expect_rows(outer);
    program_.add(NormOp{norm_args(x, weight, bias, out, inner, outer_stride, inner_stride, cols, eps),
                        centred, inner});
  }
  void rope(Address x, Address positions, Address cos_sin, int64_t rows, int64_t heads, int64_t row_stride,
            int64_t head_stride, int64_t rot_dim, int64_t max_position, bool interleaved) {
    expect_rows(rows);
    expect_input("positions", positions, inputs_.positions);
    program_.add(
        RopeOp{rope_args(x, positions, cos_sin, heads, row_stride, head_stride, rot_dim, interleaved),
               max_position});
  }
  void act_mul(Address gate, Address up, Address out, int64_t rows, int64_t cols, int64_t in_stride,
               int act) {
    expect_rows(rows);
    program_.add(ActivationOp{activation_args(gate, up, out, cols, in_stride, act)});
  }
  void softcap(Address x, Address out, int64_t rows, int64_t cols, float cap) {
    expect_rows(rows);
    program_.add(SoftcapOp{{at<float>(x), at<float>(out), cols, cap}});
  }
  void add(Address x, Address y, Address out, int64_t rows, int64_t x_stride, int64_t y_stride,
           int64_t cols) {
    expect_rows(rows);
    program_.add(AddOp{{at<float>(x), at<float>(y), at<float>(out), x_stride, y_stride, cols}});
  }
  void scale(Address x, Address out, int64_t rows, int64_t cols, float factor) {
    expect_rows(rows);
    program_.add(ScaleOp{{at<float>(x), at<float>(out), cols, factor}});
  }
  void select_rows(Address x, int64_t x_stride, int64_t x_rows, Address ids, int64_t count, int64_t cols,
                   Address out) {
    expect_rows(count);
    expect_input("rows", ids, inputs_.token_ids);
    program_.add(SelectOp{{at<float>(x), at<int64_t>(ids), at<float>(out), x_stride, cols}, x_rows});
  }
  void write_kv(Address k, Address v, int64_t k_row_stride, int64_t v_row_stride, Address k_cache,
                Address v_cache, Address slots, int64_t tokens, int64_t num_blocks, int64_t kv_heads,
                int64_t head_dim, int64_t block_size, int type) {
    expect_rows(tokens);
    program_.add(KvWriteOp{kv_write_args(k, v, k_row_stride, v_row_stride, k_cache, v_cache, slots, kv_heads,
                                         head_dim, block_size, type),
                           num_blocks, group_of("slot_mapping", slots, inputs_.slots)});
  }
  void paged_attention(Address q, int64_t q_row_stride, Address out, Address k_cache, Address v_cache,
                       Address query_start, Address seq_lens, Address block_table, int64_t rows,
                       int64_t num_seqs, int64_t table_stride, int64_t num_blocks, int64_t heads,
                       int64_t kv_heads, int64_t head_dim, int64_t block_size, int type, float scale,
                       float cap, int64_t window, Address sinks, Address slopes) {
    (void)num_seqs;
    expect_rows(rows);
    expect_input("query_start", query_start, inputs_.query_start);
    expect_input("seq_lens", seq_lens, inputs_.seq_lens);
    program_.add(AttentionOp{attention_args(q, q_row_stride, out, k_cache, v_cache, query_start, seq_lens,
                                            block_table, table_stride, heads, kv_heads, head_dim, block_size,
                                            type, scale, cap, window, sinks, slopes),
                             num_blocks, group_of("block_table", block_table, inputs_.block_tables)});
  }

  void route(Address logits, int64_t row_stride, int64_t rows, int64_t experts, int64_t top_k,
             bool renormalise, bool shared, Address ids, Address weights) {
    expect_rows(rows);
    program_.add(RouteOp{route_args(logits, row_stride, experts, top_k, renormalise, shared, ids, weights)});
  }
  void experts(const nb::object& list, Address x, int64_t x_stride, int64_t rows, Address ids,
               Address weights, int64_t slots, Address out, int act) {
    expect_rows(rows);
    kept_.append(list);
    program_.add(ExpertsOp{&nb::cast<const ExpertList&>(list).experts,
                           experts_args(x, x_stride, ids, weights, slots, out, act)});
  }

  void run(int64_t rows, int64_t num_seqs, Address token_ids, Address positions, Address query_start,
           Address seq_lens, const Groups& groups) const {
    with_step(rows, num_seqs, token_ids, positions, query_start, seq_lens, groups,
              [&](const Step& step) { program_.run(step); });
  }

  // [(name, nanoseconds)] of each op.
  std::vector<std::pair<std::string, int64_t>> run_timed(int64_t rows, int64_t num_seqs, Address token_ids,
                                                         Address positions, Address query_start,
                                                         Address seq_lens, const Groups& groups) const {
    std::vector<int64_t> times;
    with_step(rows, num_seqs, token_ids, positions, query_start, seq_lens, groups,
              [&](const Step& step) { times = program_.run_timed(step); });
    std::vector<std::pair<std::string, int64_t>> named;
    for (size_t i = 0; i < times.size(); ++i) named.emplace_back(program_.name(int64_t(i)), times[i]);
    return named;
  }

  std::vector<int64_t> weight_bytes() const { return program_.weight_bytes(); }
  int64_t size() const { return program_.size(); }
  int64_t rows() const { return rows_; }
  const Program& program() const { return program_; }

 private:
  template <class Use>
  void with_step(int64_t rows, int64_t num_seqs, Address token_ids, Address positions, Address query_start,
                 Address seq_lens, const Groups& groups, Use use) const {
    if (rows > rows_) {
      throw std::invalid_argument("a step of " + std::to_string(rows) + " rows; the program holds " +
                                  std::to_string(rows_));
    }
    const std::vector<GroupPages> pages = pages_of(groups);
    const nb::gil_scoped_release release;
    use(Step{rows, num_seqs, at<int64_t>(token_ids), at<int64_t>(positions), at<int32_t>(query_start),
             at<int32_t>(seq_lens), pages.data(), int64_t(pages.size())});
  }
  void expect_rows(int64_t rows) const {
    if (rows != rows_) {
      throw std::invalid_argument("a recorded op has " + std::to_string(rows) + " rows, the recording " +
                                  std::to_string(rows_));
    }
  }
  static void expect_input(const char* name, Address address, Address known) {
    if (address != known) {
      throw std::invalid_argument(std::string("a recorded op reads ") + name +
                                  " that are no input of the step");
    }
  }
  static int64_t group_of(const char* name, Address address, const std::vector<Address>& known) {
    for (size_t i = 0; i < known.size(); ++i) {
      if (known[i] == address) return int64_t(i);
    }
    throw std::invalid_argument(std::string("a recorded op reads a ") + name +
                                " that is no input of the step");
  }
  // The program reads the weight as long as it lives.
  const PackedMatrix* keep(const nb::object& weight) {
    kept_.append(weight);
    return nb::cast<const PackedMatrix*>(weight);
  }

  int64_t rows_;
  InputNames inputs_;
  Program program_;
  nb::list kept_;
};

// The arguments of `decode` as addresses; see DecodeBatch.
int64_t run_decode(const Recorder& body, const Recorder& head, int64_t steps, int64_t seqs,
                   int64_t block_size, Address token_ids, Address positions, Address query_start,
                   Address seq_lens, const Groups& groups, Address stop_ids, Address stop_starts,
                   Address rows, Address logits, int64_t vocab, Address temperature, Address top_k,
                   Address top_p, Address log_min_p, Address uniforms, Address out) {
  if (seqs > body.rows() || seqs > head.rows()) {
    throw std::invalid_argument(std::to_string(seqs) + " sequences; the programs hold " +
                                std::to_string(std::min(body.rows(), head.rows())));
  }
  const std::vector<GroupPages> pages = pages_of(groups);
  const SampleArgs sampling = {
      at<float>(logits),    vocab,   vocab,  at<float>(temperature), at<int32_t>(top_k), at<float>(top_p),
      at<float>(log_min_p), nullptr, nullptr};
  const DecodeBatch batch = {seqs,
                             block_size,
                             at<int64_t>(token_ids),
                             at<int64_t>(positions),
                             at<int32_t>(seq_lens),
                             at<int32_t>(query_start),
                             pages.data(),
                             int64_t(pages.size()),
                             {at<int64_t>(stop_ids), at<int64_t>(stop_starts)},
                             at<int64_t>(rows),
                             at<double>(uniforms),
                             sampling};
  const nb::gil_scoped_release release;
  return decode(body.program(), head.program(), batch, steps, at<int64_t>(out));
}

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<Recorder>(m, "Program")
      .def(
          nb::init<int64_t, Address, Address, Address, Address, std::vector<Address>, std::vector<Address>>())
      .def("read_rows", &Recorder::read_rows)
      .def("linear", &Recorder::linear)
      .def("norm", &Recorder::norm)
      .def("rope", &Recorder::rope)
      .def("act_mul", &Recorder::act_mul)
      .def("softcap", &Recorder::softcap)
      .def("add", &Recorder::add)
      .def("scale", &Recorder::scale)
      .def("select_rows", &Recorder::select_rows)
      .def("write_kv", &Recorder::write_kv)
      .def("paged_attention", &Recorder::paged_attention)
      .def("route", &Recorder::route)
      .def("experts", &Recorder::experts)
      .def("run", &Recorder::run)
      .def("run_timed", &Recorder::run_timed)
      .def("weight_bytes", &Recorder::weight_bytes)
      .def("__len__", &Recorder::size);
  m.def("decode", &run_decode);
}

}  // namespace octavo
