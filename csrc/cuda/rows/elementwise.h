// Passes over elements that other operators have among their steps: each binds one step, as the operator of its name does.
#pragma once

#include "cuda/device.h"
#include "ops/rows.h"

namespace roofline::cuda {

Bound bind_relu(const ops::Relu& problem, Device& device);
Bound bind_gelu(const ops::Gelu& problem, Device& device);

// pitch: elements from one row of gate and up to the next; y's rows follow each other.
Bound bind_silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device);

}  // namespace roofline::cuda
