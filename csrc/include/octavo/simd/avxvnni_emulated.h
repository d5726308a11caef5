// The one intrinsic of AVX-VNNI that the kernels use, by SIMDe, which knows its AVX-512 twin. Only for tests
// on machines without AVX-VNNI, never part of a release build.
#pragma once

#include <simde/x86/avx512/dpbusd.h>

#define _mm256_dpbusd_avx_epi32(sum, u, s) simde_mm256_dpbusd_epi32(sum, u, s)
