// The matrix kernels and the quantising of rows.
#include <stdio.h>
#include <stdlib.h>

#include <memory>

#include "native/cases.h"
#include "native/operands.h"
#include "octavo/float16.h"
#include "octavo/kernel_table.h"
#include "pack/packed_matrix.h"
#include "runtime/linear.h"

namespace octavo {
namespace {

// Byte offsets of the float16 fields in a block of each quantised format: random bits there would be NaN now
// and then.
struct Fields {
  const char* format;
  std::vector<int> offsets;
};
const Fields kFloat16Fields[] = {{"q4_0", {0}},      {"q4_1", {0, 2}}, {"q5_0", {0}},    {"q5_1", {0, 2}},
                                 {"q8_0", {0}},      {"q4_k", {0, 2}}, {"q5_k", {0, 2}}, {"q6_k", {208}},
                                 {"q2_k", {80, 82}}, {"q3_k", {108}},  {"iq4_nl", {0}},  {"mxfp4", {}}};

const std::vector<int>& float16_fields(const char* format) {
  for (const Fields& fields : kFloat16Fields) {
    if (strcmp(fields.format, format) == 0) return fields.offsets;
  }
  fprintf(stderr, "no operands for weights in %s: add its float16 fields to kFloat16Fields\n", format);
  exit(2);
}

std::vector<uint8_t> random_blocks(Random& random, const FormatInfo& info, int64_t blocks, int byte) {
  std::vector<uint8_t> data = random.bytes(blocks * info.block_bytes);
  if (byte >= 0) memset(data.data(), byte, data.size());
  for (int offset : float16_fields(info.name)) {
    for (int64_t b = 0; b < blocks; ++b) {
      const uint16_t half = float_to_f16(random.value() * 0.02f);
      memcpy(data.data() + b * info.block_bytes + offset, &half, sizeof half);
    }
  }
  return data;
}

// In a format that is packed from a GroupSource.
void fill_random_groups(Random& random, PackedMatrix& weight, int byte) {
  const FormatInfo& info = format_info(weight.format());
  const int64_t count = weight.rows() * weight.cols();
  std::vector<uint8_t> quants = random.bytes(count);
  if (byte >= 0) memset(quants.data(), byte, quants.size());
  for (uint8_t& q : quants) q = q % 128 == 127 && weight.format() == kE4M3G128 ? 0x83 : q;  // no NaN
  std::vector<float> scales(size_t(count / 32));
  for (float& scale : scales) scale = random.value() * 0.02f;
  std::vector<uint8_t> zeros(scales.size());
  for (uint8_t& zero : zeros) zero = uint8_t(random.below(17));
  const QuantOrder order = info.super_bytes < 2048 ? QuantOrder::kWords : QuantOrder::kBytes;
  weight.fill_groups({order, weight.rows(), weight.cols(), quants.data(), scales.data(), zeros.data()});
}

std::vector<uint8_t> random_floats(Random& random, Format format, int64_t n) {
  std::vector<uint8_t> data;
  for (int64_t i = 0; i < n; ++i) {
    const float x = random.value();
    const uint16_t half = format == kBF16 ? float_to_bf16(x) : float_to_f16(x);
    const uint8_t* from =
        format == kF32 ? reinterpret_cast<const uint8_t*>(&x) : reinterpret_cast<const uint8_t*>(&half);
    data.insert(data.end(), from, from + (format == kF32 ? 4 : 2));
  }
  return data;
}

// byte >= 0: all quants are made of it.
std::shared_ptr<PackedMatrix> random_weight(Format format, int64_t rows, int64_t cols, int byte = -1) {
  Random random(uint64_t(format) + 100);
  const FormatInfo& info = format_info(format);
  const auto weight = std::make_shared<PackedMatrix>(format, rows, cols);
  if (info.block_bytes == 0) {
    fill_random_groups(random, *weight, byte);
    return weight;
  }
  const bool plain = info.block == 1;
  weight->fill((plain ? random_floats(random, format, rows * cols)
                      : random_blocks(random, info, rows * cols / info.block, byte))
                   .data());
  return weight;
}

void multiply(const PackedMatrix& weight, const std::vector<float>& x, int64_t rows, const float* bias,
              Output& out) {
  std::vector<float> y(size_t(rows * weight.rows()));
  const PackedMatrix* weights[] = {&weight};
  linear(x.data(), weight.cols(), rows, weights, 1, bias, y.data(), weight.rows());
  out.add(y);
}

int64_t some_cols(const FormatInfo& info) { return info.block == 1 ? 549 : info.block == 32 ? 608 : 768; }

void add_products(Format format, std::vector<Case>& cases) {
  const FormatInfo& info = format_info(format);
  const int64_t cols = some_cols(info);
  const auto weight = random_weight(format, 37, cols);
  const auto x = std::make_shared<std::vector<float>>(Random(7).values(33 * cols));
  const auto bias = std::make_shared<std::vector<float>>(Random(8).values(37));
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 17, 33}) {
    cases.push_back({std::string("linear ") + info.name + ", rows " + std::to_string(rows), [=](Output& out) {
                       multiply(*weight, *x, rows, rows % 2 ? bias->data() : nullptr, out);
                     }});
  }
  // Kernels that unpack a chunk of k at a time, and a last chunk of rows that is a single one.
  const auto longer = random_weight(format, 21, 2304);
  const auto more = std::make_shared<std::vector<float>>(Random(10).values(97 * 2304));
  for (int64_t rows : {9, 97}) {
    cases.push_back({std::string("linear ") + info.name + ", 2304 columns, rows " + std::to_string(rows),
                     [=](Output& out) { multiply(*longer, *more, rows, bias->data(), out); }});
  }
}

// All weights and all activations at their extremes: sums are as large as they get.
void add_extremes(Format format, std::vector<Case>& cases) {
  const FormatInfo& info = format_info(format);
  if (info.block == 1) return;
  for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
    const auto weight = random_weight(format, 16, 512, byte);
    cases.push_back(
        {std::string("linear ") + info.name + ", bytes " + std::to_string(byte), [=](Output& out) {
           std::vector<float> x(size_t(7) * 512, 1.0f);
           for (size_t i = 512; i < x.size(); ++i) x[i] = i < 1024 || i % 2 ? -1.0f : 1.0f;
           multiply(*weight, x, 7, nullptr, out);
         }});
  }
}

template <class Block>
std::vector<Block> quantise(RowForm form, const std::vector<float>& x, int64_t rows, int64_t cols,
                            int64_t per_row) {
  std::vector<Block> blocks(size_t(rows * per_row));
  ActivationRows a = {
      x.data(), cols, rows, cols, reinterpret_cast<uint8_t*>(blocks.data()), per_row * int64_t(sizeof(Block)),
      0,        false};
  kernels().linear.quantise[form](a, 0, rows);
  return blocks;
}

// Quants of a block whose scale is NaN mean nothing.
template <class Block>
void add_quants(const Block& block, Output& out) {
  out.add(block.scale);
  if (block.scale != block.scale) return;
  for (int8_t q : block.q) out.add(uint8_t(q));
}

void quantise_block32(const std::vector<float>& x, int64_t rows, int64_t cols, Output& out) {
  for (const RowBlock32& block : quantise<RowBlock32>(kRowsBlock32, x, rows, cols, (cols + 63) / 64 * 2)) {
    add_quants(block, out);
    out.add(block.fsum);
    if (block.scale != block.scale) continue;
    out.add(int64_t(block.sum));
    out.add(int64_t(block.class_sums));
  }
}

void quantise_block256(const std::vector<float>& x, int64_t rows, int64_t cols, Output& out) {
  for (const RowBlock256& block : quantise<RowBlock256>(kRowsBlock256, x, rows, cols, cols / 256)) {
    add_quants(block, out);
    if (block.scale != block.scale) continue;
    for (int32_t sums : block.sums) out.add(int64_t(sums));
    for (int32_t sums : block.sums64) out.add(int64_t(sums));
    for (int32_t sums : block.class_sums) out.add(int64_t(sums));
  }
}

void add_quantising(std::vector<Case>& cases) {
  Random random(9);
  std::vector<float> hard = random.values(8 * 1024);
  for (size_t i = 0; i < 1024; ++i) hard[i] = random.hard_value();         // NaN in nearly every block
  for (size_t i = 1024; i < 2048; i += 97) hard[i] = random.hard_value();  // in some
  for (size_t i = 2048; i < 3072; ++i) hard[i] *= 0x1p-120f;               // scales underflow
  for (size_t i = 3072; i < 4096; ++i) hard[i] = float(random.below(255) - 127) * 0.5f;  // ties
  cases.push_back({"quantise by 32", [=](Output& out) { quantise_block32(hard, 8, 1024, out); }});
  cases.push_back(
      {"quantise by 32, odd columns", [=](Output& out) { quantise_block32(hard, 10, 544, out); }});
  cases.push_back({"quantise by 256", [=](Output& out) { quantise_block256(hard, 8, 1024, out); }});
}

}  // namespace

std::vector<Case> linear_cases() {
  std::vector<Case> cases;
  for (int format = 0; format < kFormatCount; ++format) {
    add_products(Format(format), cases);
    add_extremes(Format(format), cases);
  }
  add_quantising(cases);
  return cases;
}

}  // namespace octavo
