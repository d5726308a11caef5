// What the vector operations of one instruction set are tried with, and what comes out.
#pragma once

#include <cstdint>

namespace octavo {

struct ProbeOperands {
  static constexpr int64_t kFloats = 1024, kBytes = 4096;
  float a[kFloats], b[kFloats], c[kFloats];
  uint8_t bytes[kBytes];
};

// Words in the order in which the operations are tried, each with the operation's name.
struct ProbeResults {
  uint32_t* words;
  const char** names;
  int64_t count, limit;

  void put(const char* name, uint32_t word) {
    if (count < limit) {
      words[count] = word;
      names[count] = name;
    }
    ++count;
  }
};

using Probe = void (*)(const ProbeOperands& in, ProbeResults& out);

}  // namespace octavo
