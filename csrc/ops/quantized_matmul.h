// quantized_matmul: c = a (scale (b - zero)), with b of 8 or 4 bits, and scales and zero points of groups along inner.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct QuantizedMatmul {
  static constexpr const char* op = "quantized_matmul";

  DType dtype, out_dtype, b_dtype, scale_dtype, zero_dtype;
  std::int64_t rows, columns, inner;
  std::int64_t group, groups;  // rows of b that share a scale, and how many of those along inner
  const void* a = nullptr;      // [rows, inner]
  const void* b = nullptr;      // [inner, columns] in int8 or int4, constant
  const void* scale = nullptr;  // [groups, columns], constant; null: all are 1
  const void* zero = nullptr;   // [groups, columns], constant; null: all are 0
  void* c = nullptr;            // [rows, columns] in out_dtype

  static QuantizedMatmul from(const Arguments& arguments) {
    QuantizedMatmul problem{};
    problem.dtype = arguments.dtype();
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    const double bits = arguments.number("weight_bits");
    const std::int64_t scale_bits = arguments.integer("scale_bits"), zero_bits = arguments.integer("zero_bits");
    if (bits != 8 && bits != 4)
      throw Unsupported("quantized_matmul: kernels take weights of 8 or 4 bits, others have costs alone; use weight_bits 8 or 4");
    if (scale_bits != 0 && scale_bits != 16 && scale_bits != 32)
      throw Unsupported("quantized_matmul: kernels take scales of 16 or 32 bits, or none; got scale_bits " +
                        std::to_string(scale_bits));
    if (zero_bits != 0 && zero_bits != 4 && zero_bits != 8 && zero_bits != 16 && zero_bits != 32)
      throw Unsupported("quantized_matmul: kernels take zero points of 4, 8, 16 or 32 bits, or none; got zero_bits " +
                        std::to_string(zero_bits));
    const DType sixteen = problem.dtype == DType::bf16 ? DType::bf16 : DType::fp16;
    problem.b_dtype = bits == 8 ? DType::int8 : DType::int4;
    problem.scale_dtype = scale_bits == 32 ? DType::fp32 : sixteen;
    problem.zero_dtype = zero_bits == 32 ? DType::fp32 : zero_bits == 16 ? sixteen : zero_bits == 8 ? DType::int8 : DType::int4;
    arguments.dimensions({{"rows", &problem.rows}, {"columns", &problem.columns}, {"inner", &problem.inner}});
    const std::int64_t size = arguments.integer("group_size");
    problem.group = size > 0 && size < problem.inner ? size : problem.inner;
    problem.groups = (problem.inner - 1) / problem.group + 1;
    const Shape shared = {problem.groups, problem.columns};
    problem.a = arguments.tensor("a", problem.dtype, {problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.b_dtype, {problem.inner, problem.columns}).data;
    if (scale_bits) problem.scale = arguments.tensor("scale", problem.scale_dtype, shared).data;
    if (zero_bits) problem.zero = arguments.tensor("zero", problem.zero_dtype, shared).data;
    problem.c = arguments.tensor("c", problem.out_dtype, {problem.rows, problem.columns}).data;
    return problem;
  }
};

}  // namespace roofline::ops
