// Picks the kernel table once: on x86 by CPUID and by what the operating system saves (XCR0), on Arm by what
// it tells.
#include <cstring>

#include "octavo/kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include "isa/arm_features.h"
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace octavo {
namespace {

#if defined(__x86_64__)
struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA, F16C and ymm state
  bool avxvnni = false;     // with AVX-VNNI: 256 bits, no AVX-512
  bool avx512 = false;      // AVX-512 F, BW, DQ, VL and zmm state
  bool avx512vnni = false;  // with AVX-512 VNNI
  bool amx = false;         // AMX-BF16, AVX512-FP16, tile state, and the kernel's leave to use it
};

uint64_t extended_state() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

constexpr uint32_t kAvxVnni = 1u << 4;  // leaf 7, sub-leaf 1, eax
constexpr uint32_t kAmxBF16 = 1u << 22, kAvx512FP16 = 1u << 23, kAmxTile = 1u << 24;
constexpr uint64_t kTileState = 0x60000;

// Linux gives a process the large tile state only when asked (ARCH_REQ_XCOMP_PERM).
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures cpu;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
  const bool osxsave = c & bit_OSXSAVE;
  if (!osxsave || !(c & bit_AVX) || !(c & bit_FMA) || !(c & bit_F16C)) return cpu;
  const uint64_t state = extended_state();
  if ((state & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  cpu.avx2 = b & bit_AVX2;
  const bool zmm_saved = (state & 0xe6) == 0xe6;
  constexpr uint32_t kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  cpu.avx512 = cpu.avx2 && zmm_saved && (b & kAvx512) == kAvx512;
  cpu.avx512vnni = cpu.avx512 && (c & bit_AVX512VNNI);
  cpu.amx = cpu.avx512vnni && (d & kAmxTile) && (d & kAmxBF16) && (d & kAvx512FP16) &&
            (state & kTileState) == kTileState && may_use_tiles();
  cpu.avxvnni = cpu.avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni);
  return cpu;
}
#endif

struct Isa {
  const char* name;
  void (*fill_linear)(LinearKernels*);
  void (*fill_layers)(LayerKernels*);
};

constexpr int kMaxIsas = 12;  // those of one machine, and what tests add

struct Dispatch {
  Isa isas[kMaxIsas] = {};
  const char* names[kMaxIsas + 1] = {};
  int count = 0;
  const char* current = nullptr;
  KernelTable table = {};

  void offer(Isa isa) {
    isas[count] = isa;
    names[count++] = isa.name;
  }

  Dispatch() {
    offer({"scalar", register_linear_scalar, register_layers_scalar});
#if defined(__x86_64__)
    const CpuFeatures cpu = detect();
    if (cpu.avx2) offer({"avx2", register_linear_avx2, register_layers_avx2});
    // Dot products and tiles only multiply matrices: the other kernels are those of AVX2 or AVX-512.
    if (cpu.avxvnni) offer({"avxvnni", register_linear_avxvnni, register_layers_avx2});
    if (cpu.avx512) offer({"avx512", register_linear_avx512, register_layers_avx512});
    if (cpu.avx512vnni) offer({"avx512vnni", register_linear_avx512vnni, register_layers_avx512});
    if (cpu.amx) offer({"amx", register_linear_amx, register_layers_avx512});
#elif defined(__aarch64__)
    const ArmFeatures cpu = arm_features();
    offer({"neon", register_linear_neon, register_layers_neon});
    if (cpu.dotprod) offer({"neondot", register_linear_neondot, register_layers_neon});
    if (cpu.i8mm) offer({"i8mm", register_linear_i8mm, register_layers_neon});
#endif
    choose(count - 1);
  }

  void choose(int index) {
    isas[index].fill_linear(&table.linear);
    isas[index].fill_layers(&table.layer);
    current = isas[index].name;
  }
};

Dispatch& dispatch() {
  static Dispatch instance;
  return instance;
}

}  // namespace

const KernelTable& kernels() { return dispatch().table; }
const char* isa_name() { return dispatch().current; }
const char* const* available_isas() { return dispatch().names; }

bool set_isa(const char* name) {
  Dispatch& d = dispatch();
  for (int i = 0; i < d.count; ++i) {
    if (strcmp(d.isas[i].name, name) == 0) {
      d.choose(i);
      return true;
    }
  }
  return false;
}

bool add_isa(const char* name, void (*fill_linear)(LinearKernels*), void (*fill_layers)(LayerKernels*)) {
  Dispatch& d = dispatch();
  if (d.count == kMaxIsas) return false;
  d.offer({name, fill_linear, fill_layers});
  return true;
}

}  // namespace octavo
