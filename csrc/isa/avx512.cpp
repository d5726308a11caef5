#define OCTAVO_ISA avx512
#define OCTAVO_SIMD_AVX512
#include "isa/register.inl"
