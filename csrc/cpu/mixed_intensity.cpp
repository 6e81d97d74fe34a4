// mixed_intensity on a CPU: the array is cut into one contiguous range per thread, on multiples of `every` cache lines.
#include "ops/mixed_intensity.h"

#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/mixed_intensity_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

using ops::MixedIntensity;

constexpr std::pair<Isa, const MixedIntensityKernels*> kTables[] = ROOFLINE_TABLES(mixed_intensity);

Bound bind(const MixedIntensity& problem, Device& device) {
  if (!problem.isa.empty()) refuse("mixed_intensity", lacks(problem.isa));
  const MixedIntensityKernels* table = nullptr;
  std::string isa;
  for (const auto& [candidate, kernels] : kTables) {
    if (!has(candidate) || (!problem.isa.empty() && problem.isa != name(candidate))) continue;
    table = kernels;
    isa = name(candidate);
    break;
  }
  if (!table) throw Unsupported("mixed_intensity: " + problem.isa + " has no kernel; leave isa empty for the widest that has");

  const std::int64_t element = size_bytes(problem.dtype);
  const auto run = table->run[problem.dtype == DType::fp64];
  struct alignas(64) Partial {
    double sum = 0;
  };
  auto partials = std::make_shared<std::vector<Partial>>(device.threads());

  Bound bound = planned("read/" + isa, device);
  bound.plan.set("isa", isa);
  bound.steps.push_back({"mixed_intensity", [=](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range part = share(problem.elements, worker, threads.threads(), 64 / element * problem.every);
      const MixedRange range = {static_cast<const char*>(problem.a) + part.first * element,
                                MixedIntensity::alpha,
                                MixedIntensity::gamma,
                                part.size(),
                                problem.passes,
                                problem.multiply_adds,
                                static_cast<int>(problem.every),
                                static_cast<int>(problem.streams)};
      (*partials)[worker].sum = run(range);
    });
    *problem.sum = 0;
    for (const Partial& partial : *partials) *problem.sum += partial.sum;
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> mixed_intensity_kernels() { return kernels_of({DType::fp32, DType::fp64}, "read", "", bind); }

}  // namespace roofline::cpu
