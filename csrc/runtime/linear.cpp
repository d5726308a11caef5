#include "runtime/linear.h"

#include <algorithm>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"
#include "runtime/quantised_rows.h"

namespace octavo {
namespace {

void quantise(RowForm form, ActivationRows& a, Workspace& workspace) {
  shape_rows(form, a);
  a.blocks = workspace.reserve((a.rows + kRowsRead) * a.row_bytes);
  const auto kernel = kernels().linear.quantise[form];
  const int64_t grain = std::max<int64_t>(1, 16384 / a.cols);  // below, another thread is not worth waking
  ThreadPool::instance().parallel_for(a.rows, grain,
                                      [&](int64_t begin, int64_t end, int) { kernel(a, begin, end); });
}

// One weight's part of the work: panels x chunks of rows.
struct Part {
  LinearArgs args;
  Format format;
  int64_t first, panels;
};

constexpr int64_t kMinChunkRows = 48;  // a multiple of every tile height

struct Job {
  const Part* parts;
  int count;
  int64_t panels;  // over all parts
  int64_t rows, chunk_rows;

  int64_t chunks() const { return (rows + chunk_rows - 1) / chunk_rows; }

  // Units are ordered by chunk, then panel.
  void run(int64_t begin, int64_t end) const {
    while (begin < end) {
      const int64_t chunk = begin / panels;
      const int64_t stop = std::min(end, (chunk + 1) * panels);
      run_chunk(chunk, begin - chunk * panels, stop - chunk * panels);
      begin = stop;
    }
  }

  void run_chunk(int64_t chunk, int64_t begin, int64_t end) const {
    int64_t first = 0;
    for (int i = 0; i < count; first += parts[i++].panels) {
      const int64_t from = std::max(begin - first, int64_t(0)), to = std::min(end - first, parts[i].panels);
      if (from >= to) continue;
      const LinearArgs args = rows_of(parts[i].args, chunk);
      kernels().linear.linear[parts[i].format](args, parts[i].first + from, parts[i].first + to);
    }
  }

  LinearArgs rows_of(LinearArgs args, int64_t chunk) const {
    const int64_t row = chunk * chunk_rows;
    ActivationRows& a = args.a;
    a.x += row * a.x_stride;
    if (a.blocks != nullptr) a.blocks += row * a.row_bytes;
    a.rows = std::min(chunk_rows, rows - row);
    args.out += row * args.out_stride;
    return args;
  }
};

// Quantised rows that stay in the second cache while a thread's panels pass, with room for those.
constexpr int64_t kChunkBytes = 192 * 1024;

int64_t pieces(int64_t of, int64_t size) { return (of + size - 1) / size; }

// Narrow matrices give too few panels for many threads: then rows are cut, and where they are too many for
// the cache.
int64_t rows_per_chunk(const ActivationRows& a, int64_t panels, int threads) {
  if (a.rows <= kMinChunkRows) return a.rows;
  const int64_t for_threads = pieces(4 * threads, panels);
  const int64_t for_cache = a.blocks != nullptr && !a.tiled ? pieces(a.rows * a.row_bytes, kChunkBytes) : 1;
  return round_up(pieces(a.rows, std::max(for_threads, for_cache)), kMinChunkRows);
}

// Pieces of a thread's share that are at most `most` panels, and even.
int64_t even_pieces(int64_t panels, int threads, int64_t most) {
  const int64_t share = (panels + threads - 1) / threads, pieces = (share + most - 1) / most;
  return round_up((share + pieces - 1) / pieces, 2);
}

// Panels that go to a thread at a time. Two or four share what the integer kernels read of the rows; float
// kernels run up to four together when rows are few, and for many rows reuse a chunk of the rows for sixteen;
// kernels that unpack ahead of the tiles start anew with each piece.
int64_t panels_together(RowForm form, int64_t rows, int64_t panels, int threads) {
  if (form == kRowsBlock32 || form == kRowsBlock256) return rows <= 2 ? 4 : 2;
  if (form == kRowsRounded) return even_pieces(panels, threads, rows <= 64 ? 16 : 24);
  return rows <= 16 ? 4 : even_pieces(panels, threads, 16);
}

// Weights that share their rows share the power of two by which kernels enlarge them.
int32_t common_shift(const PackedMatrix* const* weights, int count) {
  int32_t shift = weights[0]->view().shift;
  for (int i = 1; i < count; ++i) shift = std::min(shift, weights[i]->view().shift);
  return shift;
}

constexpr int kMaxParts = 16;

// Parts, cut where the threads of another NUMA node begin: a node's threads then meet its own memory, since
// each weight was dealt out to the nodes on its own.
class Cuts {
 public:
  Cuts(const Part* parts, int count, const ThreadPool& pool) : begin_(parts), count_(count) {
    if (pool.num_nodes() == 1 || count * pool.num_nodes() > kMost) return;
    begin_ = cuts_;
    count_ = 0;
    for (int node = 0; node < pool.num_nodes(); ++node) {
      for (int i = 0; i < count; ++i) cuts_[count_++] = part_of_node(parts[i], node, pool);
    }
  }
  const Part* begin() const { return begin_; }
  int count() const { return count_; }

 private:
  static constexpr int kMost = 64;

  static Part part_of_node(Part part, int node, const ThreadPool& pool) {
    part.first = pool.share_begin(part.panels, kOwnedPanels, pool.first_thread_of(node));
    part.panels = pool.share_begin(part.panels, kOwnedPanels, pool.first_thread_of(node + 1)) - part.first;
    return part;
  }

  const Part* begin_;
  int count_;
  Part cuts_[kMost];
};

constexpr int64_t kMinUnitBytes = 32 * 1024;

}  // namespace

void linear(const float* x, int64_t x_stride, int64_t rows, const PackedMatrix* const* weights, int count,
            const float* bias, float* out, int64_t out_stride) {
  static Workspace workspaces[kRowFormCount];
  ThreadPool& pool = ThreadPool::instance();
  const auto turn = pool.exclusive();
  for (; count > kMaxParts;
       ++weights, --count) {  // never seen in a model; one at a time keeps the arrays fixed
    linear(x, x_stride, rows, weights, 1, bias, out, out_stride);
    out += weights[0]->rows();
    if (bias != nullptr) bias += weights[0]->rows();
  }
  ActivationRows forms[kRowFormCount];
  const int32_t shift = common_shift(weights, count);
  for (auto& form : forms) form = {x, x_stride, rows, weights[0]->cols(), nullptr, 0, shift, false};
  Part parts[kMaxParts];
  int64_t panels = 0, bytes = 0;
  for (int i = 0; i < count; ++i) {
    const PackedMatrix& w = *weights[i];
    const RowForm form = row_form(w.format());
    if (kernels().linear.quantise[form] != nullptr && forms[form].blocks == nullptr)
      quantise(form, forms[form], workspaces[form]);
    parts[i] = {{w.view(), forms[form], out, out_stride, bias}, w.format(), 0, w.panels()};
    out += w.rows();
    if (bias != nullptr) bias += w.rows();
    panels += w.panels();
    bytes += w.nbytes();
  }
  const Cuts cuts(parts, count, pool);
  const Job job = {cuts.begin(), cuts.count(), panels, rows,
                   rows_per_chunk(parts[0].args.a, panels, pool.num_threads())};
  // A unit should be worth waking a thread: some weights to read, or some rows to multiply.
  const int64_t unit = std::max<int64_t>(1, bytes / panels * std::min<int64_t>(job.chunk_rows, 16));
  const RowForm form = row_form(weights[0]->format());
  const int64_t together = panels_together(form, rows, panels, pool.num_threads());
  const int64_t grain = round_up(std::max<int64_t>(1, kMinUnitBytes / unit), together);
  pool.parallel_for(panels * job.chunks(), grain,
                    [&](int64_t begin, int64_t end, int) { job.run(begin, end); });
}

}  // namespace octavo
