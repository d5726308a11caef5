#include "runtime/experts.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"
#include "runtime/quantised_rows.h"

namespace octavo {
namespace {

// The tokens of one expert. A place is the number of a (token, slot) pair in the order of experts.
struct Group {
  const Expert* expert;
  int64_t begin;  // its first place
  int64_t rows;
  int64_t first;  // its first row among quantised ones: there each group starts a tile
};

// What a thread takes on at a time: some panels of an expert for some of its rows.
struct Unit {
  int32_t group;
  int32_t row, rows;
  int32_t panel, panels;
};

// What one call needs, kept so that a step allocates nothing once it has grown. Used under
// ThreadPool::exclusive().
struct Plan {
  std::vector<int32_t> starts;    // [experts + 1]: first place of each expert
  std::vector<int32_t> places;    // [M, slots]
  std::vector<int32_t> group_of;  // by expert
  std::vector<Group> groups;      // the one with most rows first
  std::vector<Unit> units;
  int64_t quantised_rows = 0;
  Workspace inputs[kRowFormCount], inner_inputs[kRowFormCount];
  Workspace gathered, inner, outputs;
};

constexpr int64_t kRowTile = 16;
// Values between gate and down, and outputs of experts, that are held at a time: more tokens are taken one
// block after another.
constexpr int64_t kHeldFloats = 24 << 20;
constexpr int64_t kMinTokens = 256;
// A unit is worth its turn at the counter: some weights to read, or some rows to multiply.
constexpr int64_t kMinUnitBytes = 64 * 1024;
constexpr int64_t kMaxPanels = 16;
constexpr int64_t kMinPanels = 4;  // kernels share what they read of the rows among up to four
constexpr int64_t kChunkRows = 240;
constexpr int64_t kChunkStep = 48;  // a multiple of every tile height
// So few units are not worth waking another thread.
constexpr int64_t kInlineUnits = 1;

void count_ids(Plan& plan, const ExpertsArgs& a, int64_t rows, int64_t experts) {
  plan.starts.assign(size_t(experts + 1), 0);
  for (int64_t i = 0; i < rows * a.slots; ++i) {
    if (a.ids[i] < 0 || a.ids[i] >= experts) {
      throw std::invalid_argument("ids[" + std::to_string(i / a.slots) + ", " + std::to_string(i % a.slots) +
                                  "] is " + std::to_string(a.ids[i]) + ", must be at least 0 and below " +
                                  std::to_string(experts));
    }
    ++plan.starts[size_t(a.ids[i]) + 1];
  }
  for (int64_t e = 0; e < experts; ++e) plan.starts[size_t(e) + 1] += plan.starts[size_t(e)];
}

void make_groups(Plan& plan, const std::vector<Expert>& experts) {
  plan.groups.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = plan.starts[e], count = plan.starts[e + 1] - begin;
    if (count > 0) plan.groups.push_back({&experts[e], begin, count, 0});
  }
  std::stable_sort(plan.groups.begin(), plan.groups.end(),
                   [](const Group& a, const Group& b) { return a.rows > b.rows; });
  plan.group_of.resize(experts.size());
  plan.quantised_rows = kRowsRead;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    Group& group = plan.groups[g];
    plan.group_of[size_t(group.expert - experts.data())] = int32_t(g);
    group.first = plan.quantised_rows - kRowsRead;
    plan.quantised_rows += round_up(group.rows, kRowTile);
  }
}

// Sorts by expert, tokens of one expert staying in their order.
void sort_rows(Plan& plan, const std::vector<Expert>& experts, const ExpertsArgs& a, int64_t rows) {
  count_ids(plan, a, rows, int64_t(experts.size()));
  make_groups(plan, experts);
  plan.places.resize(size_t(rows * a.slots));
  for (int64_t i = 0; i < rows * a.slots; ++i) plan.places[size_t(i)] = plan.starts[size_t(a.ids[i])]++;
}

// What gate and up (or down) multiply: floats by place, and quantised rows by group, in each form that some
// expert wants.
struct Operands {
  int64_t width;       // columns of the widest expert
  const float* dense;  // [places, width]
  int32_t shift;       // that serves every expert
  uint8_t* quantised[kRowFormCount] = {};
};

int64_t quantised_bytes(RowForm form, int64_t cols) {
  ActivationRows a = {};
  a.cols = cols;
  shape_rows(form, a);
  return a.row_bytes;
}

// A group's rows as the kernels of a weight want them.
ActivationRows rows_for(const Operands& operands, const Group& group, const PackedMatrix& weight) {
  ActivationRows a = {};
  a.x_stride = operands.width;
  if (operands.dense != nullptr) a.x = operands.dense + group.begin * a.x_stride;
  a.rows = group.rows;
  a.cols = weight.cols();
  a.shift = operands.shift;
  const RowForm form = row_form(weight.format());
  if (operands.quantised[form] == nullptr) return a;
  a.blocks = operands.quantised[form] + group.first * quantised_bytes(form, operands.width);
  shape_rows(form, a);
  return a;
}

int64_t rows_worth_a_thread(int64_t cols) { return std::max<int64_t>(1, 16384 / cols); }

// Whether a quantised row is one run of bytes.
bool in_one_run(RowForm form, const ActivationRows& a) {
  return !a.tiled && (form == kRowsBlock32 || form == kRowsBlock256);
}

// Quantises the rows of a token's slots in one form. A token's input is the same for all of its experts: then
// it is quantised once, and copied where it can be.
template <class Weight, class Source>
void quantise_token(const Plan& plan, const Operands& operands, RowForm form, const int32_t* ids,
                    const int32_t* places, int64_t slots, Weight&& weight_of, Source&& source) {
  const uint8_t* made = nullptr;
  const float* made_of = nullptr;
  for (int64_t s = 0; s < slots; ++s) {
    const Group& group = plan.groups[size_t(plan.group_of[size_t(ids[s])])];
    const PackedMatrix& weight = weight_of(*group.expert);
    if (row_form(weight.format()) != form) continue;
    ActivationRows a = rows_for(operands, group, weight);
    const int64_t row = places[s] - group.begin;
    a.x = source(places[s]);
    a.x_stride = 0;
    const bool movable = in_one_run(form, a);
    if (movable && made_of == a.x) {
      memcpy(a.blocks + row * a.row_bytes, made, size_t(a.row_bytes));
      continue;
    }
    kernels().linear.quantise[form](a, row, row + 1);
    if (movable) made = a.blocks + row * a.row_bytes, made_of = a.x;
  }
}

// One call on a block of tokens, stage by stage.
class Run {
 public:
  Run(Plan& plan, const std::vector<Expert>& experts, const ExpertsArgs& args, int64_t rows)
      : plan_(plan), args_(args), rows_(rows), hidden_(experts[0].down->rows()) {
    for (const Expert& expert : experts) inner_ = std::max(inner_, expert.down->cols());
    sort_rows(plan, experts, args, rows);
    const int64_t places = rows * args.slots;
    inner_rows_ = floats(plan.inner, places * inner_);
    outputs_ = floats(plan.outputs, places * hidden_);
  }

  void operator()() {
    Operands inputs = read_inputs();
    multiply_in(inputs);
    Operands inner = read_inner();
    multiply_out(inner);
    combine();
  }

 private:
  static float* floats(Workspace& workspace, int64_t count) {
    return reinterpret_cast<float*>(workspace.reserve(count * int64_t(sizeof(float))));
  }

  template <class F>
  void over_tokens(int64_t cols, F&& f) const {
    ThreadPool::instance().parallel_for(rows_, rows_worth_a_thread(cols * args_.slots),
                                        [&](int64_t begin, int64_t end, int) {
                                          for (int64_t token = begin; token < end; ++token) f(token);
                                        });
  }

  const int32_t* ids(int64_t token) const { return args_.ids + token * args_.slots; }
  const int32_t* places(int64_t token) const { return plan_.places.data() + token * args_.slots; }

  // The inputs sorted by expert, in the forms that gate and up want.
  Operands read_inputs() {
    Operands operands = {hidden_, nullptr, INT32_MAX};
    for (const Group& group : plan_.groups) {
      const int32_t gate = group.expert->gate->view().shift, up = group.expert->up->view().shift;
      operands.shift = std::min({operands.shift, gate, up});
    }
    for (const Group& group : plan_.groups) {
      for (const PackedMatrix* weight : {group.expert->gate, group.expert->up}) {
        const RowForm form = row_form(weight->format());
        if (kernels().linear.quantise[form] == nullptr) {
          if (operands.dense == nullptr) operands.dense = gather();
        } else if (open(operands, form, plan_.inputs)) {
          over_tokens(hidden_, [&](int64_t token) {
            const float* x = args_.x + token * args_.x_stride;
            quantise_token(
                plan_, operands, form, ids(token), places(token), args_.slots,
                [&](const Expert& e) -> const PackedMatrix& {
                  return row_form(e.gate->format()) == form ? *e.gate : *e.up;
                },
                [&](int64_t) { return x; });
          });
        }
      }
    }
    return operands;
  }

  const float* gather() {
    float* sorted = floats(plan_.gathered, rows_ * args_.slots * hidden_);
    over_tokens(hidden_, [&](int64_t token) {
      const float* x = args_.x + token * args_.x_stride;
      for (int64_t s = 0; s < args_.slots; ++s)
        memcpy(sorted + places(token)[s] * hidden_, x, size_t(hidden_) * sizeof(float));
    });
    return sorted;
  }

  // What gate and up made, in the forms that down wants.
  Operands read_inner() {
    Operands operands = {inner_, inner_rows_, INT32_MAX};
    for (const Group& group : plan_.groups)
      operands.shift = std::min(operands.shift, group.expert->down->view().shift);
    for (const Group& group : plan_.groups) {
      const RowForm form = row_form(group.expert->down->format());
      if (kernels().linear.quantise[form] == nullptr || !open(operands, form, plan_.inner_inputs)) continue;
      over_tokens(inner_, [&](int64_t token) {
        quantise_token(
            plan_, operands, form, ids(token), places(token), args_.slots,
            [](const Expert& e) -> const PackedMatrix& { return *e.down; },
            [&](int64_t place) { return inner_rows_ + place * inner_; });
      });
    }
    return operands;
  }

  // Makes room for rows in a form; false if there is some already.
  bool open(Operands& operands, RowForm form, Workspace* workspaces) const {
    if (operands.quantised[form] != nullptr) return false;
    const int64_t bytes = plan_.quantised_rows * quantised_bytes(form, operands.width);
    operands.quantised[form] = workspaces[form].reserve(bytes);
    return true;
  }

  // Cuts each group's product with a matrix of so many rows and bytes a panel into units.
  template <class Size>
  void cut(Size&& size_of) {
    plan_.units.clear();
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      const Group& group = plan_.groups[g];
      const auto [panels, panel_bytes] = size_of(*group.expert);
      const int64_t chunks = (group.rows + kChunkRows - 1) / kChunkRows;
      const int64_t chunk = round_up((group.rows + chunks - 1) / chunks, chunks > 1 ? kChunkStep : 1);
      const int64_t worth = kMinUnitBytes / (panel_bytes * std::min<int64_t>(chunk, kRowTile));
      const int64_t step = std::clamp(round_up(worth, kMinPanels), kMinPanels, kMaxPanels);
      for (int64_t row = 0; row < group.rows; row += chunk) {
        for (int64_t panel = 0; panel < panels; panel += step) {
          plan_.units.push_back({int32_t(g), int32_t(row), int32_t(std::min(chunk, group.rows - row)),
                                 int32_t(panel), int32_t(std::min(step, panels - panel))});
        }
      }
    }
  }

  // Units in order, on whoever is free.
  template <class F>
  void run_units(F&& f) const {
    const int64_t count = int64_t(plan_.units.size());
    ThreadPool& pool = ThreadPool::instance();
    std::atomic<int64_t> next{0};
    const auto region = [&](int thread) {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1))
        f(plan_.units[size_t(i)], static_cast<float*>(pool.scratch(thread)));
    };
    if (count <= kInlineUnits) return region(0);
    pool.run(region);
  }

  // The unit's part of a product, its first column written to out.
  static void multiply(const Unit& unit, const PackedMatrix& weight, ActivationRows a, float* out,
                       int64_t out_stride) {
    PackedView w = weight.view();
    w.base += unit.panel * w.panel_bytes;
    w.rows -= unit.panel * kPanelRows;
    a.x += unit.row * a.x_stride;
    if (a.blocks != nullptr) a.blocks += unit.row * a.row_bytes;
    a.rows = unit.rows;
    kernels().linear.linear[weight.format()]({w, a, out, out_stride, nullptr}, 0, unit.panels);
  }

  // act(gate) * up, the two side by side in scratch.
  void multiply_in(const Operands& inputs) {
    cut([](const Expert& e) { return std::pair(e.gate->panels(), 2 * e.gate->view().panel_bytes); });
    int64_t most = 0;
    for (const Unit& unit : plan_.units) most = std::max<int64_t>(most, int64_t(unit.rows) * unit.panels);
    ThreadPool::instance().reserve_scratch(size_t(2 * most * kPanelRows) * sizeof(float));
    run_units([&](const Unit& unit, float* scratch) {
      const Group& group = plan_.groups[size_t(unit.group)];
      const Expert& e = *group.expert;
      const int64_t width = unit.panels * kPanelRows;
      multiply(unit, *e.gate, rows_for(inputs, group, *e.gate), scratch, 2 * width);
      multiply(unit, *e.up, rows_for(inputs, group, *e.up), scratch + width, 2 * width);
      const int64_t column = unit.panel * kPanelRows;
      const ActivationArgs act = {.gate = scratch,
                                  .up = scratch + width,
                                  .out = inner_rows_ + (group.begin + unit.row) * inner_ + column,
                                  .in_stride = 2 * width,
                                  .out_stride = inner_,
                                  .cols = std::min(width, e.gate->rows() - column),
                                  .act = args_.act};
      kernels().layer.act_mul(act, 0, unit.rows);
    });
  }

  void multiply_out(const Operands& inner) {
    cut([](const Expert& e) { return std::pair(e.down->panels(), e.down->view().panel_bytes); });
    run_units([&](const Unit& unit, float*) {
      const Group& group = plan_.groups[size_t(unit.group)];
      float* out = outputs_ + (group.begin + unit.row) * hidden_ + unit.panel * kPanelRows;
      multiply(unit, *group.expert->down, rows_for(inner, group, *group.expert->down), out, hidden_);
    });
  }

  void combine() const {
    const CombineArgs sum = {.y = outputs_,
                             .places = plan_.places.data(),
                             .weights = args_.weights,
                             .out = args_.out,
                             .slots = args_.slots,
                             .cols = hidden_};
    ThreadPool::instance().parallel_for(
        rows_, rows_worth_a_thread(hidden_ * args_.slots),
        [&](int64_t begin, int64_t end, int) { kernels().layer.combine(sum, begin, end); });
  }

  Plan& plan_;
  const ExpertsArgs& args_;
  int64_t rows_, hidden_, inner_ = 0;
  float *inner_rows_, *outputs_;
};

// Tokens whose values are held at a time.
int64_t tokens_at_a_time(const std::vector<Expert>& experts, int64_t slots) {
  int64_t inner = 0;
  for (const Expert& expert : experts) inner = std::max(inner, expert.down->cols());
  return std::max(kMinTokens, kHeldFloats / (slots * (inner + 2 * experts[0].down->rows())));
}

}  // namespace

void run_route(const RouteArgs& args, int64_t rows) {
  ThreadPool::instance().parallel_for(
      rows, rows_worth_a_thread(args.experts * args.top_k),
      [&](int64_t begin, int64_t end, int) { kernels().layer.route(args, begin, end); });
}

void run_experts(const std::vector<Expert>& experts, const ExpertsArgs& args, int64_t rows) {
  static Plan plan;
  const auto turn = ThreadPool::instance().exclusive();
  const int64_t block = tokens_at_a_time(experts, args.slots);
  for (int64_t first = 0; first < rows; first += block) {
    ExpertsArgs part = args;
    part.x += first * args.x_stride;
    part.ids += first * args.slots;
    part.weights += first * args.slots;
    part.out += first * experts[0].down->rows();
    Run(plan, experts, part, std::min(block, rows - first))();
  }
}

}  // namespace octavo
