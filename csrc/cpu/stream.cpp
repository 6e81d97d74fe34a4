// stream on a CPU: the arrays are cut into one contiguous range per thread, on cache-line boundaries.
#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/share.h"
#include "cpu/stream_kernels.h"
#include "ops/stream.h"

namespace roofline::cpu {
namespace {

using ops::Stream;

Choice<StreamKernels> choose_for(const Stream& problem) {
  if (problem.stride != 1 && !problem.isa.empty() && problem.isa != "scalar")
    throw Unsupported("stream: strided loads are scalar ones; leave isa empty, not " + problem.isa);
  if (!problem.isa.empty()) refuse("stream", lacks(problem.isa));
  for (const auto& [isa, table] : std::initializer_list<std::pair<Isa, const StreamKernels*>>ROOFLINE_TABLES(stream))
    if (has(isa) && (problem.isa.empty() || problem.isa == name(isa)) && (problem.stride == 1 || table->strided[0]))
      return {isa, table};
  throw Unsupported("stream: " + problem.isa + " has no kernels of its own; use one of scalar, avx2, avx512, neon");
}

// Whether the lines that one walk of a strided read touches stay in the last cache until the next walk needs them.
bool lines_cached(const Stream& problem, const Device& device) {
  const std::int64_t walk_bytes = std::min(problem.elements * size_bytes(problem.dtype), problem.elements / problem.stride * 64);
  return walk_bytes <= (device.caches().l3_bytes ? device.caches().l3_bytes : device.caches().l2_bytes * device.threads());
}

enum class Way { plain, non_temporal, loads };

Bound bind(const Stream& problem, Device& device, Way way) {
  const bool non_temporal = way == Way::non_temporal;
  if (problem.in_flight_bytes != 0)
    throw Unsupported("stream: in_flight_bytes is chosen on GPUs only; leave it 0 on a CPU, and use streams");
  const auto [isa, table] = choose_for(problem);
  if (non_temporal && problem.access == Stream::Access::read)
    throw Unsupported("stream: read has no stores, so there is no non_temporal variant of it; use plain");
  if (non_temporal && problem.in_place)
    throw Unsupported("stream: update writes lines that it has just read, so there is no non_temporal variant of it; use plain");
  if (non_temporal && isa == Isa::scalar)
    throw Unsupported("stream: the scalar instruction set has no non-temporal store; use plain");
  if (non_temporal && reinterpret_cast<std::uintptr_t>(problem.c) % 64 != 0)
    throw Unsupported("stream: non-temporal stores need c aligned to 64 bytes; use plain");
  const bool strided = problem.stride != 1;
  if (way == Way::loads && (problem.access != Stream::Access::read || strided))
    throw Unsupported("stream: loads are the variant of a read with stride 1; use plain");
  const std::int64_t element = size_bytes(problem.dtype);
  const int width = problem.dtype == DType::fp64;
  // Writes alone are shorter than a pace. Several streams have none, for it would be their limit where memory is fastest.
  const bool paced = non_temporal && problem.access != Stream::Access::write && problem.streams == 1 && choose_pace(device);
  const auto run = strided ? table->strided[width] : table->run[width][static_cast<int>(problem.access)][non_temporal + paced];
  const auto loads = way == Way::loads ? table->loads[width] : nullptr;

  struct alignas(64) Partial {
    double sum = 0;
  };
  auto partials = std::make_shared<std::vector<Partial>>(device.threads());

  const char* const kind = strided ? "strided/" : loads ? "loads/" : non_temporal ? "non_temporal/" : "plain/";
  Bound bound = planned(std::string(kind) + name(isa), device);
  bound.plan.set("isa", name(isa));
  if (non_temporal) bound.plan.set("paced", paced), bound.past_caches = problem.c;
  if (strided) bound.plan.set("lines_cached", lines_cached(problem, device));
  bound.steps.push_back({"stream", [=](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range part = share(problem.elements, worker, threads.threads(), 64 / element);
      const auto at = [&](const void* p) { return p ? static_cast<const char*>(p) + part.first * element : nullptr; };
      StreamRange range = {at(problem.a), at(problem.b), const_cast<char*>(at(problem.c)), problem.factor,
                                 part.size(), problem.passes, static_cast<int>(problem.streams), problem.prefetch, problem.stride};
      double times = 1;
      if (loads) {  // all passes but the last, which sums at the same addresses
        times = static_cast<double>(range.passes--);
        if (range.passes > 0) loads(range);
        range.passes = 1;
      }
      (*partials)[worker].sum = times * run(range);
    });
    if (problem.sum) {
      *problem.sum = 0;
      for (const Partial& partial : *partials) *problem.sum += partial.sum;
    }
  }});
  return bound;
}

Bound plain(const Stream& problem, Device& device) { return bind(problem, device, Way::plain); }
Bound non_temporal(const Stream& problem, Device& device) { return bind(problem, device, Way::non_temporal); }
Bound loads(const Stream& problem, Device& device) { return bind(problem, device, Way::loads); }

}  // namespace

std::vector<KernelEntry> stream_kernels() {
  const auto dtypes = {DType::fp32, DType::fp64};
  return joined({kernels_of(dtypes, "loads", "", loads), kernels_of(dtypes, "plain", "", plain),
                 kernels_of(dtypes, "non_temporal", "", non_temporal)});
}

}  // namespace roofline::cpu
