// stream on a GPU: persistent blocks, 128-bit accesses, several in flight per thread.
//
// What hides DRAM's latency is bytes in flight per SM: 1024 threads with eight 16-byte loads each keep 128 KB. A bound of 2048
// threads would leave 32 registers a thread, too few to hold eight loads at once, and SMs of 8.6, 8.9 and 12.0 hold only 1536.
#include <type_traits>

#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "ops/stream.h"

namespace roofline::cuda {
namespace {

using ops::Stream;
using Access = Stream::Access;

constexpr int kThreads = 256;
constexpr int kUnroll = 8;  // 16-byte loads per thread and round, over all arrays

// Blocks per SM that the registers must leave room for: 1024 threads, but 768 where eight streams of two arrays make 16 loads.
constexpr int blocks_per_sm(bool two_arrays, int streams) { return two_arrays && streams == kUnroll ? 3 : 4; }

template <class T>
struct alignas(16) Vector {
  T lane[16 / sizeof(T)];
};

struct StreamWork {
  const void* a;
  const void* b;
  void* c;
  double factor;
  std::int64_t passes;
  StreamPlan plan;
  double* partials;    // [gridDim.x]; read
  unsigned* finished;  // [1], 0 between launches; read
  double* sum;         // [1]; read
};

// ld.global.cg: past L1, which would otherwise serve a second pass over a small array.
__device__ inline Vector<float> load(const Vector<float>* p) {
  const float4 x = __ldcg(reinterpret_cast<const float4*>(p));
  return {{x.x, x.y, x.z, x.w}};
}
__device__ inline Vector<double> load(const Vector<double>* p) {
  const double2 x = __ldcg(reinterpret_cast<const double2*>(p));
  return {{x.x, x.y}};
}
__device__ inline void store(Vector<float>* p, const Vector<float>& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.lane[0], x.lane[1], x.lane[2], x.lane[3]);
}
__device__ inline void store(Vector<double>* p, const Vector<double>& x) {
  *reinterpret_cast<double2*>(p) = make_double2(x.lane[0], x.lane[1]);
}

template <Access access, class T>
__device__ inline T combine(T a, T b, T factor) {
  if constexpr (access == Access::write) return factor;
  if constexpr (access == Access::copy) return a;
  if constexpr (access == Access::scale) return factor * a;
  if constexpr (access == Access::add) return a + b;
  return a + factor * b;
}

// One block reduces its sums in a fixed tree; the last block to finish adds the blocks' sums in their order, so that the result
// does not depend on timing.
__device__ void reduce(double mine, const StreamWork& work) {
  __shared__ double sums[kThreads];
  __shared__ bool last;
  const auto tree = [&](double x) {
    sums[threadIdx.x] = x;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  };
  tree(mine);
  if (threadIdx.x == 0) {
    work.partials[blockIdx.x] = sums[0];
    __threadfence();  // the partial is visible before the count is
    last = atomicAdd(work.finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double total = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) total += __ldcg(work.partials + block);
  tree(total);
  if (threadIdx.x == 0) {
    *work.sum = sums[0];
    *work.finished = 0;  // for the next launch
  }
}

// Per round a thread loads kUnroll vectors (half as many of each of two arrays), Streams parts side by side, before it stores any.
// Nothing stays on chip; every pass reads and writes the whole arrays through L2.
template <Access access, class T, int Streams>
__global__ void __launch_bounds__(kThreads, blocks_per_sm(access == Access::add || access == Access::triad, Streams))
stream_kernel(const StreamWork work) {
  constexpr bool kReadsA = access != Access::write;
  constexpr bool kReadsB = access == Access::add || access == Access::triad;
  constexpr bool kWrites = access != Access::read;
  constexpr int kRound = kReadsB && Streams < kUnroll ? kUnroll / 2 : kUnroll;  // eight loads in all
  constexpr int kPerPart = kRound / Streams;
  constexpr int kLanes = 16 / sizeof(T);
  using V = Vector<T>;

  const V* a = static_cast<const V*>(work.a);
  const V* b = static_cast<const V*>(work.b);
  V* c = static_cast<V*>(work.c);
  const T factor = static_cast<T>(work.factor);
  const std::int64_t part = work.plan.part;
  const std::int64_t all_threads = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  V partial = {};
  T tail = 0;

  // kPerPart vectors of every part, `step` apart, from `first` on; with Guarded, only those inside the part.
  const auto round = [&](std::int64_t first, std::int64_t step, auto guarded) {
    constexpr bool kGuarded = decltype(guarded)::value;
    [[maybe_unused]] V x[kRound] = {}, y[kRound] = {};
#pragma unroll
    for (int u = 0; u < kRound; ++u) {
      const std::int64_t at = first + (u % kPerPart) * step;
      [[maybe_unused]] const std::int64_t index = (u / kPerPart) * part + at;
      if (kGuarded && at >= part) continue;
      if constexpr (kReadsA) x[u] = load(a + index);
      if constexpr (kReadsB) y[u] = load(b + index);
    }
#pragma unroll
    for (int u = 0; u < kRound; ++u) {
      const std::int64_t at = first + (u % kPerPart) * step;
      [[maybe_unused]] const std::int64_t index = (u / kPerPart) * part + at;
      if constexpr (kWrites) {
        if (kGuarded && at >= part) continue;
        V z;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) z.lane[lane] = combine<access>(x[u].lane[lane], y[u].lane[lane], factor);
        store(c + index, z);
      } else {
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) partial.lane[lane] += x[u].lane[lane];
      }
    }
  };

  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
    constexpr std::int64_t kTile = std::int64_t{kThreads} * kPerPart;
    for (std::int64_t wave = 0; wave < work.plan.waves; ++wave)
      round((wave * gridDim.x + blockIdx.x) * kTile + threadIdx.x, kThreads, std::false_type{});
    const std::int64_t walked = work.plan.waves * gridDim.x * kTile;
    if (walked + thread < part) round(walked + thread, all_threads, std::true_type{});
    for (std::int64_t i = thread; i < work.plan.tail_elements; i += all_threads) {
      const std::int64_t at = work.plan.vectors * kLanes + i;
      const T p = kReadsA ? __ldcg(static_cast<const T*>(work.a) + at) : T{0};
      const T q = kReadsB ? __ldcg(static_cast<const T*>(work.b) + at) : T{0};
      if constexpr (kWrites)
        static_cast<T*>(work.c)[at] = combine<access>(p, q, factor);
      else
        tail += p;
    }
    asm volatile("" ::: "memory");  // every pass really happens
  }

  if constexpr (!kWrites) {
    double mine = tail;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) mine += partial.lane[lane];
    reduce(mine, work);
  }
}

using StreamKernel = void (*)(StreamWork);

template <Access access, class T>
StreamKernel with_streams(std::int64_t streams) {
  switch (streams) {
    case 1: return stream_kernel<access, T, 1>;
    case 2: return stream_kernel<access, T, 2>;
    case 4: return stream_kernel<access, T, 4>;
    case 8: return stream_kernel<access, T, 8>;
    default: throw Error("stream: streams must be one of 1, 2, 4, 8, got " + std::to_string(streams));
  }
}

template <class T>
StreamKernel with_access(const Stream& problem) {
  switch (problem.access) {
    case Access::read: return with_streams<Access::read, T>(problem.streams);
    case Access::write: return with_streams<Access::write, T>(problem.streams);
    case Access::copy: return with_streams<Access::copy, T>(problem.streams);
    case Access::scale: return with_streams<Access::scale, T>(problem.streams);
    case Access::add: return with_streams<Access::add, T>(problem.streams);
    case Access::triad: return with_streams<Access::triad, T>(problem.streams);
  }
  throw Error("stream: unknown access");
}

Bound plain(const Stream& problem, Device& device) {
  if (!problem.isa.empty())
    throw Unsupported("stream: isa '" + problem.isa + "' is an instruction set of CPUs; leave it empty on a GPU");
  if (problem.stride != 1) throw Unsupported("stream: strided reads are implemented for CPUs only; use stride 1 on a GPU");
  if (problem.prefetch) throw Unsupported("stream: prefetchnta is an instruction of CPUs; use prefetch none on a GPU");
  const StreamKernel kernel = problem.dtype == DType::fp64 ? with_access<double>(problem) : with_access<float>(problem);
  const KernelFacts facts = kernel_facts(device, kernel, kThreads);
  const int streams = static_cast<int>(problem.streams);
  const int round = problem.reads_b() && streams < kUnroll ? kUnroll / 2 : kUnroll;
  const std::int64_t element = size_bytes(problem.dtype);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(problem.a) | reinterpret_cast<std::uintptr_t>(problem.b) |
                        reinterpret_cast<std::uintptr_t>(problem.c)) % 16 == 0;
  const std::int64_t tiles = ceil_div(problem.elements * element, 16 * kThreads);
  const std::int64_t grid = persistent_grid(tiles, device.properties().sms, facts.blocks_per_sm);

  StreamWork work{};
  work.a = problem.a;
  work.b = problem.b;
  work.c = problem.c;
  work.factor = problem.factor;
  work.passes = problem.passes;
  work.plan = plan_stream(problem.elements, element, aligned, streams, round, kThreads, grid);
  work.sum = problem.sum;
  const std::int64_t workspace_bytes = problem.sum ? grid * 8 + 8 : 0;
  std::shared_ptr<void> memory;
  if (problem.sum) {
    memory = workspace(device, workspace_bytes);
    device.fill(memory.get(), DType::int8, workspace_bytes, Fill::zeros, 0);
    work.partials = static_cast<double*>(memory.get());
    work.finished = reinterpret_cast<unsigned*>(work.partials + grid);
  }

  Bound bound;
  bound.plan.set("implementation", "plain/" + device.properties().architecture());
  record(bound.plan, "", facts, grid, kThreads);
  bound.plan.set("vector_bytes", aligned ? 16 : static_cast<int>(element));
  bound.plan.set("unroll", round);
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.steps.push_back({"stream", [kernel, work, grid, memory](Queue& queue) {
    kernel<<<static_cast<unsigned>(grid), kThreads, 0, stream(queue)>>>(work);
    ROOFLINE_CUDA_LAUNCHED("stream_kernel");
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> stream_kernels() {
  using K = Kernel<Stream, Device>;
  std::vector<KernelEntry> all;
  for (const DType dtype : {DType::fp32, DType::fp64})
    all.push_back(entry(K{"plain", dtype, "", "persistent blocks, 128-bit loads past L1, ordinary stores, nothing kept", plain}));
  return all;
}

}  // namespace roofline::cuda
