// grouped_matmul on a GPU, tiled: every expert in one launch, in 16 bits, by mma.sync. Portable from sm_80 on.
//
//   route    counts the rows of every expert, puts them in order and cuts them into tiles, anew in each launch
//   up       all experts' rows, taken from x by token, times w_up (and w_gate), with the activation behind
//   down     all experts' rows times w_down
//   combine  adds up each token's results with their gates, in fp32
//
// An H200 reads at 86 % of its roof where weights bound it (a ring with 54 KB under way in every block, three blocks an SM),
// without a launch of a few microseconds for every expert; from about 64 rows an expert on, library should be faster there.
#include "cuda/matmul/grouped_tiled.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <set>

#include "cuda/attention/plan.h"
#include "cuda/check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/matmul/grouped_matmul.h"
#include "cuda/matmul/grouped_routing.cuh"
#include "cuda/plan.h"
#include "cuda/rows/tokens.h"

namespace roofline::cuda {
namespace {

using ops::GroupedMatmul;

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) grouped_kernel(const GroupedWork work) {
  grouped_product<T, Shape>(work);
}

template <class T, class Shape>
void add_product(Bound& bound, const char* step, GroupedWork work, std::int64_t tiles, const Device& device) {
  const auto kernel = grouped_kernel<T, Shape>;
  const Properties& gpu = device.properties();
  const int most_blocks = Shape::kRows == 16 ? 3 : 2;
  const Buffers buffers = need_buffers("grouped_matmul: tiled", 0, Shape::kSlotBytes, kMostSlots, most_blocks,
                                       gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block);
  work.slots = buffers.slots;
  const KernelFacts facts = kernel_facts(device, kernel, Shape::kThreads, buffers.shared_bytes);
  const std::int64_t items = product({tiles, ceil_div(work.columns, Shape::kColumns)}, "grouped_matmul: tiles");
  work.blocks = persistent_grid(items, gpu.sms, facts.blocks_per_sm);
  add_step(bound, {step, "grouped_kernel", std::string(step) + "_"}, kernel, facts,
           {work.blocks, Shape::kThreads, buffers.shared_bytes}, work);
  bound.plan.set(std::string(step) + "_buffers", work.slots);
}

template <class T, int Rows>
void add_products(Bound& bound, const GroupedMatmul& problem, GroupedWork up, GroupedWork down, std::int64_t tiles,
                  const Device& device) {
  if (problem.gated())
    add_product<T, GroupedShape<Rows, true>>(bound, "up", up, tiles, device);
  else
    add_product<T, GroupedShape<Rows, false>>(bound, "up", up, tiles, device);
  add_product<T, GroupedShape<Rows, false>>(bound, "down", down, tiles, device);
}

template <class T>
Bound tiled(const GroupedMatmul& problem, Device& device) {
  const std::string here = "grouped_matmul: tiled ";
  if (problem.d_model % 8 != 0 || problem.d_ff % 8 != 0)
    throw Unsupported(here + "takes d_model and d_ff in multiples of 8 (rows of whole 16 bytes), got " +
                      std::to_string(problem.d_model) + " and " + std::to_string(problem.d_ff) + "; use library");
  if (problem.all_experts() > kMostExperts)
    throw Unsupported(here + "takes up to " + std::to_string(kMostExperts) + " experts, got " +
                      std::to_string(problem.all_experts()) + "; use library");
  if (std::max(problem.d_model, problem.d_ff) > INT32_MAX - 256)
    throw Unsupported(here + "takes d_model and d_ff up to 2^31; use library");
  if (!aligned(problem.x, problem.w_up, problem.w_gate, problem.w_down, problem.out))
    throw Unsupported(here + "takes tensors that begin at multiples of 16 bytes; use library");
  const std::vector<std::int32_t> chosen = chosen_experts(problem, device);
  const std::int64_t touched =
      static_cast<std::int64_t>(std::set<std::int32_t>(chosen.begin(), chosen.end()).size()) + problem.shared_experts;
  const std::int64_t rows = problem.tokens * problem.per_token();
  const int tile_rows = tile_rows_of(rows, touched);
  const std::int64_t tiles = most_tiles(rows, problem.all_experts(), tile_rows);

  Workspaces workspaces{device, "grouped_matmul: workspace"};
  const auto memory = [&](const Shape& shape) { return workspaces.take(shape).get(); };
  RouteWork route{};
  route.chosen = problem.chosen, route.tokens = problem.tokens;
  route.routed = static_cast<int>(problem.experts_per_token), route.per_token = static_cast<int>(problem.per_token());
  route.experts = static_cast<int>(problem.experts), route.all_experts = static_cast<int>(problem.all_experts());
  route.tile_rows = tile_rows;
  route.token = static_cast<std::int32_t*>(memory({rows, 4})), route.places = static_cast<std::int32_t*>(memory({rows, 4}));
  route.tiles = static_cast<RowTile*>(memory({tiles, static_cast<std::int64_t>(sizeof(RowTile))}));
  route.tile_count = static_cast<std::int32_t*>(memory({4}));
  void* const hidden = memory({rows, problem.d_ff, 2});
  void* const results = memory({rows, problem.d_model, 2});

  Bound bound = planned("tiled/mma", device);
  add_step(bound, {"route", "route_kernel", "route_"}, route_kernel, kernel_facts(device, route_kernel, kRouteThreads),
           {1, kRouteThreads}, route);
  GroupedWork up;
  up.a = problem.x, up.token = route.token, up.b = problem.w_up, up.gate = problem.w_gate, up.c = hidden;
  up.tiles = route.tiles, up.tile_count = route.tile_count;
  up.inner = static_cast<int>(problem.d_model), up.columns = static_cast<int>(problem.d_ff);
  up.after = problem.activation == GroupedMatmul::Activation::relu   ? After::relu
             : problem.activation == GroupedMatmul::Activation::gelu ? After::gelu
                                                                     : After::nothing;
  GroupedWork down = up;
  down.a = hidden, down.token = nullptr, down.b = problem.w_down, down.gate = nullptr, down.c = results;
  down.inner = up.columns, down.columns = up.inner, down.after = After::nothing;
  if (tile_rows == 16)
    add_products<T, 16>(bound, problem, up, down, tiles, device);
  else
    add_products<T, 64>(bound, problem, up, down, tiles, device);
  append(bound, "combine", bind_combine({problem.dtype, problem.tokens, problem.d_model, route.per_token, route.routed, results,
                                         route.places, problem.gates, problem.out},
                                        device));
  bound.plan.set("experts_with_tokens", Value(touched));
  bound.plan.set("tile_rows", tile_rows);
  bound.plan.set("workspace_bytes", Value(workspaces.size_bytes));
  keep(bound, workspaces.kept);
  return bound;
}

}  // namespace

std::vector<KernelEntry> grouped_matmul_kernels() {
  std::vector<KernelEntry> all = grouped_matmul_library_kernels();
  all.push_back(entry("tiled", DType::fp16, "sm_80", tiled<Fp16>));
  all.push_back(entry("tiled", DType::bf16, "sm_80", tiled<Bf16>));
  return all;
}

}  // namespace roofline::cuda
