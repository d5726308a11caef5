#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

// Packed weights, matrix products and embeddings.
void bind_linear(nanobind::module_& m);

}  // namespace octavo
