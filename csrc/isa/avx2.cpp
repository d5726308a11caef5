#define OCTAVO_ISA avx2
#define OCTAVO_SIMD_AVX2
#include "isa/register.inl"
