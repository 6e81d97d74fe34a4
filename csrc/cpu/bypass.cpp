#include "cpu/bypass.h"

#include <iterator>

#include "cpu/rows_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

// A row is cut at cache lines: a non-temporal store writes a whole line, the rest of a row is stored plainly. Below a few lines
// a row has little that is whole, unless all rows begin on a line.
constexpr std::int64_t kLongRowBytes = 16 * kLineBytes;
// Copies of Intel Xeons to memory get 48 instead of 40 GB/s by the far distance; Zen 4 loses 9 % of a copy and 18 % of a conversion.
// Zen 5 loses 5 % of a copy by fetches of every line while its memory is slow, and 15 % of silu_mul while it is fast.
constexpr Fetches kFetches[] = {{1024, false}, {4096, false}, {4096, true}};

const RowsKernels& of_fp32() { return choose<RowsTable>(ROOFLINE_TABLES(rows)).table->of[kFp32]; }

// Whether copies within the last cache are faster with stores that bypass it: on Intel Xeons, whose cores get 30 GB/s of it.
bool slow_last_cache(Device& device) {
  return device.quickest("stores past L2", 2, [&device]() -> Device::Trial {
    const std::int64_t bytes = 2 * device.caches().l2_bytes * device.threads();
    const auto x = workspace(device, bytes, Fill::uniform), y = workspace(device, bytes);
    return {{}, [=, &device](int candidate) {
              constexpr int kPasses = 3;  // the first still finds what the other candidate left
              for (int pass = 0; pass < kPasses; ++pass)
                device.pool().run([&](int worker) {
                  const Range own = share(bytes / std::int64_t{sizeof(float)}, worker, device.threads(), kLineBytes);
                  const float* const from = static_cast<float*>(x.get()) + own.first;
                  of_fp32().relu[candidate](from, static_cast<float*>(y.get()) + own.first, own.size());
                });
            }};
  }) == 1;
}

// The trial is a conversion to 16 bits and a silu_mul: their operands differ from their results in bytes and in number.
void choose_fetches(Device& device) {
  constexpr std::int64_t kNumbers = 2 << 20;
  const int best = device.quickest("fetches beside stores past the caches", std::size(kFetches), [&device]() -> Device::Trial {
    const std::int64_t bytes = 3 * kNumbers * std::int64_t{sizeof(float)};
    const auto x = workspace(device, bytes, Fill::uniform), y = workspace(device, bytes / 2);
    return {{{x.get(), bytes}, {y.get(), bytes / 2}}, [=, &device](int candidate) {
              fetches_beside_stores = kFetches[candidate];
              device.pool().run([&](int worker) {
                const Range own = share(kNumbers, worker, device.threads(), kLineBytes);
                const float* const from = static_cast<float*>(x.get()) + own.first;
                float* const to = static_cast<float*>(y.get()) + own.first;
                of_fp32().convert[kBf16][1](from, static_cast<float*>(y.get()) + kNumbers + own.first / 2, own.size());
                of_fp32().silu_mul[1](from + kNumbers, from + 2 * kNumbers, to, own.size());
              });
            }};
  });
  fetches_beside_stores = kFetches[best];
}

}  // namespace

Fetches fetches_beside_stores = kFetches[1];
bool paced_stores = false;

// The trial is rms_norm, whose loop is the shortest of those that fetch every line. In the fast phase of memory a pace makes it 117
// instead of 83 GB/s on an AMD EPYC (family 26, model 2), and a copy 94 instead of 78 on one of family 25, model 17, where it
// changes nothing in the slow phase.
bool choose_pace(Device& device) {
  constexpr std::int64_t kRows = 1024, kColumns = 4096;
  return paced_stores = device.quickest("a pace beside stores past the caches", 2, [&device]() -> Device::Trial {
    const std::int64_t row_bytes = kColumns * std::int64_t{sizeof(float)}, bytes = kRows * row_bytes;
    const auto x = workspace(device, bytes + row_bytes, Fill::uniform), y = workspace(device, bytes);
    return {{{x.get(), bytes}, {y.get(), bytes}}, [=, &device](int candidate) {
              paced_stores = candidate == 0;
              device.pool().run([&](int worker) {
                const Range own = share(kRows, worker, device.threads(), 1);
                const float* const from = static_cast<float*>(x.get());
                of_fp32().rms_norm[1](from + own.first * kColumns, from + kRows * kColumns,
                                      static_cast<float*>(y.get()) + own.first * kColumns, own.size(), kColumns, 1e-6);
              });
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
  choose_fetches(device);
  choose_pace(device);
  return true;
}

}  // namespace roofline::cpu
