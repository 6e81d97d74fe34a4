// Binding the kernels over rows (cuda/rows/rows_kernels.cuh): which of the two, and how many threads share a row.
#include "cuda/attention/softmax.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/rows/rows.h"
#include "cuda/rows/rows_kernels.cuh"
#include "cuda/rows/softmax_cluster.cuh"
#include "ops/rows.h"

namespace roofline::cuda {
namespace {

template <class T>
const T* in(const void* tensor) {
  return static_cast<const T*>(tensor);
}

template <class T>
T* out(void* tensor) {
  return static_cast<T*>(tensor);
}

struct Chosen {
  RowPlan plan;
  RowsWork work;
};

// others: the tensors of x's shape; vectors: those over columns. most_chunks: 0 where nothing is kept, since there is one pass.
Chosen choose(const ops::Rows& problem, double eps, std::initializer_list<const void*> others,
              std::initializer_list<const void*> vectors, int most_chunks) {
  const std::int64_t element = size_bytes(problem.dtype);
  const auto phase = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16; };
  bool alike = true, aligned = phase(problem.x) == 0 && problem.columns % (16 / element) == 0;
  for (const void* each : others) alike = alike && phase(each) == phase(problem.x);
  for (const void* each : vectors) aligned = aligned && phase(each) == 0;
  Chosen chosen;
  chosen.plan =
      plan_row(problem.columns, element, alike && aligned && most_chunks > 0, most_chunks > 0 ? most_chunks : kLoopedChunks);
  chosen.work = {problem.rows, problem.columns, chosen.plan.team, alike, static_cast<float>(eps)};
  return chosen;
}

// touched: bytes of a row that a looped kernel goes over again.
template <class Rows, class... Given>
Bound bind_rows(const char* variant, const char* step, const ops::Rows& problem, Device& device, const Chosen& chosen,
                std::int64_t touched, Rows* kernel, Given... given) {
  const RowPlan& plan = chosen.plan;
  const KernelFacts facts = kernel_facts(device, kernel, plan.threads);
  const std::int64_t tiles = ceil_div(problem.rows, plan.rows_per_block());
  const std::int64_t grid = plan.kept ? passing_grid(tiles) : persistent_grid(tiles, device.properties().sms, facts.blocks_per_sm);
  Bound bound = planned(std::string(variant) + (plan.kept ? "_kept" : "_looped"), device);
  add_step(bound, {step, "a kernel over rows"}, kernel, facts, {grid, plan.threads}, given..., chosen.work);
  bound.plan.set("threads_per_row", plan.team);
  bound.plan.set("vector_bytes", chosen.work.vectors ? 16 : static_cast<int>(size_bytes(problem.dtype)));
  // Half of L2 is left to what streams past.
  bound.plan.set("row_cached", plan.kept || grid * plan.rows_per_block() * touched <= device.properties().l2_bytes / 2);
  bound.plan.set("workspace_bytes", 0);
  return bound;
}

// Rows in registers of clusters of blocks, each of which takes one row after the other. The plan has no blocks where the GPU has
// no room for such a cluster.
template <class T>
struct ClusterLaunch {
  ClusterPlan plan;
  std::int64_t grid = 0;

  // attribute: kept until the launch.
  cudaLaunchConfig_t config(cudaLaunchAttribute& attribute) const {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(plan.blocks), 1, 1};
    cudaLaunchConfig_t made{};
    made.gridDim = dim3(static_cast<unsigned>(grid));
    made.blockDim = dim3(static_cast<unsigned>(plan.threads));
    made.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
    made.attrs = &attribute;
    made.numAttrs = 1;
    return made;
  }

  static ClusterLaunch of(const ops::Softmax& problem, const Device& device) {
    ClusterLaunch made;
    if (device.properties().capability < 90 || problem.columns % Pack<T>::kLanes != 0 || !aligned(problem.x, problem.y)) return {};
    made.plan = plan_cluster(problem.columns, sizeof(T));
    if (made.plan.blocks == 0) return {};
    device.use();
    ROOFLINE_CUDA(cudaFuncSetAttribute(softmax_cluster<T>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    allow_shared(device, softmax_cluster<T>, made.plan.shared_bytes);
    made.grid = made.plan.blocks;
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config = made.config(attribute);
    int at_once = 0;
    if (cudaOccupancyMaxActiveClusters(&at_once, softmax_cluster<T>, &config) != cudaSuccess || at_once == 0) {
      (void)cudaGetLastError();
      return {};
    }
    made.grid = persistent_grid(problem.rows, at_once, 1) * made.plan.blocks;
    return made;
  }
};

template <class T>
Bound softmax_of_clusters(const ops::Softmax& problem, Device& device, const ClusterLaunch<T>& launch) {
  const auto kernel = softmax_cluster<T>;
  const int threads = launch.plan.threads;
  Bound bound = planned("fused_cluster", device);
  record(bound.plan, "", kernel_facts(device, kernel, threads, launch.plan.shared_bytes), launch.grid, threads);
  bound.plan.set("blocks_per_cluster", launch.plan.blocks);
  bound.plan.set("threads_per_row", launch.plan.blocks * threads);
  bound.plan.set("vector_bytes", 16);
  bound.plan.set("row_cached", true);
  bound.plan.set("exponentials_kept", true);
  bound.plan.set("workspace_bytes", 0);
  const RowsWork work = {problem.rows, problem.columns, threads, true, 0.f};
  bound.steps.push_back({"softmax", [=](Queue& queue) {
                           cudaLaunchAttribute attribute;
                           cudaLaunchConfig_t config = launch.config(attribute);
                           config.stream = stream(queue);
                           ROOFLINE_CUDA(cudaLaunchKernelEx(&config, kernel, in<T>(problem.x), out<T>(problem.y), work));
                         }});
  return bound;
}

template <class T>
Bound softmax(const ops::Softmax& problem, Device& device) {
  const Chosen chosen = choose(problem, 0, {problem.y}, {}, kKeptChunks);
  if (!chosen.plan.kept)
    if (const auto launch = ClusterLaunch<T>::of(problem, device); launch.plan.blocks > 0)
      return softmax_of_clusters<T>(problem, device, launch);
  Bound bound = bind_rows("fused", "softmax", problem, device, chosen, problem.row_bytes(),
                          softmax_of<T>(chosen.plan), in<T>(problem.x), out<T>(problem.y));
  bound.plan.set("exponentials_kept", chosen.plan.kept);
  return bound;
}

template <class T>
Bound rms_norm(const ops::RmsNorm& problem, Device& device) {
  const Chosen chosen = choose(problem, problem.eps, {problem.y}, {problem.weight}, kKeptChunks);
  return bind_rows("fused", "rms_norm", problem, device, chosen, problem.row_bytes(),
                   rms_norm_of<T>(chosen.plan), in<T>(problem.x), in<T>(problem.weight), out<T>(nullptr), out<T>(problem.y));
}

template <class T>
Bound residual_rms_norm(const ops::ResidualRmsNorm& problem, Device& device) {
  const Chosen chosen = choose(problem, problem.eps, {problem.residual, problem.y}, {problem.weight}, kKeptPairs);
  return bind_rows("fused", "residual_rms_norm", problem, device, chosen, problem.row_bytes(),
                   chosen.plan.kept ? rms_norm_kept<T, true, kKeptPairs> : rms_norm_looped<T, true>, in<T>(problem.x),
                   in<T>(problem.weight), out<T>(problem.residual), out<T>(problem.y));
}

template <class T>
Bound layer_norm(const ops::LayerNorm& problem, Device& device) {
  const Chosen chosen = choose(problem, problem.eps, {problem.y}, {problem.weight, problem.bias}, kKeptChunks);
  return bind_rows("two_pass", "layer_norm", problem, device, chosen, problem.row_bytes(),
                   layer_norm_of<T>(chosen.plan), in<T>(problem.x), in<T>(problem.weight), in<T>(problem.bias),
                   out<T>(problem.y));
}

template <class T>
Bound bias_relu(const ops::BiasRelu& problem, Device& device) {
  const Chosen chosen = choose(problem, 0, {problem.y}, {}, 0);
  return bind_rows("fused", "bias_relu", problem, device, chosen, problem.row_bytes(), bias_relu_rows<T>, in<T>(problem.x),
                   in<T>(problem.bias), out<T>(problem.y));
}

template <class T>
Bound probabilities(const Probabilities& problem, Device& device) {
  const ops::Rows rows = {DType::fp32, problem.rows, problem.columns, problem.scores, problem.p};
  Chosen chosen;
  chosen.plan = plan_row(problem.columns, size_bytes(DType::fp32), false);
  chosen.work = {problem.rows, problem.columns, chosen.plan.team, true, 0.f};
  return bind_rows("fused", "softmax", rows, device, chosen, rows.row_bytes(), probabilities_kernel<T>, in<float>(problem.scores),
                   out<T>(problem.p), problem.seq_q, problem.causal);
}

}  // namespace

Bound bind_probabilities(const Probabilities& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return probabilities<decltype(type)>(problem, device); });
}

std::vector<KernelEntry> softmax_kernels() {
  return floating_kernels<ops::Softmax>("fused", softmax<float>, softmax<__half>, softmax<__nv_bfloat16>);
}

std::vector<KernelEntry> rms_norm_kernels() {
  return floating_kernels<ops::RmsNorm>("fused", rms_norm<float>, rms_norm<__half>, rms_norm<__nv_bfloat16>);
}

std::vector<KernelEntry> residual_rms_norm_kernels() {
  return floating_kernels<ops::ResidualRmsNorm>("fused", residual_rms_norm<float>, residual_rms_norm<__half>,
                                                residual_rms_norm<__nv_bfloat16>);
}

std::vector<KernelEntry> layer_norm_kernels() {
  return floating_kernels<ops::LayerNorm>("two_pass", layer_norm<float>, layer_norm<__half>, layer_norm<__nv_bfloat16>);
}

std::vector<KernelEntry> bias_relu_kernels() {
  return floating_kernels<ops::BiasRelu>("fused", bias_relu<float>, bias_relu<__half>, bias_relu<__nv_bfloat16>);
}

}  // namespace roofline::cuda
