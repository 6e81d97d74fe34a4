// Whether results are stored past the caches.
#pragma once

#include <cstdint>

#include "cpu/device.h"

namespace roofline::cpu {

// A row is cut at cache lines: a non-temporal store writes a whole line, the rest of a row is stored plainly. Below a few lines
// a row has little that is whole, unless all rows begin on a line.
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kLongRowBytes = 16 * kLineBytes;

// Whether results should bypass the caches: with as much that was read they fill what this process may count on of the last one, so
// that few of them would be found there again, and a line written whole need not be read first.
inline bool bypass(const Device& device, Isa isa, const void* y, std::int64_t rows, std::int64_t row_bytes) {
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % kLineBytes == 0 && row_bytes % kLineBytes == 0;
  return isa != Isa::scalar && 2 * rows * row_bytes > device.lasting_bytes() && (whole_lines || row_bytes >= kLongRowBytes);
}

}  // namespace roofline::cpu
