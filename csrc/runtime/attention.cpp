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
constexpr int64_t kInlineWork = 200'000;
// Tiles per thread below which each tile is cut into its spans.
constexpr int64_t kWantedTiles = 4;

struct SpanRange {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// Unit of work of a step that is cut by spans: one span of one tile.
struct SpanUnit {
  int32_t tile;
  int32_t span;
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
  std::vector<SpanUnit> units;
  std::vector<int64_t> partial_offset;  // per tile, in floats
  std::vector<float> partials;
  std::unique_ptr<std::atomic<int32_t>[]> open_spans;  // per tile: spans not yet computed
  size_t open_capacity = 0;
};

int64_t make_tiles(const AttentionArgs& a, int64_t num_seqs, Plan& plan) {
  plan.tiles.clear();
  for (int64_t seq = 0; seq < num_seqs; ++seq) add_tiles(a, int32_t(seq), plan.tiles);
  int64_t work = 0;
  for (const AttentionTile& tile : plan.tiles) work += work_of(a, tile);
  return work;
}

void make_units(const AttentionArgs& a, Plan& plan) {
  plan.units.clear();
  plan.partial_offset.clear();
  if (plan.open_capacity < plan.tiles.size()) {
    plan.open_capacity = plan.tiles.size();
    plan.open_spans = std::make_unique<std::atomic<int32_t>[]>(plan.open_capacity);
  }
  int64_t floats = 0;
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const AttentionTile& tile = plan.tiles[i];
    const SpanRange spans = spans_of(a, tile);
    plan.partial_offset.push_back(floats);
    floats += spans.count() * (tile.row_end - tile.row_begin) * (a.head_dim + 2);
    plan.open_spans[i].store(int32_t(spans.count()), std::memory_order_relaxed);
    for (int64_t span = spans.begin; span < spans.end; ++span)
      plan.units.push_back({int32_t(i), int32_t(span)});
  }
  if (plan.partials.size() < size_t(floats)) plan.partials.resize(size_t(floats));
}

// Whoever computes the last open span of a tile merges them all.
void run_unit(const AttentionArgs& a, Plan& plan, const SpanUnit& unit, float* scratch) {
  const AttentionTile& tile = plan.tiles[size_t(unit.tile)];
  const SpanRange spans = spans_of(a, tile);
  float* partials = plan.partials.data() + plan.partial_offset[size_t(unit.tile)];
  const int64_t stride = (tile.row_end - tile.row_begin) * (a.head_dim + 2);
  kernels().layer.attention_span(a, tile, unit.span, partials + (unit.span - spans.begin) * stride, scratch);
  if (plan.open_spans[size_t(unit.tile)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels().layer.attention_merge(a, tile, partials, spans.count(), scratch);
  }
}

// Runs unit(i, thread) for i in [0, count) on whoever is free, the last first: later tiles have more keys.
template <class Unit>
void run_descending(int64_t count, Unit unit) {
  std::atomic<int64_t> left{count};
  ThreadPool::instance().run([&](int thread) {
    for (int64_t i = left.fetch_sub(1) - 1; i >= 0; i = left.fetch_sub(1) - 1) unit(i, thread);
  });
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
  const int64_t work = make_tiles(a, num_seqs, p);
  const int64_t count = int64_t(p.tiles.size());
  const auto run_tile = [&](int64_t i, int thread) {
    kernels().layer.attention_tile(a, p.tiles[size_t(i)], static_cast<float*>(pool.scratch(thread)));
  };
  if (work < kInlineWork || pool.num_threads() == 1) {
    pool.parallel_for(count, count, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) run_tile(i, thread);
    });
  } else if (count >= kWantedTiles * pool.num_threads()) {
    run_descending(count, run_tile);
  } else {
    make_units(a, p);
    run_descending(int64_t(p.units.size()), [&](int64_t i, int thread) {
      run_unit(a, p, p.units[size_t(i)], static_cast<float*>(pool.scratch(thread)));
    });
  }
}

}  // namespace octavo
