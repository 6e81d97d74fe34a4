// What the variants of grouped_matmul share.
#pragma once

#include <vector>

#include "cuda/device.h"
#include "ops/grouped_matmul.h"

namespace roofline::cuda {

// `chosen` as it is now. Throws Error for an expert number out of range.
std::vector<std::int32_t> chosen_experts(const ops::GroupedMatmul& problem, Device& device);

}  // namespace roofline::cuda
