#include "fake_cuda.h"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/check.h"
#include "cuda/device_kernels.h"
#include "cuda/kernels.h"
#include "cuda/matmul/scale_layout.h"
#include "cuda/rows/elementwise.h"
#include "cuda/rows/rows.h"
#include "cuda/rows/tokens.h"
#include "fake_elements.h"
#include "reference.h"

namespace fake {

Runtime& runtime() {
  static Runtime one;
  return one;
}

void reset() { runtime() = Runtime(); }

void waits() {
  Runtime& r = runtime();
  if (!r.gate || *r.gate) return;
  *r.gave_up = 1;
  r.gate = nullptr;
}

void loads(const void* what) {
  if (runtime().loaded.insert(what).second) waits();
}

namespace {

cudaError_t outcome(const char* call) {
  Runtime& r = runtime();
  if (r.lost != cudaSuccess) return r.last = r.lost;
  if (const auto found = r.failures.find(call); found != r.failures.end() && found->second.after-- <= 0) {
    const Failure failure = found->second;
    if (failure.sticky) r.lost = failure.code;
    r.failures.erase(found);
    return r.last = failure.code;
  }
  return cudaSuccess;
}

struct Event {
  double at = 0;
  bool recorded = false, finished = false, timing = true;
};

std::string text(cudaStream_t stream) { return "stream " + std::to_string(reinterpret_cast<std::uintptr_t>(stream)); }
std::string text(cudaEvent_t event) { return "event " + std::to_string(reinterpret_cast<std::uintptr_t>(event)); }

}  // namespace
}  // namespace fake

#define FAKE(call) \
  if (const cudaError_t code = fake::outcome(#call); code != cudaSuccess) return code

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  FAKE(cudaGetDeviceCount);
  *count = fake::runtime().devices;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  fake::Runtime& r = fake::runtime();
  const cudaError_t last = r.lost != cudaSuccess ? r.lost : r.last;
  r.last = cudaSuccess;
  if (last == cudaSuccess) {
    if (const cudaError_t code = fake::outcome("a launch"); code != cudaSuccess) {
      r.last = cudaSuccess;
      return code;
    }
  }
  return last;
}
cudaError_t cudaPeekAtLastError() { return fake::runtime().lost != cudaSuccess ? fake::runtime().lost : fake::runtime().last; }
const char* cudaGetErrorName(cudaError_t code) {
#define NAMED(error) \
  if (code == error) return #error
  NAMED(cudaErrorNoDevice);
  NAMED(cudaErrorInsufficientDriver);
  NAMED(cudaErrorMemoryAllocation);
  NAMED(cudaErrorNoKernelImageForDevice);
  NAMED(cudaErrorIllegalAddress);
  NAMED(cudaErrorLaunchOutOfResources);
  return "cudaError";
}
const char* cudaGetErrorString(cudaError_t) { return "in words"; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  FAKE(cudaDeviceGetAttribute);
  return *value = 1000000, cudaSuccess;
}
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* all, int) {
  FAKE(cudaGetDeviceProperties);
  std::memset(all, 0, sizeof *all);
  std::snprintf(all->name, sizeof all->name, "Fake GPU");
  const fake::Runtime& r = fake::runtime();
  all->major = r.capability / 10, all->minor = r.capability % 10;
  all->multiProcessorCount = 132, all->maxThreadsPerMultiProcessor = 2048;
  all->sharedMemPerMultiprocessor = 233472, all->sharedMemPerBlockOptin = 232448;
  all->l2CacheSize = 50 << 20, all->totalGlobalMem = r.total_bytes, all->memoryBusWidth = 6144;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int size, int) { return std::snprintf(bus, size, "0000:01:00.0"), cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  FAKE(cudaSetDevice);
  fake::runtime().current = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  FAKE(cudaDeviceSynchronize);
  fake::waits();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  FAKE(cudaStreamCreateWithFlags);
  ++fake::runtime().streams;
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --fake::runtime().streams;
  std::free(stream);
  FAKE(cudaStreamDestroy);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  FAKE(cudaStreamSynchronize);
  fake::waits();
  ++fake::runtime().synchronised;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  FAKE(cudaHostAlloc);
  fake::waits();
  ++fake::runtime().pinned;
  *memory = std::calloc(1, size);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  FAKE(cudaHostGetDevicePointer);
  return *device = host, cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  fake::waits();
  fake::runtime().gate = nullptr;  // it may lie there
  --fake::runtime().pinned;
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  FAKE(cudaEventCreate);
  ++fake::runtime().events;
  *event = reinterpret_cast<cudaEvent_t>(new fake::Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  --fake::runtime().events;
  std::vector<cudaEvent_t>& pending = fake::runtime().unfinished;
  pending.erase(std::remove(pending.begin(), pending.end(), event), pending.end());
  delete reinterpret_cast<fake::Event*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKE(cudaEventCreateWithFlags);
  if (flags != cudaEventDisableTiming) return cudaErrorInvalidValue;
  const cudaError_t code = cudaEventCreate(event);
  if (code == cudaSuccess) reinterpret_cast<fake::Event*>(*event)->timing = false;
  return code;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAKE(cudaStreamWaitEvent);
  fake::runtime().order.push_back(fake::text(stream) + " after " + fake::text(event));
  return cudaSuccess;
}
#undef cudaPointerGetAttributes
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  FAKE(cudaPointerGetAttributes);
  *attributes = {};
  for (const auto& [memory, size] : fake::runtime().allocations)
    if (pointer >= memory && pointer < static_cast<const char*>(memory) + size) attributes->type = cudaMemoryTypeDevice;
  if (const auto found = fake::runtime().pointers.find(pointer); found != fake::runtime().pointers.end())
    *attributes = found->second;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE(cudaEventRecord);
  fake::runtime().order.push_back(fake::text(event) + " on " + fake::text(stream));
  auto& recorded = *reinterpret_cast<fake::Event*>(event);
  recorded.at = fake::runtime().clock_s, recorded.recorded = true, recorded.finished = false;
  fake::runtime().unfinished.push_back(event);
  return cudaSuccess;
}
// With it all that was recorded before: tests have one stream at a time.
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE(cudaEventSynchronize);
  fake::waits();
  std::vector<cudaEvent_t>& pending = fake::runtime().unfinished;
  const auto found = std::find(pending.begin(), pending.end(), event);
  if (found == pending.end()) return cudaSuccess;
  for (auto each = pending.begin(); each <= found; ++each) reinterpret_cast<fake::Event*>(*each)->finished = true;
  pending.erase(pending.begin(), found + 1);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  FAKE(cudaEventElapsedTime);
  for (const cudaEvent_t each : {from, to}) {
    const auto& event = *reinterpret_cast<fake::Event*>(each);
    if (!event.recorded || !event.timing) return cudaErrorInvalidResourceHandle;
    if (!event.finished) return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(1e3 * (reinterpret_cast<fake::Event*>(to)->at - reinterpret_cast<fake::Event*>(from)->at));
  return cudaSuccess;
}
// The last word counts: what a kernel was allowed can be taken from it again.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  FAKE(cudaFuncSetAttribute);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 232448) return cudaErrorInvalidValue;
  fake::runtime().dynamic_shared[kernel] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  FAKE(cudaFuncGetAttributes);
  *attributes = {};
  const auto found = fake::runtime().dynamic_shared.find(kernel);
  attributes->maxDynamicSharedSizeBytes = found == fake::runtime().dynamic_shared.end() ? 48 << 10 : found->second;
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() {
  fake::runtime().order.push_back("profile");
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  fake::runtime().order.push_back("end of profile");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  FAKE(cudaMemGetInfo);
  *free_bytes = fake::runtime().total_bytes - fake::runtime().used_bytes, *total = fake::runtime().total_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t size) {
  FAKE(cudaMalloc);
  fake::waits();
  fake::Runtime& r = fake::runtime();
  *memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
  r.allocations[*memory] = size, r.used_bytes += size, ++r.mallocs;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  fake::waits();
  fake::Runtime& r = fake::runtime();
  if (const auto found = r.allocations.find(memory); found != r.allocations.end()) {
    r.used_bytes -= found->second, r.allocations.erase(found);
    std::free(memory);
  }
  FAKE(cudaFree);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind, cudaStream_t) {
  FAKE(cudaMemcpyAsync);
  return std::memcpy(to, from, size), cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind, cudaStream_t) {
  FAKE(cudaMemcpy2DAsync);
  for (std::size_t i = 0; i < height; ++i)
    std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width);
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t size, cudaStream_t) {
  FAKE(cudaMemcpyPeerAsync);
  if (to_device == from_device) return cudaErrorInvalidDevice;
  return std::memcpy(to, from, size), cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  FAKE(cudaDeviceCanAccessPeer);
  return *can = fake::runtime().peer_access, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  FAKE(cudaDeviceEnablePeerAccess);
  return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  FAKE(cudaGraphCreate);
  ++fake::runtime().graphs;
  *graph = reinterpret_cast<cudaGraph_t>(new long(0));
  return cudaSuccess;
}
// Only chains: every node but the first depends on the one before.
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
                                   const cudaKernelNodeParams* kernel) {
  FAKE(cudaGraphAddKernelNode);
  long& nodes = *reinterpret_cast<long*>(graph);
  if (!kernel->func || kernel->gridDim.x != 1 || kernel->blockDim.x != 1) return cudaErrorInvalidValue;
  if (count != (nodes ? 1u : 0u) || (nodes && *after != reinterpret_cast<cudaGraphNode_t>(nodes))) return cudaErrorInvalidValue;
  *node = reinterpret_cast<cudaGraphNode_t>(++nodes);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  FAKE(cudaGraphInstantiateWithFlags);
  ++fake::runtime().graphs;
  *ready = reinterpret_cast<cudaGraphExec_t>(new long(*reinterpret_cast<long*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t ready, cudaStream_t) {
  FAKE(cudaGraphUpload);
  return fake::loads(ready), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t) {
  FAKE(cudaGraphLaunch);
  fake::loads(ready);
  fake::runtime().graph_nodes += *reinterpret_cast<long*>(ready);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --fake::runtime().graphs;
  delete reinterpret_cast<long*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  --fake::runtime().graphs;
  fake::runtime().loaded.erase(ready);
  delete reinterpret_cast<long*>(ready);
  return cudaSuccess;
}
// One kernel of the driver's for small memory, another for large.
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t) {
  FAKE(cudaMemsetAsync);
  static const int small = 0, large = 0;
  fake::loads(size < 1 << 20 ? &small : &large);
  return std::memset(memory, value, size), cudaSuccess;
}

}  // extern "C"

namespace roofline::cuda {

// What primitives.cu does, without kernels.
void launch_fill(CUstream_st*, void*, DType, std::int64_t, std::uint64_t, int) {}
void launch_gate(CUstream_st* stream, const volatile int* open, volatile int* timed_out, std::uint64_t) {
  fake::runtime().order.push_back("gate on " + fake::text(stream));
  fake::runtime().gate = open, fake::runtime().gave_up = timed_out;
  if (fake::runtime().gate_times_out) *timed_out = 1;
}
// SMs 3 and 131 at 1.5 GHz; the kernels of a batch take the time that the test says.
void launch_stamp(CUstream_st*, volatile ClockStamp* stamps, int sms) {
  for (const int sm : {3, sms - 1}) {
    stamps[sm].nanoseconds = 1000 + static_cast<std::uint64_t>(1e9 * fake::runtime().clock_s);
    stamps[sm].cycles = stamps[sm].nanoseconds * 3 / 2;
  }
}
void launch_clock(CUstream_st*, volatile std::uint64_t* cycles, volatile std::uint64_t* nanoseconds, std::uint64_t) {
  *cycles = 1980;
  *nanoseconds = 1000;
}
void launch_transpose(CUstream_st*, const void* from, void* to, DType dtype, std::int64_t matrices, std::int64_t rows,
                      std::int64_t columns) {
  for (std::int64_t m = 0; m < matrices; ++m)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        fake::set(dtype, to, m * rows * columns + j * rows + i, fake::element(dtype, from, m * rows * columns + i * columns + j));
}
void launch_tile_scales(CUstream_st*, const void* from, void* to, std::int64_t rows, std::int64_t blocks, std::int64_t row_stride,
                        std::int64_t block_stride, int) {
  std::memset(to, 0, static_cast<std::size_t>(tiled_scale_bytes(rows, blocks)));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block)
      static_cast<char*>(to)[reference::tiled(row, block, blocks)] =
          static_cast<const char*>(from)[row * row_stride + block * block_stride];
}
void launch_square_scales(CUstream_st*, const void* from, void* to, std::int64_t blocks, std::int64_t columns, int) {
  const std::int64_t pitch = square_scale_pitch(blocks);
  std::memset(to, 0, static_cast<std::size_t>(4 * pitch * columns));
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t column = 0; column < columns; ++column)
      static_cast<float*>(to)[column * pitch + block] = static_cast<const float*>(from)[block * columns + column];
}
void launch_product_factors(CUstream_st*, const void* a, const void* b, void* alpha_beta) {
  static_cast<float*>(alpha_beta)[0] = *static_cast<const float*>(a) * *static_cast<const float*>(b);
  static_cast<float*>(alpha_beta)[1] = 0;
}
// What elements.cu binds, done on the host.
namespace {

template <class F>
Bound elements(const char* step, DType dtype, std::int64_t count, void* y, F value) {
  Bound bound;
  bound.plan.set("workspace_bytes", 0);
  bound.plan.set("grid", 1);
  bound.steps.push_back({step, [=](Queue&) {
                           for (std::int64_t i = 0; i < count; ++i) fake::set(dtype, y, i, value(i));
                         }});
  return bound;
}

}  // namespace

Bound bind_relu(const ops::Relu& p, Device&) {
  return elements("relu", p.dtype, p.elements, p.y,
                  [=](std::int64_t i) { return reference::relu(fake::element(p.dtype, p.x, i)); });
}
Bound bind_gelu(const ops::Gelu& p, Device&) {
  return elements("gelu", p.dtype, p.elements, p.y, [=](std::int64_t i) {
    return (p.tanh ? reference::gelu_tanh : reference::gelu)(fake::element(p.dtype, p.x, i));
  });
}
Bound bind_silu_mul(const ops::SiluMul& p, std::int64_t pitch, Device&) {
  return elements("silu_mul", p.dtype, p.elements(), p.y, [=](std::int64_t i) {
    const std::int64_t at = i / p.columns * pitch + i % p.columns;
    return reference::silu(fake::element(p.dtype, p.gate, at)) * fake::element(p.dtype, p.up, at);
  });
}
void launch_copy(CUstream_st*, void* to, const void* from, std::int64_t size_bytes, int) {
  std::memcpy(to, from, static_cast<std::size_t>(size_bytes));
}
void launch_flush(CUstream_st*, void*, std::int64_t, int) {}
void launch_empty(CUstream_st*) { ++fake::runtime().empty_launches; }
void* empty_kernel_address() { return &fake::runtime(); }
Bound bind_embedding(const ops::Embedding& p, Device&) {
  const auto* const ids = static_cast<const std::int32_t*>(p.ids);
  return elements("embedding", p.dtype, p.tokens * p.d_model, p.out, [=](std::int64_t i) {
    return fake::element(p.dtype, p.table, ids[i / p.d_model] * p.d_model + i % p.d_model);
  });
}
Bound bind_combine(const Combine& p, Device&) {
  return elements("combine", p.dtype, p.tokens * p.d_model, p.out, [=](std::int64_t i) {
    const std::int64_t token = i / p.d_model;
    double sum = 0;
    for (int j = 0; j < p.per_token; ++j)
      sum += (j < p.routed ? p.gates[token * p.routed + j] : 1) *
             fake::element(p.dtype, p.rows, p.places[token * p.per_token + j] * p.d_model + i % p.d_model);
    return sum;
  });
}
Bound bind_probabilities(const Probabilities& p, Device&) {
  Bound bound;
  bound.plan.set("grid", 1);
  bound.steps.push_back({"softmax", [=](Queue&) {
                           for (std::int64_t row = 0; row < p.rows; ++row) {
                             const float* const scores = static_cast<const float*>(p.scores) + row * p.columns;
                             const std::int64_t visible = p.causal ? row % p.seq_q + p.columns - p.seq_q + 1 : p.columns;
                             std::vector<double> all = reference::softmax({scores, scores + visible});
                             all.resize(static_cast<std::size_t>(p.columns));
                             for (std::int64_t j = 0; j < p.columns; ++j) fake::set(p.dtype, p.p, row * p.columns + j, all[j]);
                           }
                         }});
  return bound;
}
void load_primitives() {
  if (const cudaError_t code = fake::outcome("load_primitives"); code != cudaSuccess)
    ::roofline::cuda::fail(code, "cudaFuncGetAttributes", __FILE__, __LINE__);
}

std::vector<KernelEntry> attention_kernels() { return attention_library_kernels(); }
std::vector<KernelEntry> grouped_matmul_kernels() { return grouped_matmul_library_kernels(); }
std::vector<KernelEntry> stream_kernels() { return stream_driver_kernels(); }

#define WITHOUT(operators) \
  std::vector<KernelEntry> operators##_kernels() { return {}; }
WITHOUT(pointer_chase) WITHOUT(mixed_intensity)
WITHOUT(mma)
WITHOUT(fma) WITHOUT(softmax) WITHOUT(rms_norm) WITHOUT(residual_rms_norm) WITHOUT(layer_norm)
    WITHOUT(bias_relu) WITHOUT(relu) WITHOUT(gelu) WITHOUT(silu_mul) WITHOUT(convert) WITHOUT(adam) WITHOUT(rope) WITHOUT(embedding)
        WITHOUT(topk_softmax) WITHOUT(topk_sigmoid) WITHOUT(cached_attention) WITHOUT(mla_decode)

}  // namespace roofline::cuda
