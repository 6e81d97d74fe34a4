// stream on a GPU through registers: 128-bit accesses, several in flight per thread, by blocks that stay or tile by tile; strides
// and single elements; re-reads from L1.
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/probes/stream_kernels.cuh"
#include "cuda/probes/stream_work.h"

namespace roofline::cuda {
namespace {

using ops::Stream;
using StreamKernel = void (*)(StreamWork);

// How a thread moves what it moves.
enum class By { vectors, deep_rounds, elements };

template <Access access, class T>
StreamKernel with_streams(std::int64_t streams, By by) {
  if (by == By::elements) return element_kernel<access, T>;
  if constexpr (access == Access::read) {
    if (by == By::deep_rounds) return stream_kernel<access, T, 1, kDeepUnroll>;
  }
  switch (streams) {
    case 1: return stream_kernel<access, T, 1, kUnroll>;
    case 2: return stream_kernel<access, T, 2, kUnroll>;
    case 4: return stream_kernel<access, T, 4, kUnroll>;
    case 8: return stream_kernel<access, T, 8, kUnroll>;
    default: throw Error("stream: streams must be one of 1, 2, 4, 8, got " + std::to_string(streams));
  }
}

StreamKernel kernel_for(const Stream& problem, By by) {
  return by_access(problem, [&](auto access, auto type) {
    return with_streams<decltype(access)::value, decltype(type)>(problem.streams, by);
  });
}

Bound launched(const char* path, StreamKernel kernel, const KernelFacts& facts, const StreamWork& work, const Grid& grid,
               const Device& device) {
  Bound bound = planned(path, device);
  bound.plan.set("workspace_bytes", Value(sum_workspace(work.sum, grid.blocks)));
  add_step(bound, {"stream", "stream_kernel"}, kernel, facts, grid, work);
  return bound;
}

// Strides and single elements.
Bound by_element(const Stream& problem, Device& device) {
  if (problem.in_flight_bytes != 0)
    throw Unsupported("stream: in_flight_bytes is of 128-bit accesses; leave it 0 for strides and single elements");
  if (problem.streams != 1) throw Unsupported("stream: single elements have one address stream on a GPU; use streams 1");
  const StreamKernel kernel = kernel_for(problem, By::elements);
  const KernelFacts facts = kernel_facts(device, kernel, kStreamThreads);
  const std::int64_t grid =
      persistent_grid(ceil_div(problem.elements, kStreamThreads), device.properties().sms, facts.blocks_per_sm);
  std::shared_ptr<void> memory;
  const StreamWork work = work_of(problem, device, grid, memory);
  Bound bound =
      launched(problem.stride == 1 ? "scalar" : "strided", kernel, facts, work, {grid, kStreamThreads, 0, memory}, device);
  bound.plan.set("vector_bytes", static_cast<int>(size_bytes(problem.dtype)));
  bound.plan.set("unroll", kUnroll);
  if (problem.stride != 1) {
    constexpr std::int64_t kSector = 32;  // what L2 fetches for one element
    const std::int64_t walk_bytes =
        std::min(problem.elements * size_bytes(problem.dtype), problem.elements / problem.stride * kSector);
    bound.plan.set("line_bytes", Value(kSector));
    bound.plan.set("lines_cached", walk_bytes <= device.properties().l2_bytes);
  }
  return bound;
}

Bound by_vector(const Stream& problem, Device& device) {
  By by = By::vectors;
  const KernelFacts resident = kernel_facts(device, kernel_for(problem, by), kStreamThreads);
  const bool deep = problem.access == Access::read && problem.streams == 1;
  const Flight flight = plan_flight(problem.in_flight_bytes, deep, resident.blocks_per_sm);
  if (flight.blocks_per_sm == 0)
    throw Unsupported("stream: " + std::to_string(problem.in_flight_bytes) + " bytes in flight per SM need more threads than the " +
                      std::to_string(resident.blocks_per_sm) + " blocks of " + std::to_string(kStreamThreads) +
                      " that fit; use fewer, or the variant bulk");
  if (flight.unroll == kDeepUnroll) by = By::deep_rounds;
  const StreamKernel kernel = kernel_for(problem, by);
  const KernelFacts facts = flight.unroll == kUnroll ? resident : kernel_facts(device, kernel, kStreamThreads);
  if (facts.blocks_per_sm < flight.blocks_per_sm)
    throw Unsupported("stream: " + std::to_string(flight.blocks_per_sm) + " blocks per SM are needed, " +
                      std::to_string(facts.blocks_per_sm) + " fit; use a smaller in_flight_bytes");
  const int streams = static_cast<int>(problem.streams);
  const int round = problem.reads_b() && streams < kUnroll ? flight.unroll / 2 : flight.unroll;
  const std::int64_t element = size_bytes(problem.dtype);
  const std::int64_t tiles = ceil_div(problem.elements * element, 16 * kStreamThreads);
  const std::int64_t grid = persistent_grid(tiles, device.properties().sms, flight.blocks_per_sm);
  std::shared_ptr<void> memory;
  StreamWork work = work_of(problem, device, grid, memory);
  work.plan = plan_stream(problem.elements, element, aligned(problem), streams, round, kStreamThreads, grid);
  Bound bound = launched("plain", kernel, facts, work, {grid, kStreamThreads, 0, memory}, device);
  bound.plan.set("vector_bytes", aligned(problem) ? 16 : static_cast<int>(element));
  bound.plan.set("unroll", round);
  bound.plan.set("in_flight_bytes", Value(flight.bytes()));
  return bound;
}

Bound by_tile(const Stream& problem, Device& device) {
  using TileKernel = void (*)(StreamWork, unsigned);
  const auto kernel = by_access(problem, [](auto access, auto type) -> TileKernel {
    if constexpr (decltype(access)::value == Access::read) throw Error("stream: read stores no tiles");
    else return tile_kernel<decltype(access)::value, decltype(type)>;
  });
  const KernelFacts facts = kernel_facts(device, kernel, kTileThreads);
  const int vectors = problem.reads_b() ? kTileVectors<Access::triad> : kTileVectors<Access::copy>;
  const std::int64_t element = size_bytes(problem.dtype);
  std::shared_ptr<void> memory;
  StreamWork work = work_of(problem, device, 0, memory);
  work.plan = plan_stream(problem.elements, element, aligned(problem), 1, vectors, kTileThreads, 1);
  const std::int64_t tiles = ceil_div(problem.elements * element, std::int64_t{16} * kTileThreads * vectors);
  Bound bound = planned("plain", device);
  record(bound.plan, "", facts, tiles, kTileThreads);
  bound.plan.set("vector_bytes", aligned(problem) ? 16 : static_cast<int>(element));
  bound.plan.set("unroll", vectors);
  const int arrays = problem.reads_b() ? 2 : 1;
  bound.plan.set("in_flight_bytes", Value(std::int64_t{16} * kTileThreads * vectors * arrays * facts.blocks_per_sm));
  const Launches launches(tiles, problem.passes, problem.in_place);
  bound.steps.push_back({"stream", [=](Queue& queue) {
                           launches.each([&](std::int64_t, unsigned blocks) {
                             kernel<<<blocks, kTileThreads, 0, stream(queue)>>>(work, static_cast<unsigned>(tiles));
                             ROOFLINE_CUDA_LAUNCHED("tile_kernel");
                           });
                         }, launches.count()});
  return bound;
}

// What no cache keeps is stored tile by tile, unless so many bytes in flight are asked for.
Bound plain(const Stream& problem, Device& device) {
  refuse_for_cpus(problem);
  if (problem.stride != 1 || problem.isa == "scalar") return by_element(problem, device);
  const bool far = problem.elements * size_bytes(problem.dtype) > device.properties().l2_bytes;
  const bool tiles = far && problem.writes_c() && !problem.in_place && problem.streams == 1 && problem.in_flight_bytes == 0;
  return tiles ? by_tile(problem, device) : by_vector(problem, device);
}

Bound cached(const Stream& problem, Device& device) {
  refuse_for_cpus(problem);
  refuse_but_vectors(problem, "cached");
  if (problem.access != Access::read) throw Unsupported("stream: cached re-reads through L1, which keeps no stores; use read");
  if (problem.in_flight_bytes != 0) throw Unsupported("stream: cached has 32 KiB in flight; leave in_flight_bytes 0");
  const auto kernel = cached_kernel<float>;
  const KernelFacts facts = kernel_facts(device, kernel, kCachedThreads);
  ROOFLINE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1));
  const std::int64_t grid = device.properties().sms;
  std::shared_ptr<void> memory;
  StreamWork work = work_of(problem, device, grid, memory);
  work.plan = plan_stream(problem.elements, 4, aligned(problem), 1, kCachedUnroll, kCachedThreads, grid);
  Bound bound = launched("cached", kernel, facts, work, {grid, kCachedThreads, 0, memory}, device);
  bound.plan.set("bytes_per_sm", Value(ceil_div(work.plan.vectors, grid) * 16));
  return bound;
}

}  // namespace

std::vector<KernelEntry> stream_kernels() {
  return joined({kernels_of({DType::fp32}, "cached", "", cached), stream_driver_kernels(), stream_bulk_kernels(),
                 kernels_of({DType::fp32, DType::fp64}, "plain", "", plain)});
}

}  // namespace roofline::cuda
