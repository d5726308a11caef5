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

// About 20 us of PAUSE on current x86 cores in a barrier; a little more between regions, where the next
// operation of the same step usually follows at once. After that the thread parks, so that an idle or
// oversubscribed process costs no CPU time.
constexpr int kBarrierSpins = 1000;
constexpr int kRegionSpins = 3000;

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

void Barrier::wait() {
  if (threads_ == 1) return;
  const uint32_t epoch = epoch_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    change_and_wake(epoch_, sleepers_);
    return;
  }
  wait_for_change(epoch_, epoch, sleepers_, kBarrierSpins);
}

void ThreadPool::Free::operator()(void* p) const { free(p); }

ThreadPool& ThreadPool::instance() {
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

ThreadPool::ThreadPool() : barrier_(std::make_unique<Barrier>(1)) {
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
  barrier_.release();
  barrier_ = std::make_unique<Barrier>(1);
  threads_ = 1;
  sleepers_ = 0;
  pending_ = 0;
  waiting_ = 0;
}

void ThreadPool::set_num_threads(int n) {
  std::lock_guard lock(mutex_);
  n = std::clamp(n, 1, 256);
  if (n == threads_) return;
  stop_workers();
  start_workers(n);
}

void ThreadPool::stop_workers() {
  stopping_ = true;
  change_and_wake(epoch_, sleepers_);
  for (auto& worker : workers_) worker.join();
  workers_.clear();
  stopping_ = false;
}

void ThreadPool::start_workers(int n) {
  threads_ = n;
  barrier_ = std::make_unique<Barrier>(n);
  scratch_.clear();
  scratch_.resize(size_t(n));
  scratch_bytes_ = 0;
  const uint32_t seen = epoch_.load();
  for (int thread = 1; thread < n; ++thread)
    workers_.emplace_back([this, thread, seen] { work(thread, seen); });
}

void ThreadPool::work(int thread, uint32_t seen) {
  for (;;) {
    wait_for_change(epoch_, seen, sleepers_, kRegionSpins);
    ++seen;
    if (stopping_) return;
    (*region_)(thread);
    finish_share();
  }
}

void ThreadPool::finish_share() {
  if (pending_.fetch_sub(1) == 1 && waiting_.load() != 0) futex_wake_all(pending_);
}

void ThreadPool::run(Region region) {
  std::lock_guard lock(mutex_);
  if (threads_ == 1) return region(0);
  region_ = &region;
  pending_.store(uint32_t(threads_ - 1));
  change_and_wake(epoch_, sleepers_);
  region(0);
  for (int i = 0; i < kBarrierSpins; ++i) {
    if (pending_.load(std::memory_order_acquire) == 0) return;
    cpu_relax();
  }
  waiting_.store(1);
  for (uint32_t left = pending_.load(); left != 0; left = pending_.load()) futex_wait(pending_, left);
  waiting_.store(0);
}

void ThreadPool::parallel_for(int64_t units, int64_t grain, Range range) {
  if (units <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const auto lock = exclusive();
  if (units <= grain || threads_ == 1) return range(0, units, 0);
  const int64_t fixed = units * 3 / 4;
  alignas(64) std::atomic<int64_t> next_unit{0};
  run([&](int thread) {
    const int64_t count = threads_;
    const int64_t begin = fixed * thread / count;
    const int64_t end = fixed * (thread + 1) / count;
    if (begin < end) range(begin, end, thread);
    for (;;) {
      const int64_t first = fixed + next_unit.fetch_add(grain, std::memory_order_relaxed);
      if (first >= units) return;
      range(first, std::min(first + grain, units), thread);
    }
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
