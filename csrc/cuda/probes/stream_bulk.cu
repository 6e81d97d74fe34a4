// stream on a GPU through shared memory (cuda/probes/stream_bulk.cuh).
#include "cuda/probes/stream_bulk.cuh"

#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/probes/stream_work.h"

namespace roofline::cuda {
namespace {

using ops::Stream;

Bound bulk(const Stream& problem, Device& device) {
  refuse_for_cpus(problem);
  refuse_but_vectors(problem, "bulk");
  if (problem.access == Access::write) throw Unsupported("stream: write has nothing for bulk copies to bring; use plain");
  if (!aligned(problem)) throw Unsupported("stream: bulk copies need arrays at multiples of 16 bytes; use plain");
  const int arrays = problem.reads_b() ? 2 : 1;
  const bool stays = problem.access == Access::read;
  const std::int64_t shared = device.properties().shared_bytes_per_sm;
  BulkWork work{};
  work.tile_bytes = plan_bulk_tile(problem.in_flight_bytes, arrays, !stays, shared);
  if (work.tile_bytes == 0)
    throw Unsupported("stream: " + std::to_string(problem.in_flight_bytes) + " bytes in flight do not fit the " +
                      std::to_string(shared) + " bytes of shared memory of an SM; use a smaller in_flight_bytes");
  using BulkKernel = void (*)(BulkWork);
  const auto kernel = by_access(problem, [](auto access, auto type) -> BulkKernel {
    if constexpr (decltype(access)::value == Access::write) throw Error("stream: write brings no tiles");
    else return bulk_kernel<decltype(access)::value, decltype(type)>;
  });
  // So much that no more than kBulkBlocks blocks find room.
  const std::int64_t shared_bytes = shared / kBulkBlocks - kBulkReserve;
  ROOFLINE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  const KernelFacts facts = kernel_facts(device, kernel, kBulkThreads, shared_bytes);
  work.tiles = plan_tiles(problem.elements, size_bytes(problem.dtype), work.tile_bytes);
  const Launches launches(work.tiles.count, problem.passes, problem.in_place);
  const std::int64_t turns = work.tiles.count * problem.passes;
  const std::int64_t grid =
      stays ? persistent_grid(turns, device.properties().sms, facts.blocks_per_sm) : std::max<std::int64_t>(work.tiles.count, 1);
  std::shared_ptr<void> memory;
  work.stream = work_of(problem, device, grid, memory);

  Bound bound = planned("bulk", device);
  record(bound.plan, "", facts, grid, kBulkThreads);
  bound.plan.set("tile_bytes", work.tile_bytes);
  bound.plan.set("in_flight_bytes", Value(std::int64_t{work.tile_bytes} * arrays * kBulkBlocks));
  bound.plan.set("workspace_bytes", Value(sum_workspace(work.stream.sum, grid)));
  const auto launch = [=](Queue& queue, std::int64_t passes, std::int64_t blocks) {
    BulkWork now = work;
    now.stream.passes = passes;
    now.turns = work.tiles.count * passes;
    kernel<<<static_cast<unsigned>(blocks), kBulkThreads, static_cast<std::size_t>(shared_bytes), stream(queue)>>>(now);
    ROOFLINE_CUDA_LAUNCHED("bulk_kernel");
    static_cast<void>(memory);
  };
  if (stays)
    bound.steps.push_back({"stream", [=](Queue& queue) { launch(queue, problem.passes, grid); }});
  else
    bound.steps.push_back({"stream", [=](Queue& queue) {
                             launches.each([&](std::int64_t passes, unsigned blocks) { launch(queue, passes, blocks); });
                           }, launches.count()});
  return bound;
}

Bound shared(const Stream& problem, Device& device) {
  refuse_for_cpus(problem);
  refuse_but_vectors(problem, "shared");
  if (problem.access != Access::read) throw Unsupported("stream: shared re-reads what it has copied; use access read");
  if (problem.in_flight_bytes != 0) throw Unsupported("stream: shared has no loads in flight; leave in_flight_bytes 0");
  const std::int64_t grid = device.properties().sms;
  std::shared_ptr<void> memory;
  StreamWork work = work_of(problem, device, grid, memory);
  work.plan = plan_stream(problem.elements, 4, aligned(problem), 1, kSharedUnroll, kSharedThreads, grid);
  const std::int64_t own = ceil_div(work.plan.vectors, grid) * 16;
  const auto chunk = static_cast<int>(
      std::max<std::int64_t>(16, std::min(own, (device.properties().shared_bytes_per_block - 2 * kBulkReserve) / 16 * 16)));

  Bound bound = planned("shared", device);
  add_step(bound, {"stream", "shared_kernel"}, shared_kernel, kernel_facts(device, shared_kernel, kSharedThreads, chunk),
           {grid, kSharedThreads, chunk, memory}, work, chunk);
  bound.plan.set("bytes_per_sm", Value(own));
  bound.plan.set("workspace_bytes", Value(sum_workspace(work.sum, grid)));
  return bound;
}

}  // namespace

std::vector<KernelEntry> stream_bulk_kernels() {
  return joined({kernels_of({DType::fp32}, "shared", "", shared), kernels_of({DType::fp32, DType::fp64}, "bulk", "sm_90", bulk)});
}

}  // namespace roofline::cuda
