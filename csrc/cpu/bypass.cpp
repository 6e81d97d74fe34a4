#include "cpu/bypass.h"

#include "cpu/rows_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

// A row is cut at cache lines: a non-temporal store writes a whole line, the rest of a row is stored plainly. Below a few lines
// a row has little that is whole, unless all rows begin on a line.
constexpr std::int64_t kLongRowBytes = 16 * kLineBytes;
// Copies of Intel Xeons to memory get 48 instead of 40 GB/s by the far distance; Zen 4 loses 9 % of a copy and 18 % of a conversion.
constexpr std::int64_t kFarAhead = 4096, kNearAhead = 1024;

const RowsKernels& of_fp32() { return choose<RowsTable>(ROOFLINE_TABLES(rows)).table->of[kFp32]; }

// map over n numbers of fp32 on all threads.
template <class T>
void run(Device& device, RowsKernels::Map map, const std::shared_ptr<void>& x, const std::shared_ptr<void>& y, std::int64_t n) {
  device.pool().run([&](int worker) {
    const Range own = share(n, worker, device.threads(), kLineBytes);
    map(static_cast<float*>(x.get()) + own.first, static_cast<T*>(y.get()) + own.first, own.size());
  });
}

// Whether copies within the last cache are faster with stores that bypass it: on Intel Xeons, whose cores get 30 GB/s of it.
bool slow_last_cache(Device& device) {
  return device.quickest("stores past L2", 2, [&device]() -> Device::Trial {
    const std::int64_t bytes = 2 * device.caches().l2_bytes * device.threads();
    const auto x = workspace(device, bytes, Fill::uniform), y = workspace(device, bytes);
    return {{}, [=, &device](int candidate) {
              constexpr int kPasses = 3;  // the first still finds what the other candidate left
              for (int pass = 0; pass < kPasses; ++pass)
                run<float>(device, of_fp32().relu[candidate], x, y, bytes / std::int64_t{sizeof(float)});
            }};
  }) == 1;
}

void choose_ahead(Device& device) {
  constexpr std::int64_t kNumbers = 4 << 20;
  const int best = device.quickest("fetches ahead of stores past the caches", 2, [&device]() -> Device::Trial {
    const std::int64_t bytes = kNumbers * std::int64_t{sizeof(float)};
    const auto x = workspace(device, bytes, Fill::uniform), y = workspace(device, bytes / 2);
    return {{{x.get(), bytes}, {y.get(), bytes / 2}}, [=, &device](int candidate) {
              bytes_ahead_of_stores = candidate ? kFarAhead : kNearAhead;
              run<Bf16>(device, of_fp32().convert[kBf16][1], x, y, kNumbers);
            }};
  });
  bytes_ahead_of_stores = best ? kFarAhead : kNearAhead;
}

}  // namespace

std::int64_t bytes_ahead_of_stores = kFarAhead;
bool paced_stores = false;

// On an AMD EPYC (family 25, model 17) a pace makes a copy of fp32 94 instead of 78 GB/s in the fast phase of its memory, and
// changes nothing in the slow one.
bool choose_pace(Device& device) {
  constexpr std::int64_t kNumbers = 4 << 20;
  return paced_stores = device.quickest("a pace beside stores past the caches", 2, [&device]() -> Device::Trial {
    const std::int64_t bytes = kNumbers * std::int64_t{sizeof(float)};
    const auto x = workspace(device, bytes, Fill::uniform), y = workspace(device, bytes);
    return {{{x.get(), bytes}, {y.get(), bytes}}, [=, &device](int candidate) {
              paced_stores = candidate == 0;
              run<float>(device, of_fp32().relu[1], x, y, kNumbers);
            }};
  }) == 0;
}

void state_stores(Bound& bound, const void* y, bool non_temporal) {
  bound.plan.set("stores", non_temporal ? "non_temporal" : "plain");
  if (non_temporal) bound.past_caches = y;
}

bool bypass(Device& device, Isa isa, const void* y, std::int64_t rows, std::int64_t row_bytes) {
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % kLineBytes == 0 && row_bytes % kLineBytes == 0;
  if (isa == Isa::scalar || !(whole_lines || row_bytes >= kLongRowBytes)) return false;
  const std::int64_t both = 2 * rows * row_bytes;
  const bool past_l2 = both > device.caches().l2_bytes * device.threads() && device.caches().l3_bytes;
  if (both < device.lasting_bytes() && !(past_l2 && slow_last_cache(device))) return false;
  choose_ahead(device);
  choose_pace(device);
  return true;
}

}  // namespace roofline::cpu
