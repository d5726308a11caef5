// Random operands, the same ones in every run.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

namespace octavo {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {  // splitmix64 (Steele, Lea and Flood, 2014)
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
  double unit() { return double(bits() >> 11) * 0x1p-53; }

  // About normal, with a few outliers, as activations are.
  float value() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += unit();
    return float(below(100) == 0 ? 20.0 * sum : sum);
  }
  std::vector<float> values(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& element : x) element = value();
    return x;
  }
  std::vector<uint8_t> bytes(int64_t n) {
    std::vector<uint8_t> x(static_cast<size_t>(n));
    for (uint8_t& byte : x) byte = uint8_t(bits());
    return x;
  }

  // What breaks conversions: infinities, NaN, subnormal numbers, signed zeros, ties, the borders of int32 and
  // of the narrow floats, and any bits at all.
  float hard_value() {
    static const float kHard[] = {
        0.0f,       -0.0f,         0x1p-149f,      0x1.8p-140f, 0x1p-126f,     0x1p-24f,        0x1p-25f,
        0x1.8p-15f, 0x1.ffcp15f,   0x1.ffep15f,    65520.0f,    448.0f,        464.0f,          57344.0f,
        61440.0f,   0.5f,          1.5f,           2.5f,        -0.5f,         -104.0f,         88.7f,
        -126.5f,    89.0f,         0x1.fffffep30f, 0x1p31f,     -0x1p31f,      -0x1.000002p31f, 0x1p32f,
        0x1p127f,   3.4028235e38f, 0x1.01p0f,      0x1.03p0f,   0x1.00ffffp0f, 1e-30f,          8388608.5f,
        8388609.0f, 127.5f,        -127.5f};
    switch (below(5)) {
      case 0:
        return below(2) == 0 ? kHard[below(int64_t(std::size(kHard)))]
                             : -kHard[below(int64_t(std::size(kHard)))];
      case 1:
        return float_of(uint32_t(bits()));
      case 2:
        return below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
      default:
        return value();
    }
  }

 private:
  static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }

  uint64_t state_;
};

}  // namespace octavo
