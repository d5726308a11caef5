// Everything around the matrices. The assertion below asks for a case for every kernel.
#include <limits>
#include <memory>

#include "native/cases.h"
#include "native/operands.h"
#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"
#include "runtime/attention.h"
#include "runtime/layers.h"

namespace octavo {
namespace {

static_assert(sizeof(LayerKernels) == 15 * sizeof(void*),
              "a new kernel: add a case for it here, then its number");

void add_norms(std::vector<Case>& cases) {
  for (int64_t cols : {16, 83, 576}) {
    for (bool centred : {false, true}) {
      cases.push_back({(centred ? "layer_norm " : "rms_norm ") + std::to_string(cols), [=](Output& out) {
                         Random random(1);
                         const auto x = random.values(6 * cols), weight = random.values(cols),
                                    bias = random.values(cols);
                         std::vector<float> y(size_t(6 * cols));
                         run_norm({x.data(), weight.data(), centred ? bias.data() : nullptr, y.data(), 6, 0,
                                   cols, cols, 1e-5f},
                                  centred, 6);
                         out.add(y);
                       }});
    }
  }
}

void add_rope(std::vector<Case>& cases) {
  for (bool interleaved : {false, true}) {
    for (int64_t rot_dim : {32, 40, 80}) {
      cases.push_back(
          {"rope " + std::to_string(rot_dim) + (interleaved ? " interleaved" : ""), [=](Output& out) {
             Random random(2);
             auto x = random.values(4 * 3 * 80);
             const auto table = random.values(9 * rot_dim);
             const int64_t positions[] = {0, 3, 8, 5};
             run_rope({x.data(), positions, table.data(), 3, 240, 80, rot_dim, interleaved}, 4);
             out.add(x);
           }});
    }
  }
}

void activate(Activation act, bool gated, Output& out) {
  Random random(3);
  std::vector<float> gate = random.values(5 * 83), y(5 * 83);
  const std::vector<float> up = random.values(5 * 83);
  for (size_t i = 0; i < gate.size(); i += 7) gate[i] = random.hard_value();
  run_act_mul({gate.data(), gated ? up.data() : nullptr, y.data(), 83, 83, 83, act}, 5);
  out.add(y);
}

void add_elementwise(std::vector<Case>& cases) {
  for (Activation act : {Activation::silu, Activation::gelu_tanh, Activation::gelu}) {
    for (bool gated : {true, false}) {
      const std::string name = "activation " + std::to_string(int(act)) + (gated ? " gated" : "");
      cases.push_back({name, [=](Output& out) { activate(act, gated, out); }});
    }
  }
  cases.push_back({"softcap, add, scale", [](Output& out) {
                     Random random(4);
                     std::vector<float> x = random.values(5 * 83), y = random.values(5 * 83), z(5 * 83);
                     for (size_t i = 0; i < x.size(); i += 5) x[i] = random.hard_value();
                     run_softcap({x.data(), z.data(), 83, 30.0f}, 5);
                     out.add(z);
                     run_add({x.data(), y.data(), z.data(), 83, 83, 83}, 5);
                     out.add(z);
                     run_scale({x.data(), z.data(), 83, 0.37f}, 5);
                     out.add(z);
                   }});
}

// Sequences whose keys and values lie in pages of 16, and the query rows that end them.
struct PagedBatch {
  static constexpr int64_t kBlock = 16, kElementBytes = 4;
  int64_t heads, kv_heads, head_dim;
  KvType type;
  std::vector<int32_t> lens, query_start = {0}, table;
  std::vector<int64_t> slots;
  std::vector<uint8_t> k_cache, v_cache;
  int64_t table_stride = 0, blocks = 0;

  PagedBatch(int64_t heads, int64_t kv_heads, int64_t head_dim, KvType type, std::vector<int32_t> lens,
             const std::vector<int32_t>& queries)
      : heads(heads), kv_heads(kv_heads), head_dim(head_dim), type(type), lens(std::move(lens)) {
    for (int32_t count : queries) query_start.push_back(query_start.back() + count);
    for (int32_t len : this->lens)
      table_stride = std::max<int64_t>(table_stride, (len + kBlock - 1) / kBlock);
    for (int32_t len : this->lens) {
      const int64_t first = int64_t(table.size());
      for (int64_t i = 0; i < table_stride; ++i) table.push_back(int32_t(table.size()));
      for (int32_t i = 0; i < len; ++i) slots.push_back(first * kBlock + i);
    }
    blocks = int64_t(table.size());
    const int64_t bytes = blocks * kv_heads * (head_dim + 4) * kBlock * kElementBytes;
    k_cache.resize(size_t(bytes));
    v_cache.resize(size_t(bytes));
  }

  int64_t rows() const { return query_start.back(); }

  void write(const std::vector<float>& k, const std::vector<float>& v) {
    run_write_kv({k.data(), v.data(), kv_heads * head_dim, kv_heads * head_dim, k_cache.data(),
                  v_cache.data(), slots.data(), kv_heads, head_dim, kBlock, type},
                 int64_t(slots.size()));
  }
  AttentionArgs attention(const float* q, float* out) const {
    AttentionArgs a = {};
    a.q = q;
    a.q_row_stride = heads * head_dim;
    a.out = out;
    a.k_cache = k_cache.data();
    a.v_cache = v_cache.data();
    a.query_start = query_start.data();
    a.seq_lens = lens.data();
    a.block_table = table.data();
    a.table_stride = table_stride;
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = head_dim;
    a.block_size = kBlock;
    a.type = type;
    a.scale = 0.11f;
    return a;
  }
};

struct Extras {
  const char* name;
  int64_t window;
  float softcap;
  bool sinks, slopes;
};

void attend(PagedBatch batch, const Extras& extras, Output& out) {
  Random random(5);
  const int64_t tokens = int64_t(batch.slots.size()), kv = batch.kv_heads * batch.head_dim;
  const std::vector<float> k = random.values(tokens * kv), v = random.values(tokens * kv);
  batch.write(k, v);
  out.add(batch.k_cache);
  out.add(batch.v_cache);
  const auto q = random.values(batch.rows() * batch.heads * batch.head_dim);
  const auto sinks = random.values(batch.heads), slopes = random.values(batch.heads);
  std::vector<float> y(q.size());
  AttentionArgs args = batch.attention(q.data(), y.data());
  args.window = extras.window;
  args.softcap = extras.softcap;
  args.sinks = extras.sinks ? sinks.data() : nullptr;
  args.slopes = extras.slopes ? slopes.data() : nullptr;
  // Two threads cut the long sequence into spans, which are merged; one does not.
  for (int threads : {1, 2}) {
    ThreadPool::instance().set_num_threads(threads);
    run_attention(args, int64_t(batch.lens.size()));
    out.add(y);
  }
  ThreadPool::instance().set_num_threads(1);
}

void add_attention(std::vector<Case>& cases) {
  static const Extras kExtras[] = {{"", 0, 0.0f, false, false},
                                   {", window and softcap", 53, 3.0f, false, false},
                                   {", sinks and slopes", 0, 0.0f, true, true}};
  static const char* const kTypes[] = {"f32", "bf16", "f16", "e4m3", "e5m2", "i8"};
  for (int type = 0; type < 6; ++type) {
    for (const Extras& extras : kExtras) {
      const std::string name = std::string("write_kv and attention, ") + kTypes[type] + extras.name;
      cases.push_back({name + ", decode", [=](Output& out) {
                         attend({6, 2, 40, KvType(type), {700, 5, 64}, {1, 1, 1}}, extras, out);
                       }});
      cases.push_back({name + ", prefill", [=](Output& out) {
                         attend({3, 1, 64, KvType(type), {150, 31}, {29, 31}}, extras, out);
                       }});
    }
  }
}

struct Logits {
  static constexpr int64_t kRows = 30, kVocab = 700;
  std::vector<float> logits;
  std::vector<float> temperature, top_p, log_min_p;
  std::vector<int32_t> top_k;
  std::vector<double> uniform;
  std::vector<int64_t> ids = std::vector<int64_t>(kRows);

  Logits() {
    Random random(6);
    logits = random.values(kRows * kVocab);
    for (float& x : logits) x *= 3.0f;
    for (int64_t i = 0; i < kVocab; ++i) logits[size_t(i)] = float(i % 5);  // ties
    logits[kVocab * 2 + 600] = std::numeric_limits<float>::quiet_NaN();
    logits[kVocab * 3 + 9] = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < kRows; ++i) {
      temperature.push_back(float(i) / 15);
      top_k.push_back(int32_t(i % 4 == 3 ? 0 : i));
      top_p.push_back(0.3f + 0.025f * float(i));
      log_min_p.push_back(i % 3 ? -std::numeric_limits<float>::infinity() : -5.0f);
      uniform.push_back(random.unit());
    }
  }
  SampleArgs args() {
    return {logits.data(), kVocab,           kVocab,         temperature.data(), top_k.data(),
            top_p.data(),  log_min_p.data(), uniform.data(), ids.data()};
  }
};

void add_sampling(std::vector<Case>& cases) {
  cases.push_back({"argmax and sample", [](Output& out) {
                     Logits rows;
                     run_argmax(rows.args(), Logits::kRows);
                     out.add(rows.ids);
                     run_sample(rows.args(), Logits::kRows);
                     out.add(rows.ids);
                   }});
  cases.push_back({"logprobs", [](Output& out) {
                     Logits rows;
                     std::vector<int64_t> chosen, ids(Logits::kRows * 10), ranks(Logits::kRows);
                     for (int64_t i = 0; i < Logits::kRows; ++i) chosen.push_back(i * 23);
                     std::vector<float> values(ids.size());
                     run_logprobs({rows.logits.data(), Logits::kVocab, Logits::kVocab, chosen.data(), 9,
                                   values.data(), ids.data(), ranks.data()},
                                  Logits::kRows);
                     out.add(values);
                     out.add(ids);
                     out.add(ranks);
                   }});
}

// Few different logits: many are equal.
void route(bool renormalise, bool shared, Output& out) {
  constexpr int64_t kRows = 20, kExperts = 61, kTop = 5;
  Random random(10);
  std::vector<float> logits = random.values(kRows * (kExperts + shared));
  for (float& x : logits) x = std::round(x * 4.0f) / 4.0f;
  const int64_t slots = kTop + shared;
  std::vector<int32_t> ids(size_t(kRows * slots));
  std::vector<float> weights(ids.size());
  kernels().layer.route(
      {logits.data(), kExperts + shared, kExperts, kTop, renormalise, shared, ids.data(), weights.data()}, 0,
      kRows);
  for (int32_t id : ids) out.add(int64_t(id));
  out.add(weights);
}

void combine(Output& out) {
  constexpr int64_t kRows = 9, kSlots = 3, kCols = 83;
  Random random(11);
  const std::vector<float> y = random.values(kRows * kSlots * kCols), weights = random.values(kRows * kSlots);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < kRows * kSlots; ++i) places.push_back(int32_t(random.below(kRows * kSlots)));
  std::vector<float> sums(size_t(kRows * kCols));
  kernels().layer.combine({y.data(), places.data(), weights.data(), sums.data(), kSlots, kCols}, 0, kRows);
  out.add(sums);
}

void add_experts(std::vector<Case>& cases) {
  for (bool renormalise : {false, true}) {
    for (bool shared : {false, true}) {
      cases.push_back(
          {std::string("route") + (renormalise ? " renormalised" : "") + (shared ? " shared" : ""),
           [=](Output& out) { route(renormalise, shared, out); }});
    }
  }
  cases.push_back({"combine", combine});
}

}  // namespace

std::vector<Case> layer_cases() {
  std::vector<Case> cases;
  add_norms(cases);
  add_rope(cases);
  add_elementwise(cases);
  add_attention(cases);
  add_sampling(cases);
  add_experts(cases);
  return cases;
}

}  // namespace octavo
