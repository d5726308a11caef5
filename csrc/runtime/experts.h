// A mixture of experts: each token's row goes through the experts it was routed to, and what they give is
// summed.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/layer_args.h"
#include "pack/packed_matrix.h"

namespace octavo {

// down(act(gate(x)) * up(x)): gate and up are [inner, hidden], down is [hidden, inner].
struct Expert {
  const PackedMatrix* gate;
  const PackedMatrix* up;
  const PackedMatrix* down;
};

struct ExpertsArgs {
  const float* x;
  int64_t x_stride;
  const int32_t* ids;    // [M, slots]: experts of each token
  const float* weights;  // [M, slots]
  int64_t slots;
  float* out;  // [M, hidden], dense
  Activation act;
};

void run_route(const RouteArgs& args, int64_t rows);

// Rows are sorted by expert; each expert's panels meet its own rows only, as many experts at a time as there
// are threads. A token's result depends on its own row and choice only. Throws std::invalid_argument for an
// id that is no expert, std::bad_alloc when the workspace cannot grow.
void run_experts(const std::vector<Expert>& experts, const ExpertsArgs& args, int64_t rows);

}  // namespace octavo
