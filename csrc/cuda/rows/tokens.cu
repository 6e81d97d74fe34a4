// Binding the kernels over tokens (cuda/rows/tokens_kernels.cuh).
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/rows/tokens.h"
#include "cuda/rows/tokens_kernels.cuh"

namespace roofline::cuda {
namespace {

// items: that a thread takes one at a time, the next a grid further on. bytes: of one access.
template <class Kernel>
std::int64_t plan_items(Bound& bound, const Device& device, Kernel* kernel, std::int64_t items, std::size_t bytes) {
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const std::int64_t grid = persistent_grid(ceil_div(items, kElementThreads), device.properties().sms, facts.blocks_per_sm);
  record(bound.plan, "", facts, grid, kElementThreads);
  bound.plan.set("vector_bytes", static_cast<int>(bytes));
  bound.plan.set("workspace_bytes", 0);
  return grid;
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
  Bound bound = planned("fused", device);
  const std::int64_t grid = plan_items(bound, device, kernel, problem.tokens() * per_token, vectors ? 16 : sizeof(T));
  RopeWork work{};
  work.cos = {const_cast<void*>(problem.cos), problem.table_dtype};
  work.sin = {const_cast<void*>(problem.sin), problem.table_dtype};
  work.tokens = problem.tokens();
  work.heads = static_cast<int>(problem.heads);
  work.kv_heads = static_cast<int>(problem.kv_heads);
  work.half = static_cast<int>(half);
  work.parts = Divisor(static_cast<int>(parts));
  work.per_token = Divisor(static_cast<int>(per_token));
  work.step_tokens = grid * kElementThreads / per_token;
  work.step_items = static_cast<int>(grid * kElementThreads % per_token);
  bound.steps.push_back({"rope", launching("rope_kernel", kernel, {grid, kElementThreads}, static_cast<T*>(problem.q),
                                           static_cast<T*>(problem.k), work)});
  return bound;
}

template <class Word>
Bound gather(const ops::Embedding& problem, Device& device, std::int64_t words) {
  const auto kernel = embedding_kernel<Word>;
  Bound bound = planned("fused", device);
  const std::int64_t grid = plan_items(bound, device, kernel, ceil_div(problem.tokens * words, kCopyUnroll), sizeof(Word));
  bound.steps.push_back({"embedding", launching("embedding_kernel", kernel, {grid, kElementThreads},
                                                static_cast<const std::int32_t*>(problem.ids),
                                                static_cast<const Word*>(problem.table), static_cast<Word*>(problem.out),
                                                problem.tokens, words)});
  return bound;
}

template <class T, int Width>
Bound combine(const Combine& problem, Device& device) {
  const auto kernel = combine_kernel<T, Width>;
  const CombineWork work = {problem.places,          problem.gates,     problem.tokens,
                            problem.d_model / Width, problem.per_token, problem.routed};
  Bound bound;
  const std::int64_t grid = plan_items(bound, device, kernel, work.tokens * work.parts, Width * sizeof(T));
  bound.steps.push_back({"combine", launching("combine_kernel", kernel, {grid, kElementThreads},
                                              static_cast<const T*>(problem.rows), static_cast<T*>(problem.out), work)});
  return bound;
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
  return floating_kernels<ops::Rope>(
      "fused",
      "persistent blocks, 128-bit accesses; q and k are read and written once, cos and sin come from L1 for all heads but one",
      rope<float>, rope<__half>, rope<__nv_bfloat16>);
}

std::vector<KernelEntry> embedding_kernels() {
  return floating_kernels(
      "fused", "persistent blocks, 128-bit accesses; a row of the table is read and written for each token", bind_embedding);
}

}  // namespace roofline::cuda
