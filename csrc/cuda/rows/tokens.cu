// Binding the kernels over tokens (cuda/rows/tokens_kernels.cuh).
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/rows/tokens.h"
#include "cuda/rows/tokens_kernels.cuh"

namespace roofline::cuda {
namespace {

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
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const std::int64_t parts = half / (vectors ? kLanes : 1), per_token = (problem.heads + problem.kv_heads) * parts;
  const std::int64_t grid = persistent_grid(ceil_div(problem.tokens() * per_token, kElementThreads), device.properties().sms,
                                            facts.blocks_per_sm);
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
  Bound bound;
  bound.plan.set("implementation", "fused/" + device.properties().architecture());
  record(bound.plan, "", facts, grid, kElementThreads);
  bound.plan.set("vector_bytes", vectors ? 16 : static_cast<int>(sizeof(T)));
  bound.plan.set("workspace_bytes", 0);
  bound.steps.push_back({"rope", launching("rope_kernel", kernel, {grid, kElementThreads}, static_cast<T*>(problem.q),
                                           static_cast<T*>(problem.k), work)});
  return bound;
}

template <class Word>
Bound gather(const ops::Embedding& problem, Device& device, std::int64_t words) {
  const auto kernel = embedding_kernel<Word>;
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const std::int64_t tiles = ceil_div(problem.tokens * words, std::int64_t{kElementThreads} * kCopyUnroll);
  const std::int64_t grid = persistent_grid(tiles, device.properties().sms, facts.blocks_per_sm);
  Bound bound;
  bound.plan.set("implementation", "fused/" + device.properties().architecture());
  record(bound.plan, "", facts, grid, kElementThreads);
  bound.plan.set("vector_bytes", static_cast<int>(sizeof(Word)));
  bound.plan.set("workspace_bytes", 0);
  bound.steps.push_back({"embedding", launching("embedding_kernel", kernel, {grid, kElementThreads},
                                                static_cast<const std::int32_t*>(problem.ids),
                                                static_cast<const Word*>(problem.table), static_cast<Word*>(problem.out),
                                                problem.tokens, words)});
  return bound;
}

Bound embedding(const ops::Embedding& problem, Device& device) {
  const std::int64_t row_bytes = problem.d_model * size_bytes(problem.dtype);
  if (row_bytes % 16 == 0 && aligned(problem.table, problem.out)) return gather<uint4>(problem, device, row_bytes / 16);
  if (size_bytes(problem.dtype) == 4) return gather<std::uint32_t>(problem, device, problem.d_model);
  return gather<std::uint16_t>(problem, device, problem.d_model);
}

template <class T, int Width>
Bound combine(const Combine& problem, Device& device) {
  const auto kernel = combine_kernel<T, Width>;
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const CombineWork work = {problem.places,          problem.gates,     problem.tokens,
                            problem.d_model / Width, problem.per_token, problem.routed};
  const std::int64_t grid =
      persistent_grid(ceil_div(work.tokens * work.parts, kElementThreads), device.properties().sms, facts.blocks_per_sm);
  Bound bound;
  record(bound.plan, "", facts, grid, kElementThreads);
  bound.plan.set("vector_bytes", static_cast<int>(Width * sizeof(T)));
  bound.steps.push_back({"combine", launching("combine_kernel", kernel, {grid, kElementThreads},
                                              static_cast<const T*>(problem.rows), static_cast<T*>(problem.out), work)});
  return bound;
}

template <class T>
Bound combine(const Combine& problem, Device& device) {
  constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  if (problem.d_model % kLanes == 0 && aligned(problem.rows, problem.out)) return combine<T, kLanes>(problem, device);
  return combine<T, 1>(problem, device);
}

}  // namespace

std::vector<KernelEntry> rope_kernels() {
  return floating_kernels<ops::Rope>(
      "fused",
      "persistent blocks, 128-bit accesses; q and k are read and written once, cos and sin come from L1 for all heads but one",
      rope<float>, rope<__half>, rope<__nv_bfloat16>);
}

Bound bind_embedding(const ops::Embedding& problem, Device& device) { return embedding(problem, device); }

Bound bind_combine(const Combine& problem, Device& device) {
  if (problem.dtype == DType::fp32) return combine<float>(problem, device);
  if (problem.dtype == DType::fp16) return combine<__half>(problem, device);
  if (problem.dtype == DType::bf16) return combine<__nv_bfloat16>(problem, device);
  throw Unsupported("combine: there is no kernel for " + name(problem.dtype));
}

std::vector<KernelEntry> embedding_kernels() {
  return floating_kernels<ops::Embedding>(
      "fused", "persistent blocks, 128-bit accesses; a row of the table is read and written for each token", embedding);
}

}  // namespace roofline::cuda
