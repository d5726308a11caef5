#include "runtime/layers.h"

#include <string.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"

namespace octavo {
namespace {

// Elements that one thread should at least have, for work of a few nanoseconds an element or much less.
constexpr int64_t kCheapElements = 32768;
constexpr int64_t kCostlyElements = 8192;
// A key's elements lie in a cache line each, which is rarely in a cache.
constexpr int64_t kScatteredElements = 2048;

template <class Args>
void over_rows(void (*kernel)(const Args&, int64_t, int64_t), const Args& args, int64_t rows,
               int64_t elements, int64_t cols) {
  const int64_t grain = std::max<int64_t>(1, elements / std::max<int64_t>(1, cols));
  if (rows <= grain) return kernel(args, 0, rows);
  ThreadPool::instance().parallel_for(rows, grain,
                                      [&](int64_t begin, int64_t end, int) { kernel(args, begin, end); });
}

const LayerKernels& table() { return kernels().layer; }

}  // namespace

void run_norm(const NormArgs& args, bool centred, int64_t rows) {
  over_rows(centred ? table().layer_norm : table().rms_norm, args, rows, kCheapElements, args.cols);
}

void run_rope(const RopeArgs& args, int64_t rows) {
  over_rows(table().rope, args, rows, kCheapElements, args.heads * args.rot_dim);
}

void run_act_mul(const ActivationArgs& args, int64_t rows) {
  over_rows(table().act_mul, args, rows, kCostlyElements, args.cols);
}

void run_softcap(const SoftcapArgs& args, int64_t rows) {
  over_rows(table().softcap, args, rows, kCostlyElements, args.cols);
}

void run_write_kv(const KvWriteArgs& args, int64_t tokens) {
  over_rows(table().write_kv, args, tokens, kScatteredElements, args.kv_heads * args.head_dim);
}

void run_add(const AddArgs& args, int64_t rows) {
  over_rows(table().add, args, rows, kCheapElements, args.cols);
}

void run_scale(const ScaleArgs& args, int64_t rows) {
  over_rows(table().scale, args, rows, kCheapElements, args.cols);
}

void run_select(const SelectArgs& args, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    memcpy(args.out + i * args.cols, args.x + args.ids[i] * args.x_stride, size_t(args.cols) * sizeof(float));
  }
}

void run_argmax(const SampleArgs& args, int64_t rows) {
  over_rows(table().argmax, args, rows, kCheapElements, args.vocab);
}

void run_sample(const SampleArgs& args, int64_t rows) {
  over_rows(table().sample, args, rows, kCostlyElements, args.vocab);
}

void run_logprobs(const LogprobArgs& args, int64_t rows) {
  over_rows(table().logprobs, args, rows, kCostlyElements, args.vocab);
}

void check_range(const char* name, const int64_t* values, int64_t count, int64_t low, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < low || values[i] >= limit) {
      throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) + "] is " +
                                  std::to_string(values[i]) + ", must be at least " + std::to_string(low) +
                                  " and below " + std::to_string(limit));
    }
  }
}

}  // namespace octavo
