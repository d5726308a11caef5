#include "pack/slabs.h"

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <mutex>
#include <new>

namespace octavo {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSlab = 16 * kHugePage;  // what is not used of it is never touched
constexpr size_t kAlone = kSlab / 4;      // larger matrices get memory of their own
constexpr size_t kLine = 64;

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Starts at a huge page, and asks for huge pages where it fills them. Nobody has written to it yet: pages of
// a mapping come to the NUMA node of the thread that does first, where an allocator may hand out used ones.
#if defined(__linux__)
std::shared_ptr<uint8_t> huge_pages(size_t bytes) {
  const size_t size = bytes + kHugePage;
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  uint8_t* p = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(mapped), kHugePage));
  madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice only: 4 KiB pages work too
  return {p, [mapped, size](uint8_t*) { munmap(mapped, size); }};
}
#else
std::shared_ptr<uint8_t> huge_pages(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, kHugePage, bytes) != 0) throw std::bad_alloc();
  return {static_cast<uint8_t*>(p), [](uint8_t* memory) { free(memory); }};
}
#endif

}  // namespace

std::shared_ptr<uint8_t> weight_memory(size_t bytes) {
  if (bytes > kAlone) return huge_pages(bytes);
  static std::mutex mutex;
  static std::weak_ptr<uint8_t> slab;  // the one in use; matrices own it
  static size_t used = 0;
  const std::lock_guard lock(mutex);
  const size_t size = round_up(std::max<size_t>(bytes, 1), kLine);
  std::shared_ptr<uint8_t> memory = slab.lock();
  if (!memory || used + size > kSlab) {
    memory = huge_pages(kSlab);
    slab = memory;
    used = 0;
  }
  std::shared_ptr<uint8_t> part(memory, memory.get() + used);
  used += size;
  return part;
}

}  // namespace octavo
