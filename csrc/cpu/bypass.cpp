#include "cpu/bypass.h"

#include "cpu/rows_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

// A row is cut at cache lines: a non-temporal store writes a whole line, the rest of a row is stored plainly. Below a few lines
// a row has little that is whole, unless all rows begin on a line.
constexpr std::int64_t kLongRowBytes = 16 * kLineBytes;

// Whether copies within the last cache are faster with stores that bypass it: on Intel Xeons, whose cores get 30 GB/s of it.
bool slow_last_cache(Device& device) {
  return device.quickest("stores past L2", 2, [&device]() -> Device::Trial {
    const std::int64_t bytes = 2 * device.caches().l2_bytes * device.threads();
    const auto x = workspace(device, bytes), y = workspace(device, bytes);
    const RowsKernels::Map(&copy)[2] = choose<RowsTable>(ROOFLINE_TABLES(rows)).table->of[kFp32].relu;
    return {{}, [=, &device](int candidate) {
              constexpr int kPasses = 3;  // the first still finds what the other candidate left
              for (int pass = 0; pass < kPasses; ++pass)
                device.pool().run([&](int worker) {
                  const Range own = share(bytes, worker, device.threads(), kLineBytes);
                  const auto part = [&](const std::shared_ptr<void>& memory) {
                    return static_cast<char*>(memory.get()) + own.first;
                  };
                  copy[candidate](part(x), part(y), own.size() / std::int64_t{sizeof(float)});
                });
            }};
  }) == 1;
}

}  // namespace

bool bypass(Device& device, Isa isa, const void* y, std::int64_t rows, std::int64_t row_bytes) {
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % kLineBytes == 0 && row_bytes % kLineBytes == 0;
  if (isa == Isa::scalar || !(whole_lines || row_bytes >= kLongRowBytes)) return false;
  const std::int64_t both = 2 * rows * row_bytes;
  if (both > device.lasting_bytes()) return true;
  return both > device.caches().l2_bytes * device.threads() && device.caches().l3_bytes && slow_last_cache(device);
}

}  // namespace roofline::cpu
