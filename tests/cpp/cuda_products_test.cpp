// The operators made of cuBLASLt's products, over a runtime without a GPU and a stub of the library: their steps, their numbers,
// what they refuse and what they leave behind.
#include <algorithm>
#include <map>
#include <numeric>

#include "on_fake_gpu.h"
#include "reference.h"

namespace {

std::vector<std::string> steps(const Bound& bound) {
  std::vector<std::string> names;
  for (const Step& step : bound.steps) names.push_back(step.name);
  return names;
}

// The steps in the other order: what each reads is still there.
void run_backwards(const Bound& bound, Backend& device) {
  for (auto step = bound.steps.rbegin(); step != bound.steps.rend(); ++step) step->launch(static_cast<Device&>(device));
}

double half_step(DType dtype) { return dtype == DType::fp32 ? 0x1p-22 : dtype == DType::fp16 ? 0x1p-10 : 0x1p-7; }

void check_leaks(Backend& device, const KernelEntry& kernel, const Arguments& arguments) {
  const auto settled = check_failures(device, kernel, arguments, 100);
  stub().heuristics = lt::alloc_failed;
  EXPECT_THROW(kernel.bind(arguments, device), OutOfMemory);
  stub().heuristics = lt::not_supported;
  EXPECT_THROW(kernel.bind(arguments, device), Unsupported);
  stub().heuristics = {};
  settled("refusals");
  fake::runtime().total_bytes = fake::runtime().used_bytes + 100;
  EXPECT_THROW(kernel.bind(arguments, device), OutOfMemory);
  fake::runtime().total_bytes = std::size_t{4} << 30;
  settled("too little memory");
}

// -- matmul and bmm of bytes ------------------------------------------------------------------------------------------------------

// How operands are scaled: scales, scale_block, scale_columns, scale_bits.
struct Scaled {
  const char* scales = "none";
  std::int64_t block = 128, columns = 1, bits = 32;
  bool of_blocks() const { return std::string(scales) == "block" || std::string(scales) == "two_level"; }
};

std::string text(const Scaled& how) {
  return std::string(how.scales) + " of " + std::to_string(how.block) + " x " + std::to_string(how.columns) + " in " +
         std::to_string(how.bits);
}

constexpr Scaled kTensor{"tensor"}, kRow{"row"}, kBlock{"block"}, kSquare{"block", 128, 128}, kMx{"block", 32, 1, 8},
    kNv{"block", 16, 1, 8}, kNvTwoLevel{"two_level", 16, 1, 8};

// Operands of bmm, and with batch 0 of matmul, whose tensors have no batch.
struct ProductData {
  ProductData(Backend& device, DType dtype, DType out, const Scaled& how, std::int64_t batch, std::int64_t m, std::int64_t n,
              std::int64_t k)
      : memory(device), dtype(dtype), out(out), how(how), batch(std::max<std::int64_t>(batch, 1)), m(m), n(n), k(k),
        arguments(batch ? "bmm" : "matmul", dtype) {
    const auto in = [&](Shape shape) {
      if (batch) shape.insert(shape.begin(), batch);
      return shape;
    };
    a = memory.random(dtype, this->batch * m * k), b = memory.random(dtype, this->batch * k * n);
    c = memory.random(out, this->batch * m * n);
    blocks = (k + how.block - 1) / how.block, across = (n + how.columns - 1) / how.columns;
    const bool row = how.scales == std::string("row"), block = how.of_blocks();
    const Shape of_a = block ? in({m, blocks}) : row ? in({m}) : Shape{1};
    const Shape of_b = block ? in({blocks, across}) : row ? in({n}) : Shape{1};
    const DType scale = how.bits == 32 ? DType::fp32 : dtype == DType::nvfp4 ? DType::fp8_e4m3 : DType::fp8_e8m0;
    a_scale = memory.scales(scale, product(of_a, "")), b_scale = memory.scales(scale, product(of_b, ""));
    a_whole = memory.scales(DType::fp32, 1), b_whole = memory.scales(DType::fp32, 1);
    if (batch)
      arguments.add("batch", batch), arguments.add("out_dtype", name(out));
    else
      arguments.add("bias", 0), arguments.add("activation", std::string("none"));
    arguments.add("rows", m), arguments.add("columns", n), arguments.add("inner", k),
        arguments.add("scales", std::string(how.scales));
    arguments.add("scale_bits", how.bits), arguments.add("scale_block", how.block), arguments.add("scale_columns", how.columns);
    arguments.add(tensor("a", a, dtype, in({m, k}))), arguments.add(tensor("b", b, dtype, in({k, n})));
    arguments.add(tensor("c", c, out, in({m, n})));
    arguments.add(tensor("a_scale", a_scale, scale, of_a)), arguments.add(tensor("b_scale", b_scale, scale, of_b));
    arguments.add(tensor("a_whole", a_whole, DType::fp32, {1})), arguments.add(tensor("b_whole", b_whole, DType::fp32, {1}));
    type = scale;
  }
  // line: of all rows of a, or columns of b. block: of all blocks.
  double scale_of(const void* scales, const void* whole, std::int64_t line, std::int64_t block) const {
    if (how.scales == std::string("none")) return 1;
    if (how.scales == std::string("tensor")) return element(type, scales, 0);
    if (how.scales == std::string("row")) return element(type, scales, line);
    return (how.scales == std::string("block") ? 1 : element(DType::fp32, whole, 0)) * element(type, scales, block);
  }
  void check() const {
    for (std::int64_t i = 0; i < batch; ++i) {
      std::vector<double> rows, columns;  // times their scales
      for (std::int64_t row = i * m; row < (i + 1) * m; ++row)
        for (std::int64_t l = 0; l < k; ++l)
          rows.push_back(scale_of(a_scale, a_whole, row, row * blocks + l / how.block) * element(dtype, a, row * k + l));
      for (std::int64_t column = 0; column < n; ++column)
        for (std::int64_t l = 0; l < k; ++l)
          columns.push_back(scale_of(b_scale, b_whole, i * n + column,
                                     (i * blocks + l / how.block) * across + column / how.columns) *
                            element(dtype, b, (i * k + l) * n + column));
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t column = 0; column < n; ++column) {
          const auto its_row = rows.begin() + row * k;
          const double want = std::inner_product(its_row, its_row + k, columns.begin() + column * k, 0.0);
          const double slack = out == DType::int32 || out == DType::fp32 ? 0 : std::abs(want) * half_step(out);
          ASSERT_NEAR(element(out, c, (i * m + row) * n + column), want, slack) << i << " " << row << " " << column;
        }
    }
  }
  Memory memory;
  DType dtype, out, type;
  Scaled how;
  std::int64_t batch, m, n, k, blocks, across;
  void *a, *b, *c, *a_scale, *b_scale, *a_whole, *b_whole;
  Arguments arguments;
};

struct Kind {
  DType dtype, out;
  Scaled how;
  int capability;
  std::vector<std::string> prepared;  // steps before the product, b's transposition apart
};

const std::vector<Kind> kKinds = {
    {DType::int8, DType::int32, {}, 90, {}},
    {DType::fp8_e4m3, DType::bf16, {}, 90, {}},
    {DType::fp8_e4m3, DType::bf16, kTensor, 90, {}},
    {DType::fp8_e4m3, DType::fp16, kTensor, 120, {}},
    {DType::fp8_e4m3, DType::fp32, kTensor, 89, {}},
    {DType::fp8_e4m3, DType::fp32, kRow, 90, {}},
    {DType::fp8_e4m3, DType::fp32, kBlock, 90, {"transpose a_scale"}},
    {DType::fp8_e4m3, DType::fp32, kSquare, 90, {"transpose a_scale", "lay out b_scale"}},
    {DType::fp8_e4m3, DType::fp32, kMx, 100, {"lay out a_scale", "lay out b_scale"}},
    {DType::fp8_e4m3, DType::bf16, kMx, 120, {"lay out a_scale", "lay out b_scale"}},
    {DType::nvfp4, DType::fp32, kNv, 100, {"lay out a_scale", "lay out b_scale"}},
    {DType::nvfp4, DType::fp32, kNvTwoLevel, 103, {"lay out a_scale", "lay out b_scale", "scales of tensors"}},
    {DType::nvfp4, DType::bf16, kNvTwoLevel, 120, {"lay out a_scale", "lay out b_scale", "scales of tensors"}},
};

TEST_F(OnFakeGpu, BmmOfBytesMakesItsOperandsReadyInStepsOfTheirOwn) {
  for (const Kind& kind : kKinds) {
    fake::runtime().capability = kind.capability;
    const auto device = cuda::open(0);
    for (const auto& [batch, m, n, k] :
         {std::array<std::int64_t, 4>{1, 3, 16, 32}, {3, 5, 32, 96}, {1, 2, 16, 640}, {1, 130, 144, 160}}) {
      if (batch > 1 && (kind.how.of_blocks() || kind.how.scales == std::string("row"))) continue;
      if (m > 128 && !kind.how.of_blocks()) continue;  // for more than one tile of scales
      SCOPED_TRACE(name(kind.dtype) + " " + name(kind.out) + " " + text(kind.how) + " " + std::to_string(k));
      const ProductData data(*device, kind.dtype, kind.out, kind.how, batch, m, n, k);
      const Bound bound = kernel(*device, "bmm", kind.dtype).bind(data.arguments, *device);
      std::vector<std::string> want = kind.prepared;
      want.insert(want.begin(), "transpose b"), want.push_back("bmm");
      EXPECT_EQ(steps(bound), want);
      set(kind.dtype, data.b, 0, 2);  // operands that change after bind are seen
      if (kind.how.of_blocks()) set(data.type, data.a_scale, 0, 2);
      if (kind.how.scales == std::string("two_level")) set(DType::fp32, data.b_whole, 0, -4);
      run(bound, *device);
      data.check();
      EXPECT_EQ(stub().device_factors, kind.how.scales == std::string("two_level"));
    }
  }
}

TEST_F(OnFakeGpu, WhatCublasTakesOfLowPrecisionIsSaid) {
  const auto refused = [](DType dtype, const Scaled& how, int capability, std::int64_t batch, std::int64_t n, std::int64_t k) {
    fake::runtime().capability = capability;
    const auto device = cuda::open(0);
    const ProductData data(*device, dtype, DType::bf16, how, batch, 3, n, k);
    return message<Unsupported>([&] { kernel(*device, "bmm", dtype).bind(data.arguments, *device); });
  };
  const DType fp8 = DType::fp8_e4m3, fp4 = DType::nvfp4;
  EXPECT_TRUE(has(refused(fp8, kTensor, 90, 1, 16, 24), "multiples of 16 and columns of 16, got inner 24"));
  EXPECT_TRUE(has(refused(fp8, kTensor, 90, 1, 8, 16), "columns 8"));
  EXPECT_TRUE(has(refused(fp8, kRow, 90, 2, 16, 16), "batch 1"));
  EXPECT_TRUE(has(refused(fp8, kBlock, 90, 2, 16, 16), "batch 1"));
  EXPECT_TRUE(has(refused(fp8, kRow, 100, 1, 16, 16), "sm_90 only, and this GPU is sm_100"));
  EXPECT_TRUE(has(refused(fp8, kSquare, 120, 1, 16, 16), "sm_90 only, and this GPU is sm_120"));
  EXPECT_TRUE(has(refused(fp8, kMx, 90, 1, 16, 32), "sm_100 and newer, and this GPU is sm_90"));
  EXPECT_TRUE(has(refused(fp8, kMx, 100, 2, 16, 32), "batch 1"));
  EXPECT_TRUE(
      has(refused(fp8, Scaled{"block", 64}, 90, 1, 16, 32), "got scale_block 64, scale_columns 1, scale_bits 32 of fp8_e4m3"));
  EXPECT_TRUE(has(refused(fp8, Scaled{"block", 128, 64}, 90, 1, 16, 32), "scale_columns 64"));
  EXPECT_TRUE(has(refused(fp8, Scaled{"two_level", 32, 1, 8}, 100, 1, 16, 32), "in two levels of fp8_e4m3"));
  EXPECT_TRUE(has(refused(fp8, Scaled{"tensor", 128, 1, 8}, 90, 1, 16, 32), "got scale_bits 8 of scales tensor"));
  EXPECT_TRUE(has(refused(fp8, Scaled{"block", 128, 1, 16}, 90, 1, 16, 32), "got scale_bits 16"));
  EXPECT_TRUE(has(refused(fp4, Scaled{}, 100, 1, 16, 32), "scales block or two_level, scale_block 16, scale_bits 8"));
  EXPECT_TRUE(has(refused(fp4, kTensor, 100, 1, 16, 32), "scale_block 16"));
  EXPECT_TRUE(has(refused(fp4, Scaled{"block", 32, 1, 8}, 100, 1, 16, 32), "got scale_block 32"));
  EXPECT_TRUE(has(refused(fp4, kNv, 100, 1, 16, 48), "multiples of 32 and columns of 16, got inner 48"));
  EXPECT_TRUE(has(refused(fp4, kNv, 100, 1, 15, 48), "even columns"));
  EXPECT_TRUE(has(refused(DType::bf16, kTensor, 90, 1, 16, 16), "fp8 and nvfp4 operands only, got bf16"));
  EXPECT_TRUE(has(refused(DType::int8, kTensor, 90, 1, 16, 16), "no product of int8"));
  fake::runtime().capability = 80;
  const auto device = cuda::open(0);
  EXPECT_TRUE(has(device->lacks(kernel(*device, "bmm", fp8).needs), "it needs sm_89"));
  EXPECT_TRUE(has(device->lacks(kernel(*device, "matmul", fp4).needs), "it needs sm_100"));
  ProductData data(*device, fp8, DType::bf16, kBlock, 1, 3, 16, 256);
  data.arguments.add("scales", std::string("column"));
  EXPECT_TRUE(has(message<Error>([&] { kernel(*device, "bmm", fp8).bind(data.arguments, *device); }), "got 'column'"));
}

TEST_F(OnFakeGpu, MatmulOfLowPrecisionPacksWhatIsConstant) {
  for (const Kind& kind : kKinds) {
    if (kind.out != (kind.dtype == DType::int8 ? DType::int32 : DType::fp32)) continue;
    fake::runtime().capability = kind.capability;
    const auto device = cuda::open(0);
    for (const char* variant : {"library", "fast_accumulation"}) {
      if (variant == std::string("fast_accumulation") && kind.dtype != DType::fp8_e4m3) continue;
      SCOPED_TRACE(name(kind.dtype) + " " + text(kind.how) + " " + variant);
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{5, 32, 96}, {8, 12, 16}}) {
        if (n % 16 != 0 && kind.dtype != DType::int8) continue;
        const ProductData data(*device, kind.dtype, kind.out, kind.how, 0, m, n, k);
        const Bound bound = kernel(*device, "matmul", kind.dtype, variant).bind(data.arguments, *device);
        EXPECT_EQ(steps(bound), std::vector<std::string>{"matmul"});
        std::int64_t packed = size_bytes(kind.dtype, n * k);
        for (const std::string& step : kind.prepared)  // one tile of scales each, or two: of 6 blocks of 16
          packed += step == "transpose a_scale" ? 4 * m : step == "scales of tensors" ? 8
                    : kind.how.columns > 1        ? 4 * 4
                                                  : 512 * (k / kind.how.block > 4 ? 2 : 1);
        EXPECT_EQ(fact<std::int64_t>(bound.plan.facts(), "packed_bytes"), packed);
        for (std::int64_t i = 0; i < m * n; ++i) set(kind.out, data.c, i, -1);
        run(bound, *device);
        EXPECT_EQ(stub().fast_accumulation, variant == std::string("fast_accumulation"));
        data.check();
        EXPECT_EQ(stub().transa, lt::op_t) << "the packed operand lies along inner";
      }
    }
  }
}

TEST_F(OnFakeGpu, BmmTakesItsOwnContract) {
  const auto device = cuda::open(0);
  const ProductData data(*device, DType::bf16, DType::bf16, {}, 3, 4, 5, 6);
  run(kernel(*device, "bmm", DType::bf16).bind(data.arguments, *device), *device);
  data.check();
}

TEST_F(OnFakeGpu, NothingIsLeftOfAThousandBindsAndOfFailedOnes) {
  const auto device = cuda::open(0);
  const ProductData data(*device, DType::fp32, DType::fp32, {}, 0, 3, 5, 7);
  stub().proposals = 3;
  stub().workspace_bytes[0] = 1 << 20, stub().workspace_bytes[1] = 1 << 10;
  const KernelEntry& matmul = kernel(*device, "matmul", DType::fp32);
  const auto settled = check_failures(*device, matmul, data.arguments, 1000);
  for (lt::Status* each : {&stub().heuristics, &stub().run[0], &stub().run[1], &stub().run[2]}) {
    *each = lt::alloc_failed;
    try {
      matmul.bind(data.arguments, *device);
    } catch (const Error&) {
    }
  }
  settled("products that fail");
  EXPECT_LE(stub().handles, 1) << "one handle serves them all";
}

TEST_F(OnFakeGpu, NothingIsLeftOfBmm) {
  const auto device = cuda::open(0);
  for (const Scaled& how : {kBlock, kSquare}) {
    const ProductData data(*device, DType::fp8_e4m3, DType::bf16, how, 1, 2, 16, 256);
    check_leaks(*device, kernel(*device, "bmm", DType::fp8_e4m3), data.arguments);
  }
}

TEST_F(OnFakeGpu, NothingIsLeftOfProductsWithTwoLevelsOfScales) {
  fake::runtime().capability = 100;
  const auto device = cuda::open(0);
  for (const std::int64_t batch : {0, 1}) {
    const ProductData data(*device, DType::nvfp4, DType::fp32, kNvTwoLevel, batch, 2, 16, 64);
    check_leaks(*device, kernel(*device, batch ? "bmm" : "matmul", DType::nvfp4), data.arguments);
  }
}

// -- ffn ------------------------------------------------------------------------------------------------------------------------

// Activation i of a row of x [any, d_model], by weights [any, d_model, d_ff] of one expert.
double hidden(DType dtype, const std::string& activation, const void* x, std::int64_t row, const void* up, const void* gate,
              std::int64_t expert, std::int64_t d_model, std::int64_t d_ff, std::int64_t i) {
  const auto product = [&](const void* weights) {
    double sum = 0;
    for (std::int64_t l = 0; l < d_model; ++l)
      sum += element(dtype, x, row * d_model + l) * element(dtype, weights, (expert * d_model + l) * d_ff + i);
    return sum;
  };
  const double u = product(up);
  if (activation == "swiglu") return reference::silu(product(gate)) * u;
  return activation == "relu" ? reference::relu(u) : activation == "gelu" ? reference::gelu(u) : reference::gelu_tanh(u);
}

struct FfnData {
  FfnData(Backend& device, DType dtype, std::int64_t batch, std::int64_t seq, std::int64_t d_model, std::int64_t d_ff)
      : memory(device), dtype(dtype), rows(batch * seq), d_model(d_model), d_ff(d_ff), arguments("ffn", dtype) {
    x = memory.random(dtype, rows * d_model, 2), up = memory.random(dtype, d_model * d_ff, 1);
    gate = memory.random(dtype, d_model * d_ff, 1), down = memory.random(dtype, d_ff * d_model, 1);
    out = memory.random(dtype, rows * d_model);
    arguments.add("batch", batch), arguments.add("seq_q", seq), arguments.add("d_model", d_model), arguments.add("d_ff", d_ff);
    arguments.add(tensor("x", x, dtype, {batch, seq, d_model})), arguments.add(tensor("w_up", up, dtype, {d_model, d_ff}));
    arguments.add(tensor("w_gate", gate, dtype, {d_model, d_ff})), arguments.add(tensor("w_down", down, dtype, {d_ff, d_model}));
    arguments.add(tensor("out", out, dtype, {batch, seq, d_model}));
  }
  void check(const std::string& activation) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<double> activated;
      double size = 1;
      for (std::int64_t i = 0; i < d_ff; ++i) {
        activated.push_back(hidden(dtype, activation, x, row, up, gate, 0, d_model, d_ff, i));
        size += std::abs(activated.back());
      }
      for (std::int64_t column = 0; column < d_model; ++column) {
        double want = 0;
        for (std::int64_t i = 0; i < d_ff; ++i) want += activated[i] * element(dtype, down, i * d_model + column);
        ASSERT_NEAR(element(dtype, out, row * d_model + column), want, half_step(dtype) * size) << row << " " << column;
      }
    }
  }
  Memory memory;
  DType dtype;
  std::int64_t rows, d_model, d_ff;
  void *x, *up, *gate, *down, *out;
  Arguments arguments;
};

const std::vector<std::string> kActivations = {"relu", "gelu", "gelu_tanh", "swiglu"};

TEST_F(OnFakeGpu, FfnIsTheOperatorInEveryVariant) {
  const auto device = cuda::open(0);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const auto& [batch, seq, d_model, d_ff] : {std::array<std::int64_t, 4>{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 4, 8, 16}})
      for (const std::string& activation : kActivations)
        for (const char* variant : {"library", "fused"}) {
          if (variant == std::string("fused") && (activation == "gelu" || (activation == "gelu_tanh" && dtype == DType::fp32)))
            continue;
          SCOPED_TRACE(name(dtype) + " " + activation + " " + variant);
          FfnData data(*device, dtype, batch, seq, d_model, d_ff);
          data.arguments.add("activation", activation);
          const Bound bound = kernel(*device, "ffn", dtype, variant).bind(data.arguments, *device);
          run(bound, *device);
          data.check(activation);
          run_backwards(bound, *device);
          run(bound, *device);
          data.check(activation);
        }
}

TEST_F(OnFakeGpu, FfnTimesNothingWhileItIsBoundAndSaysHowItRuns) {
  const auto device = cuda::open(0);
  FfnData data(*device, DType::bf16, 1, 3, 8, 16);
  stub().proposals = 5;
  const std::map<std::string, std::vector<std::string>> want = {{"relu library", {"up", "activation", "down"}},
                                                                {"swiglu library", {"up", "gate", "activation", "down"}},
                                                                {"relu fused", {"up", "down"}},
                                                                {"gelu_tanh fused", {"up", "down"}},
                                                                {"swiglu fused", {"up and gate", "activation", "down"}}};
  for (const auto& [which, names] : want) {
    data.arguments.add("activation", which.substr(0, which.find(' ')));
    const Bound bound = kernel(*device, "ffn", DType::bf16, which.substr(which.find(' ') + 1)).bind(data.arguments, *device);
    EXPECT_EQ(steps(bound), names) << which;
    EXPECT_EQ(fact<std::string>(bound.plan.facts(), "down_chosen_by"), "heuristic");
    EXPECT_TRUE(has(fact<std::string>(bound.plan.facts(), "down_library_implementation"), "algorithm 100"));
  }
  EXPECT_EQ(stub().total_runs, 2 + 3 + 2 + 2 + 2) << "each product once, so that its kernel is loaded";
  EXPECT_EQ(fake::runtime().events, 0) << "and none is timed";
  data.arguments.add("activation", std::string("swiglu"));
  const Bound bound = kernel(*device, "ffn", DType::bf16, "fused").bind(data.arguments, *device);
  EXPECT_EQ(fact<std::int64_t>(bound.plan.facts(), "packed_bytes"), 2 * 8 * 16 * 2);
  EXPECT_EQ(fact<std::int64_t>(bound.plan.facts(), "workspace_bytes"), kScratchBytes + 3 * 3 * 16 * 2);
}

TEST_F(OnFakeGpu, FfnFusesNoOtherGeluThanTheOneAsked) {
  const auto device = cuda::open(0);
  FfnData data(*device, DType::fp16, 1, 3, 8, 16), wide(*device, DType::fp32, 1, 3, 8, 16);
  data.arguments.add("activation", std::string("gelu"));
  std::string text = message<Unsupported>([&] { kernel(*device, "ffn", DType::fp16, "fused").bind(data.arguments, *device); });
  EXPECT_TRUE(has(text, "gelu_tanh") && has(text, "variant library")) << text;
  wide.arguments.add("activation", std::string("gelu_tanh"));
  text = message<Unsupported>([&] { kernel(*device, "ffn", DType::fp32, "fused").bind(wide.arguments, *device); });
  EXPECT_TRUE(has(text, "not for fp32")) << text;
}

TEST_F(OnFakeGpu, NothingIsLeftOfFfn) {
  const auto device = cuda::open(0);
  FfnData data(*device, DType::bf16, 1, 2, 4, 4);
  data.arguments.add("activation", std::string("swiglu"));
  for (const char* variant : {"library", "fused"})
    check_leaks(*device, kernel(*device, "ffn", DType::bf16, variant), data.arguments);
}

// -- attention ------------------------------------------------------------------------------------------------------------------

struct AttentionData {
  AttentionData(Backend& device, DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t seq_q,
                std::int64_t seq_kv, std::int64_t dim, bool causal)
      : memory(device), dtype(dtype), batch(batch), heads(heads), kv_heads(kv_heads), seq_q(seq_q), seq_kv(seq_kv), dim(dim),
        causal(causal), arguments("attention", dtype) {
    q = memory.random(dtype, batch * heads * seq_q * dim, 2), k = memory.random(dtype, batch * kv_heads * seq_kv * dim, 1);
    v = memory.random(dtype, batch * kv_heads * seq_kv * dim), out = memory.random(dtype, batch * heads * seq_q * dim);
    arguments.add("batch", batch), arguments.add("heads", heads), arguments.add("kv_heads", kv_heads);
    arguments.add("seq_q", seq_q), arguments.add("seq_kv", seq_kv), arguments.add("head_dim", dim);
    arguments.add("causal", std::int64_t{causal}), arguments.add("logsumexp", std::int64_t{0});
    const Shape queries = {batch, heads, seq_q, dim}, keys = {batch, kv_heads, seq_kv, dim};
    arguments.add(tensor("q", q, dtype, queries)), arguments.add(tensor("k", k, dtype, keys));
    arguments.add(tensor("v", v, dtype, keys)), arguments.add(tensor("out", out, dtype, queries));
  }
  void check() const {
    const auto values = [&](const void* tensor, std::int64_t rows) {
      std::vector<double> all;
      for (std::int64_t i = 0; i < rows * dim; ++i) all.push_back(element(dtype, tensor, i));
      return all;
    };
    const std::vector<double> of_q = values(q, batch * heads * seq_q), of_k = values(k, batch * kv_heads * seq_kv),
                              of_v = values(v, batch * kv_heads * seq_kv);
    for (std::int64_t head = 0; head < batch * heads; ++head)
      for (std::int64_t i = 0; i < seq_q; ++i) {
        const std::int64_t kv = head / (heads / kv_heads) * seq_kv * dim, row = (head * seq_q + i) * dim;
        const std::int64_t seen = causal ? i + seq_kv - seq_q + 1 : seq_kv;
        const std::vector<double> want = reference::attend(&of_q[row], &of_k[kv], &of_v[kv], 0, seen, dim);
        for (std::int64_t d = 0; d < dim; ++d)
          ASSERT_NEAR(element(dtype, out, row + d), want[d], 4 * half_step(dtype)) << head << " " << i << " " << d;
      }
  }
  Memory memory;
  DType dtype;
  std::int64_t batch, heads, kv_heads, seq_q, seq_kv, dim;
  bool causal;
  void *q, *k, *v, *out;
  Arguments arguments;
};

TEST_F(OnFakeGpu, AttentionByTheLibraryIsTheOperator) {
  const auto device = cuda::open(0);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const auto& [batch, heads, kv_heads, seq_q, seq_kv] :
         {std::array<std::int64_t, 5>{1, 1, 1, 1, 1}, {2, 4, 2, 3, 5}, {1, 3, 1, 1, 9}, {2, 2, 2, 7, 7}})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(heads) + ":" + std::to_string(kv_heads) + " " + std::to_string(causal));
        const AttentionData data(*device, dtype, batch, heads, kv_heads, seq_q, seq_kv, 5, causal);
        const Bound bound = kernel(*device, "attention", dtype).bind(data.arguments, *device);
        EXPECT_EQ(steps(bound), (std::vector<std::string>{"q·kᵀ", "softmax", "p·v"}));
        run(bound, *device);
        data.check();
        for (const int i : {2, 1, 0, 0}) bound.steps[static_cast<std::size_t>(i)].launch(static_cast<Device&>(*device));
        run(bound, *device);
        data.check();
        const std::int64_t scores = batch * heads * seq_q * seq_kv;
        EXPECT_EQ(fact<std::int64_t>(bound.plan.facts(), "workspace_bytes"),
                  (4 * scores + 255) / 256 * 256 + scores * size_bytes(dtype) + kScratchBytes);
      }
}

TEST_F(OnFakeGpu, ScoresThatDoNotFitAreRefusedBeforeTheDriverIsAsked) {
  const auto device = cuda::open(0);
  AttentionData data(*device, DType::bf16, 1, 1, 1, 1, 1, 1, false);
  // A problem of 2^34 scores, of which nothing is touched.
  const std::int64_t n = std::int64_t{1} << 17;
  data.arguments.add("seq_q", n), data.arguments.add("seq_kv", n);
  for (const char* each : {"q", "k", "v", "out"}) data.arguments.add(tensor(each, data.q, DType::bf16, {1, 1, n, 1}));
  const long before = fake::runtime().mallocs;
  const std::string text = message<OutOfMemory>([&] { kernel(*device, "attention", DType::bf16).bind(data.arguments, *device); });
  EXPECT_TRUE(has(text, std::to_string(6 * n * n) + " bytes are needed")) << text;
  EXPECT_EQ(fake::runtime().mallocs, before);
}

TEST_F(OnFakeGpu, NothingIsLeftOfAttention) {
  const auto device = cuda::open(0);
  const AttentionData data(*device, DType::bf16, 1, 2, 1, 2, 3, 4, true);
  check_leaks(*device, kernel(*device, "attention", DType::bf16), data.arguments);
}

// -- grouped_matmul -------------------------------------------------------------------------------------------------------------

struct GroupedData {
  GroupedData(Backend& device, DType dtype, const std::string& activation, std::int64_t tokens, std::int64_t experts,
              std::int64_t k, std::int64_t shared, std::int64_t d_model, std::int64_t d_ff)
      : memory(device), dtype(dtype), activation(activation), tokens(tokens), experts(experts), k(k), shared(shared),
        d_model(d_model), d_ff(d_ff), arguments("grouped_matmul", dtype) {
    const std::int64_t all = experts + shared;
    x = memory.random(dtype, tokens * d_model, 2), up = memory.random(dtype, all * d_model * d_ff, 1);
    gate = memory.random(dtype, all * d_model * d_ff, 1), down = memory.random(dtype, all * d_ff * d_model, 1);
    out = memory.random(dtype, tokens * d_model), gates = memory.random(DType::fp32, tokens * k);
    chosen = static_cast<std::int32_t*>(memory.random(DType::int32, tokens * k));
    // The last expert gets no token; the others are unevenly met.
    for (std::int64_t i = 0; i < tokens * k; ++i)
      chosen[i] = static_cast<std::int32_t>((i / k * (i / k) + i % k) % std::max<std::int64_t>(experts - 1, 1));
    for (const auto& [key, number] : {std::pair<const char*, std::int64_t>{"tokens", tokens}, {"experts", experts},
                                      {"experts_per_token", k}, {"shared_experts", shared}, {"d_model", d_model}, {"d_ff", d_ff},
                                      {"ranks", 1}, {"touched_experts", 0}, {"weight_bits", 8 * size_bytes(dtype)}})
      arguments.add(key, number);
    arguments.add("activation", activation), arguments.add("out_dtype", name(dtype));
    arguments.add(tensor("x", x, dtype, {tokens, d_model})), arguments.add(tensor("chosen", chosen, DType::int32, {tokens, k}));
    arguments.add(tensor("gates", gates, DType::fp32, {tokens, k})), arguments.add(tensor("out", out, dtype, {tokens, d_model}));
    arguments.add(tensor("w_up", up, dtype, {all, d_model, d_ff}));
    arguments.add(tensor("w_gate", gate, dtype, {all, d_model, d_ff}));
    arguments.add(tensor("w_down", down, dtype, {all, d_ff, d_model}));
  }
  void check() const {
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<double> want(static_cast<std::size_t>(d_model));
      double size = 1;
      for (std::int64_t j = 0; j < k + shared; ++j) {
        const std::int64_t expert = j < k ? chosen[token * k + j] : experts + j - k;
        const double weight = j < k ? static_cast<const float*>(gates)[token * k + j] : 1;
        for (std::int64_t i = 0; i < d_ff; ++i) {
          const double part = weight * hidden(dtype, activation, x, token, up, gate, expert, d_model, d_ff, i);
          size += std::abs(part);
          for (std::int64_t d = 0; d < d_model; ++d)
            want[static_cast<std::size_t>(d)] += part * element(dtype, down, (expert * d_ff + i) * d_model + d);
        }
      }
      for (std::int64_t d = 0; d < d_model; ++d)
        ASSERT_NEAR(element(dtype, out, token * d_model + d), want[static_cast<std::size_t>(d)], half_step(dtype) * size) << token;
    }
  }
  Memory memory;
  DType dtype;
  std::string activation;
  std::int64_t tokens, experts, k, shared, d_model, d_ff;
  void *x, *up, *gate, *down, *out, *gates;
  std::int32_t* chosen;
  Arguments arguments;
};

TEST_F(OnFakeGpu, GroupedMatmulIsTheOperator) {
  const auto device = cuda::open(0);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const char* activation : {"relu", "gelu", "swiglu"})
      for (const auto& [tokens, experts, k, shared] : {std::array<std::int64_t, 4>{1, 1, 1, 0}, {7, 5, 2, 0}, {4, 3, 1, 2}}) {
        SCOPED_TRACE(name(dtype) + " " + activation + " " + std::to_string(tokens));
        const GroupedData data(*device, dtype, activation, tokens, experts, k, shared, 5, 6);
        stub().asked = 0;
        const Bound bound = kernel(*device, "grouped_matmul", dtype).bind(data.arguments, *device);
        std::vector<std::string> names = {"gather", "up", "activation", "down", "combine"};
        if (data.activation == "swiglu") names.insert(names.begin() + 2, "gate");
        EXPECT_EQ(steps(bound), names);
        run(bound, *device);
        data.check();
        run_backwards(bound, *device);
        run(bound, *device);
        data.check();
        std::vector<std::int32_t> met(data.chosen, data.chosen + tokens * k);
        std::sort(met.begin(), met.end());
        const auto touched = std::unique(met.begin(), met.end()) - met.begin() + shared;
        EXPECT_EQ(fact<std::int64_t>(bound.plan.facts(), "experts_with_tokens"), touched);
        EXPECT_EQ(stub().asked, touched * (data.activation == "swiglu" ? 3 : 2)) << "one product per expert that has a token";
      }
  EXPECT_EQ(stub().total_runs > 0, true);
}

TEST_F(OnFakeGpu, GroupedMatmulRefusesWhatItCannotRun) {
  const auto device = cuda::open(0);
  GroupedData data(*device, DType::bf16, "relu", 3, 4, 2, 0, 4, 4);
  const auto bind = [&] { kernel(*device, "grouped_matmul", DType::bf16).bind(data.arguments, *device); };
  data.arguments.add("weight_bits", 4.5);
  EXPECT_TRUE(has(message<Unsupported>(bind), "weight_bits 16"));
  data.arguments.add("weight_bits", 16.0), data.arguments.add("ranks", std::int64_t{2});
  EXPECT_TRUE(has(message<Unsupported>(bind), "ranks 1"));
  data.arguments.add("ranks", std::int64_t{1});
  data.chosen[3] = 4;
  EXPECT_TRUE(has(message<Error>(bind), "expert 4 of 4"));
  data.chosen[3] = 0;
  check_leaks(*device, kernel(*device, "grouped_matmul", DType::bf16), data.arguments);
}

// -- gates ----------------------------------------------------------------------------------------------------------------------

// Loading a kernel waits until the GPU is idle, and so would wait for the gate that holds its first launch.
TEST_F(OnFakeGpu, NothingIsLoadedBehindAGate) {
  const auto device = cuda::open(0);
  FfnData ffn(*device, DType::bf16, 1, 3, 8, 16);
  ffn.arguments.add("activation", std::string("relu"));
  const AttentionData attention(*device, DType::bf16, 1, 2, 1, 3, 5, 5, false);
  const GroupedData grouped(*device, DType::bf16, "relu", 7, 5, 2, 0, 5, 6);
  const std::tuple<const char*, const char*, const Arguments&> all[] = {{"ffn", "library", ffn.arguments},
                                                                        {"ffn", "fused", ffn.arguments},
                                                                        {"attention", "library", attention.arguments},
                                                                        {"grouped_matmul", "library", grouped.arguments}};
  for (const auto& [op, variant, arguments] : all) {
    fake::runtime().loaded.erase(&stub().runs[0]);  // as where it is the first of the process
    stub().split_k = 2;
    const Bound bound = kernel(*device, op, DType::bf16, variant).bind(arguments, *device);
    std::vector<std::vector<Launch>> sets(1);
    std::int64_t entries = 0;
    for (const Step& step : bound.steps) sets[0].push_back(step.launch), entries += step.entries;
    for (const bool flush_each : {false, true}) device->run_batch({&sets, 0, 3, flush_each});
    EXPECT_EQ(fact<std::int64_t>(device->facts(), "gate_timeouts"), 0) << op << " " << variant;
    // A product whose inner is split in two, as the stub says, is up to three entries.
    std::int64_t products = 2;
    if (op == std::string("grouped_matmul")) products *= fact<std::int64_t>(bound.plan.facts(), "experts_with_tokens");
    EXPECT_EQ(entries, 3 * products + static_cast<std::int64_t>(bound.steps.size()) - 2) << op << " " << variant;
  }
}

}  // namespace
