// What code for sm_90a alone offers; in a build without it, absent.cpp says so.
#pragma once

#include <optional>

#include "core/kernel.h"
#include "ops/attention.h"
#include "ops/mla_decode.h"
#include "ops/mma.h"

namespace roofline::cuda {

class Device;

Bound bind_attention_warp_specialized(const ops::Attention& problem, Device& device);
// Nothing where the GPU is another, tensors do not begin at multiples of 16 bytes, or steps do not fit 32 bits.
std::optional<Bound> bind_mla_decode_wgmma(const ops::MlaDecode& problem, Device& device);
Bound bind_mma_wgmma(const ops::Mma& problem, Device& device);

}  // namespace roofline::cuda
