// M DotChains that meet the same weights, two neighbouring k-groups at a time. NEON has its own, for
// instructions that take more than one k-group or row.
#pragma once

namespace octavo {
namespace OCTAVO_ISA {
namespace {

template <int Bits, int M>
struct DotRows {
  DotChain<Bits> chain[M];

  // sums(m): the ClassSums of what row m's chain will meet.
  template <class Sums>
  [[gnu::always_inline]] void start(Sums sums) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) chain[m].start(sums(m));
  }
  // q[m]: eight activations of row m. Two steps of each chain.
  [[gnu::always_inline]] void step(u8x64 even, u8x64 odd, const int8_t* const (&q)[M]) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) {
      chain[m].step(even, broadcast_4xs8(q[m]));
      chain[m].step(odd, broadcast_4xs8(q[m] + 4));
    }
  }
  [[gnu::always_inline]] i32x16 total(int m) const { return chain[m].total(); }
  [[gnu::always_inline]] i32x16 scaled(int m, i32x16 scale) const { return chain[m].scaled(scale); }
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
