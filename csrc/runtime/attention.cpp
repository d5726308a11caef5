#include "runtime/attention.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"

namespace octavo {
namespace {

// Multiply-adds below which waking the other threads costs more than it saves.
constexpr int64_t kInlineWork = 100'000;
// A tile with more work than this share of what a thread has is cut into its spans.
constexpr int64_t kWantedTiles = 4;
// Pieces a thread's units are taken in, where they are small: within a piece the next one is known and
// fetched.
constexpr int64_t kPieces = 8;

struct SpanRange {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

int64_t group_size(const AttentionArgs& a) { return a.heads / a.kv_heads; }

int64_t num_tokens(const AttentionArgs& a, int64_t seq) {
  return a.query_start[seq + 1] - a.query_start[seq];
}

int64_t first_visible(const AttentionArgs& a, int64_t position) {
  return a.window > 0 ? std::max<int64_t>(0, position - a.window + 1) : 0;
}

int64_t position_of_row(const AttentionArgs& a, const AttentionTile& t, int64_t row) {
  return a.seq_lens[t.seq] - num_tokens(a, t.seq) + row / group_size(a);
}

SpanRange spans_of(const AttentionArgs& a, const AttentionTile& t) {
  const int64_t first = first_visible(a, position_of_row(a, t, t.row_begin));
  const int64_t last = position_of_row(a, t, t.row_end - 1);
  return {first / kSpanKeys, last / kSpanKeys + 1};
}

int64_t work_of(const AttentionArgs& a, const AttentionTile& t) {
  const int64_t first = first_visible(a, position_of_row(a, t, t.row_begin));
  const int64_t keys = position_of_row(a, t, t.row_end - 1) + 1 - first;
  return 2 * keys * (t.row_end - t.row_begin) * a.head_dim;
}

void add_tiles(const AttentionArgs& a, int32_t seq, std::vector<AttentionTile>& tiles) {
  const int64_t group = group_size(a), rows = num_tokens(a, seq) * group;
  const int64_t step = group < kTileRows ? kTileRows / group * group : kTileRows;
  for (int32_t head = 0; head < a.kv_heads; ++head) {
    for (int64_t row = 0; row < rows; row += step) {
      tiles.push_back({seq, head, int32_t(row), int32_t(std::min(row + step, rows))});
    }
  }
}

// What one call needs, kept per calling thread so that a step allocates nothing once it has grown.
struct Plan {
  std::vector<AttentionTile> tiles;
  std::vector<AttentionUnit> units;  // spans of cut tiles, then whole tiles
  std::vector<float> partials;
  std::vector<int64_t> partial_offset;                 // per tile, in floats; -1: not cut
  std::unique_ptr<std::atomic<int32_t>[]> open_spans;  // per tile: spans not yet computed
  size_t open_capacity = 0;
  int64_t work = 0;
};

void make_tiles(const AttentionArgs& a, int64_t num_seqs, Plan& plan) {
  plan.tiles.clear();
  for (int64_t seq = 0; seq < num_seqs; ++seq) add_tiles(a, int32_t(seq), plan.tiles);
  plan.work = 0;
  for (const AttentionTile& tile : plan.tiles) plan.work += work_of(a, tile);
}

int64_t partial_floats(const AttentionArgs& a, const AttentionTile& t) {
  return (t.row_end - t.row_begin) * (a.head_dim + 2);
}

// Decides which tiles are cut and makes room for their partials.
void cut_tiles(const AttentionArgs& a, int threads, Plan& plan) {
  const int64_t limit = threads == 1 ? plan.work : plan.work / (kWantedTiles * threads);
  if (plan.open_capacity < plan.tiles.size()) {
    plan.open_capacity = plan.tiles.size();
    plan.open_spans = std::make_unique<std::atomic<int32_t>[]>(plan.open_capacity);
  }
  int64_t floats = 0;
  plan.partial_offset.clear();
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const SpanRange spans = spans_of(a, plan.tiles[i]);
    const bool cut = spans.count() > 1 && work_of(a, plan.tiles[i]) > limit;
    plan.partial_offset.push_back(cut ? floats : -1);
    plan.open_spans[i].store(int32_t(spans.count()), std::memory_order_relaxed);
    if (cut) floats += spans.count() * partial_floats(a, plan.tiles[i]);
  }
  if (plan.partials.size() < size_t(floats)) plan.partials.resize(size_t(floats));
}

void make_units(const AttentionArgs& a, Plan& plan) {
  plan.units.clear();
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    if (plan.partial_offset[i] < 0) continue;
    const AttentionTile& tile = plan.tiles[i];
    const SpanRange spans = spans_of(a, tile);
    float* partial = plan.partials.data() + plan.partial_offset[i];
    for (int64_t span = spans.begin; span < spans.end; ++span, partial += partial_floats(a, tile))
      plan.units.push_back({&tile, span, partial});
  }
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    if (plan.partial_offset[i] < 0) plan.units.push_back({&plan.tiles[i], 0, nullptr});
  }
}

// Whoever computes the last open span of a tile merges them all.
void run_unit(const AttentionArgs& a, Plan& plan, int64_t index, const AttentionUnit* next, float* scratch) {
  const AttentionUnit& unit = plan.units[size_t(index)];
  kernels().layer.attention_unit(a, unit, next, scratch);
  if (!unit.partial) return;
  const size_t tile = size_t(unit.tile - plan.tiles.data());
  if (plan.open_spans[tile].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels().layer.attention_merge(a, *unit.tile, plan.partials.data() + plan.partial_offset[tile],
                                    spans_of(a, *unit.tile).count(), scratch);
  }
}

// Units in pieces on whoever is free, the last first: later tiles have more keys.
void run_units(const AttentionArgs& a, Plan& plan, int threads) {
  const int64_t count = int64_t(plan.units.size());
  const int64_t piece = std::max<int64_t>(1, count / (kPieces * threads));
  std::atomic<int64_t> left{count};
  ThreadPool& pool = ThreadPool::instance();
  const auto region = [&](int thread) {
    float* scratch = static_cast<float*>(pool.scratch(thread));
    for (int64_t end = left.fetch_sub(piece); end > 0; end = left.fetch_sub(piece)) {
      const int64_t begin = std::max<int64_t>(0, end - piece);
      for (int64_t i = end - 1; i >= begin; --i)
        run_unit(a, plan, i, i > begin ? &plan.units[size_t(i - 1)] : nullptr, scratch);
    }
  };
  if (threads == 1) return region(0);
  pool.run(region);
}

}  // namespace

void check_attention(const AttentionArgs& a, int64_t num_seqs, int64_t num_rows, int64_t num_blocks) {
  if (a.query_start[0] != 0 || a.query_start[num_seqs] != num_rows) {
    throw std::invalid_argument("query_start must begin with 0 and end with the number of rows, " +
                                std::to_string(num_rows));
  }
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    const int64_t tokens = num_tokens(a, seq), length = a.seq_lens[seq];
    if (tokens < 0) throw std::invalid_argument("query_start must not fall");
    if (tokens == 0) continue;
    if (length < tokens || length > a.table_stride * a.block_size) {
      throw std::invalid_argument("seq_lens[" + std::to_string(seq) + "] is " + std::to_string(length) +
                                  ", must lie between its " + std::to_string(tokens) + " rows and the " +
                                  std::to_string(a.table_stride * a.block_size) + " tokens of block_table");
    }
    const int32_t* pages = a.block_table + seq * a.table_stride;
    const int64_t first = first_visible(a, length - tokens) / a.block_size;
    for (int64_t page = first; page <= (length - 1) / a.block_size; ++page) {
      if (pages[page] < 0 || pages[page] >= num_blocks) {
        throw std::invalid_argument("block_table[" + std::to_string(seq) + "] names page " +
                                    std::to_string(pages[page]) + " of " + std::to_string(num_blocks));
      }
    }
  }
}

void run_attention(const AttentionArgs& a, int64_t num_seqs) {
  ThreadPool& pool = ThreadPool::instance();
  const auto turn = pool.exclusive();
  pool.reserve_scratch(size_t(attention_scratch_bytes(a.head_dim)));
  thread_local Plan plan;
  Plan& p = plan;
  make_tiles(a, num_seqs, p);
  const int threads = p.work < kInlineWork ? 1 : pool.num_threads();
  cut_tiles(a, threads, p);
  make_units(a, p);
  run_units(a, p, threads);
}

}  // namespace octavo
