// host_copy and peer_copy: the copy engines between a GPU's memory and the host's or another GPU's, and a kernel that does it.
//
// Memory on the far side is taken in bind and freed with the last launch. With two directions at once, what leaves has a stream of
// its own, which starts after and ends before what the device's own stream does around it: the clock sees both.
#include <cuda_runtime_api.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_kernels.h"
#include "cuda/kernels.h"
#include "cuda/plan.h"
#include "ops/transfer.h"

namespace roofline::cuda {
namespace {

using ops::HostCopy;
using ops::PeerCopy;
using ops::Transfer;

using Memory = std::shared_ptr<void>;
using Copy = std::function<void(void* to, const void* from, CUstream_st* stream)>;

// How the far side is reached.
struct Route {
  std::function<Memory()> allocate;
  Copy in, out;
};

// A second stream, with the events that tie it to the device's own.
struct Aside {
  explicit Aside(const Device& device) : device(device) {
    device.use();
    try {
      ROOFLINE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      ROOFLINE_CUDA(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
      ROOFLINE_CUDA(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Aside() { destroy(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  void destroy() noexcept {
    ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(device.index()));
    if (begun) ROOFLINE_CUDA_NOEXCEPT(cudaEventDestroy(begun));
    if (ended) ROOFLINE_CUDA_NOEXCEPT(cudaEventDestroy(ended));
    if (stream) ROOFLINE_CUDA_NOEXCEPT(cudaStreamDestroy(stream));
  }

  const Device& device;
  cudaStream_t stream = nullptr;
  cudaEvent_t begun = nullptr, ended = nullptr;
};

// Both directions by one route. Bind copies `a` over, which also wakes a link that sleeps.
Bound bind(const Transfer& problem, Device& device, const Route& route) {
  device.use();
  const Memory from = problem.in ? route.allocate() : nullptr, to = problem.out ? route.allocate() : nullptr;
  if (from) {
    route.out(from.get(), problem.a, device.stream());
    ROOFLINE_CUDA(cudaStreamSynchronize(device.stream()));
  }
  const auto aside = problem.in && problem.out ? std::make_shared<Aside>(device) : nullptr;

  const Launch launch = [=](Queue& queue) {
    CUstream_st* const own = stream(queue);
    CUstream_st* const other = aside ? aside->stream : own;
    if (aside) {
      ROOFLINE_CUDA(cudaEventRecord(aside->begun, own));
      ROOFLINE_CUDA(cudaStreamWaitEvent(other, aside->begun, 0));
    }
    if (to) {
      route.out(to.get(), problem.a, other);
      ROOFLINE_CUDA(cudaMemcpy2DAsync(problem.sample, problem.width(), to.get(), problem.pitch(), problem.width(), problem.rows(),
                                      cudaMemcpyDefault, other));
    }
    if (from) route.in(problem.c, from.get(), own);
    if (aside) {
      ROOFLINE_CUDA(cudaEventRecord(aside->ended, other));
      ROOFLINE_CUDA(cudaStreamWaitEvent(own, aside->ended, 0));
    }
  };
  Bound bound;
  bound.steps.push_back({"copy", launch, aside ? 7 : 2});
  return bound;
}

Copy by_engine(std::int64_t size_bytes, cudaMemcpyKind kind) {
  return [=](void* to, const void* from, CUstream_st* stream) {
    ROOFLINE_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(size_bytes), kind, stream));
  };
}

Memory pinned(std::int64_t size_bytes) {
  void* memory = nullptr;
  ROOFLINE_CUDA(cudaHostAlloc(&memory, static_cast<std::size_t>(size_bytes), cudaHostAllocDefault));
  std::memset(memory, 0, static_cast<std::size_t>(size_bytes));
  return {memory, [](void* p) { ROOFLINE_CUDA_NOEXCEPT(cudaFreeHost(p)); }};
}

Memory pageable(std::int64_t size_bytes) {
  void* const memory = std::malloc(static_cast<std::size_t>(size_bytes));
  if (!memory) throw OutOfMemory("host_copy: the host has no " + std::to_string(size_bytes) + " bytes left; use a smaller problem");
  std::memset(memory, 1, static_cast<std::size_t>(size_bytes));  // not 0, which calloc would get without touching a page
  return {memory, std::free};
}

// What the link runs at now, as the kernel tells it ("32.0 GT/s PCIe"): an idle one sleeps at a lower speed. Empty where unknown.
std::string pci_attribute(std::string bus_id, const char* name) {
  for (char& c : bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file("/sys/bus/pci/devices/" + bus_id + "/" + name);
  std::string line;
  std::getline(file, line);
  return line;
}

Bound host_copy(const HostCopy& problem, Device& device, const char* variant, Memory (*allocate)(std::int64_t)) {
  const std::int64_t size = problem.size_bytes;
  Bound bound =
      bind(problem, device,
           {[=] { return allocate(size); }, by_engine(size, cudaMemcpyHostToDevice), by_engine(size, cudaMemcpyDeviceToHost)});
  bound.plan.set("implementation", std::string(variant) + "/copy engine");
  bound.plan.set("host_bytes", Value(size * (problem.in + problem.out)));
  for (const char* name : {"current_link_speed", "current_link_width"})
    if (const std::string value = pci_attribute(device.properties().pci_bus_id, name); !value.empty())
      bound.plan.set(std::string("pcie_") + (name + 8), Value(value));
  return bound;
}

Bound host_pinned(const HostCopy& problem, Device& device) { return host_copy(problem, device, "pinned", pinned); }

// The driver copies through pinned memory of its own, with the host's hands: such a copy waits.
Bound host_pageable(const HostCopy& problem, Device& device) {
  Bound bound = host_copy(problem, device, "pageable", pageable);
  bound.host_timed = true;
  return bound;
}

// Throws Unsupported where there is no such GPU, Error where it is this one.
int other_gpu(const PeerCopy& problem, const Device& device) {
  int count = 0;
  ROOFLINE_CUDA(cudaGetDeviceCount(&count));
  if (count < 2) throw Unsupported("peer_copy: this machine has one GPU, and a copy to a peer needs two");
  if (problem.peer < 0 || problem.peer >= count)
    throw Unsupported("peer_copy: peer is " + std::to_string(problem.peer) + "; there are " + std::to_string(count) +
                      " GPUs, numbered from 0");
  if (problem.peer == device.index())
    throw Error("peer_copy: peer " + std::to_string(problem.peer) + " is " + device.name() + " itself; choose another GPU");
  return static_cast<int>(problem.peer);
}

Memory on_peer(std::int64_t size_bytes, int peer, int own) {
  void* memory = nullptr;
  ROOFLINE_CUDA(cudaSetDevice(peer));
  const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(size_bytes));
  ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(own));
  check(code, "cudaMalloc on the peer", __FILE__, __LINE__);
  return {memory, [=](void* p) {
            ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(peer));
            ROOFLINE_CUDA_NOEXCEPT(cudaFree(p));
            ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(own));
          }};
}

bool can_access(int own, int peer) {
  int can = 0;
  ROOFLINE_CUDA(cudaDeviceCanAccessPeer(&can, own, peer));
  if (!can) return false;
  const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    check(code, "cudaDeviceEnablePeerAccess", __FILE__, __LINE__);
  return true;
}

Bound peer_copy(const PeerCopy& problem, Device& device, bool kernel) {
  const int peer = other_gpu(problem, device), own = device.index();
  const std::int64_t size = problem.size_bytes;
  device.use();
  const bool access = can_access(own, peer);
  if (kernel && !access)
    throw Unsupported("peer_copy: " + device.name() + " cannot reach the memory of GPU " + std::to_string(peer) +
                      " itself; use the variant copy_engine");
  if (kernel && !aligned(problem.a, problem.c))
    throw Unsupported("peer_copy: the kernel needs tensors at multiples of 16 bytes; use the variant copy_engine");
  Route route{[=] { return on_peer(size, peer, own); }, nullptr, nullptr};
  if (kernel) {
    route.in = route.out = [size, sms = device.properties().sms](void* to, const void* from, CUstream_st* stream) {
      launch_copy(stream, to, from, size, sms);
      ROOFLINE_CUDA_LAUNCHED("copy_kernel");
    };
  } else {
    const auto copy = [size](int to_gpu, int from_gpu) {
      return [=](void* to, const void* from, CUstream_st* stream) {
        ROOFLINE_CUDA(cudaMemcpyPeerAsync(to, to_gpu, from, from_gpu, static_cast<std::size_t>(size), stream));
      };
    };
    route.in = copy(own, peer), route.out = copy(peer, own);
  }
  Bound bound = bind(problem, device, route);
  bound.plan.set("implementation", kernel ? "kernel/" + device.properties().architecture() : std::string("copy engine"));
  bound.plan.set("peer_access", access);
  bound.plan.set("peer_bytes", Value(size * (problem.in + problem.out)));
  return bound;
}

Bound peer_by_engine(const PeerCopy& problem, Device& device) { return peer_copy(problem, device, false); }
Bound peer_by_kernel(const PeerCopy& problem, Device& device) { return peer_copy(problem, device, true); }

}  // namespace

std::vector<KernelEntry> host_copy_kernels() {
  return {entry("pageable", DType::int8, "", host_pageable), entry("pinned", DType::int8, "", host_pinned)};
}

std::vector<KernelEntry> peer_copy_kernels() {
  return {entry("kernel", DType::int8, "", peer_by_kernel), entry("copy_engine", DType::int8, "", peer_by_engine)};
}

}  // namespace roofline::cuda
