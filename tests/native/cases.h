// What one instruction set computes, as words that another one's must equal.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace octavo {

struct Output {
  std::vector<uint32_t> words;

  // NaNs are all alike.
  void add(float x) {
    uint32_t word = 0x7fc00000u;
    if (x == x) memcpy(&word, &x, sizeof word);
    words.push_back(word);
  }
  void add(int64_t x) {
    words.push_back(uint32_t(uint64_t(x)));
    words.push_back(uint32_t(uint64_t(x) >> 32));
  }
  void add(uint8_t x) { words.push_back(x); }
  void add(uint16_t x) { words.push_back(x); }
  template <class T>
  void add(const std::vector<T>& values) {
    for (const T& value : values) add(value);
  }
};

struct Case {
  std::string name;
  std::function<void(Output&)> run;  // with the instruction set in use
};

std::vector<Case> linear_cases();
std::vector<Case> layer_cases();

}  // namespace octavo
