#define OCTAVO_ISA amx
#define OCTAVO_SIMD_AVX512
#define OCTAVO_TILES
#include "isa/register.inl"
