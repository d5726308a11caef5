#define OCTAVO_ISA avx512vnni
#define OCTAVO_SIMD_AVX512
#include "isa/register.inl"
