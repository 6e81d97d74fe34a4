// Kernel tables by instruction set, as parameters of a test: those of this build, and AVX-512 by SIMDe's emulation if installed.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "cpu/isa.h"

namespace roofline::cpu {

template <class Table>
struct Tested {
  const char* name;
  const Table* table;
  const char* needs;
};

template <class Table>
void PrintTo(const Tested<Table>& tested, std::ostream* out) {
  *out << tested.name;
}

#if defined(__x86_64__)
#define ROOFLINE_TESTED_VECTORS(kind) {"avx2", &kind##_avx2, "avx2"}, {"avx512", &kind##_avx512, "avx512"}
#else
#define ROOFLINE_TESTED_VECTORS(kind) {"neon", &kind##_neon, "neon"}
#endif
#if defined(ROOFLINE_SIMDE)
#define ROOFLINE_TESTED(kind) {"scalar", &kind##_scalar, "scalar"}, ROOFLINE_TESTED_VECTORS(kind), {"simde", &kind##_simde, "avx2"}
#else
#define ROOFLINE_TESTED(kind) {"scalar", &kind##_scalar, "scalar"}, ROOFLINE_TESTED_VECTORS(kind)
#endif

// Elements of a list too: tables of pairs of bf16 and of AMX's tiles, null in a build without them, and those that are emulated.
#define ROOFLINE_TESTED_IF_BUILT(isa, table) (ROOFLINE_HAVE_##isa ? &table : nullptr)
#define ROOFLINE_PAIRS(kind) {"pairs", ROOFLINE_TESTED_IF_BUILT(avx512_bf16, kind##_pairs_avx512_bf16), "avx512_bf16"}
#define ROOFLINE_TILES(kind) {"amx", ROOFLINE_TESTED_IF_BUILT(amx, kind##_amx), "amx"}
#if defined(ROOFLINE_SIMDE_PAIRS)
#define ROOFLINE_TESTED_PAIRS(kind) ROOFLINE_PAIRS(kind), {"pairs_simde", &kind##_pairs_simde, "avx2"}
#else
#define ROOFLINE_TESTED_PAIRS(kind) ROOFLINE_PAIRS(kind)
#endif
#if defined(ROOFLINE_AMX_EMULATED)
#define ROOFLINE_TESTED_TILES(kind) ROOFLINE_TILES(kind), {"amx_emulated", &kind##_emulated, "avx2"}
#else
#define ROOFLINE_TESTED_TILES(kind) ROOFLINE_TILES(kind)
#endif

// Skipped where the build lacks the table, or the CPU its instruction set.
template <class Table>
class TableTest : public testing::TestWithParam<Tested<Table>> {
 protected:
  void SetUp() override {
    if (!this->GetParam().table) GTEST_SKIP() << "not in this build";
    if (const std::string why = lacks(this->GetParam().needs); !why.empty()) GTEST_SKIP() << why;
  }
  const Table& table() const { return *this->GetParam().table; }
};

}  // namespace roofline::cpu
