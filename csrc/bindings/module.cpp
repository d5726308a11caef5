#include <nanobind/nanobind.h>

#include "bindings/experts.h"
#include "bindings/layers.h"
#include "bindings/linear.h"
#include "bindings/program.h"

NB_MODULE(_native, m) {
  m.doc() = "Native kernels of Octavo. Only octavo.ops imports this module.";
  octavo::bind_linear(m);
  octavo::bind_layers(m);
  octavo::bind_experts(m);
  octavo::bind_program(m);
}
