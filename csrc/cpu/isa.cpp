// CPUID, and the ROOFLINE_ISA environment variable.
//
// ROOFLINE_ISA is a set of capabilities, not a ladder: one name or several separated by commas; each brings what it needs.
#include "cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#elif defined(__aarch64__)
#include <sys/auxv.h>
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
      {Isa::avx512_vnni, "avx512_vnni", {Isa::avx512}},
      {Isa::avx512_bf16, "avx512_bf16", {Isa::avx512_vnni}},
      {Isa::avx512_fp16, "avx512_fp16", {Isa::avx512_bf16}},
      {Isa::amx, "amx", {Isa::avx512_bf16}},
      {Isa::neon, "neon", {Isa::scalar}},
      {Isa::neon_dotprod_fp16, "neon_dotprod_fp16", {Isa::neon}},
      {Isa::neon_bf16_i8mm, "neon_bf16_i8mm", {Isa::neon_dotprod_fp16}},
  };
  return all;
}

bool cpu_has(Isa isa) {
  if (isa == Isa::scalar) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // These builtins read XCR0 too (the tile registers' bits included), so registers that the system does not save do not count.
  switch (isa) {
    case Isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_vnni: return cpu_has(Isa::avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::avx512_bf16: return cpu_has(Isa::avx512_vnni) && __builtin_cpu_supports("avx512bf16");
    case Isa::avx512_fp16: return cpu_has(Isa::avx512_bf16) && __builtin_cpu_supports("avx512fp16");
#if defined(ROOFLINE_AMX_EMULATED)  // a build for tests
    case Isa::amx: return true;
#else
    case Isa::amx:
      return cpu_has(Isa::avx512_bf16) && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("amx-tile") &&
             __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8");
#endif
    default: return false;
  }
#elif defined(__aarch64__)
  // Bits of AT_HWCAP and AT_HWCAP2, by number: the C library may be older than they are.
  const auto first = [](int bit) { return (getauxval(AT_HWCAP) >> bit & 1) != 0; };
  const auto second = [](int bit) { return (getauxval(AT_HWCAP2) >> bit & 1) != 0; };
  switch (isa) {
    case Isa::neon: return true;
    case Isa::neon_dotprod_fp16: return first(20) && first(10);                              // ASIMDDP, ASIMDHP
    case Isa::neon_bf16_i8mm: return cpu_has(Isa::neon_dotprod_fp16) && second(14) && second(13);  // BF16, I8MM
    default: return false;
  }
#else
  return false;
#endif
}

// Why the operating system does not let this process use a set that the CPU has; empty if it does.
std::string refused(Isa isa) {
#if defined(__x86_64__) && !defined(ROOFLINE_AMX_EMULATED)
  if (isa == Isa::amx) {
    // Linux grants the tile registers (state component 18) on request, once per process, from 5.16 on.
    static const std::string answer = [] {
      constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
      if (syscall(SYS_arch_prctl, kRequestPermission, 18) == 0) return std::string();
      return std::string("the operating system refuses the tile registers of amx: ") + std::strerror(errno);
    }();
    return answer;
  }
#else
  (void)isa;
#endif
  return "";
}

const Set& set_of(Isa isa) {
  return *std::find_if(sets().begin(), sets().end(), [&](const Set& set) { return set.isa == isa; });
}

struct Allowed {
  bool any = false;  // ROOFLINE_ISA is set
  std::vector<Isa> isas;

  bool has(Isa isa) const { return !any || std::find(isas.begin(), isas.end(), isa) != isas.end(); }
};

void allow(Allowed& allowed, Isa isa) {
  allowed.isas.push_back(isa);
  for (const Isa need : set_of(isa).needs) allow(allowed, need);
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
        throw Error("ROOFLINE_ISA: unknown instruction set '" + word.substr(0, 60) + "'; use one or more of " + all +
                    ", separated by commas");
      }
    }
    return allowed;
  }();
  return answer;
}

}  // namespace

std::string name(Isa isa) { return set_of(isa).name; }

bool has(Isa isa) { return allowed().has(isa) && cpu_has(isa) && refused(isa).empty(); }

bool has_fast_bf16_pairs() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Intel's take two cycles, as two multiply-adds in fp32 do. The kernels are compiled for VBMI too, which all others have.
  return has(Isa::avx512_bf16) && __builtin_cpu_supports("avx512vbmi") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

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
    if (!allowed().has(set.isa)) return "ROOFLINE_ISA does not allow " + isa_name;
    return refused(set.isa);
  }
  return "there is no instruction set '" + isa_name + "'";
}

}  // namespace roofline::cpu
