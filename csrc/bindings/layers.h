#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

// Norms, rotary embedding, activations, attention and sampling.
void bind_layers(nanobind::module_& m);

}  // namespace octavo
