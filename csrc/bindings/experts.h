#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/layer_calls.h"
#include "runtime/experts.h"

namespace octavo {

// The experts of one layer; keeps their weights alive.
struct ExpertList {
  std::vector<Expert> experts;
  nanobind::list kept;
};

inline ExpertsArgs experts_args(Address x, int64_t x_stride, Address ids, Address weights, int64_t slots,
                                Address out, int act) {
  return {at<float>(x), x_stride,       at<int32_t>(ids), at<float>(weights),
          slots,        at<float>(out), Activation(act)};
}

// Routing, and mixtures of experts.
void bind_experts(nanobind::module_& m);

}  // namespace octavo
