// The one thread pool. Persistent workers; the caller is thread 0; bounded spin, then futex, also inside
// barriers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/cpu_mask.h"

namespace octavo {

// A callable seen through two pointers: no allocation, must outlive the call.
template <class Signature>
class FunctionRef;
template <class... Args>
class FunctionRef<void(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) {
          (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  void operator()(Args... args) const { call_(object_, args...); }

 private:
  void* object_;
  void (*call_)(void*, Args...);
};

// Where threads run. Neither changes a result.
struct ThreadPlaces {
  using Cpus = std::vector<std::vector<int>>;
  Cpus cpus;                          // processors of each thread; empty: the system places them
  std::vector<int> threads_per_node;  // in the order of threads; empty: memory is as near to all of them

  bool operator==(const ThreadPlaces&) const = default;
};

class ThreadPool {
 public:
  using Region = FunctionRef<void(int thread)>;
  using Range = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  // Never destroyed: workers may be parked while static destructors run.
  static ThreadPool& instance();

  // Stops the old workers and starts n - 1 new ones. n in [1, 256].
  void set_num_threads(int n, ThreadPlaces places = {});
  int num_threads() const { return threads_; }
  int num_nodes() const { return int(node_starts_.size()) - 1; }
  int first_thread_of(int node) const { return node_starts_[size_t(node)]; }  // node <= num_nodes()

  // Held by a caller for as long as it uses the scratch memory or a sequence of regions: a second caller
  // (another Python thread) waits. Recursive, so that run() inside is fine. A caller with a place is in it
  // meanwhile; before and after it is its owner's thread, whose children should not inherit one processor.
  class [[nodiscard]] Turn {
   public:
    explicit Turn(ThreadPool& pool);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ThreadPool& pool_;
  };
  Turn exclusive() { return Turn(*this); }

  // Runs region(0) on the caller and region(thread) on every worker that arrives before the caller is done;
  // returns when all that joined have finished. A region takes its work from shared counters and must not
  // count on company: a worker whose core is busy elsewhere is not waited for. One region runs at a time, and
  // none starts another.
  void run(Region region);

  // Calls range(begin, end, thread) so that [0, units) is covered once, in pieces that start at multiples of
  // `grain`. Each thread owns a contiguous share (the same thread meets the same weights each time); who has
  // finished helps the others. Results must not depend on who computes what. Runs on the caller alone when
  // units <= grain.
  void parallel_for(int64_t units, int64_t grain, Range range);

  // The same, but threads help those of their own node only: what a range touches first lies in the memory of
  // the node that owns it. Waits for the threads of each node.
  void parallel_for_owners(int64_t units, int64_t grain, Range range);

  // Where the share of `thread` begins in these two; of num_threads(), where the last one ends.
  int64_t share_begin(int64_t units, int64_t grain, int thread) const;

  // Scratch memory of one thread, 64-byte aligned, contents undefined, valid until the next reserve_scratch.
  // Reserve outside of regions: kernels never allocate.
  void reserve_scratch(size_t bytes_per_thread);
  void* scratch(int thread) const { return scratch_[size_t(thread)].get(); }

 private:
  // What is left of one thread's share.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  struct Free {
    void operator()(void* p) const;
  };

  ThreadPool();
  void stop_workers();
  void start_workers(int n);
  void work(int thread, uint32_t seen);
  bool join(uint32_t& epoch);
  void leave();
  void close();
  int64_t cut_shares(int64_t units, int64_t grain);
  void take_shares(int thread, int first, int last, int64_t piece, const Range& range);
  std::pair<int, int> node_of(int thread) const;
  bool all_taken() const;
  void after_fork_in_child();

  std::recursive_mutex mutex_;
  int turns_ = 0;  // that the holder of mutex_ has taken, one within the other
  CpuMask callers_own_;
  int threads_ = 1;
  ThreadPlaces places_;
  std::vector<int> node_starts_ = {0, 1};  // first thread of each node, and threads_
  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;
  std::vector<std::unique_ptr<void, Free>> scratch_;
  size_t scratch_bytes_ = 0;
  const Region* region_ = nullptr;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint64_t> gate_{0};      // epoch << 32 | open << 31 | workers inside
  alignas(64) std::atomic<uint32_t> epoch_{0};     // a new region (or the stop) has been posted
  alignas(64) std::atomic<uint32_t> sleepers_{0};  // workers parked on epoch_
  alignas(64) std::atomic<uint32_t> emptied_{0};   // the last worker has left a closed region
  alignas(64) std::atomic<uint32_t> waiting_{0};   // the caller is parked on emptied_
};

}  // namespace octavo
