// Attention of few queries on a CPU.
#pragma once

#include "core/kernel.h"
#include "ops/attention.h"

namespace roofline::cpu {

class Device;

// A thread takes a range of the keys of one KV head, read once; who ends the last range adds up. Throws Unsupported for many queries.
Bound split_kv(const ops::Attention& problem, Device& device);

}  // namespace roofline::cpu
