#include "octavo/thread_pool.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <new>

namespace octavo {
namespace {

// Tens of microseconds of PAUSE: between regions the next operation of the same step usually follows at once.
// After that the thread parks, so that an idle or oversubscribed process costs no CPU time.
constexpr int kLeaveSpins = 1000;
constexpr int kRegionSpins = 3000;

// Pieces that a share is cut into: enough that helping pays, few enough that taking one costs nothing.
constexpr int64_t kPieces = 8;

constexpr uint64_t kOpen = uint64_t(1) << 31;
constexpr uint64_t kInside = kOpen - 1;

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#if defined(__linux__)
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}
#else
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) { word.wait(expected); }
void futex_wake_all(std::atomic<uint32_t>& word) { word.notify_all(); }
#endif

// Returns when word != old: spins first, then parks with `sleepers` counting who must be woken.
void wait_for_change(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>& sleepers, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    cpu_relax();
  }
  sleepers.fetch_add(1);  // sequentially consistent, as is the waker's store then load: no lost wake-up
  while (word.load() == old) futex_wait(word, old);
  sleepers.fetch_sub(1);
}

void change_and_wake(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers) {
  word.fetch_add(1);
  if (sleepers.load() != 0) futex_wake_all(word);
}

}  // namespace

void ThreadPool::Free::operator()(void* p) const { free(p); }

ThreadPool& ThreadPool::instance() {
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

ThreadPool::ThreadPool() {
  scratch_.resize(1);
  // The workers do not exist in a forked child; it starts over with the caller alone until set_num_threads is
  // called.
  pthread_atfork(nullptr, nullptr, [] { instance().after_fork_in_child(); });
}

void ThreadPool::after_fork_in_child() {
  new (&mutex_) std::recursive_mutex;
  // Handles of threads that live in the parent only: neither join nor detach may touch them, so they leak.
  new std::vector<std::thread>(std::move(workers_));
  workers_.clear();
  turns_ = 0;
  threads_ = 1;
  places_ = {};
  node_starts_ = {0, 1};
  gate_ = 0;
  sleepers_ = 0;
  waiting_ = 0;
  stopping_ = false;  // another thread may have been stopping the workers
}

ThreadPool::Turn::Turn(ThreadPool& pool) : pool_(pool) {
  pool.mutex_.lock();
  if (++pool.turns_ > 1 || pool.places_.cpus.empty()) return;
  pool.callers_own_ = CpuMask::current();
  CpuMask(pool.places_.cpus[0]).apply();
}

ThreadPool::Turn::~Turn() {
  if (--pool_.turns_ == 0 && !pool_.places_.cpus.empty()) pool_.callers_own_.apply();
  pool_.mutex_.unlock();
}

void ThreadPool::set_num_threads(int n, ThreadPlaces places) {
  std::lock_guard lock(mutex_);
  n = std::clamp(n, 1, 256);
  if (n == threads_ && places == places_) return;
  stop_workers();
  places_ = std::move(places);
  node_starts_ = {0};
  for (const int threads : places_.threads_per_node) node_starts_.push_back(node_starts_.back() + threads);
  if (node_starts_.back() != n) node_starts_ = {0, n};
  start_workers(n);
}

void ThreadPool::stop_workers() {
  stopping_.store(true);
  change_and_wake(epoch_, sleepers_);
  for (auto& worker : workers_) worker.join();
  workers_.clear();
  stopping_.store(false);
}

void ThreadPool::start_workers(int n) {
  threads_ = n;
  shares_ = std::make_unique<Share[]>(size_t(n));
  scratch_.clear();
  scratch_.resize(size_t(n));
  scratch_bytes_ = 0;
  const uint32_t seen = epoch_.load();
  for (int thread = 1; thread < n; ++thread)
    workers_.emplace_back([this, thread, seen] { work(thread, seen); });
}

void ThreadPool::work(int thread, uint32_t seen) {
  if (!places_.cpus.empty()) CpuMask(places_.cpus[size_t(thread)]).apply();
  for (;;) {
    wait_for_change(epoch_, seen, sleepers_, kRegionSpins);
    seen = epoch_.load();
    if (stopping_.load()) return;
    if (!join(seen)) continue;  // the others finished before this thread was awake
    (*region_)(thread);
    leave();
  }
}

// Enters the region if it is still open; `epoch` becomes the region's.
bool ThreadPool::join(uint32_t& epoch) {
  uint64_t gate = gate_.load(std::memory_order_acquire);
  while (gate & kOpen) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) {
      epoch = uint32_t(gate >> 32);
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() {
  const uint64_t left = gate_.fetch_sub(1) - 1;
  if ((left & (kOpen | kInside)) == 0) change_and_wake(emptied_, waiting_);
}

// Lets no one in any more and waits for those inside.
void ThreadPool::close() {
  uint32_t emptied = emptied_.load();
  gate_.fetch_and(~kOpen);
  while ((gate_.load() & kInside) != 0) {
    wait_for_change(emptied_, emptied, waiting_, kLeaveSpins);
    emptied = emptied_.load();
  }
}

void ThreadPool::run(Region region) {
  const auto turn = exclusive();
  if (threads_ == 1) return region(0);
  region_ = &region;
  gate_.store(uint64_t(epoch_.load() + 1) << 32 | kOpen, std::memory_order_release);
  change_and_wake(epoch_, sleepers_);
  region(0);
  close();
}

int64_t ThreadPool::share_begin(int64_t units, int64_t grain, int thread) const {
  const int64_t grains = (units + grain - 1) / grain;
  return std::min(units, grains * thread / threads_ * grain);
}

// Returns the size of the pieces that shares are taken in.
int64_t ThreadPool::cut_shares(int64_t units, int64_t grain) {
  int64_t begin = 0;
  for (int thread = 0; thread < threads_; ++thread) {
    Share& share = shares_[size_t(thread)];
    share.next.store(begin, std::memory_order_relaxed);
    share.end = begin = share_begin(units, grain, thread + 1);
  }
  return std::max<int64_t>(1, (units + grain - 1) / grain / (kPieces * threads_)) * grain;
}

// Own share first, then what the others of [first, last) have left.
void ThreadPool::take_shares(int thread, int first, int last, int64_t piece, const Range& range) {
  for (int i = 0; i < last - first; ++i) {
    Share& share = shares_[size_t(first + (thread - first + i) % (last - first))];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t begin = share.next.fetch_add(piece, std::memory_order_relaxed);
      if (begin < share.end) range(begin, std::min(begin + piece, share.end), thread);
    }
  }
}

void ThreadPool::parallel_for(int64_t units, int64_t grain, Range range) {
  if (units <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const auto turn = exclusive();
  if (units <= grain || threads_ == 1) return range(0, units, 0);
  const int64_t piece = cut_shares(units, grain);
  run([&](int thread) { take_shares(thread, 0, threads_, piece, range); });
}

// First and last + 1 of the threads that share a node with `thread`.
std::pair<int, int> ThreadPool::node_of(int thread) const {
  const auto next = std::upper_bound(node_starts_.begin(), node_starts_.end(), thread);
  return {*(next - 1), *next};
}

bool ThreadPool::all_taken() const {
  return std::all_of(shares_.get(), shares_.get() + threads_, [](const Share& share) {
    return share.next.load(std::memory_order_relaxed) >= share.end;
  });
}

void ThreadPool::parallel_for_owners(int64_t units, int64_t grain, Range range) {
  if (num_nodes() == 1) return parallel_for(units, grain, range);
  if (units <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const auto turn = exclusive();
  const int64_t piece = cut_shares(units, grain);
  run([&](int thread) {
    const auto [first, last] = node_of(thread);
    take_shares(thread, first, last, piece, range);
    // The region stays open until the other nodes have come.
    while (thread == 0 && !all_taken()) std::this_thread::yield();
  });
}

void ThreadPool::reserve_scratch(size_t bytes_per_thread) {
  std::lock_guard lock(mutex_);
  if (bytes_per_thread <= scratch_bytes_) return;
  const size_t bytes = (bytes_per_thread + 4095) / 4096 * 4096;
  for (auto& memory : scratch_) {
    memory.reset(aligned_alloc(4096, bytes));
    if (!memory) throw std::bad_alloc();
  }
  scratch_bytes_ = bytes;
}

}  // namespace octavo
