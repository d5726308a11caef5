// The AVX-512 kernels compiled against SIMDe, behind C names: see test_linear_isa.py.
#include "octavo/kernel_table.h"

extern "C" {
void octavo_fill_linear(octavo::LinearKernels* table) { octavo::register_linear_avx512vnni(table); }
void octavo_fill_tiles(octavo::LinearKernels* table) { octavo::register_linear_amx(table); }
void octavo_fill_layers(octavo::LayerKernels* table) { octavo::register_layers_avx512vnni(table); }
}
