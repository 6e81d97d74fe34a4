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

// items: what a thread takes at once, kUnroll of them per round.
template <class Kernel>
std::int64_t plan_elements(Bound& bound, Device& device, Kernel* kernel, std::int64_t items, int unroll, bool vectors,
                           DType dtype) {
  const KernelFacts facts = kernel_facts(device, kernel, kElementThreads);
  const std::int64_t grid = passing_grid(ceil_div(items, std::int64_t{kElementThreads} * unroll));
  bound.plan.set("implementation", "fused/" + device.properties().architecture());
  record(bound.plan, "", facts, grid, kElementThreads);
  bound.plan.set("vector_bytes", vectors ? 16 : static_cast<int>(size_bytes(dtype)));
  bound.plan.set("workspace_bytes", 0);
  return grid;
}

// A vector each.
template <class T>
std::int64_t threads_of(const Run<T>& run) {
  return std::max(run.high - run.low, run.others());
}

template <class F, class T>
Bound map(const char* step, std::int64_t elements, const void* x, void* y, DType dtype, Device& device) {
  const bool vectors = phase(x) == phase(y);
  const Run<T> run(static_cast<const T*>(x), elements, vectors);
  Bound bound;
  const auto kernel = map_kernel<F, T>;
  const std::int64_t grid = plan_elements(bound, device, kernel, threads_of(run), 1, vectors, dtype);
  bound.steps.push_back(
      {step, launching("map_kernel", kernel, {grid, kElementThreads}, static_cast<const T*>(x), static_cast<T*>(y), run)});
  return bound;
}

template <class T>
Bound relu(const ops::Relu& problem, Device& device) {
  return map<Relu, T>("relu", problem.elements, problem.x, problem.y, problem.dtype, device);
}

template <class T>
Bound gelu(const ops::Gelu& problem, Device& device) {
  return problem.tanh ? map<GeluTanh, T>("gelu", problem.elements, problem.x, problem.y, problem.dtype, device)
                      : map<GeluErf, T>("gelu", problem.elements, problem.x, problem.y, problem.dtype, device);
}

// pitch: elements from one row of gate and up to the next.
template <class T>
Bound silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device) {
  // Rows that follow each other are one.
  const std::int64_t rows = pitch == problem.columns ? 1 : problem.rows;
  const std::int64_t columns = pitch == problem.columns ? problem.elements() : problem.columns;
  const bool even = rows == 1 || (pitch % Pack<T>::kLanes == 0 && columns % Pack<T>::kLanes == 0);
  const bool vectors = even && phase(problem.gate) == phase(problem.y) && phase(problem.up) == phase(problem.y);
  Bound bound;
  const auto kernel = map2_kernel<SiluMul, T>;
  const Run<T> run(static_cast<const T*>(problem.gate), columns, vectors);
  const std::int64_t segments = ceil_div(threads_of(run), kElementThreads);
  const std::int64_t grid = plan_elements(bound, device, kernel, rows * segments * kElementThreads, 1, vectors, problem.dtype);
  bound.steps.push_back({"silu_mul", launching("map2_kernel", kernel, {grid, kElementThreads}, static_cast<const T*>(problem.gate),
                                               static_cast<const T*>(problem.up), static_cast<T*>(problem.y), run, pitch,
                                               Divisor(static_cast<int>(segments)))});
  return bound;
}

template <class T>
Bound silu_mul(const ops::SiluMul& problem, Device& device) {
  return silu_mul<T>(problem, problem.columns, device);
}

// What `of` makes of the element type.
template <class Of>
Bound by_dtype(DType dtype, Of of) {
  if (dtype == DType::fp32) return of(float{});
  if (dtype == DType::fp16) return of(__half{});
  if (dtype == DType::bf16) return of(__nv_bfloat16{});
  throw Unsupported("there is no kernel over elements of " + name(dtype));
}

bool floating(DType dtype) { return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16; }

Bound convert(const ops::Convert& problem, Device& device) {
  if (!floating(problem.out_dtype))
    throw Unsupported("convert: to " + name(problem.out_dtype) + " there is no CUDA kernel; use out_dtype fp32, fp16 or bf16");
  const bool vectors = phase(problem.x) == 0 && phase(problem.y) == 0;
  const std::int64_t groups = vectors ? problem.elements / kGroup : 0;
  Bound bound;
  const std::int64_t grid =
      plan_elements(bound, device, convert_kernel, ceil_div(problem.elements, kGroup), kConvertUnroll, vectors, problem.dtype);
  const AnyTensor x = {const_cast<void*>(problem.x), problem.dtype}, y = {problem.y, problem.out_dtype};
  bound.steps.push_back(
      {"convert", launching("convert_kernel", convert_kernel, {grid, kElementThreads}, x, y, problem.elements, groups)});
  return bound;
}

Bound adam(const ops::Adam& problem, Device& device) {
  const bool vectors = phase(problem.p) == 0 && phase(problem.master) == 0 && phase(problem.g) == 0 && phase(problem.m) == 0 &&
                       phase(problem.v) == 0;
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
  Bound bound;
  const std::int64_t grid =
      plan_elements(bound, device, adam_kernel, ceil_div(problem.elements, kGroup), kAdamUnroll, vectors, problem.dtype);
  bound.steps.push_back({"adam", launching("adam_kernel", adam_kernel, {grid, kElementThreads}, work)});
  return bound;
}

constexpr const char* kOnce = "a block for each tile, 128-bit accesses; each element is read once and written once";

}  // namespace

Bound bind_relu(const ops::Relu& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return relu<decltype(type)>(problem, device); });
}

Bound bind_gelu(const ops::Gelu& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return gelu<decltype(type)>(problem, device); });
}

Bound bind_silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return silu_mul<decltype(type)>(problem, pitch, device); });
}

std::vector<KernelEntry> relu_kernels() {
  return floating_kernels<ops::Relu>("fused", kOnce, relu<float>, relu<__half>, relu<__nv_bfloat16>);
}

std::vector<KernelEntry> gelu_kernels() {
  return floating_kernels<ops::Gelu>("fused", kOnce, gelu<float>, gelu<__half>, gelu<__nv_bfloat16>);
}

std::vector<KernelEntry> silu_mul_kernels() {
  return floating_kernels<ops::SiluMul>("fused", kOnce, silu_mul<float>, silu_mul<__half>, silu_mul<__nv_bfloat16>);
}

std::vector<KernelEntry> convert_kernels() { return floating_kernels<ops::Convert>("fused", kOnce, convert); }

std::vector<KernelEntry> adam_kernels() {
  return floating_kernels<ops::Adam>(
      "fused", "a block for each tile, eight parameters per thread; all state is read once and written once", adam);
}

}  // namespace roofline::cuda
