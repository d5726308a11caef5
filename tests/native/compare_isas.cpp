// Compares every kernel and every vector operation of this machine's instruction sets with the scalar ones,
// to the bit. Says which ones it compared; the exit status is 1 where a word differs. AMX is left out: its
// tiles have sums of their own.
#include <stdio.h>

#include <memory>

#include "native/cases.h"
#include "native/operands.h"
#include "native/probe_table.h"
#include "octavo/kernel_table.h"

namespace octavo {

void register_probe_scalar(Probe* probe);
#if defined(__x86_64__)
void register_probe_avx2(Probe* probe);
void register_probe_avxvnni(Probe* probe);
void register_probe_avx512(Probe* probe);
void register_probe_avx512vnni(Probe* probe);
#elif defined(__aarch64__)
void register_probe_neon(Probe* probe);
void register_probe_neondot(Probe* probe);
void register_probe_i8mm(Probe* probe);
#endif

namespace {

struct NamedProbe {
  const char* isa;
  void (*get)(Probe*);
};
const NamedProbe kProbes[] = {{"scalar", register_probe_scalar},
#if defined(__x86_64__)
                              {"avx2", register_probe_avx2},
                              {"avxvnni", register_probe_avxvnni},
                              {"avx512", register_probe_avx512},
                              {"avx512vnni", register_probe_avx512vnni}
#elif defined(__aarch64__)
                              {"neon", register_probe_neon},
                              {"neondot", register_probe_neondot},
                              {"i8mm", register_probe_i8mm}
#endif
};

std::vector<std::string> isas_to_compare() {
  std::vector<std::string> isas;
  for (const char* const* name = available_isas(); *name != nullptr; ++name) {
    if (strcmp(*name, "scalar") != 0 && strcmp(*name, "amx") != 0) isas.push_back(*name);
  }
  return isas;
}

struct Probed {
  std::vector<uint32_t> words;
  std::vector<const char*> names;
};

Probed probed(const std::string& isa) {
  static const auto operands = [] {
    auto made = std::make_unique<ProbeOperands>();
    Random random(11);
    for (int64_t i = 0; i < ProbeOperands::kFloats; ++i) {
      made->a[i] = random.hard_value();
      made->b[i] = random.hard_value();
      made->c[i] = random.hard_value();
    }
    for (uint8_t& byte : made->bytes) byte = uint8_t(random.bits());
    return made;
  }();
  constexpr size_t kWords = 1 << 17;
  Probed result = {std::vector<uint32_t>(kWords), std::vector<const char*>(kWords)};
  ProbeResults out = {result.words.data(), result.names.data(), 0, int64_t(kWords)};
  for (const NamedProbe& named : kProbes) {
    Probe probe = nullptr;
    named.get(&probe);
    if (isa == named.isa) probe(*operands, out);
  }
  if (out.count == 0 || out.count > out.limit) printf("%s: %lld words\n", isa.c_str(), (long long)out.count);
  result.words.resize(size_t(out.count));
  return result;
}

int64_t first_difference(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) return int64_t(i);
  }
  return a.size() == b.size() ? -1 : int64_t(std::min(a.size(), b.size()));
}

int report(const std::string& isa, const std::string& what, const std::vector<uint32_t>& expected,
           const std::vector<uint32_t>& found) {
  const int64_t at = first_difference(expected, found);
  if (at < 0 && !expected.empty()) return 0;
  printf("%s differs in %s: %zu and %zu words, first at %lld", isa.c_str(), what.c_str(), found.size(),
         expected.size(), (long long)at);
  if (at >= 0 && size_t(at) < std::min(expected.size(), found.size()))
    printf(" (%08x, scalar %08x)", found[size_t(at)], expected[size_t(at)]);
  printf("\n");
  return 1;
}

int compare_operations(const std::string& isa) {
  const Probed expected = probed("scalar"), found = probed(isa);
  const int64_t at = first_difference(expected.words, found.words);
  return report(isa, at < 0 ? "vector operations" : expected.names[size_t(at)], expected.words, found.words);
}

std::vector<uint32_t> words_of(const Case& made, const std::string& isa) {
  Output out;
  set_isa(isa.c_str());
  made.run(out);
  return out.words;
}

int compare_kernels(const std::vector<std::string>& isas, const std::vector<Case>& cases) {
  int failures = 0;
  uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a, word by word
  for (const Case& made : cases) {
    const std::vector<uint32_t> expected = words_of(made, "scalar");
    for (uint32_t word : expected) digest = (digest ^ word) * 0x100000001b3u;
    for (const std::string& isa : isas) failures += report(isa, made.name, expected, words_of(made, isa));
  }
  printf("scalar results: %016llx\n", (unsigned long long)digest);
  return failures;
}

}  // namespace
}  // namespace octavo

int main() {
  using namespace octavo;
  const std::vector<std::string> isas = isas_to_compare();
  std::vector<Case> cases = linear_cases();
  for (Case& made : layer_cases()) cases.push_back(std::move(made));
  int failures = compare_kernels(isas, cases);
  for (const std::string& isa : isas) failures += compare_operations(isa);
  printf("compared with scalar in %zu cases:", cases.size());
  for (const std::string& isa : isas) printf(" %s", isa.c_str());
  printf("\n");
  return failures == 0 ? 0 : 1;
}
