// One table of function pointers per ISA; the rest of the library calls kernels only through `kernels()`.
#pragma once

#include "octavo/layer_args.h"
#include "octavo/linear_args.h"

namespace octavo {

struct KernelTable {
  LinearKernels linear;
  LayerKernels layer;
};

// Each ISA translation unit exports exactly one of these.
void register_linear_scalar(LinearKernels* table);
void register_layers_scalar(LayerKernels* table);
void register_linear_avx2(LinearKernels* table);
void register_layers_avx2(LayerKernels* table);
void register_linear_avxvnni(LinearKernels* table);
void register_linear_avx512(LinearKernels* table);
void register_layers_avx512(LayerKernels* table);
void register_linear_avx512vnni(LinearKernels* table);
void register_linear_amx(LinearKernels* table);
void register_linear_neon(LinearKernels* table);
void register_layers_neon(LayerKernels* table);
void register_linear_neondot(LinearKernels* table);
void register_linear_i8mm(LinearKernels* table);

// The table in use: the best ISA of this machine, or what set_isa chose.
const KernelTable& kernels();
const char* isa_name();

// ISAs that this build has and this machine can run, worst first; terminated by nullptr.
const char* const* available_isas();

// False if the name is unknown or the machine cannot run it.
bool set_isa(const char* name);

// Offers kernels from elsewhere (tests: an ISA that this machine lacks, emulated) under a name that must
// outlive the process. False when there is no room.
bool add_isa(const char* name, void (*fill_linear)(LinearKernels*), void (*fill_layers)(LayerKernels*));

}  // namespace octavo
