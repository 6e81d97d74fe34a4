// Scales of the operands of a product: one for a tensor, for rows, for blocks along the inner dimension, or of both levels.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Scales {
  // tensor: one for a, one for b; row: one for each row of a and column of b; block: one for each `block` along inner, of b for
  // `columns` of its columns together; two_level: block, and one for each whole tensor.
  enum class Kind : std::uint8_t { none, tensor, row, block, two_level };

  Kind kind = Kind::none;
  DType dtype = DType::fp32;  // of a and b; of a whole tensor fp32
  std::int64_t block = 1, columns = 1;
  std::int64_t blocks = 0, column_blocks = 0;  // along inner, and along the columns of b
  const void* a = nullptr;        // [1], [batch, rows] or [batch, rows, blocks]
  const void* b = nullptr;        // [1], [batch, columns] or [batch, blocks, column_blocks]
  const void* a_whole = nullptr;  // [1]
  const void* b_whole = nullptr;  // [1]

  bool of_blocks() const { return kind == Kind::block || kind == Kind::two_level; }

  // batch: the leading dimension of all tensors, if they have one. Throws Unsupported for scales that no kernel reads.
  static Scales from(const Arguments& arguments, const Shape& batch, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    Scales scales;
    scales.kind = arguments.choice<Kind>("scales", {"none", "tensor", "row", "block", "two_level"});
    if (scales.kind == Kind::none) return scales;
    const std::int64_t bits = arguments.integer("scale_bits");
    if (bits != 32 && (bits != 8 || !scales.of_blocks()))
      throw Unsupported(arguments.op() +
                        ": kernels take scales in fp32 (scale_bits 32), of blocks also in 8 bits; got scale_bits " +
                        std::to_string(bits) + " of scales " + arguments.text("scales"));
    if (bits == 8) scales.dtype = arguments.dtype() == DType::nvfp4 ? DType::fp8_e4m3 : DType::fp8_e8m0;
    const auto in = [&](std::int64_t first, std::int64_t second = 0) {
      Shape shape = batch;
      shape.push_back(first);
      if (second) shape.push_back(second);
      return shape;
    };
    Shape of_a = {1}, of_b = {1};
    if (scales.kind == Kind::row) of_a = in(rows), of_b = in(columns);
    if (scales.of_blocks()) {
      scales.block = arguments.dimension("scale_block"), scales.columns = arguments.dimension("scale_columns");
      scales.blocks = (inner - 1) / scales.block + 1, scales.column_blocks = (columns - 1) / scales.columns + 1;
      of_a = in(rows, scales.blocks), of_b = in(scales.blocks, scales.column_blocks);
    }
    scales.a = arguments.tensor("a_scale", scales.dtype, of_a).data;
    scales.b = arguments.tensor("b_scale", scales.dtype, of_b).data;
    if (scales.kind != Kind::two_level) return scales;
    scales.a_whole = arguments.tensor("a_whole", DType::fp32, {1}).data;
    scales.b_whole = arguments.tensor("b_whole", DType::fp32, {1}).data;
    return scales;
  }
};

}  // namespace roofline::ops
