// adam on a CPU: each thread takes one contiguous range of elements, cut on cache lines of every tensor.
#include "cpu/adam_kernels.h"
#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/share.h"
#include "ops/adam.h"

namespace roofline::cpu {
namespace {

constexpr std::int64_t kLine = kLineBytes / 2;  // elements of 16 bits

Bound adam(const ops::Adam& problem, Device& device) {
  const auto [isa, table] = choose<AdamKernels>(ROOFLINE_TABLES(adam));
  const std::int64_t parameter = size_bytes(problem.dtype);
  const std::int64_t element_bytes = parameter + size_bytes(problem.gradient_dtype) + 2 * size_bytes(problem.moment_dtype) +
                                     (problem.master ? std::int64_t{sizeof(float)} : 0);
  // Where there is a master nobody reads p, and nothing of it is left in the caches when all tensors have passed through them.
  const bool non_temporal = problem.master && reinterpret_cast<std::uintptr_t>(problem.p) % kLineBytes == 0 &&
                            bypass(device, isa, problem.p, problem.elements / kLine, kLine * element_bytes);
  AdamPart whole{};
  whole.p = problem.p, whole.master = static_cast<float*>(problem.master), whole.g = problem.g;
  whole.m = problem.m, whole.v = problem.v, whole.elements = problem.elements;
  whole.parameter = element_of(problem.dtype, problem.op);
  whole.gradient = element_of(problem.gradient_dtype, problem.op);
  whole.moment = element_of(problem.moment_dtype, problem.op);
  whole.beta1 = static_cast<float>(problem.kBeta1), whole.rest1 = static_cast<float>(1 - problem.kBeta1);
  whole.beta2 = static_cast<float>(problem.kBeta2), whole.rest2 = static_cast<float>(1 - problem.kBeta2);
  whole.keep = static_cast<float>(problem.decayed ? 1 - problem.kRate * problem.kDecay : 1);
  whole.step = static_cast<float>(problem.step()), whole.root = static_cast<float>(1 / problem.root());
  whole.eps = static_cast<float>(problem.kEps);

  const std::int64_t gradient = size_bytes(problem.gradient_dtype), moment = size_bytes(problem.moment_dtype);
  const auto run = table->step[non_temporal];
  Bound bound;
  bound.steps.push_back({"adam", [=](Queue& queue) {
    pool(queue).share_out(whole.elements, kLine, [&](int, Range mine) {
      AdamPart part = whole;
      part.p = static_cast<char*>(whole.p) + mine.first * parameter;
      part.master = whole.master ? whole.master + mine.first : nullptr;
      part.g = static_cast<const char*>(whole.g) + mine.first * gradient;
      part.m = static_cast<char*>(whole.m) + mine.first * moment;
      part.v = static_cast<char*>(whole.v) + mine.first * moment;
      part.elements = mine.size();
      run(part);
    });
  }});
  bound.plan.set("implementation", "fused/" + name(isa));
  if (problem.master) state_stores(bound, problem.p, non_temporal);  // the others are read
  bound.plan.set("threads", static_cast<int>(std::min<std::int64_t>((problem.elements + kLine - 1) / kLine, device.threads())));
  return bound;
}

}  // namespace

std::vector<KernelEntry> adam_kernels() { return floating_kernels<ops::Adam>("fused", adam); }

}  // namespace roofline::cpu
