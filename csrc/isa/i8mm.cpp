#define OCTAVO_ISA i8mm
#define OCTAVO_SIMD_NEONDOT
#define OCTAVO_SQUARES
#include "isa/register.inl"
