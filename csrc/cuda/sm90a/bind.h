// What code for sm_90a alone offers; in a build without it, absent.cpp says so.
#pragma once

#include "core/kernel.h"
#include "ops/attention.h"
#include "ops/mma.h"

namespace roofline::cuda {

class Device;

Bound bind_attention_warp_specialized(const ops::Attention& problem, Device& device);
Bound bind_mma_wgmma(const ops::Mma& problem, Device& device);

}  // namespace roofline::cuda
