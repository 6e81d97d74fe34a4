// fma on a CPU: blocks of chains, handed to the threads in equal contiguous parts.
#include "ops/fma.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/stopwatch.h"
#include "cpu/device.h"
#include "cpu/fma_kernels.h"
#include "cpu/kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

using ops::Fma;

const FmaKernel& of(const FmaKernels& table, const Fma& problem) {
  static const FmaKernel none = {0, nullptr};
  if (problem.pattern == Fma::Pattern::fma_add)
    return problem.dtype == DType::fp64 ? table.fp64_add : problem.dtype == DType::fp32 ? table.fp32_add : none;
  switch (problem.dtype) {
    case DType::fp64: return table.fp64;
    case DType::fp16: return table.fp16;
    case DType::bf16: return table.bf16;
    case DType::int8: return table.int8;
    case DType::int16: return table.int16;
    default: return table.fp32;
  }
}

// What rows, and columns, may each take of L1: 16 KiB of 48, and a third of a smaller one.
std::int64_t in_l1(const Device& device) { return std::min<std::int64_t>(16 << 10, device.caches().l1_bytes / 3); }

// The clock of the cores in the kernel's loop: every reading is a lower bound, and an interrupt only lengthens one. The largest of
// a thread counts, and of all threads the mean: theirs are the cycles that a rate is made of.
double clock_hz(Device& device, const FmaKernel& kernel, const std::vector<FmaOperands>& operands) {
  constexpr double kMeasure_s = 2e-3;
  constexpr std::int64_t kTurns = 4096;  // 50 us and more, of which reading the time is little
  std::vector<double> best(device.threads());
  const Pool::Pinned pinned(device.pool());
  device.pool().run([&](int worker) {
    alignas(64) char start[kWidestFmaBlockBytes] = {}, result[kWidestFmaBlockBytes];
    if (kernel.begin) kernel.begin();
    for (const FmaClock& clock : kernel.clocks)
      for (const Stopwatch all; all.seconds() < kMeasure_s;) {
        const Stopwatch watch;
        clock.run(start, result, kTurns * clock.steps, operands.empty() ? nullptr : &operands[worker]);
        const double seconds = watch.seconds();
        best[worker] = std::max(best[worker], static_cast<double>(kTurns) * clock.cycles / seconds);
      }
    if (kernel.end) kernel.end();
  });
  return std::accumulate(best.begin(), best.end(), 0.0) / static_cast<double>(best.size());
}

// operands: of each thread, or empty; `memory` is theirs.
Bound bound(const Fma& problem, Device& device, const FmaKernel& chosen, const std::string& implementation, const std::string& isa,
            const std::vector<FmaOperands>& operands = {}, const std::shared_ptr<void>& memory = nullptr) {
  const std::int64_t element = size_bytes(Fma::accumulator(problem.dtype));
  const std::int64_t blocks = (problem.chains + chosen.block - 1) / chosen.block;
  Bound bound = planned(implementation + "/" + isa, device);
  bound.plan.set("isa", isa);
  bound.plan.set("block", chosen.block);  // chains is best a multiple of block x threads: a part of a block costs a whole one
  bound.steps.push_back({"fma", [=, kernel = chosen](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      alignas(64) char padded[2][kWidestFmaBlockBytes];
      const FmaOperands* mine_only = operands.empty() ? nullptr : &operands[worker];
      const Range mine = share(blocks, worker, threads.threads(), 1);
      if (mine.size() > 0 && kernel.begin) kernel.begin();
      for (std::int64_t block = mine.first; block < mine.last; ++block) {
        const std::int64_t first = block * kernel.block;
        const std::int64_t count = std::min(kernel.block, problem.chains - first);
        const char* start = static_cast<const char*>(problem.start) + first * element;
        char* result = static_cast<char*>(problem.result) + first * element;
        if (count == kernel.block) {
          kernel.run(start, result, problem.steps, mine_only);
          continue;
        }
        std::memset(padded[0], 0, sizeof padded[0]);
        std::memcpy(padded[0], start, count * element);
        kernel.run(padded[0], padded[1], problem.steps, mine_only);
        std::memcpy(result, padded[1], count * element);
      }
      if (mine.size() > 0 && kernel.end) kernel.end();
    });
  }});
  // The device outlives whatever is bound on it.
  bound.clock = [&device, kernel = chosen, operands, memory] { return clock_hz(device, kernel, operands); };
  keep(bound, memory);
  return bound;
}

Bound registers(const Fma& problem, Device& device) {
  if (!problem.isa.empty()) refuse("fma", lacks(problem.isa));
  for (const auto& [isa, table] : fma_tables())
    if (has(isa) && of(*table, problem).run && (problem.isa.empty() || problem.isa == name(isa)))
      return bound(problem, device, of(*table, problem), "registers", name(isa));
  throw Unsupported("fma: " + (problem.isa.empty() ? "there is" : problem.isa + " has") + " no multiply-add of " +
                    name(problem.dtype) + (problem.pattern == Fma::Pattern::fma_add ? " with an addition beside it" : "") +
                    " for this CPU in this build");
}

// Rows of `left_bytes` and columns of at most 16 KiB, each thread's own; both are whole pairs of tiles.
Bound with_operands(const Fma& problem, Device& device, const char* implementation, std::int64_t left_bytes) {
  if (!problem.isa.empty() && problem.isa != "amx")
    throw Unsupported("fma: " + problem.isa + " takes no operands from memory here; leave isa empty");
  if (problem.pattern != Fma::Pattern::fma)
    throw Unsupported("fma: a tile instruction has no addition beside it; use pattern='fma'");
  if (!ROOFLINE_HAVE_amx) throw Unsupported("fma: this build has no kernels of amx; its compiler or assembler was too old");
  const FmaKernel& kernel = problem.dtype == DType::bf16 ? fma_operands_amx.bf16 : fma_operands_amx.int8;
  constexpr std::int64_t kPair = FmaOperands::kPairBytes;
  const std::int64_t left_pairs = std::max<std::int64_t>(1, left_bytes / kPair);
  const std::int64_t right_pairs = std::max<std::int64_t>(1, in_l1(device) / kPair);
  const std::int64_t each = (left_pairs + right_pairs) * kPair;
  const std::shared_ptr<void> memory = workspace(device, static_cast<std::size_t>(each * device.threads()));
  std::vector<FmaOperands> operands;
  for (int worker = 0; worker < device.threads(); ++worker) {
    char* start = static_cast<char*>(memory.get()) + worker * each;
    operands.push_back({start, start + left_pairs * kPair, left_pairs, right_pairs});
    kernel.fill(operands.back());
  }
  Bound made = bound(problem, device, kernel, implementation, "amx", operands, memory);
  made.plan.set("left_bytes", left_pairs * kPair);
  made.plan.set("right_bytes", right_pairs * kPair);
  made.plan.set("workspace_bytes", each * device.threads());
  return made;
}

Bound l1_operands(const Fma& problem, Device& device) { return with_operands(problem, device, "l1_operands", in_l1(device)); }
Bound l2_operands(const Fma& problem, Device& device) {
  return with_operands(problem, device, "l2_operands", device.caches().l2_bytes / 2);
}

}  // namespace

const std::vector<std::pair<Isa, const FmaKernels*>>& fma_tables() {
  static const auto all = [] {
    std::vector<std::pair<Isa, const FmaKernels*>> tables = {
        {Isa::amx, ROOFLINE_HAVE_amx ? &fma_amx : nullptr},
        {Isa::avx512_fp16, ROOFLINE_HAVE_avx512_fp16 ? &fma_avx512_fp16 : nullptr},
        {Isa::avx512_bf16, ROOFLINE_HAVE_avx512_bf16 ? &fma_avx512_bf16 : nullptr},
        {Isa::avx512_vnni, ROOFLINE_HAVE_avx512_vnni ? &fma_avx512_vnni : nullptr},
        {Isa::neon_bf16_i8mm, ROOFLINE_HAVE_neon_bf16_i8mm ? &fma_neon_bf16_i8mm : nullptr},
        {Isa::neon_dotprod_fp16, ROOFLINE_HAVE_neon_dotprod_fp16 ? &fma_neon_dotprod_fp16 : nullptr}};
    tables.insert(tables.end(), ROOFLINE_TABLES(fma));
    std::erase_if(tables, [](const auto& table) { return !table.second; });
    return tables;
  }();
  return all;
}

std::vector<KernelEntry> fma_kernels() {
  std::vector<KernelEntry> all;
#if defined(__x86_64__)
  const char *fp16 = "avx512_fp16", *bf16 = "avx512_bf16", *int8 = "avx512_vnni", *int16 = "avx2";
#else
  // NEON has no kernel of int16, and `registers` says so.
  const char *fp16 = "neon_dotprod_fp16", *bf16 = "neon_bf16_i8mm", *int8 = "neon_dotprod_fp16", *int16 = "";
#endif
  for (const auto& [dtype, needs] : {std::pair{DType::fp64, ""}, {DType::fp32, ""}, {DType::fp16, fp16}, {DType::bf16, bf16},
                                     {DType::int8, int8}, {DType::int16, int16}})
    all.push_back(entry("registers", dtype, needs, registers));
  const auto tiles = {DType::bf16, DType::int8};
  return joined({all, kernels_of(tiles, "l1_operands", "amx", l1_operands), kernels_of(tiles, "l2_operands", "amx", l2_operands)});
}

}  // namespace roofline::cpu
