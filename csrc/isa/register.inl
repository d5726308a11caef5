// The body of every ISA translation unit: compiles one group of kernels (OCTAVO_LINEAR or OCTAVO_LAYERS; for tests
// OCTAVO_PROBES) for the ISA that the including file chose and exports the one symbol register_<group>_<isa>. Kernel
// headers are included here and nowhere else. Groups, so that a change to one does not rebuild the others.
#include "octavo/kernel_table.h"
#include "octavo/simd.h"

#if defined(OCTAVO_LINEAR)
#include "kernels/linear.h"
#elif defined(OCTAVO_LAYERS)
#include "kernels/layers.h"
#elif defined(OCTAVO_PROBES)
#include "native/probes.h"
#else
#error "define OCTAVO_LINEAR, OCTAVO_LAYERS or OCTAVO_PROBES"
#endif

namespace octavo {

#define OCTAVO_JOIN_(a, b) a##b
#define OCTAVO_JOIN(a, b) OCTAVO_JOIN_(a, b)

#if defined(OCTAVO_LINEAR)
void OCTAVO_JOIN(register_linear_, OCTAVO_ISA)(LinearKernels* table) { OCTAVO_ISA::fill_linear(*table); }
#elif defined(OCTAVO_PROBES)
void OCTAVO_JOIN(register_probe_, OCTAVO_ISA)(Probe* probe) { *probe = OCTAVO_ISA::probe; }
#else
void OCTAVO_JOIN(register_layers_, OCTAVO_ISA)(LayerKernels* table) { OCTAVO_ISA::fill_layers(*table); }
#endif

}  // namespace octavo
