// Mixtures of experts. Shapes are checked by the Python op.
#include "bindings/experts.h"

namespace octavo {
namespace nb = nanobind;
namespace {

// One (gate, up, down) an expert.
ExpertList* list_of(const nb::list& weights) {
  auto list = std::make_unique<ExpertList>();
  for (const auto& entry : weights) {
    const auto three = nb::cast<nb::tuple>(entry);
    const auto weight = [&](int i) { return nb::cast<const PackedMatrix*>(three[size_t(i)]); };
    list->experts.push_back({weight(0), weight(1), weight(2)});
    list->kept.append(three);
  }
  return list.release();
}

void route(Address logits, int64_t row_stride, int64_t rows, int64_t experts, int64_t top_k, bool renormalise,
           bool shared, Address ids, Address weights) {
  run_route(route_args(logits, row_stride, experts, top_k, renormalise, shared, ids, weights), rows);
}

void experts(const ExpertList& list, Address x, int64_t x_stride, int64_t rows, Address ids, Address weights,
             int64_t slots, Address out, int act) {
  run_experts(list.experts, experts_args(x, x_stride, ids, weights, slots, out, act), rows);
}

}  // namespace

void bind_experts(nb::module_& m) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<ExpertList>(m, "Experts").def(nb::new_(&list_of));
  m.def("route", &route, Released());
  m.def("experts", &experts, Released());
}

}  // namespace octavo
