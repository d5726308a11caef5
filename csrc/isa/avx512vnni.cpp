#define OCTAVO_ISA avx512vnni
#define OCTAVO_SIMD_AVX512VNNI
#include "isa/register.inl"
