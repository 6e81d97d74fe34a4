// Binding the kernels over tokens (cuda/rows/tokens_kernels.cuh).
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/rows/tokens.h"
#include "cuda/rows/tokens_kernels.cuh"

namespace roofline::cuda {
namespace {

// items: a thread takes one at a time, and its next one a grid further on.
Grid grid_of(std::int64_t items, const KernelFacts& facts, const Device& device) {
  return {persistent_grid(ceil_div(items, kElementThreads), device.properties().sms, facts.blocks_per_sm), kElementThreads};
}

// bytes: size of one access.
Bound accessed(Bound bound, std::size_t bytes) {
  bound.plan.set("vector_bytes", static_cast<int>(bytes));
  bound.plan.set("workspace_bytes", 0);
  return bound;
}

template <class T>
Bound rope(const ops::Rope& problem, Device& device) {
  const std::int64_t half = problem.head_dim / 2;
  // Items of a token are counted in ints: those of a tile past a token's end as well.
  if ((problem.heads + problem.kv_heads) * half > (std::int64_t{1} << 30))
    throw Unsupported("rope: (heads + kv_heads) * head_dim is " +
                      std::to_string((problem.heads + problem.kv_heads) * problem.head_dim) +
                      "; the CUDA kernel takes less than 2^31");
  if (problem.table_dtype != DType::fp32 && problem.table_dtype != DType::fp16 && problem.table_dtype != DType::bf16)
    throw Unsupported("rope: table_dtype must be fp32, fp16 or bf16, got " + name(problem.table_dtype));
  constexpr int kLanes = Pack<T>::kLanes;
  const bool vectors = half % kLanes == 0 && aligned(problem.q, problem.k, problem.cos, problem.sin);
  const auto kernel = vectors ? rope_kernel<T, kLanes> : rope_kernel<T, 1>;
  const std::int64_t parts = half / (vectors ? kLanes : 1), per_token = (problem.heads + problem.kv_heads) * parts;
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const Grid grid = grid_of(problem.tokens() * per_token, facts, device);
  RopeWork work{};
  work.cos = {const_cast<void*>(problem.cos), problem.table_dtype};
  work.sin = {const_cast<void*>(problem.sin), problem.table_dtype};
  work.tokens = problem.tokens();
  work.heads = static_cast<int>(problem.heads);
  work.kv_heads = static_cast<int>(problem.kv_heads);
  work.half = static_cast<int>(half);
  work.parts = Divisor(static_cast<int>(parts));
  work.per_token = Divisor(static_cast<int>(per_token));
  work.step_tokens = grid.blocks * kElementThreads / per_token;
  work.step_items = static_cast<int>(grid.blocks * kElementThreads % per_token);
  Bound bound = planned("fused", device);
  add_step(bound, {"rope", "rope_kernel"}, kernel, facts, grid, static_cast<T*>(problem.q), static_cast<T*>(problem.k), work);
  return accessed(std::move(bound), vectors ? 16 : sizeof(T));
}

template <class Word>
Bound gather(const ops::Embedding& problem, Device& device, std::int64_t words) {
  const KernelFacts facts = kernel_facts(device, embedding_kernel<Word>, kElementThreads);
  Bound bound = planned("fused", device);
  add_step(bound, {"embedding", "embedding_kernel"}, embedding_kernel<Word>, facts,
           grid_of(ceil_div(problem.tokens * words, kCopyUnroll), facts, device), static_cast<const std::int32_t*>(problem.ids),
           static_cast<const Word*>(problem.table), static_cast<Word*>(problem.out), problem.tokens, words);
  return accessed(std::move(bound), sizeof(Word));
}

template <class T, int Width>
Bound combine(const Combine& problem, Device& device) {
  const KernelFacts facts = kernel_facts(device, combine_kernel<T, Width>, kElementThreads);
  const CombineWork work = {problem.places,          problem.gates,     problem.tokens,
                            problem.d_model / Width, problem.per_token, problem.routed};
  Bound bound;
  add_step(bound, {"combine", "combine_kernel"}, combine_kernel<T, Width>, facts,
           grid_of(work.tokens * work.parts, facts, device), static_cast<const T*>(problem.rows), static_cast<T*>(problem.out),
           work);
  return accessed(std::move(bound), Width * sizeof(T));
}

}  // namespace

Bound bind_embedding(const ops::Embedding& problem, Device& device) {
  const std::int64_t row_bytes = problem.d_model * size_bytes(problem.dtype);
  if (row_bytes % 16 == 0 && aligned(problem.table, problem.out)) return gather<uint4>(problem, device, row_bytes / 16);
  if (size_bytes(problem.dtype) == 4) return gather<std::uint32_t>(problem, device, problem.d_model);
  return gather<std::uint16_t>(problem, device, problem.d_model);
}

Bound bind_combine(const Combine& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
    const bool vectors = problem.d_model % kLanes == 0 && aligned(problem.rows, problem.out);
    return vectors ? combine<T, kLanes>(problem, device) : combine<T, 1>(problem, device);
  });
}

std::vector<KernelEntry> rope_kernels() {
  return floating_kernels<ops::Rope>("fused", rope<float>, rope<__half>, rope<__nv_bfloat16>);
}

std::vector<KernelEntry> embedding_kernels() { return floating_kernels("fused", bind_embedding); }

}  // namespace roofline::cuda
