// Whether results are stored past the caches.
#pragma once

#include <cstdint>

#include "core/kernel.h"
#include "cpu/device.h"

namespace roofline::cpu {

// Whether results should be stored past the caches. They should where they and as much that was read fill what this process may
// count on of the last cache: few of them would be found there again, and a line that is written whole need not be read first.
// Where such stores make copies within the last cache faster too, they should already where both exceed L2.
bool bypass(Device& device, Isa isa, const void* y, std::int64_t rows, std::int64_t row_bytes);

// Puts into a kernel's plan how it stores y.
void state_stores(Bound& bound, const void* y, bool non_temporal);

// Whether a pace (cpu/pace.h) makes norms past the caches faster, or no slower: measured when it is asked for the first time.
bool choose_pace(Device& device);

}  // namespace roofline::cpu
