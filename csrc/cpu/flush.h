// Cache lines written back and dropped from every level, one by one: the cost follows the data, whatever the size of the caches.
//
// Measured with clflushopt, for each MiB and thread: on Zen 3 18 us where no cache holds it, 33 us clean and 38 to 47 us dirty; on
// an Intel server core 37 us.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/kernel.h"
#include "cpu/pool.h"
#include "cpu/share.h"

namespace roofline::cpu {

struct LineFlush {
  const char* instruction;  // "clflushopt", "clflush", "dc civac"; "" where there is none
  std::int64_t line_bytes;
};

const LineFlush& line_flush();  // of this CPU

// visit(address) for `worker`'s part of every line that holds a byte of `memory`; addresses are multiples of line_bytes.
template <class Visit>
void each_line(const std::vector<Extent>& memory, int worker, int workers, std::int64_t line_bytes, Visit visit) {
  for (const Extent& extent : memory) {
    if (extent.size_bytes <= 0) continue;
    const auto start = reinterpret_cast<std::uintptr_t>(extent.start);
    const std::uintptr_t line = static_cast<std::uintptr_t>(line_bytes);
    const std::uintptr_t first = start / line, last = (start + static_cast<std::uintptr_t>(extent.size_bytes) - 1) / line + 1;
    const Range part = share(static_cast<std::int64_t>(last - first), worker, workers, 1);
    for (std::uintptr_t at = first + part.first; at < first + part.last; ++at) visit(at * line);
  }
}

// All of `memory`, by all threads; they have left it to memory when this returns. Throws Unsupported where there is no instruction.
void flush(Pool& pool, const std::vector<Extent>& memory);

}  // namespace roofline::cpu
