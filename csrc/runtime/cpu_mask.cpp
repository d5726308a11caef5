#include "runtime/cpu_mask.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace octavo {

CpuMask::CpuMask(const std::vector<int>& cpus) {
  for (const int cpu : cpus) {
    const size_t bit = size_t(cpu);
    if (bit < kCpus) words_[bit / kWordBits] |= Word(1) << bit % kWordBits;
  }
}

// The calls themselves rather than the C library's, whose masks end at 1,024 processors.
CpuMask CpuMask::current() {
  CpuMask mask;
#if defined(__linux__)
  syscall(SYS_sched_getaffinity, 0, sizeof mask.words_, mask.words_.data());
#endif
  return mask;
}

bool CpuMask::apply() const {
#if defined(__linux__)
  return syscall(SYS_sched_setaffinity, 0, sizeof words_, words_.data()) == 0;
#else
  return false;
#endif
}

}  // namespace octavo
