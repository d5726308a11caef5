// The body of every ISA translation unit: compiles all kernels for the ISA that the including file chose and exports
// the one symbol register_<isa>. Kernel headers are included here and nowhere else.
#include "octavo/kernel_table.h"
#include "octavo/simd.h"

#include "kernels/linear.h"
#include "kernels/layers.h"

namespace octavo {

#define OCTAVO_JOIN_(a, b) a##b
#define OCTAVO_JOIN(a, b) OCTAVO_JOIN_(a, b)

[[gnu::visibility("hidden")]] void OCTAVO_JOIN(register_, OCTAVO_ISA)(KernelTable* table) {
  OCTAVO_ISA::fill_linear(table->linear);
  OCTAVO_ISA::fill_layers(table->layer);
}

}  // namespace octavo
