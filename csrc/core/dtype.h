// Element types, their sizes and their one spelling.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "core/error.h"

namespace roofline {

// tf32: stored as fp32, multiplied in 19 bits. int4, nvfp4 (E2M1): two to a byte along the last dimension, the first in its low
// bits. fp8_e8m0: powers of two, the scales of blocks. int16: what products of fixed point are made of; no tensor has it.
enum class DType : std::uint8_t { fp64, fp32, fp16, bf16, int32, int8, fp8_e4m3, tf32, int4, nvfp4, fp8_e8m0, fp8_e5m2, int16 };

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t bits;
};

inline constexpr DTypeInfo kDTypes[] = {
    {DType::fp64, "fp64", 64},         {DType::fp32, "fp32", 32}, {DType::fp16, "fp16", 16}, {DType::bf16, "bf16", 16},
    {DType::int32, "int32", 32},       {DType::int8, "int8", 8},  {DType::fp8_e4m3, "fp8_e4m3", 8},
    {DType::tf32, "tf32", 32},         {DType::int4, "int4", 4},  {DType::nvfp4, "nvfp4", 4},
    {DType::fp8_e8m0, "fp8_e8m0", 8},  {DType::fp8_e5m2, "fp8_e5m2", 8}, {DType::int16, "int16", 16},
};

constexpr bool in_order(const DTypeInfo* all, int count) {
  for (int i = 0; i < count; ++i)
    if (static_cast<int>(all[i].dtype) != i) return false;
  return true;
}
static_assert(in_order(kDTypes, std::size(kDTypes)) && std::size(kDTypes) == static_cast<int>(DType::int16) + 1,
              "kDTypes is indexed by DType");

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
constexpr std::int64_t bits(DType dtype) { return info(dtype).bits; }
// Bytes of a dense run of elements, rounded up to whole ones.
constexpr std::int64_t size_bytes(DType dtype, std::int64_t elements) {
  return elements / 8 * bits(dtype) + (elements % 8 * bits(dtype) + 7) / 8;
}
// Bytes of one element, which must be whole.
constexpr std::int64_t size_bytes(DType dtype) {
  return bits(dtype) < 8 ? throw Error("elements of 4 bits have no size in bytes") : bits(dtype) / 8;
}
inline std::string name(DType dtype) { return std::string(info(dtype).name); }

inline DType dtype_named(const std::string& name) {
  for (const DTypeInfo& known : kDTypes)
    if (known.name == name) return known.dtype;
  std::string all;
  for (const DTypeInfo& known : kDTypes) all += (all.empty() ? "" : ", ") + std::string(known.name);
  throw Error("unknown dtype '" + name + "': use one of " + all);
}

}  // namespace roofline
