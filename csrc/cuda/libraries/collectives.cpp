// Collectives by NCCL between the GPUs of one machine: this device is rank 0, the other ranks are the other GPUs in their order.
//
// A launch enqueues every rank's part on a stream of its own GPU; this device's is timed, which ends when all of its own
// data has come. The other ranks' parts need no gate: they wait for rank 0's. Nothing of them is in the caller's tensors: they are
// allocated here, filled from the problem's, and freed with the last launch.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/kernels.h"
#include "cuda/libraries/nccl.h"
#include "ops/collectives.h"

namespace roofline::cuda {
namespace {

using ops::Collective;
using ops::Pattern;

struct World {
  const Nccl& library;
  std::vector<int> gpus;  // of each rank
  std::vector<nccl::Comm> comms;
};

// Making communicators takes seconds, so that all problems of the same GPUs share them, for the life of the process.
const World& world_of(const Nccl& library, const std::vector<int>& gpus) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::vector<int>, World>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = known.find(gpus); found != known.end()) return found->second;
  World world{library, gpus, std::vector<nccl::Comm>(gpus.size())};
  check(library, library.comm_init_all(world.comms.data(), static_cast<int>(gpus.size()), gpus.data()), "ncclCommInitAll");
  return known.emplace(gpus, std::move(world)).first->second;
}

nccl::Type type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64: return nccl::fp64;
    case DType::fp32: return nccl::fp32;
    case DType::fp16: return nccl::fp16;
    case DType::bf16: return nccl::bf16;
    case DType::int8: return nccl::int8;
    default: throw Unsupported("NCCL has no type for " + name(dtype));
  }
}

// Makes a GPU the calling thread's while it lives.
class On {
 public:
  On(const Device& device, int gpu) : device_(device) { ROOFLINE_CUDA(cudaSetDevice(gpu)); }
  ~On() { ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(device_.index())); }

 private:
  const Device& device_;
};

// What one rank sends and receives. Rank 0's memory is the caller's, but for the copy of what all_reduce sends.
struct Rank {
  void* from = nullptr;
  void* to = nullptr;
  CUstream_st* stream = nullptr;
};

struct Ranks {
  Device& device;
  const World& world;
  std::vector<Rank> ranks;
  std::vector<std::pair<int, void*>> memory;  // (GPU, allocation)

  Ranks(Device& given, const World& all) : device(given), world(all), ranks(all.gpus.size()) {}
  ~Ranks() {
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(world.gpus[r]));
      if (!ranks[r].stream) continue;
      ROOFLINE_CUDA_NOEXCEPT(cudaStreamSynchronize(ranks[r].stream));
      ROOFLINE_CUDA_NOEXCEPT(cudaStreamDestroy(ranks[r].stream));
    }
    for (const auto& [gpu, allocation] : memory) {
      ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(gpu));
      ROOFLINE_CUDA_NOEXCEPT(cudaFree(allocation));
    }
    ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(device.index()));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Zeros on the GPU of a rank.
  void* allocate(std::size_t rank, std::int64_t size_bytes) {
    const int gpu = world.gpus[rank];
    const On on(device, gpu);
    std::size_t free_bytes = 0, total_bytes = 0;
    ROOFLINE_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    void* made = nullptr;
    if (static_cast<std::size_t>(size_bytes) > free_bytes ||
        cudaMalloc(&made, static_cast<std::size_t>(size_bytes)) != cudaSuccess) {
      cudaGetLastError();
      throw OutOfMemory("cuda:" + std::to_string(gpu) + ": " + std::to_string(size_bytes) + " bytes are needed there for rank " +
                        std::to_string(rank) + ", " + std::to_string(free_bytes) + " are free; use fewer elements");
    }
    memory.emplace_back(gpu, made);
    ROOFLINE_CUDA(cudaMemsetAsync(made, 0, static_cast<std::size_t>(size_bytes), ranks[rank].stream));
    ROOFLINE_CUDA(cudaStreamSynchronize(ranks[rank].stream));
    return made;
  }

  // Between any two GPUs; the driver goes through the host where they have no link.
  void copy(void* to, const void* from, std::int64_t size_bytes) {
    if (size_bytes <= 0) return;
    ROOFLINE_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(size_bytes), cudaMemcpyDefault, device.stream()));
    ROOFLINE_CUDA(cudaStreamSynchronize(device.stream()));
  }

  void synchronise() const {
    for (const Rank& rank : ranks) ROOFLINE_CUDA(cudaStreamSynchronize(rank.stream));
  }
};

double to_double(DType dtype, const char* at) {
  if (dtype == DType::fp32) return *reinterpret_cast<const float*>(at);
  if (dtype == DType::fp16) return __half2float(*reinterpret_cast<const __half*>(at));
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at));
}

void from_double(DType dtype, double x, char* at) {
  if (dtype == DType::fp32) *reinterpret_cast<float*>(at) = static_cast<float>(x);
  if (dtype == DType::fp16) *reinterpret_cast<__half*>(at) = __float2half_rn(static_cast<float>(x));
  if (dtype == DType::bf16) *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(static_cast<float>(x));
}

// whole - part, on the host: what the others must add to `part` for the sum to be `whole`.
std::vector<char> difference(Device& device, DType dtype, const char* whole, const char* part, std::int64_t elements) {
  const std::int64_t each = size_bytes(dtype);
  std::vector<char> a(static_cast<std::size_t>(elements * each)), b(a.size());
  device.copy_out(a.data(), whole, a.size());
  device.copy_out(b.data(), part, b.size());
  for (std::int64_t i = 0; i < elements * each; i += each)
    from_double(dtype, to_double(dtype, &a[i]) - to_double(dtype, &b[i]), &a[i]);
  return a;
}

// Gives every other rank what the problem says that it holds, and all ranks room for what they receive.
void fill(Ranks& all, const Collective& problem) {
  const std::int64_t each = size_bytes(problem.dtype), part = problem.chunk() * each, whole = problem.elements * each;
  const bool gathers = problem.pattern == Pattern::all_gather, scatters = problem.pattern == Pattern::reduce_scatter;
  const auto received = [&](std::size_t rank) { return static_cast<const char*>(problem.received) + (rank - 1) * part; };
  all.ranks[0].to = problem.out;
  all.ranks[0].from = const_cast<void*>(problem.x);
  if (problem.pattern == Pattern::all_reduce) {
    // From a copy, so that repeated launches add up the same numbers.
    all.ranks[0].from = all.allocate(0, whole);
    all.copy(all.ranks[0].from, problem.x, whole);
  }
  for (std::size_t r = 1; r < all.ranks.size(); ++r) {
    all.ranks[r].from = all.allocate(r, gathers ? part : whole);
    all.ranks[r].to = all.allocate(r, scatters ? part : whole);
    all.copy(all.ranks[r].from, received(r), std::min(part, gathers ? part : whole));
  }
  if (problem.pattern != Pattern::all_reduce || all.ranks.size() < 2) return;
  char* const second = static_cast<char*>(all.ranks[1].from);
  for (std::int64_t chunk = 1; chunk < problem.ranks; ++chunk) {
    const std::int64_t first = chunk * problem.chunk(), count = std::min(problem.chunk(), problem.elements - first);
    if (count <= 0) break;
    const auto missing = difference(all.device, problem.dtype, static_cast<const char*>(problem.finished) + (chunk - 1) * part,
                                    static_cast<const char*>(problem.x) + first * each, count);
    all.copy(second + first * each, missing.data(), count * each);
  }
}

// All ranks' parts of one collective, in one group.
void enqueue(const Ranks& all, const Collective& problem) {
  const Nccl& library = all.world.library;
  const nccl::Type type = type_of(problem.dtype);
  const std::size_t count = static_cast<std::size_t>(problem.elements), part = static_cast<std::size_t>(problem.chunk());
  const std::size_t part_bytes = part * static_cast<std::size_t>(size_bytes(problem.dtype));
  const int ranks = static_cast<int>(all.ranks.size());
  check(library, library.group_start(), "ncclGroupStart");
  // A group that a failing call leaves must end too.
  struct Ended {
    const Nccl& library;
    bool done = false;
    ~Ended() {
      if (!done) library.group_end();
    }
  } group{library};
  for (int r = 0; r < ranks; ++r) {
    const Rank& rank = all.ranks[r];
    const nccl::Comm comm = all.world.comms[r];
    switch (problem.pattern) {
      case Pattern::all_reduce:
        check(library, library.all_reduce(rank.from, rank.to, count, type, nccl::sum, comm, rank.stream), "ncclAllReduce");
        break;
      case Pattern::all_gather:
        check(library, library.all_gather(rank.from, rank.to, part, type, comm, rank.stream), "ncclAllGather");
        break;
      case Pattern::reduce_scatter:
        check(library, library.reduce_scatter(rank.from, rank.to, part, type, nccl::sum, comm, rank.stream), "ncclReduceScatter");
        break;
      case Pattern::all_to_all:
        for (int other = 0; other < ranks; ++other) {
          const std::size_t offset = static_cast<std::size_t>(other) * part_bytes;
          check(library, library.send(static_cast<const char*>(rank.from) + offset, part, type, other, comm, rank.stream),
                "ncclSend");
          check(library, library.receive(static_cast<char*>(rank.to) + offset, part, type, other, comm, rank.stream), "ncclRecv");
        }
        break;
    }
  }
  group.done = true;
  check(library, library.group_end(), "ncclGroupEnd");
}

template <Pattern pattern>
Bound bind(const ops::CollectiveOf<pattern>& problem, Device& device) {
  device.use();
  int present = 0;
  ROOFLINE_CUDA(cudaGetDeviceCount(&present));
  const std::string here = std::string(problem.op) + ": ";
  if (problem.ranks > present)
    throw Unsupported(here + std::to_string(problem.ranks) + " ranks need as many GPUs, there " +
                      (present == 1 ? "is 1" : "are " + std::to_string(present)) + "; ranks of other machines are not reached");
  if (pattern != Pattern::all_reduce && problem.elements % problem.ranks != 0)
    throw Unsupported(here + "NCCL takes parts of one size: elements must be a multiple of ranks, got " +
                      std::to_string(problem.elements) + " and " + std::to_string(problem.ranks));
  std::vector<int> gpus = {device.index()};
  for (int gpu = 0; static_cast<std::int64_t>(gpus.size()) < problem.ranks; ++gpu)
    if (gpu != device.index()) gpus.push_back(gpu);

  const auto all = std::make_shared<Ranks>(device, world_of(nccl_library(), gpus));
  all->ranks[0].stream = device.stream();
  for (std::size_t r = 1; r < gpus.size(); ++r) {
    const On on(device, gpus[r]);
    ROOFLINE_CUDA(cudaStreamCreateWithFlags(&all->ranks[r].stream, cudaStreamNonBlocking));
  }
  fill(*all, problem);
  // The first one connects the ranks, for which the host waits: never behind a gate. x of all_reduce is put back.
  enqueue(*all, problem);
  all->synchronise();
  if (pattern == Pattern::all_reduce) all->copy(all->ranks[0].to, all->ranks[0].from, problem.elements * size_bytes(problem.dtype));

  Bound bound = planned("nccl", device);
  bound.plan.set("library_implementation", "NCCL " + all->world.library.version);
  bound.plan.set("ranks", static_cast<int>(gpus.size()));
  bound.plan.set("workspace_bytes",
                 pattern == Pattern::all_reduce ? problem.elements * size_bytes(problem.dtype) : std::int64_t{0});
  bound.steps.push_back({problem.op, [all, problem](Queue&) { enqueue(*all, problem); }});
  return bound;
}

template <Pattern pattern>
std::vector<KernelEntry> kernels(std::initializer_list<DType> dtypes) {
  return kernels_of(dtypes, "library", "", bind<pattern>);
}

}  // namespace

std::vector<KernelEntry> all_reduce_kernels() { return kernels<Pattern::all_reduce>({DType::fp32, DType::fp16, DType::bf16}); }
std::vector<KernelEntry> reduce_scatter_kernels() {
  return kernels<Pattern::reduce_scatter>({DType::fp32, DType::fp16, DType::bf16});
}
std::vector<KernelEntry> all_gather_kernels() {
  return kernels<Pattern::all_gather>({DType::fp64, DType::fp32, DType::fp16, DType::bf16, DType::int8});
}
std::vector<KernelEntry> all_to_all_kernels() {
  return kernels<Pattern::all_to_all>({DType::fp64, DType::fp32, DType::fp16, DType::bf16, DType::int8});
}

}  // namespace roofline::cuda
