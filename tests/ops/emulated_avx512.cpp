// The AVX-VNNI, AVX-512 and AMX kernels compiled against SIMDe, behind C names: see emulation.py.
#include "octavo/kernel_table.h"

extern "C" {
#ifdef OCTAVO_USUAL
void octavo_fill_linear_avx512vnni(octavo::LinearKernels* table) {
  octavo::register_linear_avx512vnni(table);
}
void octavo_fill_linear_amx(octavo::LinearKernels* table) { octavo::register_linear_amx(table); }
#else
void octavo_fill_linear_avx512(octavo::LinearKernels* table) { octavo::register_linear_avx512(table); }
void octavo_fill_linear_avxvnni(octavo::LinearKernels* table) { octavo::register_linear_avxvnni(table); }
#endif
void octavo_fill_layers_avx512(octavo::LayerKernels* table) { octavo::register_layers_avx512(table); }
}
