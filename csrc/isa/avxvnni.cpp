#define OCTAVO_ISA avxvnni
#define OCTAVO_SIMD_AVXVNNI
#include "isa/register.inl"
