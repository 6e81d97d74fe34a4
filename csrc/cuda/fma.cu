// fma on a GPU: chains of multiply-adds in registers, on the CUDA cores.
//
// A chain's next step waits 4 cycles (fp64 on some GPUs longer) for the one before, and an SM partition issues one warp a cycle:
// eight chains per thread and four warps per partition leave no cycle empty.
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "ops/fma.h"

namespace roofline::cuda {
namespace {

using ops::Fma;

constexpr int kThreads = 256;
constexpr int kChains = 8;   // per thread
constexpr int kUnroll = 16;  // steps of every chain between two tests of the loop's end; even, so that each round begins with +

// One thread advances kChains chains, a block's width apart. Accumulators stay in registers from the one load to the one store.
// Operands come at run time: known ones would let the compiler fold two steps into none.
template <class T>
__global__ void __launch_bounds__(kThreads) fma_kernel(const T* start,  // [chains]
                                                       T* result,       // [chains]
                                                       std::int64_t chains, std::int64_t steps,  //
                                                       T three, T plus_five, T minus_five) {
  const std::int64_t blocks = (chains + kThreads * kChains - 1) / (kThreads * kChains);
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * (kThreads * kChains) + threadIdx.x;
    T acc[kChains];
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
      const std::int64_t chain = first + c * kThreads;
      acc[c] = start[chain < chains ? chain : chains - 1];
    }
    std::int64_t step = 0;
#pragma unroll 1
    for (; step + kUnroll <= steps; step += kUnroll) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int c = 0; c < kChains; ++c) acc[c] = fma(three, u % 2 ? minus_five : plus_five, acc[c]);
      }
    }
#pragma unroll 1
    for (; step < steps; ++step) {
      const T five = step % 2 ? minus_five : plus_five;
#pragma unroll
      for (int c = 0; c < kChains; ++c) acc[c] = fma(three, five, acc[c]);
    }
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
      const std::int64_t chain = first + c * kThreads;
      if (chain < chains) result[chain] = acc[c];
    }
  }
}

template <class T>
Bound bind(const Fma& problem, Device& device) {
  if (!problem.isa.empty())
    throw Unsupported("fma: isa '" + problem.isa + "' is an instruction set of CPUs; leave it empty on a GPU");
  if (problem.pattern != Fma::Pattern::fma)
    throw Unsupported("fma: the pattern fma_add is for CPUs with separate pipes for additions; use fma on a GPU");
  const KernelFacts facts = kernel_facts(device, fma_kernel<T>, kThreads);
  const std::int64_t grid = std::min(ceil_div(problem.chains, kThreads * kChains), kMaxGridX);

  Bound bound;
  bound.plan.set("implementation", "registers/" + device.properties().architecture());
  record(bound.plan, "", facts, grid, kThreads);
  bound.plan.set("chains_per_thread", kChains);
  bound.plan.set("chains_resident", Value(std::int64_t{device.properties().sms} * facts.blocks_per_sm * kThreads * kChains));
  bound.steps.push_back({"fma", [problem, grid](Queue& queue) {
    fma_kernel<T><<<static_cast<unsigned>(grid), kThreads, 0, stream(queue)>>>(
        static_cast<const T*>(problem.start), static_cast<T*>(problem.result), problem.chains, problem.steps, T{3}, T{5}, T{-5});
    ROOFLINE_CUDA_LAUNCHED("fma_kernel");
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> fma_kernels() {
  using K = Kernel<Fma, Device>;
  const char* summary = "eight independent chains per thread in registers on the CUDA cores; one load and one store per chain";
  return {entry(K{"registers", DType::fp32, "", summary, bind<float>}),
          entry(K{"registers", DType::fp64, "", summary, bind<double>})};
}

}  // namespace roofline::cuda
