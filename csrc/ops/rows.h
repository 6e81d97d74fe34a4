// The row-wise and element-wise operators: softmax, rms_norm, residual_rms_norm, layer_norm, relu, gelu, silu_mul, bias_relu, exp,
// convert. A row is contiguous; y has the shape of x.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

// The matrix every operator here maps: x is read, y written.
struct Rows {
  DType dtype;
  std::int64_t rows, columns;
  const void* x;  // [rows, columns]
  void* y;        // [rows, columns]

  std::int64_t row_bytes() const { return columns * size_bytes(dtype); }

  static Rows from(const Arguments& arguments) {
    Rows matrix{};
    matrix.dtype = arguments.dtype();
    arguments.dimensions({{"rows", &matrix.rows}, {"columns", &matrix.columns}});
    const Shape shape = {matrix.rows, matrix.columns};
    product({matrix.rows, matrix.columns, size_bytes(matrix.dtype)}, arguments.op());
    matrix.x = arguments.tensor("x", matrix.dtype, shape).data;
    matrix.y = arguments.tensor("y", matrix.dtype, shape).data;
    return matrix;
  }
};

// y = e^(x - max) / sum e^(x - max), maximum and sum over a row.
struct Softmax : Rows {
  static constexpr const char* op = "softmax";

  static Softmax from(const Arguments& arguments) { return {Rows::from(arguments)}; }
};

// y = x / sqrt(mean(x²) + eps) weight, mean over a row.
struct RmsNorm : Rows {
  static constexpr const char* op = "rms_norm";

  double eps;
  const void* weight;  // [columns], constant

  static RmsNorm from(const Arguments& arguments) {
    const Rows matrix = Rows::from(arguments);
    return {matrix, arguments.number("eps"), arguments.tensor("weight", matrix.dtype, {matrix.columns}).data};
  }
};

// residual = residual + x, in place; y = residual / sqrt(mean(residual²) + eps) weight, mean over a row.
struct ResidualRmsNorm : Rows {
  static constexpr const char* op = "residual_rms_norm";

  double eps;
  const void* weight;  // [columns], constant
  void* residual;      // [rows, columns], read and written

  static ResidualRmsNorm from(const Arguments& arguments) {
    const Rows matrix = Rows::from(arguments);
    return {matrix, arguments.number("eps"), arguments.tensor("weight", matrix.dtype, {matrix.columns}).data,
            arguments.tensor("residual", matrix.dtype, {matrix.rows, matrix.columns}).data};
  }
};

// y = (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) weight + bias, means over a row.
struct LayerNorm : Rows {
  static constexpr const char* op = "layer_norm";

  double eps;
  const void* weight;  // [columns], constant
  const void* bias;    // [columns], constant

  static LayerNorm from(const Arguments& arguments) {
    const Rows matrix = Rows::from(arguments);
    return {matrix, arguments.number("eps"), arguments.tensor("weight", matrix.dtype, {matrix.columns}).data,
            arguments.tensor("bias", matrix.dtype, {matrix.columns}).data};
  }
};

// What the operators on single elements map: x is read, y written.
struct Elements {
  DType dtype;
  std::int64_t elements;
  const void* x;  // [elements]
  void* y;        // [elements]

  static Elements from(const Arguments& arguments) {
    Elements all{};
    all.dtype = arguments.dtype();
    all.elements = arguments.dimension("elements");
    product({all.elements, size_bytes(all.dtype)}, arguments.op());
    all.x = arguments.tensor("x", all.dtype, {all.elements}).data;
    all.y = arguments.tensor("y", all.dtype, {all.elements}).data;
    return all;
  }
};

// y = max(x, 0); a NaN stays one.
struct Relu : Elements {
  static constexpr const char* op = "relu";

  static Relu from(const Arguments& arguments) { return {Elements::from(arguments)}; }
};

// form erf: y = 0.5 x (1 + erf(x / sqrt(2))); tanh: y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))).
struct Gelu : Elements {
  static constexpr const char* op = "gelu";

  bool tanh;

  static Gelu from(const Arguments& arguments) {
    return {Elements::from(arguments), arguments.choice<bool>("form", {"erf", "tanh"})};
  }
};

// y = gate / (1 + e^-gate) up.
struct SiluMul {
  static constexpr const char* op = "silu_mul";

  DType dtype;
  std::int64_t rows, columns;
  const void* gate;  // [rows, columns]
  const void* up;    // [rows, columns]
  void* y;           // [rows, columns]

  std::int64_t elements() const { return rows * columns; }

  static SiluMul from(const Arguments& arguments) {
    SiluMul problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"rows", &problem.rows}, {"columns", &problem.columns}});
    const Shape shape = {problem.rows, problem.columns};
    product({problem.rows, problem.columns, size_bytes(problem.dtype)}, arguments.op());
    problem.gate = arguments.tensor("gate", problem.dtype, shape).data;
    problem.up = arguments.tensor("up", problem.dtype, shape).data;
    problem.y = arguments.tensor("y", problem.dtype, shape).data;
    return problem;
  }
};

// y = x in another dtype.
struct Convert {
  static constexpr const char* op = "convert";

  DType dtype, out_dtype;
  std::int64_t elements;
  const void* x;  // [elements] in dtype
  void* y;        // [elements] in out_dtype

  static Convert from(const Arguments& arguments) {
    Convert problem{};
    problem.dtype = arguments.dtype();
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    problem.elements = arguments.dimension("elements");
    product({problem.elements, 8}, arguments.op());
    problem.x = arguments.tensor("x", problem.dtype, {problem.elements}).data;
    problem.y = arguments.tensor("y", problem.out_dtype, {problem.elements}).data;
    return problem;
  }
};

// y = e^x, `passes` times over.
struct Exp : Elements {
  static constexpr const char* op = "exp";

  std::int64_t passes;

  static Exp from(const Arguments& arguments) { return {Elements::from(arguments), arguments.dimension("passes")}; }
};

// y = max(x + bias, 0), the bias of a column; a NaN stays one.
struct BiasRelu : Rows {
  static constexpr const char* op = "bias_relu";

  const void* bias;  // [columns], constant

  static BiasRelu from(const Arguments& arguments) {
    const Rows matrix = Rows::from(arguments);
    return {matrix, arguments.tensor("bias", matrix.dtype, {matrix.columns}).data};
  }
};

}  // namespace roofline::ops
