// Packed weights, matrix products and embeddings. Tensors come as addresses; the Python op has checked dtype,
// shape, strides and size. What depends on contents (ids) is checked here.
#include "bindings/linear.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "octavo/kernel_table.h"
#include "octavo/thread_pool.h"
#include "pack/packed_matrix.h"
#include "runtime/linear.h"

namespace octavo {
namespace nb = nanobind;
namespace {

using Address = uintptr_t;

Format known_format(const std::string& name) {
  const Format format = format_by_name(name.c_str());
  if (format == kFormatCount) throw std::invalid_argument("format " + name + " is not known");
  return format;
}

PackedMatrix* pack(const std::string& format_name, int64_t rows, int64_t cols, Address source,
                   int64_t nbytes) {
  const Format format = known_format(format_name);
  const FormatInfo& info = format_info(format);
  if (info.block_bytes == 0) throw std::invalid_argument(format_name + " is packed from groups");
  if (rows < 1 || cols < 1 || cols % info.block != 0) {
    throw std::invalid_argument(
        "a " + format_name + " matrix needs rows >= 1 and cols a positive multiple of " +
        std::to_string(info.block) + ", got " + std::to_string(rows) + " x " + std::to_string(cols));
  }
  const int64_t expected = rows * (cols / info.block) * info.block_bytes;
  if (nbytes != expected) {
    throw std::invalid_argument("a " + format_name + " matrix of " + std::to_string(rows) + " x " +
                                std::to_string(cols) + " has " + std::to_string(expected) + " bytes, got " +
                                std::to_string(nbytes));
  }
  const nb::gil_scoped_release release;
  auto matrix = std::make_unique<PackedMatrix>(format, rows, cols);
  matrix->fill(reinterpret_cast<const uint8_t*>(source));
  return matrix.release();
}

QuantOrder known_order(const std::string& name) {
  if (name == "bytes") return QuantOrder::kBytes;
  if (name == "words") return QuantOrder::kWords;
  if (name == "gptq") return QuantOrder::kGPTQ;
  if (name == "awq") return QuantOrder::kAWQ;
  throw std::invalid_argument("order " + name + " is not known");
}

// The Python op has checked shapes; zeros is 0 for formats without zero points.
PackedMatrix* pack_groups(const std::string& format_name, const std::string& order, int64_t rows,
                          int64_t cols, Address quants, Address scales, Address zeros) {
  const Format format = known_format(format_name);
  if (format_info(format).block_bytes != 0) throw std::invalid_argument(format_name + " has no groups");
  const GroupSource source = {known_order(order),
                              rows,
                              cols,
                              reinterpret_cast<const uint8_t*>(quants),
                              reinterpret_cast<const float*>(scales),
                              reinterpret_cast<const uint8_t*>(zeros)};
  const nb::gil_scoped_release release;
  auto matrix = std::make_unique<PackedMatrix>(format, rows, cols);
  matrix->fill_groups(source);
  return matrix.release();
}

// `source` holds rows * cols floats of `source_name`, as the Python op has checked; cols is a multiple of 32.
PackedMatrix* quantise(const std::string& format_name, const std::string& source_name, int64_t rows,
                       int64_t cols, Address source) {
  const Format format = known_format(format_name), source_format = known_format(source_name);
  if (!quantises(format, source_format))
    throw std::invalid_argument(source_name + " cannot be rounded to " + format_name);
  const nb::gil_scoped_release release;
  auto matrix = std::make_unique<PackedMatrix>(format, rows, cols);
  if (!matrix->quantise(reinterpret_cast<const uint8_t*>(source), source_format)) {
    throw std::invalid_argument("holds values that are not finite, or beyond what a float16 scale can reach");
  }
  return matrix.release();
}

void run_linear(Address x, int64_t x_stride, int64_t rows, const nb::list& weights, Address bias, Address out,
                int64_t out_stride) {
  constexpr size_t kFixed = 16;
  const PackedMatrix* fixed[kFixed];
  std::vector<const PackedMatrix*> more;
  const PackedMatrix** list = fixed;
  if (weights.size() > kFixed) {
    more.resize(weights.size());
    list = more.data();
  }
  for (size_t i = 0; i < weights.size(); ++i) list[i] = nb::cast<const PackedMatrix*>(weights[i]);
  const int count = int(weights.size());
  const nb::gil_scoped_release release;
  linear(reinterpret_cast<const float*>(x), x_stride, rows, list, count, reinterpret_cast<const float*>(bias),
         reinterpret_cast<float*>(out), out_stride);
}

void read_rows(const PackedMatrix& matrix, Address ids, int64_t count, Address out) {
  const int64_t* id = reinterpret_cast<const int64_t*>(ids);
  for (int64_t i = 0; i < count; ++i) {
    if (id[i] < 0 || id[i] >= matrix.rows()) {
      throw std::invalid_argument("ids[" + std::to_string(i) + "] is " + std::to_string(id[i]) +
                                  ", must be in [0, " + std::to_string(matrix.rows()) + ")");
    }
  }
  const nb::gil_scoped_release release;
  matrix.read_rows(id, count, reinterpret_cast<float*>(out), matrix.cols());
}

void dequantise(const PackedMatrix& matrix, Address out) {
  const nb::gil_scoped_release release;
  std::vector<int64_t> ids(static_cast<size_t>(matrix.rows()));
  for (int64_t i = 0; i < matrix.rows(); ++i) ids[size_t(i)] = i;
  matrix.read_rows(ids.data(), matrix.rows(), reinterpret_cast<float*>(out), matrix.cols());
}

nb::list available() {
  nb::list names;
  for (const char* const* name = available_isas(); *name != nullptr; ++name) names.append(nb::str(*name));
  return names;
}

// `name` is never freed: it must live as long as the process.
bool add_emulated_isa(nb::str name, Address fill_linear, Address fill_layers) {
  name.inc_ref();
  return add_isa(name.c_str(), reinterpret_cast<void (*)(LinearKernels*)>(fill_linear),
                 reinterpret_cast<void (*)(LayerKernels*)>(fill_layers));
}

nb::list format_names() {
  nb::list names;
  for (int i = 0; i < kFormatCount; ++i) names.append(nb::str(format_info(Format(i)).name));
  return names;
}

void set_num_threads(int n, ThreadPlaces::Cpus cpus, std::vector<int> threads_per_node) {
  if (!cpus.empty() && cpus.size() != size_t(n)) throw std::invalid_argument("each thread needs a place");
  const nb::gil_scoped_release release;
  ThreadPool::instance().set_num_threads(n, {std::move(cpus), std::move(threads_per_node)});
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<PackedMatrix>(m, "PackedMatrix")
      .def_prop_ro("format", [](const PackedMatrix& w) { return format_info(w.format()).name; })
      .def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("cols", &PackedMatrix::cols)
      .def_prop_ro("nbytes", &PackedMatrix::nbytes);
  m.def("pack", &pack);
  m.def("pack_groups", &pack_groups);
  m.def("quantise", &quantise);
  m.def("linear", &run_linear);
  m.def("read_rows", &read_rows);
  m.def("dequantise", &dequantise);
  m.def("format_names", &format_names);
  m.def("set_num_threads", &set_num_threads);
  m.def("num_threads", [] { return ThreadPool::instance().num_threads(); });
  m.def("isa", &isa_name);
  m.def("available_isas", &available);
  m.def("add_isa", &add_emulated_isa);
  m.def("set_isa", [](const char* name) { return set_isa(name); });
}

}  // namespace octavo
