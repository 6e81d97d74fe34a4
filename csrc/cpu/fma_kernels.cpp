// Multiply-add chains in fixed registers, written in assembly: a C array of vectors is kept in memory by some compilers, which
// silently costs up to 65 % of the peak.
//
// Twelve chains (24 on AArch64) cover 2 (4) instructions per cycle at 4 to 5 cycles of latency. Fifteen cover the 6 of a dot product
// of bf16 on Zen 5, which twelve leave 7 % short, and pattern fma_add, whose step is 4 + 3 cycles on cores that issue two
// multiply-adds and two additions at once. Nothing reaches memory inside the loop.
#include "cpu/fma_kernels.h"

#include "cpu/isa.h"

namespace roofline::cpu {
namespace {

#define ROOFLINE_12(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define ROOFLINE_15(F) ROOFLINE_12(F) F(12) F(13) F(14)
// Two instructions a step: the first on chain i, the second half a round away, so that both kinds of pipes have work all the time
// and neither waits for the other's burst. Some chains so do the second before the first, and what a step adds is the same.
#define ROOFLINE_SKEWED_12(F) F(0, 6) F(1, 7) F(2, 8) F(3, 9) F(4, 10) F(5, 11) F(6, 0) F(7, 1) F(8, 2) F(9, 3) F(10, 4) F(11, 5)
#define ROOFLINE_SKEWED_15(F)                                                                                                   \
  F(0, 7) F(1, 8) F(2, 9) F(3, 10) F(4, 11) F(5, 12) F(6, 13) F(7, 14) F(8, 0) F(9, 1) F(10, 2) F(11, 3) F(12, 4) F(13, 5) F(14, 6)

#if defined(__x86_64__)
// A loop of these pieces: how to broadcast the operands, to load and save a chain, an odd (plus) and even (minus) step, and a beat:
// what else comes after each step, once more in a turn. Eight steps per turn of the loop, the rest one by one.
#define ROOFLINE_X86_LOOP(name, beats, beat_more, type, factor, term, broadcast, load, save, plus, minus)                       \
  void name(const void* start, void* result, std::int64_t steps, const FmaOperands*) {                                          \
    const type operands[3] = {factor, term, static_cast<type>(-(term))};                                                        \
    std::int64_t turns = steps / 8, rest = steps % 8, beat = 1;                                                                 \
    asm volatile(broadcast load                                                                                                 \
                 "test %[turns], %[turns]\n jz 2f\n .p2align 6\n 1:\n"                                                          \
                 plus beats minus beats plus beats minus beats plus beats minus beats plus beats minus beats beat_more          \
                 "dec %[turns]\n jnz 1b\n 2:\n"                                                                                 \
                 "test %[rest], %[rest]\n jz 4f\n 3:\n" plus "dec %[rest]\n jz 4f\n" minus "dec %[rest]\n jnz 3b\n 4:\n"        \
                 save ROOFLINE_END                                                                                              \
                 : [turns] "+r"(turns), [rest] "+r"(rest), [beat] "+r"(beat)                                                    \
                 : [start] "r"(start), [result] "r"(result), [x] "r"(operands), [y] "r"(operands + 1), [z] "r"(operands + 2)    \
                 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",     \
                   "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" ROOFLINE_MORE_CLOBBERS);                                         \
  }
#if defined(__AVX512F__)
#define ROOFLINE_MORE_CLOBBERS , "xmm29", "xmm30", "xmm31"
#else
#define ROOFLINE_MORE_CLOBBERS
#endif
// A multiplication of 32 bits takes 3 cycles, and on no core fewer. (Additions of immediates can be folded at rename.)
#define ROOFLINE_BEAT "imul %k[beat], %k[beat]\n"
#define ROOFLINE_BEATS_2 ROOFLINE_BEAT ROOFLINE_BEAT
#define ROOFLINE_BEATS_3 ROOFLINE_BEATS_2 ROOFLINE_BEAT
#define ROOFLINE_BEATS_4 ROOFLINE_BEATS_2 ROOFLINE_BEATS_2
#define ROOFLINE_BEATS_5 ROOFLINE_BEATS_4 ROOFLINE_BEAT
#define ROOFLINE_BEATS_10 ROOFLINE_BEATS_5 ROOFLINE_BEATS_5
// The kernel, and its clocks with `few` and `many` beats a step: 96 instructions, two a cycle, last 48 cycles, 2 beats a step 51.
#define ROOFLINE_X86_KERNEL(name, few, many, ...)                              \
  ROOFLINE_X86_LOOP(name, "", "", __VA_ARGS__)                                 \
  ROOFLINE_X86_LOOP(name##_few, ROOFLINE_BEATS_##few, ROOFLINE_BEAT, __VA_ARGS__) \
  ROOFLINE_X86_LOOP(name##_many, ROOFLINE_BEATS_##many, ROOFLINE_BEAT, __VA_ARGS__)
#define ROOFLINE_X86_ENTRY(block, name, few, many) \
  { block, name, nullptr, nullptr, {{name##_few, 8, 3 * (8 * few + 1)}, {name##_many, 8, 3 * (8 * many + 1)}} }
#endif

constexpr FmaKernel kNone = {0, nullptr};

#if defined(__x86_64__) && defined(ROOFLINE_SCALAR)

// No FMA and no vectors: the chain times 1, plus or minus 15. Two instructions a step, one multiply and one add, of 6 to 8 cycles.
#define ROOFLINE_END ""
#define ROOFLINE_SCALAR_KERNEL(name, type, suffix, width)                                                                    \
  ROOFLINE_X86_KERNEL(name, 2, 4, type, type{1}, type{15}, "movs" suffix " (%[x]), %%xmm15\n movs" suffix " (%[y]), %%xmm14\n",    \
                      ROOFLINE_12(ROOFLINE_LOAD_##width), ROOFLINE_12(ROOFLINE_SAVE_##width),                                \
                      ROOFLINE_SKEWED_12(ROOFLINE_PLUS_##width), ROOFLINE_SKEWED_12(ROOFLINE_MINUS_##width))
#define ROOFLINE_LOAD_4(i) "movss 4*" #i "(%[start]), %%xmm" #i "\n"
#define ROOFLINE_SAVE_4(i) "movss %%xmm" #i ", 4*" #i "(%[result])\n"
#define ROOFLINE_PLUS_4(i, j) "mulss %%xmm15, %%xmm" #i "\n addss %%xmm14, %%xmm" #j "\n"
#define ROOFLINE_MINUS_4(i, j) "mulss %%xmm15, %%xmm" #i "\n subss %%xmm14, %%xmm" #j "\n"
#define ROOFLINE_LOAD_8(i) "movsd 8*" #i "(%[start]), %%xmm" #i "\n"
#define ROOFLINE_SAVE_8(i) "movsd %%xmm" #i ", 8*" #i "(%[result])\n"
#define ROOFLINE_PLUS_8(i, j) "mulsd %%xmm15, %%xmm" #i "\n addsd %%xmm14, %%xmm" #j "\n"
#define ROOFLINE_MINUS_8(i, j) "mulsd %%xmm15, %%xmm" #i "\n subsd %%xmm14, %%xmm" #j "\n"
ROOFLINE_SCALAR_KERNEL(fp32, float, "s", 4)
ROOFLINE_SCALAR_KERNEL(fp64, double, "d", 8)
#define ROOFLINE_FMA_TABLE \
  {ROOFLINE_X86_ENTRY(12, fp64, 2, 4), ROOFLINE_X86_ENTRY(12, fp32, 2, 4), kNone, kNone, kNone, kNone, kNone}

#elif defined(__x86_64__)

#define ROOFLINE_END "vzeroupper\n"
#if defined(__AVX512F__)
#define ROOFLINE_REG "%%zmm"
#define ROOFLINE_BYTES "64"
constexpr std::int64_t kBytes = 64;
#else
#define ROOFLINE_REG "%%ymm"
#define ROOFLINE_BYTES "32"
constexpr std::int64_t kBytes = 32;
#endif
#define ROOFLINE_LOAD(i) "vmovups " ROOFLINE_BYTES "*" #i "(%[start]), " ROOFLINE_REG #i "\n"
#define ROOFLINE_SAVE(i) "vmovups " ROOFLINE_REG #i ", " ROOFLINE_BYTES "*" #i "(%[result])\n"
#define ROOFLINE_PAIR(instruction, operand, i) instruction " " ROOFLINE_REG operand ", " ROOFLINE_REG "13, " ROOFLINE_REG #i "\n"
#define ROOFLINE_BROADCAST(instruction) \
  instruction " (%[x]), " ROOFLINE_REG "13\n" instruction " (%[y]), " ROOFLINE_REG "14\n"                                     \
  instruction " (%[z]), " ROOFLINE_REG "15\n"
#define ROOFLINE_VECTOR_KERNEL(name, few, many, type, factor, term, broadcast, plus, minus)                           \
  ROOFLINE_X86_KERNEL(name, few, many, type, factor, term, ROOFLINE_BROADCAST(broadcast), ROOFLINE_12(ROOFLINE_LOAD), \
                      ROOFLINE_12(ROOFLINE_SAVE), ROOFLINE_12(plus), ROOFLINE_12(minus))

// Pairs of 3, and of 5 and -5.
struct Int16Pair {
  std::uint32_t bits;
  constexpr Int16Pair operator-() const { return {((~bits & 0x7FFF7FFFu) + 0x00010001u) ^ (~bits & 0x80008000u)}; }
};
static_assert((-Int16Pair{0x00050005}).bits == 0xFFFBFFFBu);
#define ROOFLINE_INT16_KERNEL(plus, minus) \
  ROOFLINE_VECTOR_KERNEL(int16, 2, 4, Int16Pair, Int16Pair{0x00030003}, Int16Pair{0x00050005}, "vpbroadcastd", plus, minus)
#define ROOFLINE_INT16_ENTRY ROOFLINE_X86_ENTRY(12 * kBytes / 4, int16, 2, 4)

#if defined(__AVX512FP16__)

struct Fp16 {
  std::uint16_t bits;
  constexpr Fp16 operator-() const { return {static_cast<std::uint16_t>(bits ^ 0x8000u)}; }
};
#define ROOFLINE_PLUS_FP16(i) ROOFLINE_PAIR("vfmadd231ph", "14", i)
#define ROOFLINE_MINUS_FP16(i) ROOFLINE_PAIR("vfmadd231ph", "15", i)
ROOFLINE_VECTOR_KERNEL(fp16, 2, 4, Fp16, Fp16{0x4200}, Fp16{0x4500}, "vpbroadcastw", ROOFLINE_PLUS_FP16,
                       ROOFLINE_MINUS_FP16)  // 3, 5
#define ROOFLINE_FMA_TABLE {kNone, kNone, ROOFLINE_X86_ENTRY(12 * kBytes / 2, fp16, 2, 4), kNone, kNone, kNone, kNone}

#elif defined(__AVX512BF16__)

struct Bf16Pair {
  std::uint32_t bits;
  constexpr Bf16Pair operator-() const { return {bits ^ 0x80008000u}; }
};
#define ROOFLINE_PLUS_BF16(i) "vdpbf16ps %%zmm30, %%zmm29, %%zmm" #i "\n"
#define ROOFLINE_MINUS_BF16(i) "vdpbf16ps %%zmm31, %%zmm29, %%zmm" #i "\n"
// Some cores do one a cycle, others one in two.
ROOFLINE_X86_KERNEL(bf16, 5, 10, Bf16Pair, Bf16Pair{0x40404040}, Bf16Pair{0x40A040A0},
                    "vpbroadcastd (%[x]), %%zmm29\n vpbroadcastd (%[y]), %%zmm30\n vpbroadcastd (%[z]), %%zmm31\n",
                    ROOFLINE_15(ROOFLINE_LOAD), ROOFLINE_15(ROOFLINE_SAVE), ROOFLINE_15(ROOFLINE_PLUS_BF16),
                    ROOFLINE_15(ROOFLINE_MINUS_BF16))  // 3, 5
static_assert((-Bf16Pair{0x40A040A0}).bits == 0xC0A0C0A0u);
#define ROOFLINE_FMA_TABLE {kNone, kNone, kNone, ROOFLINE_X86_ENTRY(15 * kBytes / 4, bf16, 5, 10), kNone, kNone, kNone}

#elif defined(__AVX512VNNI__)

// Fours of 3 (unsigned), and of 5 and -5 (signed bytes).
struct Int8Four {
  std::uint32_t bits;
  constexpr Int8Four operator-() const { return {((~bits & 0x7F7F7F7Fu) + 0x01010101u) ^ (~bits & 0x80808080u)}; }
};
#define ROOFLINE_PLUS_INT8(i) ROOFLINE_PAIR("vpdpbusd", "14", i)
#define ROOFLINE_MINUS_INT8(i) ROOFLINE_PAIR("vpdpbusd", "15", i)
ROOFLINE_VECTOR_KERNEL(int8, 2, 4, Int8Four, Int8Four{0x03030303}, Int8Four{0x05050505}, "vpbroadcastd", ROOFLINE_PLUS_INT8,
                       ROOFLINE_MINUS_INT8)
static_assert((-Int8Four{0x05050505}).bits == 0xFBFBFBFBu);
#define ROOFLINE_PLUS_INT16(i) ROOFLINE_PAIR("vpdpwssd", "14", i)
#define ROOFLINE_MINUS_INT16(i) ROOFLINE_PAIR("vpdpwssd", "15", i)
ROOFLINE_INT16_KERNEL(ROOFLINE_PLUS_INT16, ROOFLINE_MINUS_INT16)
#define ROOFLINE_FMA_TABLE \
  {kNone, kNone, kNone, kNone, ROOFLINE_X86_ENTRY(12 * kBytes / 4, int8, 2, 4), kNone, kNone, ROOFLINE_INT16_ENTRY}

#else

#define ROOFLINE_PLUS32(i) ROOFLINE_PAIR("vfmadd231ps", "14", i)
#define ROOFLINE_MINUS32(i) ROOFLINE_PAIR("vfmadd231ps", "15", i)
#define ROOFLINE_PLUS64(i) ROOFLINE_PAIR("vfmadd231pd", "14", i)
#define ROOFLINE_MINUS64(i) ROOFLINE_PAIR("vfmadd231pd", "15", i)
ROOFLINE_VECTOR_KERNEL(fp32, 2, 4, float, 3.0f, 5.0f, "vbroadcastss", ROOFLINE_PLUS32, ROOFLINE_MINUS32)
ROOFLINE_VECTOR_KERNEL(fp64, 2, 4, double, 3.0, 5.0, "vbroadcastsd", ROOFLINE_PLUS64, ROOFLINE_MINUS64)
// Two instructions a step, by way of one more register.
#define ROOFLINE_ADD_PAIRS(operand, i) \
  ROOFLINE_PAIR("vpmaddwd", operand, 12) "vpaddd " ROOFLINE_REG "12, " ROOFLINE_REG #i ", " ROOFLINE_REG #i "\n"
#define ROOFLINE_PLUS_INT16(i) ROOFLINE_ADD_PAIRS("14", i)
#define ROOFLINE_MINUS_INT16(i) ROOFLINE_ADD_PAIRS("15", i)
ROOFLINE_INT16_KERNEL(ROOFLINE_PLUS_INT16, ROOFLINE_MINUS_INT16)

// One operand for all three uses leaves fifteen registers for chains.
#define ROOFLINE_BOTH(multiply_add, add, i, j)                                          \
  multiply_add " " ROOFLINE_REG "15, " ROOFLINE_REG "15, " ROOFLINE_REG #i "\n"           \
  add " " ROOFLINE_REG "15, " ROOFLINE_REG #j ", " ROOFLINE_REG #j "\n"
#define ROOFLINE_PLUS32_ADD(i, j) ROOFLINE_BOTH("vfmadd231ps", "vsubps", i, j)
#define ROOFLINE_MINUS32_ADD(i, j) ROOFLINE_BOTH("vfnmadd231ps", "vaddps", i, j)
#define ROOFLINE_PLUS64_ADD(i, j) ROOFLINE_BOTH("vfmadd231pd", "vsubpd", i, j)
#define ROOFLINE_MINUS64_ADD(i, j) ROOFLINE_BOTH("vfnmadd231pd", "vaddpd", i, j)
ROOFLINE_X86_KERNEL(fp32_add, 3, 5, float, 3.0f, 0.0f, "vbroadcastss (%[x]), " ROOFLINE_REG "15\n", ROOFLINE_15(ROOFLINE_LOAD),
                    ROOFLINE_15(ROOFLINE_SAVE), ROOFLINE_SKEWED_15(ROOFLINE_PLUS32_ADD), ROOFLINE_SKEWED_15(ROOFLINE_MINUS32_ADD))
ROOFLINE_X86_KERNEL(fp64_add, 3, 5, double, 3.0, 0.0, "vbroadcastsd (%[x]), " ROOFLINE_REG "15\n", ROOFLINE_15(ROOFLINE_LOAD),
                    ROOFLINE_15(ROOFLINE_SAVE), ROOFLINE_SKEWED_15(ROOFLINE_PLUS64_ADD), ROOFLINE_SKEWED_15(ROOFLINE_MINUS64_ADD))
#define ROOFLINE_FMA_TABLE \
  {ROOFLINE_X86_ENTRY(12 * kBytes / 8, fp64, 2, 4),     ROOFLINE_X86_ENTRY(12 * kBytes / 4, fp32, 2, 4), kNone, kNone, kNone, \
   ROOFLINE_X86_ENTRY(15 * kBytes / 8, fp64_add, 3, 5), ROOFLINE_X86_ENTRY(15 * kBytes / 4, fp32_add, 3, 5), ROOFLINE_INT16_ENTRY}

#endif

#else  // AArch64

// Each operand fills a register. Where an instruction takes two steps at once (bfmmla, smmla: a plus and a minus), an odd last step
// has an operand of its own, whose second half is 0.
template <class T, int Lanes>
struct Operands {
  alignas(16) T x[Lanes];
  alignas(16) T y[Lanes];
  alignas(16) T z[Lanes];
};

#define ROOFLINE_24(F)                                                                                                       \
  ROOFLINE_12(F) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23)
#define ROOFLINE_ARM_LOOP(name, beats, operands, steps_at_once, reg, width, plus, minus, last)                                \
  void name(const void* start, void* result, std::int64_t steps, const FmaOperands*) {                                      \
    std::int64_t turns = steps / (steps_at_once) / 8, rest = steps / (steps_at_once) % 8, odd = steps % (steps_at_once);     \
    std::int64_t beat = 1;                                                                                                   \
    asm volatile("ldr q29, [%[x]]\n ldr q30, [%[y]]\n ldr q31, [%[z]]\n" ROOFLINE_24(ROOFLINE_LOAD_##reg)                    \
                 "cbz %[turns], 2f\n 1:\n"                                                                                   \
                 ROOFLINE_24(plus) beats ROOFLINE_24(minus) beats ROOFLINE_24(plus) beats ROOFLINE_24(minus) beats           \
                 ROOFLINE_24(plus) beats ROOFLINE_24(minus) beats ROOFLINE_24(plus) beats ROOFLINE_24(minus) beats           \
                 "subs %[turns], %[turns], #1\n b.ne 1b\n 2:\n"                                                              \
                 "cbz %[rest], 4f\n 3:\n" ROOFLINE_24(plus) "subs %[rest], %[rest], #1\n b.eq 4f\n"                          \
                 ROOFLINE_24(minus) "subs %[rest], %[rest], #1\n b.ne 3b\n 4:\n"                                             \
                 "cbz %[odd], 5f\n" ROOFLINE_24(last) "5:\n"                                                                 \
                 ROOFLINE_24(ROOFLINE_SAVE_##reg)                                                                            \
                 : [turns] "+r"(turns), [rest] "+r"(rest), [odd] "+r"(odd), [start] "+r"(start), [result] "+r"(result),      \
                   [beat] "+r"(beat)                                                                                         \
                 : [x] "r"(operands.x), [y] "r"(operands.y), [z] "r"(operands.z), [bytes] "i"(width)                         \
                 : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",    \
                   "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v29", "v30", "v31");               \
  }
// Additions of registers take one cycle everywhere; multiplications between two and four. 192 instructions, four a cycle, last 48.
#define ROOFLINE_BEAT "add %[beat], %[beat], %[beat]\n"
#define ROOFLINE_BEATS_7 ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT
#define ROOFLINE_BEATS_13 ROOFLINE_BEATS_7 ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT ROOFLINE_BEAT
#define ROOFLINE_BEATS_26 ROOFLINE_BEATS_13 ROOFLINE_BEATS_13
#define ROOFLINE_ARM_KERNEL(name, few, many, ...)                 \
  ROOFLINE_ARM_LOOP(name, "", __VA_ARGS__)                        \
  ROOFLINE_ARM_LOOP(name##_few, ROOFLINE_BEATS_##few, __VA_ARGS__) \
  ROOFLINE_ARM_LOOP(name##_many, ROOFLINE_BEATS_##many, __VA_ARGS__)
#define ROOFLINE_ARM_ENTRY(block, name, few, many, steps_at_once) \
  { block, name, nullptr, nullptr, {{name##_few, 8 * steps_at_once, 8 * few}, {name##_many, 8 * steps_at_once, 8 * many}} }
#define ROOFLINE_LOAD_s(i) "ldr s" #i ", [%[start]], #%c[bytes]\n"
#define ROOFLINE_SAVE_s(i) "str s" #i ", [%[result]], #%c[bytes]\n"
#define ROOFLINE_LOAD_d(i) "ldr d" #i ", [%[start]], #%c[bytes]\n"
#define ROOFLINE_SAVE_d(i) "str d" #i ", [%[result]], #%c[bytes]\n"
#define ROOFLINE_LOAD_q(i) "ldr q" #i ", [%[start]], #%c[bytes]\n"
#define ROOFLINE_SAVE_q(i) "str q" #i ", [%[result]], #%c[bytes]\n"
#define ROOFLINE_NO_STEP(i) ""

#if defined(ROOFLINE_SCALAR)

constexpr Operands<float, 4> k32 = {{3}, {5}, {-5}};
constexpr Operands<double, 2> k64 = {{3}, {5}, {-5}};
#define ROOFLINE_PLUS32(i) "fmadd s" #i ", s29, s30, s" #i "\n"
#define ROOFLINE_MINUS32(i) "fmadd s" #i ", s29, s31, s" #i "\n"
#define ROOFLINE_PLUS64(i) "fmadd d" #i ", d29, d30, d" #i "\n"
#define ROOFLINE_MINUS64(i) "fmadd d" #i ", d29, d31, d" #i "\n"
#define ROOFLINE_PLUS32_ADD(i) "fmadd s" #i ", s29, s29, s" #i "\n fsub s" #i ", s" #i ", s29\n"
#define ROOFLINE_MINUS32_ADD(i) "fmsub s" #i ", s29, s29, s" #i "\n fadd s" #i ", s" #i ", s29\n"
#define ROOFLINE_PLUS64_ADD(i) "fmadd d" #i ", d29, d29, d" #i "\n fsub d" #i ", d" #i ", d29\n"
#define ROOFLINE_MINUS64_ADD(i) "fmsub d" #i ", d29, d29, d" #i "\n fadd d" #i ", d" #i ", d29\n"
ROOFLINE_ARM_KERNEL(fp32, 7, 13, k32, 1, s, 4, ROOFLINE_PLUS32, ROOFLINE_MINUS32, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp64, 7, 13, k64, 1, d, 8, ROOFLINE_PLUS64, ROOFLINE_MINUS64, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp32_add, 13, 26, k32, 1, s, 4, ROOFLINE_PLUS32_ADD, ROOFLINE_MINUS32_ADD, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp64_add, 13, 26, k64, 1, d, 8, ROOFLINE_PLUS64_ADD, ROOFLINE_MINUS64_ADD, ROOFLINE_NO_STEP)
#define ROOFLINE_FMA_TABLE                                                                                     \
  {ROOFLINE_ARM_ENTRY(24, fp64, 7, 13, 1),      ROOFLINE_ARM_ENTRY(24, fp32, 7, 13, 1), kNone, kNone, kNone, \
   ROOFLINE_ARM_ENTRY(24, fp64_add, 13, 26, 1), ROOFLINE_ARM_ENTRY(24, fp32_add, 13, 26, 1)}

#elif defined(__ARM_FEATURE_MATMUL_INT8)

// A register is a 2 x 2 tile of accumulators; per instruction each adds 4 (bf16) or 8 (int8) products: two steps.
constexpr Operands<std::uint16_t, 8> kBf16 = {{0x4040, 0x4040, 0x4040, 0x4040, 0x4040, 0x4040, 0x4040, 0x4040},
                                              {0x40A0, 0x40A0, 0xC0A0, 0xC0A0, 0x40A0, 0x40A0, 0xC0A0, 0xC0A0},
                                              {0x40A0, 0x40A0, 0, 0, 0x40A0, 0x40A0, 0, 0}};
constexpr Operands<std::int8_t, 16> kInt8 = {{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
                                             {5, 5, 5, 5, -5, -5, -5, -5, 5, 5, 5, 5, -5, -5, -5, -5},
                                             {5, 5, 5, 5, 0, 0, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0}};
#define ROOFLINE_BOTH_BF16(i) "bfmmla v" #i ".4s, v29.8h, v30.8h\n"
#define ROOFLINE_LAST_BF16(i) "bfmmla v" #i ".4s, v29.8h, v31.8h\n"
#define ROOFLINE_BOTH_INT8(i) "smmla v" #i ".4s, v29.16b, v30.16b\n"
#define ROOFLINE_LAST_INT8(i) "smmla v" #i ".4s, v29.16b, v31.16b\n"
ROOFLINE_ARM_KERNEL(bf16, 13, 26, kBf16, 2, q, 16, ROOFLINE_BOTH_BF16, ROOFLINE_BOTH_BF16, ROOFLINE_LAST_BF16)
ROOFLINE_ARM_KERNEL(int8, 13, 26, kInt8, 2, q, 16, ROOFLINE_BOTH_INT8, ROOFLINE_BOTH_INT8, ROOFLINE_LAST_INT8)
#define ROOFLINE_FMA_TABLE \
  {kNone, kNone, kNone, ROOFLINE_ARM_ENTRY(24 * 4, bf16, 13, 26, 2), ROOFLINE_ARM_ENTRY(24 * 4, int8, 13, 26, 2), kNone, kNone}

#elif defined(__ARM_FEATURE_DOTPROD)

constexpr Operands<std::uint16_t, 8> kFp16 = {{0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200},
                                              {0x4500, 0x4500, 0x4500, 0x4500, 0x4500, 0x4500, 0x4500, 0x4500},
                                              {0xC500, 0xC500, 0xC500, 0xC500, 0xC500, 0xC500, 0xC500, 0xC500}};
constexpr Operands<std::int8_t, 16> kInt8 = {{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
                                             {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
                                             {-5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5}};
#define ROOFLINE_PLUS16(i) "fmla v" #i ".8h, v29.8h, v30.8h\n"
#define ROOFLINE_MINUS16(i) "fmla v" #i ".8h, v29.8h, v31.8h\n"
#define ROOFLINE_PLUS_INT8(i) "sdot v" #i ".4s, v29.16b, v30.16b\n"
#define ROOFLINE_MINUS_INT8(i) "sdot v" #i ".4s, v29.16b, v31.16b\n"
ROOFLINE_ARM_KERNEL(fp16, 7, 13, kFp16, 1, q, 16, ROOFLINE_PLUS16, ROOFLINE_MINUS16, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(int8, 7, 13, kInt8, 1, q, 16, ROOFLINE_PLUS_INT8, ROOFLINE_MINUS_INT8, ROOFLINE_NO_STEP)
#define ROOFLINE_FMA_TABLE \
  {kNone, kNone, ROOFLINE_ARM_ENTRY(24 * 8, fp16, 7, 13, 1), kNone, ROOFLINE_ARM_ENTRY(24 * 4, int8, 7, 13, 1), kNone, kNone}

#else

constexpr Operands<float, 4> k32 = {{3, 3, 3, 3}, {5, 5, 5, 5}, {-5, -5, -5, -5}};
constexpr Operands<double, 2> k64 = {{3, 3}, {5, 5}, {-5, -5}};
#define ROOFLINE_PLUS32(i) "fmla v" #i ".4s, v29.4s, v30.4s\n"
#define ROOFLINE_MINUS32(i) "fmla v" #i ".4s, v29.4s, v31.4s\n"
#define ROOFLINE_PLUS64(i) "fmla v" #i ".2d, v29.2d, v30.2d\n"
#define ROOFLINE_MINUS64(i) "fmla v" #i ".2d, v29.2d, v31.2d\n"
#define ROOFLINE_PLUS32_ADD(i) "fmla v" #i ".4s, v29.4s, v29.4s\n fsub v" #i ".4s, v" #i ".4s, v29.4s\n"
#define ROOFLINE_MINUS32_ADD(i) "fmls v" #i ".4s, v29.4s, v29.4s\n fadd v" #i ".4s, v" #i ".4s, v29.4s\n"
#define ROOFLINE_PLUS64_ADD(i) "fmla v" #i ".2d, v29.2d, v29.2d\n fsub v" #i ".2d, v" #i ".2d, v29.2d\n"
#define ROOFLINE_MINUS64_ADD(i) "fmls v" #i ".2d, v29.2d, v29.2d\n fadd v" #i ".2d, v" #i ".2d, v29.2d\n"
ROOFLINE_ARM_KERNEL(fp32, 7, 13, k32, 1, q, 16, ROOFLINE_PLUS32, ROOFLINE_MINUS32, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp64, 7, 13, k64, 1, q, 16, ROOFLINE_PLUS64, ROOFLINE_MINUS64, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp32_add, 13, 26, k32, 1, q, 16, ROOFLINE_PLUS32_ADD, ROOFLINE_MINUS32_ADD, ROOFLINE_NO_STEP)
ROOFLINE_ARM_KERNEL(fp64_add, 13, 26, k64, 1, q, 16, ROOFLINE_PLUS64_ADD, ROOFLINE_MINUS64_ADD, ROOFLINE_NO_STEP)
#define ROOFLINE_FMA_TABLE                                                                                             \
  {ROOFLINE_ARM_ENTRY(24 * 2, fp64, 7, 13, 1),      ROOFLINE_ARM_ENTRY(24 * 4, fp32, 7, 13, 1), kNone, kNone, kNone, \
   ROOFLINE_ARM_ENTRY(24 * 2, fp64_add, 13, 26, 1), ROOFLINE_ARM_ENTRY(24 * 4, fp32_add, 13, 26, 1)}

#endif

#endif

}  // namespace

extern const FmaKernels ROOFLINE_TABLE(fma) = ROOFLINE_FMA_TABLE;

}  // namespace roofline::cpu
