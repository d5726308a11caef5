#define OCTAVO_ISA amx
#define OCTAVO_SIMD_AVX512VNNI
#define OCTAVO_TILES
#include "isa/register.inl"
