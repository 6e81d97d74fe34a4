// Whether results are stored past the caches.
#pragma once

#include <cstdint>

#include "cpu/device.h"

namespace roofline::cpu {

constexpr std::int64_t kLineBytes = 64;

// Whether results should bypass the caches: with as much that was read they fill what this process may count on of the last one, so
// that few of them would be found there again, and a line written whole need not be read first. Where such stores are the faster ones
// in the last cache too, that is from L2 on.
bool bypass(Device& device, Isa isa, const void* y, std::int64_t rows, std::int64_t row_bytes);

}  // namespace roofline::cpu
