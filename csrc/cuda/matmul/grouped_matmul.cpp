// grouped_matmul on a GPU by the library: the experts' products by cuBLASLt, one for each expert that has a token.
//
// Which rows are whose is read from `chosen` when the kernel is bound, since the library wants sizes on the host; launches then
// expect the same routing. Rows of an expert lie side by side in the workspace, the shared experts' last.
//
//   gather      copies each token's row of x to the rows of its experts
//   up, gate    a product for each expert
//   activation  one pass over all experts' rows
//   down        a product for each expert
//   combine     adds up each token's results with their gates, in fp32
#include "ops/grouped_matmul.h"

#include <numeric>

#include "cuda/kernels.h"
#include "cuda/matmul/gemm.h"
#include "cuda/matmul/grouped_matmul.h"
#include "cuda/rows/elementwise.h"
#include "cuda/rows/tokens.h"

namespace roofline::cuda {
namespace {

using ops::GroupedMatmul;

// Who computes what, on the host.
struct Routing {
  std::vector<std::int64_t> first;   // [all experts + 1]: an expert's rows are first[e] ... first[e + 1] - 1
  std::vector<std::int32_t> token;   // [rows], whose it is
  std::vector<std::int32_t> places;  // [tokens, per_token], the rows of a token
};

}  // namespace

std::vector<std::int32_t> chosen_experts(const GroupedMatmul& problem, Device& device) {
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(problem.tokens * problem.experts_per_token));
  device.copy_out(chosen.data(), problem.chosen, chosen.size() * sizeof chosen[0]);
  for (const std::int32_t expert : chosen)
    if (expert < 0 || expert >= problem.experts)
      throw Error("grouped_matmul: chosen holds expert " + std::to_string(expert) + " of " + std::to_string(problem.experts));
  return chosen;
}

namespace {

Routing routing_of(const GroupedMatmul& problem, Device& device) {
  const std::vector<std::int32_t> chosen = chosen_experts(problem, device);
  const std::int64_t per_token = problem.per_token(), routed = problem.experts_per_token;
  const auto expert_of = [&](std::int64_t token, std::int64_t j) {
    return j < routed ? std::int64_t{chosen[static_cast<std::size_t>(token * routed + j)]} : problem.experts + j - routed;
  };
  Routing routing;
  routing.first.assign(static_cast<std::size_t>(problem.all_experts()) + 1, 0);
  for (std::int64_t i = 0; i < problem.tokens * per_token; ++i)
    ++routing.first[static_cast<std::size_t>(expert_of(i / per_token, i % per_token)) + 1];
  std::partial_sum(routing.first.begin(), routing.first.end(), routing.first.begin());
  std::vector<std::int64_t> next(routing.first.begin(), routing.first.end() - 1);
  routing.token.resize(static_cast<std::size_t>(problem.tokens * per_token));
  routing.places.resize(routing.token.size());
  for (std::int64_t i = 0; i < problem.tokens * per_token; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(expert_of(i / per_token, i % per_token))]++;
    routing.token[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(i / per_token);
    routing.places[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(row);
  }
  return routing;
}

Bound library(const GroupedMatmul& problem, Device& device) {
  const Routing routing = routing_of(problem, device);
  const std::int64_t rows = static_cast<std::int64_t>(routing.token.size()), size = size_bytes(problem.dtype);
  Workspaces memory{device, "grouped_matmul: workspace"};
  const auto matrix = [&](std::int64_t columns) { return memory.take({rows, columns, size}).get(); };
  const auto table = [&](const std::vector<std::int32_t>& numbers) {
    const std::size_t bytes = numbers.size() * sizeof numbers[0];
    void* const to = memory.take({static_cast<std::int64_t>(bytes)}).get();
    device.copy_in(to, numbers.data(), bytes);
    return static_cast<const std::int32_t*>(to);
  };
  const std::shared_ptr<void> scratch = memory.take({kScratchBytes});
  void *const gathered = matrix(problem.d_model), *const up = matrix(problem.d_ff);
  void* const gate = problem.gated() ? matrix(problem.d_ff) : nullptr;
  void* const activated = problem.activation == GroupedMatmul::Activation::relu ? up : matrix(problem.d_ff);
  void* const results = matrix(problem.d_model);

  Bound bound = planned("library", device);
  // a and c: of all experts' rows; weights: of all experts.
  const auto multiply = [&](const char* step, std::int64_t columns, std::int64_t inner, const void* a, const void* weights,
                            void* c) {
    std::vector<Launch> products;
    std::int64_t entries = 0;
    for (std::int64_t expert = 0; expert < problem.all_experts(); ++expert) {
      const std::int64_t first = routing.first[static_cast<std::size_t>(expert)];
      const std::int64_t count = routing.first[static_cast<std::size_t>(expert) + 1] - first;
      if (count == 0) continue;
      GemmProblem gemm{problem.dtype, problem.dtype};
      gemm.rows = count, gemm.columns = columns, gemm.inner = inner;
      gemm.a = static_cast<const char*>(a) + first * inner * size;
      gemm.b = static_cast<const char*>(weights) + expert * inner * columns * size;
      gemm.c = static_cast<char*>(c) + first * columns * size;
      gemm.scratch = scratch;
      Gemm planned = plan_gemm(gemm, device);
      if (products.empty()) record(bound.plan, std::string(step) + "_", planned);
      products.push_back(std::move(planned.launch));
      entries += planned.entries;
    }
    bound.steps.push_back({step, [products](Queue& queue) {
                             for (const Launch& each : products) each(queue);
                           }, entries});
    return static_cast<std::int64_t>(products.size());
  };

  append(bound, "gather",
         bind_embedding({problem.dtype, rows, problem.tokens, problem.d_model, table(routing.token), problem.x, gathered}, device));
  const std::int64_t touched = multiply("up", problem.d_ff, problem.d_model, gathered, problem.w_up, up);
  if (problem.gated()) multiply("gate", problem.d_ff, problem.d_model, gathered, problem.w_gate, gate);
  append(bound, "activation", bind_activation(problem.activation, false, problem.dtype, rows, problem.d_ff, gate, up,
                                              activated, device));
  multiply("down", problem.d_model, problem.d_ff, activated, problem.w_down, results);
  append(bound, "combine", bind_combine({problem.dtype, problem.tokens, problem.d_model, static_cast<int>(problem.per_token()),
                                static_cast<int>(problem.experts_per_token), results, table(routing.places), problem.gates,
                                problem.out},
                               device));

  std::int64_t most = 0;
  for (std::size_t i = 0; i + 1 < routing.first.size(); ++i) most = std::max(most, routing.first[i + 1] - routing.first[i]);
  bound.plan.set("experts_with_tokens", Value(touched));
  bound.plan.set("most_rows", Value(most));
  bound.plan.set("workspace_bytes", Value(memory.size_bytes));
  keep(bound, memory.kept);
  return bound;
}

}  // namespace

std::vector<KernelEntry> grouped_matmul_library_kernels() { return floating_kernels<GroupedMatmul>("library", library); }

}  // namespace roofline::cuda
