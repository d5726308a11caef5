#define OCTAVO_ISA scalar
#define OCTAVO_SIMD_SCALAR
#include "isa/register.inl"
