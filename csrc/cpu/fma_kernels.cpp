// Multiply-add chains in fixed registers, written in assembly: a C array of vectors is kept in memory by some compilers, which
// silently costs up to 65 % of the peak.
//
// Twelve chains (24 on AArch64) cover 2 (4) instructions per cycle at 4 to 6 cycles of latency. Nothing reaches memory inside the loop.
#include "cpu/fma_kernels.h"

#include "cpu/isa.h"

namespace roofline::cpu {
namespace {

#define ROOFLINE_12(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)

// A kernel of these pieces: how to broadcast the operands, to load and save a chain, and an odd (plus) and even (minus) step.
// Eight steps per turn of the loop, the rest one by one.
#define ROOFLINE_X86_KERNEL(name, type, factor, term, broadcast, load, save, plus, minus)                                                   \
  void name(const void* start, void* result, std::int64_t steps) {                                                                 \
    const type operands[3] = {factor, term, static_cast<type>(-(term))};                                                                       \
    std::int64_t turns = steps / 8, rest = steps % 8;                                                                               \
    asm volatile(broadcast ROOFLINE_EACH(load)                                                                                      \
                 "test %[turns], %[turns]\n jz 2f\n 1:\n"                                                                           \
                 plus minus plus minus plus minus plus minus                                                                       \
                 "dec %[turns]\n jnz 1b\n 2:\n"                                                                                     \
                 "test %[rest], %[rest]\n jz 4f\n 3:\n" plus "dec %[rest]\n jz 4f\n" minus "dec %[rest]\n jnz 3b\n 4:\n"            \
                 ROOFLINE_EACH(save) ROOFLINE_END                                                                                    \
                 : [turns] "+r"(turns), [rest] "+r"(rest)                                                                          \
                 : [start] "r"(start), [result] "r"(result), [x] "r"(operands), [y] "r"(operands + 1), [z] "r"(operands + 2)        \
                 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",         \
                   "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                                                            \
  }

constexpr FmaKernel kNone = {0, nullptr};

#if defined(__x86_64__) && defined(ROOFLINE_SCALAR)

// No FMA and no vectors: the chain times 1, plus or minus 15. Two instructions a step, one multiply and one add, 6 to 8 cycles
// after each other: twelve chains would just not do, so fifteen, and the addend comes from memory.
#define ROOFLINE_END ""
#define ROOFLINE_EACH(F) ROOFLINE_12(F) F(12) F(13) F(14)
#define ROOFLINE_LOAD32(i) "movss 4*" #i "(%[start]), %%xmm" #i "\n"
#define ROOFLINE_SAVE32(i) "movss %%xmm" #i ", 4*" #i "(%[result])\n"
#define ROOFLINE_MUL32(i) "mulss %%xmm15, %%xmm" #i "\n"
#define ROOFLINE_ADD32(i) "addss (%[y]), %%xmm" #i "\n"
#define ROOFLINE_SUB32(i) "addss (%[z]), %%xmm" #i "\n"
#define ROOFLINE_LOAD64(i) "movsd 8*" #i "(%[start]), %%xmm" #i "\n"
#define ROOFLINE_SAVE64(i) "movsd %%xmm" #i ", 8*" #i "(%[result])\n"
#define ROOFLINE_MUL64(i) "mulsd %%xmm15, %%xmm" #i "\n"
#define ROOFLINE_ADD64(i) "addsd (%[y]), %%xmm" #i "\n"
#define ROOFLINE_SUB64(i) "addsd (%[z]), %%xmm" #i "\n"
ROOFLINE_X86_KERNEL(fp32, float, 1.0f, 15.0f, "movss (%[x]), %%xmm15\n", ROOFLINE_LOAD32, ROOFLINE_SAVE32,
                    ROOFLINE_EACH(ROOFLINE_MUL32) ROOFLINE_EACH(ROOFLINE_ADD32), ROOFLINE_EACH(ROOFLINE_MUL32) ROOFLINE_EACH(ROOFLINE_SUB32))
ROOFLINE_X86_KERNEL(fp64, double, 1.0, 15.0, "movsd (%[x]), %%xmm15\n", ROOFLINE_LOAD64, ROOFLINE_SAVE64,
                    ROOFLINE_EACH(ROOFLINE_MUL64) ROOFLINE_EACH(ROOFLINE_ADD64), ROOFLINE_EACH(ROOFLINE_MUL64) ROOFLINE_EACH(ROOFLINE_SUB64))
#define ROOFLINE_FMA_TABLE {{15, fp64}, {15, fp32}, kNone, kNone}

#elif defined(__x86_64__)

#define ROOFLINE_END "vzeroupper\n"
#define ROOFLINE_EACH(F) ROOFLINE_12(F)
#if defined(__AVX512F__)
#define ROOFLINE_REG "zmm"
#define ROOFLINE_BYTES "64"
constexpr std::int64_t kBytes = 64;
#else
#define ROOFLINE_REG "ymm"
#define ROOFLINE_BYTES "32"
constexpr std::int64_t kBytes = 32;
#endif
#define ROOFLINE_LOAD(i) "vmovups " ROOFLINE_BYTES "*" #i "(%[start]), %%" ROOFLINE_REG #i "\n"
#define ROOFLINE_SAVE(i) "vmovups %%" ROOFLINE_REG #i ", " ROOFLINE_BYTES "*" #i "(%[result])\n"
#define ROOFLINE_PAIR(instruction, operand, i) instruction " %%" ROOFLINE_REG operand ", %%" ROOFLINE_REG "13, %%" ROOFLINE_REG #i "\n"
#define ROOFLINE_BROADCAST(instruction)                                                                                   \
  instruction " (%[x]), %%" ROOFLINE_REG "13\n" instruction " (%[y]), %%" ROOFLINE_REG "14\n" instruction " (%[z]), %%" ROOFLINE_REG "15\n"

#if !defined(__AVX512BF16__)

#define ROOFLINE_PLUS32(i) ROOFLINE_PAIR("vfmadd231ps", "14", i)
#define ROOFLINE_MINUS32(i) ROOFLINE_PAIR("vfmadd231ps", "15", i)
#define ROOFLINE_PLUS64(i) ROOFLINE_PAIR("vfmadd231pd", "14", i)
#define ROOFLINE_MINUS64(i) ROOFLINE_PAIR("vfmadd231pd", "15", i)
ROOFLINE_X86_KERNEL(fp32, float, 3.0f, 5.0f, ROOFLINE_BROADCAST("vbroadcastss"), ROOFLINE_LOAD, ROOFLINE_SAVE,
                    ROOFLINE_12(ROOFLINE_PLUS32), ROOFLINE_12(ROOFLINE_MINUS32))
ROOFLINE_X86_KERNEL(fp64, double, 3.0, 5.0, ROOFLINE_BROADCAST("vbroadcastsd"), ROOFLINE_LOAD, ROOFLINE_SAVE,
                    ROOFLINE_12(ROOFLINE_PLUS64), ROOFLINE_12(ROOFLINE_MINUS64))
#define ROOFLINE_FMA_TABLE {{12 * kBytes / 8, fp64}, {12 * kBytes / 4, fp32}, kNone, kNone}

#else

// Operands as bit patterns: pairs of bf16 3, 5, -5; fours of 3 (unsigned) and 5, -5 (signed bytes).
struct Bf16Pair {
  std::uint32_t bits;
  constexpr Bf16Pair operator-() const { return {bits ^ 0x80008000u}; }
};
struct Int8Four {
  std::uint32_t bits;
  constexpr Int8Four operator-() const { return {((~bits & 0x7F7F7F7Fu) + 0x01010101u) ^ (~bits & 0x80808080u)}; }
};
#define ROOFLINE_PLUS_BF16(i) ROOFLINE_PAIR("vdpbf16ps", "14", i)
#define ROOFLINE_MINUS_BF16(i) ROOFLINE_PAIR("vdpbf16ps", "15", i)
#define ROOFLINE_PLUS_INT8(i) ROOFLINE_PAIR("vpdpbusd", "14", i)
#define ROOFLINE_MINUS_INT8(i) ROOFLINE_PAIR("vpdpbusd", "15", i)
ROOFLINE_X86_KERNEL(bf16, Bf16Pair, Bf16Pair{0x40404040}, Bf16Pair{0x40A040A0}, ROOFLINE_BROADCAST("vpbroadcastd"), ROOFLINE_LOAD,
                    ROOFLINE_SAVE, ROOFLINE_12(ROOFLINE_PLUS_BF16), ROOFLINE_12(ROOFLINE_MINUS_BF16))
ROOFLINE_X86_KERNEL(int8, Int8Four, Int8Four{0x03030303}, Int8Four{0x05050505}, ROOFLINE_BROADCAST("vpbroadcastd"), ROOFLINE_LOAD,
                    ROOFLINE_SAVE, ROOFLINE_12(ROOFLINE_PLUS_INT8), ROOFLINE_12(ROOFLINE_MINUS_INT8))
static_assert((-Int8Four{0x05050505}).bits == 0xFBFBFBFBu && (-Bf16Pair{0x40A040A0}).bits == 0xC0A0C0A0u);
#define ROOFLINE_FMA_TABLE {kNone, kNone, {12 * kBytes / 4, bf16}, {12 * kBytes / 4, int8}}

#endif

#else  // AArch64

#define ROOFLINE_24(F) ROOFLINE_12(F) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23)
#if defined(ROOFLINE_SCALAR)
#define ROOFLINE_PREFIX32 "s"
#define ROOFLINE_PREFIX64 "d"
constexpr std::int64_t kLanes32 = 1, kLanes64 = 1;
#define ROOFLINE_STEP32P(i) "fmadd s" #i ", s29, s30, s" #i "\n"
#define ROOFLINE_STEP32M(i) "fmadd s" #i ", s29, s31, s" #i "\n"
#define ROOFLINE_STEP64P(i) "fmadd d" #i ", d29, d30, d" #i "\n"
#define ROOFLINE_STEP64M(i) "fmadd d" #i ", d29, d31, d" #i "\n"
#else
#define ROOFLINE_PREFIX32 "q"
#define ROOFLINE_PREFIX64 "q"
constexpr std::int64_t kLanes32 = 4, kLanes64 = 2;
#define ROOFLINE_STEP32P(i) "fmla v" #i ".4s, v29.4s, v30.4s\n"
#define ROOFLINE_STEP32M(i) "fmla v" #i ".4s, v29.4s, v31.4s\n"
#define ROOFLINE_STEP64P(i) "fmla v" #i ".2d, v29.2d, v30.2d\n"
#define ROOFLINE_STEP64M(i) "fmla v" #i ".2d, v29.2d, v31.2d\n"
#endif
#define ROOFLINE_LOAD32(i) "ldr " ROOFLINE_PREFIX32 #i ", [%[start]], #%c[width]\n"
#define ROOFLINE_SAVE32(i) "str " ROOFLINE_PREFIX32 #i ", [%[result]], #%c[width]\n"
#define ROOFLINE_LOAD64(i) "ldr " ROOFLINE_PREFIX64 #i ", [%[start]], #%c[width]\n"
#define ROOFLINE_SAVE64(i) "str " ROOFLINE_PREFIX64 #i ", [%[result]], #%c[width]\n"
#define ROOFLINE_ARM_KERNEL(name, type, broadcast, lanes, load, save, plus, minus)                                                  \
  void name(const void* start, void* result, std::int64_t steps) {                                                                 \
    const type operands[3] = {3, 5, -5};                                                                                            \
    std::int64_t turns = steps / 8, rest = steps % 8;                                                                               \
    asm volatile("ld1r {v29." broadcast "}, [%[x]]\n ld1r {v30." broadcast "}, [%[y]]\n ld1r {v31." broadcast "}, [%[z]]\n"         \
                 ROOFLINE_24(load)                                                                                                  \
                 "cbz %[turns], 2f\n 1:\n"                                                                                          \
                 plus minus plus minus plus minus plus minus                                                                       \
                 "subs %[turns], %[turns], #1\n b.ne 1b\n 2:\n"                                                                     \
                 "cbz %[rest], 4f\n 3:\n" plus "subs %[rest], %[rest], #1\n b.eq 4f\n" minus "subs %[rest], %[rest], #1\n b.ne 3b\n 4:\n" \
                 ROOFLINE_24(save)                                                                                                  \
                 : [turns] "+r"(turns), [rest] "+r"(rest), [start] "+r"(start), [result] "+r"(result)                              \
                 : [x] "r"(operands), [y] "r"(operands + 1), [z] "r"(operands + 2), [width] "i"(sizeof(type) * lanes)              \
                 : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",   \
                   "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v29", "v30", "v31");                            \
  }
ROOFLINE_ARM_KERNEL(fp32, float, "4s", kLanes32, ROOFLINE_LOAD32, ROOFLINE_SAVE32, ROOFLINE_24(ROOFLINE_STEP32P), ROOFLINE_24(ROOFLINE_STEP32M))
ROOFLINE_ARM_KERNEL(fp64, double, "2d", kLanes64, ROOFLINE_LOAD64, ROOFLINE_SAVE64, ROOFLINE_24(ROOFLINE_STEP64P), ROOFLINE_24(ROOFLINE_STEP64M))
#define ROOFLINE_FMA_TABLE {{24 * kLanes64, fp64}, {24 * kLanes32, fp32}, kNone, kNone}

#endif

}  // namespace

extern const FmaKernels ROOFLINE_TABLE(fma) = ROOFLINE_FMA_TABLE;

}  // namespace roofline::cpu
