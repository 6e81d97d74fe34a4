// CPUID, and the ROOFLINE_ISA environment variable.
//
// ROOFLINE_ISA is a set of capabilities, not a ladder: one name or several separated by commas; each brings what it needs.
#include "cpu/isa.h"

#include <cstdlib>
#include <sstream>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roofline::cpu {
namespace {

struct Set {
  Isa isa;
  const char* name;
  std::vector<Isa> needs;
};

const std::vector<Set>& sets() {
  static const std::vector<Set> all = {
      {Isa::scalar, "scalar", {}},
      {Isa::avx2, "avx2", {Isa::scalar}},
      {Isa::avx512, "avx512", {Isa::avx2}},
      {Isa::avx512_bf16, "avx512_bf16", {Isa::avx512}},
      {Isa::avx512_fp16, "avx512_fp16", {Isa::avx512_bf16}},
      {Isa::amx, "amx", {Isa::avx512_bf16}},
      {Isa::neon, "neon", {Isa::scalar}},
  };
  return all;
}

bool cpu_has(Isa isa) {
  if (isa == Isa::scalar) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // These builtins ask the operating system too (XGETBV), so registers that are not saved do not count.
  switch (isa) {
    case Isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_bf16: return cpu_has(Isa::avx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    case Isa::avx512_fp16: return cpu_has(Isa::avx512_bf16) && __builtin_cpu_supports("avx512fp16");
    case Isa::amx: {
      if (!cpu_has(Isa::avx512_bf16) || !__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") ||
          !__builtin_cpu_supports("amx-int8"))
        return false;
      // The kernel grants the tile registers (state component 18) on request, once per process.
      constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
      return syscall(SYS_arch_prctl, kRequestPermission, 18) == 0;
    }
    default: return false;
  }
#elif defined(__aarch64__)
  return isa == Isa::neon;
#else
  return false;
#endif
}

struct Allowed {
  bool any = false;  // ROOFLINE_ISA is set
  bool set[7] = {};
};

void allow(Allowed& allowed, Isa isa) {
  allowed.set[static_cast<int>(isa)] = true;
  for (const Isa need : sets()[static_cast<int>(isa)].needs) allow(allowed, need);
}

const Allowed& allowed() {
  static const Allowed answer = [] {
    Allowed allowed;
    const char* words = std::getenv("ROOFLINE_ISA");
    if (!words || !*words) return allowed;
    allowed.any = true;
    std::stringstream list(words);
    for (std::string word; std::getline(list, word, ',');) {
      bool known = false;
      for (const Set& set : sets())
        if (word == set.name) {
          allow(allowed, set.isa);
          known = true;
        }
      if (!known) {
        std::string all;
        for (const Set& set : sets()) all += (all.empty() ? "" : ", ") + std::string(set.name);
        throw Error("ROOFLINE_ISA: unknown instruction set '" + word + "'; use one or more of " + all + ", separated by commas");
      }
    }
    return allowed;
  }();
  return answer;
}

}  // namespace

std::string name(Isa isa) { return sets()[static_cast<int>(isa)].name; }

bool has(Isa isa) { return (!allowed().any || allowed().set[static_cast<int>(isa)]) && cpu_has(isa); }

std::vector<Isa> available() {
  std::vector<Isa> all;
  for (const Set& set : sets())
    if (has(set.isa)) all.push_back(set.isa);
  return all;
}

std::string lacks(const std::string& isa_name) {
  for (const Set& set : sets()) {
    if (isa_name != set.name) continue;
    if (!cpu_has(set.isa)) return "this CPU has no " + isa_name;
    if (!has(set.isa)) return "ROOFLINE_ISA does not allow " + isa_name;
    return "";
  }
  return "there is no instruction set '" + isa_name + "'";
}

}  // namespace roofline::cpu
