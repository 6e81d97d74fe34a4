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

// Skipped where the CPU lacks the instruction set.
template <class Table>
class TableTest : public testing::TestWithParam<Tested<Table>> {
 protected:
  void SetUp() override {
    if (const std::string why = lacks(this->GetParam().needs); !why.empty()) GTEST_SKIP() << why;
  }
};

}  // namespace roofline::cpu
