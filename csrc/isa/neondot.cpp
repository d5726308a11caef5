#define OCTAVO_ISA neondot
#define OCTAVO_SIMD_NEONDOT
#include "isa/register.inl"
