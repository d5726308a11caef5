// The processors that a thread may run on.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace octavo {

class CpuMask {
 public:
  // None: applying it would be refused.
  CpuMask() = default;
  explicit CpuMask(const std::vector<int>& cpus);

  // The calling thread's.
  static CpuMask current();

  // Moves the calling thread there. False where the system refuses or has no such call.
  bool apply() const;

 private:
  using Word = unsigned long;
  static constexpr size_t kWordBits = 8 * sizeof(Word);
  static constexpr size_t kCpus = 8192;  // as many as Linux can be built for
  std::array<Word, kCpus / kWordBits> words_ = {};
};

}  // namespace octavo
