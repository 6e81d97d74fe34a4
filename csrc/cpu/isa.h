// Instruction sets: which this CPU has, which may be used, and how a kernel table is picked.
//
// A file *_kernels.cpp is compiled once per instruction set, with ROOFLINE_ISA set to its name. It defines one table of raw
// function pointers, ROOFLINE_TABLE(stream) = stream_avx2, and everything else in it has internal linkage: no STL, no inline
// function the linker could merge across instruction sets.
#pragma once

#define ROOFLINE_JOIN_(a, b) a##_##b
#define ROOFLINE_JOIN(a, b) ROOFLINE_JOIN_(a, b)
#define ROOFLINE_TABLE(name) ROOFLINE_JOIN(name, ROOFLINE_ISA)

// The sets that every kernel file is compiled for: declarations of their tables, and the list of them, the widest first.
#if defined(__x86_64__)
#define ROOFLINE_DECLARE_TABLES(Type, name) extern const Type name##_scalar, name##_avx2, name##_avx512
#define ROOFLINE_TABLES(name) {{Isa::avx512, &name##_avx512}, {Isa::avx2, &name##_avx2}, {Isa::scalar, &name##_scalar}}
#else
#define ROOFLINE_DECLARE_TABLES(Type, name) extern const Type name##_scalar, name##_neon
#define ROOFLINE_TABLES(name) {{Isa::neon, &name##_neon}, {Isa::scalar, &name##_scalar}}
#endif

// Not every compiler knows every instruction set: ROOFLINE_HAVE_amx and the like are 1 where this build has the tables of one, else 0
// (cmake/isa.cmake).

#if !defined(ROOFLINE_ISA)  // baseline-compiled files only

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace roofline::cpu {

enum class Isa { scalar, avx2, avx512, avx512_vnni, avx512_bf16, avx512_fp16, amx, neon, neon_dotprod_fp16, neon_bf16_i8mm };

std::string name(Isa isa);
bool has(Isa isa);                // the CPU and the operating system have it, and ROOFLINE_ISA allows it
bool has_fast_bf16_pairs();        // has(avx512_bf16), and its products of bf16 pairs beat multiply-adds in fp32
std::vector<Isa> available();     // all that has() says yes to
std::string lacks(const std::string& isa_name);  // why not; empty if has()

// The first table of the list that may be used here; lists are in order of preference and end with scalar.
template <class Table>
struct Choice {
  Isa isa;
  const Table* table;
};

template <class Table>
Choice<Table> choose(std::initializer_list<std::pair<Isa, const Table*>> tables) {
  for (const auto& [isa, table] : tables)
    if (has(isa)) return {isa, table};
  throw Unsupported("no kernel for the instruction sets allowed here; ROOFLINE_ISA may be too narrow");
}

}  // namespace roofline::cpu

#endif
