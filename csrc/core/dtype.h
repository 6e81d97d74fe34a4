// Element types, their sizes and their one spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace roofline {

enum class DType : std::uint8_t { fp64, fp32, fp16, bf16, int32, int8, fp8_e4m3, tf32 };  // tf32: stored as fp32, multiplied in 19 bits

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t size_bytes;
};

inline constexpr DTypeInfo kDTypes[] = {
    {DType::fp64, "fp64", 8}, {DType::fp32, "fp32", 4},   {DType::fp16, "fp16", 2},
    {DType::bf16, "bf16", 2}, {DType::int32, "int32", 4}, {DType::int8, "int8", 1},
    {DType::fp8_e4m3, "fp8_e4m3", 1},
    {DType::tf32, "tf32", 4},
};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
constexpr std::int64_t size_bytes(DType dtype) { return info(dtype).size_bytes; }
inline std::string name(DType dtype) { return std::string(info(dtype).name); }

inline DType dtype_named(const std::string& name) {
  for (const DTypeInfo& known : kDTypes)
    if (known.name == name) return known.dtype;
  std::string all;
  for (const DTypeInfo& known : kDTypes) all += (all.empty() ? "" : ", ") + std::string(known.name);
  throw Error("unknown dtype '" + name + "': use one of " + all);
}

}  // namespace roofline
