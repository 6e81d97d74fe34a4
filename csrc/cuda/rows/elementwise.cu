// Binding the kernels over elements (cuda/rows/elementwise_kernels.cuh).
#include <algorithm>

#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/rows/elementwise.h"
#include "cuda/rows/elementwise_kernels.cuh"
#include "ops/adam.h"
#include "ops/rows.h"

namespace roofline::cuda {
namespace {

std::uintptr_t phase(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16; }

// items: what a thread takes at once, `unroll` of them per round.
template <class... Parameters, class... Given>
Bound bind_elements(const char* step, Device& device, void (*kernel)(Parameters...), std::int64_t items, int unroll, bool vectors,
                    DType dtype, Given... given) {
  const std::int64_t grid = passing_grid(ceil_div(items, std::int64_t{kElementThreads} * unroll));
  Bound bound = planned("fused", device);
  add_step(bound, {step, step}, kernel, kernel_facts(device, kernel, kElementThreads), {grid, kElementThreads}, given...);
  bound.plan.set("vector_bytes", vectors ? 16 : static_cast<int>(size_bytes(dtype)));
  bound.plan.set("workspace_bytes", 0);
  return bound;
}

// A vector each.
template <class T>
std::int64_t threads_of(const Run<T>& run) {
  return std::max(run.high - run.low, run.others());
}

template <class F>
Bound map(const char* step, const ops::Elements& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) {
    using T = decltype(type);
    const bool vectors = phase(problem.x) == phase(problem.y);
    const Run<T> run(static_cast<const T*>(problem.x), problem.elements, vectors);
    return bind_elements(step, device, map_kernel<F, T>, threads_of(run), 1, vectors, problem.dtype,
                         static_cast<const T*>(problem.x), static_cast<T*>(problem.y), run);
  });
}

// pitch: elements from one row of gate and up to the next.
template <class T>
Bound silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device) {
  // Rows that follow each other are one.
  const std::int64_t rows = pitch == problem.columns ? 1 : problem.rows;
  const std::int64_t columns = pitch == problem.columns ? problem.elements() : problem.columns;
  const bool even = rows == 1 || (pitch % Pack<T>::kLanes == 0 && columns % Pack<T>::kLanes == 0);
  const bool vectors = even && phase(problem.gate) == phase(problem.y) && phase(problem.up) == phase(problem.y);
  const Run<T> run(static_cast<const T*>(problem.gate), columns, vectors);
  const std::int64_t segments = ceil_div(threads_of(run), kElementThreads);
  return bind_elements("silu_mul", device, map2_kernel<SiluMul, T>, rows * segments * kElementThreads, 1, vectors, problem.dtype,
                       static_cast<const T*>(problem.gate), static_cast<const T*>(problem.up), static_cast<T*>(problem.y), run,
                       pitch, Divisor(static_cast<int>(segments)));
}

Bound silu_mul(const ops::SiluMul& problem, Device& device) { return bind_silu_mul(problem, problem.columns, device); }

bool floating(DType dtype) { return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16; }

Bound convert(const ops::Convert& problem, Device& device) {
  if (!floating(problem.out_dtype))
    throw Unsupported("convert: to " + name(problem.out_dtype) + " there is no CUDA kernel; use out_dtype fp32, fp16 or bf16");
  const bool vectors = aligned(problem.x, problem.y);
  const std::int64_t groups = vectors ? problem.elements / kGroup : 0;
  const AnyTensor x = {const_cast<void*>(problem.x), problem.dtype}, y = {problem.y, problem.out_dtype};
  return bind_elements("convert", device, convert_kernel, ceil_div(problem.elements, kGroup), kConvertUnroll, vectors,
                       problem.dtype, x, y, problem.elements, groups);
}

Bound adam(const ops::Adam& problem, Device& device) {
  const bool vectors = aligned(problem.p, problem.master, problem.g, problem.m, problem.v);
  AdamWork work{};
  work.p = {problem.p, problem.dtype};
  work.master = {problem.master, DType::fp32};
  work.g = {const_cast<void*>(problem.g), problem.gradient_dtype};
  work.m = {problem.m, problem.moment_dtype};
  work.v = {problem.v, problem.moment_dtype};
  work.elements = problem.elements;
  work.groups = vectors ? problem.elements / kGroup : 0;
  work.beta1 = static_cast<float>(ops::Adam::kBeta1);
  work.beta2 = static_cast<float>(ops::Adam::kBeta2);
  work.keep = static_cast<float>(problem.decayed ? 1 - ops::Adam::kRate * ops::Adam::kDecay : 1.0);
  work.step = static_cast<float>(ops::Adam::step());
  work.root = static_cast<float>(ops::Adam::root());
  work.eps = static_cast<float>(ops::Adam::kEps);
  return bind_elements("adam", device, adam_kernel, ceil_div(problem.elements, kGroup), kAdamUnroll, vectors, problem.dtype, work);
}

}  // namespace

Bound bind_relu(const ops::Relu& problem, Device& device) { return map<Relu>("relu", problem, device); }

Bound bind_gelu(const ops::Gelu& problem, Device& device) {
  return problem.tanh ? map<GeluTanh>("gelu", problem, device) : map<GeluErf>("gelu", problem, device);
}

Bound bind_silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return silu_mul<decltype(type)>(problem, pitch, device); });
}

std::vector<KernelEntry> relu_kernels() { return floating_kernels("fused", bind_relu); }
std::vector<KernelEntry> gelu_kernels() { return floating_kernels("fused", bind_gelu); }
std::vector<KernelEntry> silu_mul_kernels() { return floating_kernels("fused", silu_mul); }
std::vector<KernelEntry> convert_kernels() { return floating_kernels("fused", convert); }
std::vector<KernelEntry> adam_kernels() { return floating_kernels("fused", adam); }

}  // namespace roofline::cuda
