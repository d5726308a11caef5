#define OCTAVO_ISA neon
#define OCTAVO_SIMD_NEON
#include "isa/register.inl"
