// The operators made of cuBLASLt's products, over a runtime without a GPU and a stub of the library: their steps, their numbers,
// what they refuse and what they leave behind.
#include <algorithm>
#include <map>

#include "on_fake_gpu.h"

namespace {

struct Memory {
  explicit Memory(Backend& device) : device(device) {}
  Memory(const Memory&) = delete;
  ~Memory() {
    for (void* each : all) device.release(each, 0);
  }
  // Whole numbers from -span to span.
  void* random(DType dtype, std::int64_t elements, int span = 3) {
    void* const data = all.emplace_back(device.allocate(static_cast<std::size_t>(elements * size_bytes(dtype))));
    for (std::int64_t i = 0; i < elements; ++i) set(dtype, data, i, static_cast<int>(generator() % (2 * span + 1)) - span);
    return data;
  }
  Backend& device;
  std::vector<void*> all;
  std::mt19937 generator{11};
};

const Value& fact(const Bound& bound, const std::string& name) {
  for (const auto& [key, value] : bound.plan.facts())
    if (key == name) return value;
  throw Error("the plan has no " + name);
}

std::vector<std::string> steps(const Bound& bound) {
  std::vector<std::string> names;
  for (const Step& step : bound.steps) names.push_back(step.name);
  return names;
}

void run(const Bound& bound, Backend& device) {
  for (const Step& step : bound.steps) step.launch(static_cast<Device&>(device));
}

double half_step(DType dtype) { return dtype == DType::fp32 ? 0x1p-22 : dtype == DType::fp16 ? 0x1p-10 : 0x1p-7; }

// Whatever fails while `bind` plans, nothing of it is left; and binding again and again takes no memory.
void check_leaks(Backend& device, const KernelEntry& kernel, const Arguments& arguments, int times) {
  const std::size_t before = fake::runtime().used_bytes, count = fake::runtime().allocations.size();
  const auto settled = [&](const std::string& after) {
    EXPECT_EQ(fake::runtime().used_bytes, before) << after;
    EXPECT_EQ(fake::runtime().allocations.size(), count) << after;
    EXPECT_EQ(*stub().live, 0) << after;
  };
  for (int i = 0; i < times; ++i) run(kernel.bind(arguments, device), device);
  settled("binds");
  for (const char* call : {"cudaMalloc", "cudaSetDevice", "cudaMemGetInfo", "cudaMemcpy2DAsync", "cudaMemcpyAsync"})
    for (int after = 0; after < 8; ++after) {
      fake::runtime().failures.clear();
      fake::runtime().failures[call] = {cudaErrorMemoryAllocation, after};
      try {
        kernel.bind(arguments, device);
      } catch (const Error&) {
      }
      settled(std::string(call) + " " + std::to_string(after));
    }
  fake::runtime().failures.clear();
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

struct BmmData {
  BmmData(Backend& device, DType dtype, DType out, const std::string& scales, std::int64_t batch, std::int64_t m, std::int64_t n,
          std::int64_t k)
      : memory(device), dtype(dtype), out(out), scales(scales), batch(batch), m(m), n(n), k(k), arguments("bmm", dtype) {
    a = memory.random(dtype, batch * m * k), b = memory.random(dtype, batch * k * n), c = memory.random(out, batch * m * n);
    const std::int64_t blocks = (k + 127) / 128;
    const bool row = scales == "row", block = scales == "block";
    const Shape of_a = block ? Shape{batch, m, blocks} : row ? Shape{batch, m} : Shape{1};
    const Shape of_b = block ? Shape{batch, blocks, n} : row ? Shape{batch, n} : Shape{1};
    a_scale = memory.random(DType::fp32, product(of_a, "")), b_scale = memory.random(DType::fp32, product(of_b, ""));
    arguments.add("batch", batch), arguments.add("rows", m), arguments.add("columns", n), arguments.add("inner", k);
    arguments.add("scales", scales), arguments.add("out_dtype", name(out)), arguments.add("scale_bits", std::int64_t{32});
    arguments.add("scale_block", std::int64_t{128});
    arguments.add(tensor("a", a, dtype, {batch, m, k})), arguments.add(tensor("b", b, dtype, {batch, k, n}));
    arguments.add(tensor("c", c, out, {batch, m, n}));
    arguments.add(tensor("a_scale", a_scale, DType::fp32, of_a)), arguments.add(tensor("b_scale", b_scale, DType::fp32, of_b));
  }
  double scale(std::int64_t i, std::int64_t row, std::int64_t column, std::int64_t l) const {
    const float *of_a = static_cast<const float*>(a_scale), *of_b = static_cast<const float*>(b_scale);
    const std::int64_t blocks = (k + 127) / 128, block = l / 128;
    if (scales == "tensor") return of_a[0] * of_b[0];
    if (scales == "row") return of_a[i * m + row] * of_b[i * n + column];
    if (scales == "block") return of_a[(i * m + row) * blocks + block] * of_b[(i * blocks + block) * n + column];
    return 1;
  }
  void check() const {
    for (std::int64_t i = 0; i < batch; ++i)
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t column = 0; column < n; ++column) {
          double want = 0;
          for (std::int64_t l = 0; l < k; ++l)
            want += scale(i, row, column, l) * element(dtype, a, (i * m + row) * k + l) *
                    element(dtype, b, (i * k + l) * n + column);
          const double slack = out == DType::int32 || out == DType::fp32 ? 0 : std::abs(want) * half_step(out);
          ASSERT_NEAR(element(out, c, (i * m + row) * n + column), want, slack) << i << " " << row << " " << column;
        }
  }
  Memory memory;
  DType dtype, out;
  std::string scales;
  std::int64_t batch, m, n, k;
  void *a, *b, *c, *a_scale, *b_scale;
  Arguments arguments;
};

TEST_F(OnFakeGpu, BmmOfBytesTurnsItsOperandInAStepOfItsOwn) {
  const auto device = cuda::open(0);
  const std::tuple<DType, DType, std::string> kinds[] = {
      {DType::int8, DType::int32, "none"},    {DType::fp8_e4m3, DType::bf16, "none"},   {DType::fp8_e4m3, DType::bf16, "tensor"},
      {DType::fp8_e4m3, DType::fp16, "tensor"}, {DType::fp8_e4m3, DType::fp32, "tensor"}, {DType::fp8_e4m3, DType::fp32, "row"},
      {DType::fp8_e4m3, DType::fp32, "block"}};
  for (const auto& [dtype, out, scales] : kinds)
    for (const auto& [batch, m, n, k] : {std::array<std::int64_t, 4>{1, 3, 16, 32}, {3, 5, 32, 16}, {1, 20, 48, 272}}) {
      if (batch > 1 && (scales == "row" || scales == "block")) continue;
      SCOPED_TRACE(name(dtype) + " " + name(out) + " " + scales + " " + std::to_string(k));
      const BmmData data(*device, dtype, out, scales, batch, m, n, k);
      const Bound bound = kernel(*device, "bmm", dtype).bind(data.arguments, *device);
      std::vector<std::string> want = {"transpose b", "bmm"};
      if (scales == "block") want.insert(want.begin() + 1, "transpose a_scale");
      EXPECT_EQ(steps(bound), want);
      set(dtype, data.b, 0, 2);  // an operand that changes after bind is seen
      run(bound, *device);
      data.check();
    }
}

TEST_F(OnFakeGpu, WhatCublasTakesOfFp8IsSaid) {
  const auto refused = [](const std::string& scales, std::int64_t batch, std::int64_t n, std::int64_t k) {
    const auto device = cuda::open(0);
    const BmmData data(*device, DType::fp8_e4m3, DType::bf16, scales, batch, 3, n, k);
    return message<Unsupported>([&] { kernel(*device, "bmm", DType::fp8_e4m3).bind(data.arguments, *device); });
  };
  EXPECT_TRUE(has(refused("tensor", 1, 16, 24), "multiples of 16, got inner 24"));
  EXPECT_TRUE(has(refused("tensor", 1, 8, 16), "columns 8"));
  EXPECT_TRUE(has(refused("row", 2, 16, 16), "batch 1"));
  EXPECT_TRUE(has(refused("block", 2, 16, 16), "batch 1"));
  fake::runtime().capability = 100;
  EXPECT_TRUE(has(refused("row", 1, 16, 16), "sm_90 only"));
  fake::runtime().capability = 80;
  const auto device = cuda::open(0);
  EXPECT_TRUE(has(device->lacks(kernel(*device, "bmm", DType::fp8_e4m3).needs), "it needs sm_89"));
  BmmData data(*device, DType::fp8_e4m3, DType::bf16, "block", 1, 3, 16, 256);
  const auto why = [&] {
    return message<Unsupported>([&] { kernel(*device, "bmm", DType::fp8_e4m3).bind(data.arguments, *device); });
  };
  data.arguments.add("scale_bits", std::int64_t{8});
  EXPECT_TRUE(has(why(), "scales in fp32"));
  data.arguments.add("scales", std::string("two_level")), data.arguments.add("scale_bits", std::int64_t{32});
  EXPECT_TRUE(has(why(), "two_level"));
}

TEST_F(OnFakeGpu, MatmulOfFp8TurnsItsConstantOperandAndLeavesSumsToTheUnitsWhereAsked) {
  const auto device = cuda::open(0);
  const std::int64_t m = 5, n = 32, k = 48;
  Memory memory(*device);
  void *const a = memory.random(DType::fp8_e4m3, m * k), *const b = memory.random(DType::fp8_e4m3, k * n);
  void* const c = memory.random(DType::fp32, m * n);
  Arguments arguments("matmul", DType::fp8_e4m3);
  arguments.add("rows", m), arguments.add("columns", n), arguments.add("inner", k);
  arguments.add(tensor("a", a, DType::fp8_e4m3, {m, k})), arguments.add(tensor("b", b, DType::fp8_e4m3, {k, n}));
  arguments.add(tensor("c", c, DType::fp32, {m, n}));
  for (const char* variant : {"library", "fast_accumulation"}) {
    const Bound bound = kernel(*device, "matmul", DType::fp8_e4m3, variant).bind(arguments, *device);
    EXPECT_EQ(steps(bound), std::vector<std::string>{"matmul"});
    EXPECT_EQ(std::get<std::int64_t>(fact(bound, "packed_bytes")), n * k);
    for (std::int64_t i = 0; i < m * n; ++i) set(DType::fp32, c, i, -1);
    run(bound, *device);
    EXPECT_EQ(stub().fast_accumulation, variant == std::string("fast_accumulation"));
    for (std::int64_t i = 0; i < m * n; ++i) {
      double want = 0;
      for (std::int64_t l = 0; l < k; ++l)
        want += element(DType::fp8_e4m3, a, i / n * k + l) * element(DType::fp8_e4m3, b, l * n + i % n);
      ASSERT_EQ(element(DType::fp32, c, i), want);
    }
  }
}

TEST_F(OnFakeGpu, NothingIsLeftOfBmm) {
  const auto device = cuda::open(0);
  const BmmData data(*device, DType::fp8_e4m3, DType::bf16, "block", 1, 2, 16, 256);
  check_leaks(*device, kernel(*device, "bmm", DType::fp8_e4m3), data.arguments, 1000);
}

// -- ffn ------------------------------------------------------------------------------------------------------------------------

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
  double product(const void* weights, std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t l = 0; l < d_model; ++l)
      sum += element(dtype, x, row * d_model + l) * element(dtype, weights, l * d_ff + column);
    return sum;
  }
  double hidden(const std::string& activation, std::int64_t row, std::int64_t column) const {
    const double u = product(up, row, column);
    if (activation == "relu") return std::max(u, 0.0);
    if (activation == "gelu") return 0.5 * u * (1 + std::erf(u * std::sqrt(0.5)));
    if (activation == "gelu_tanh") return 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    const double g = product(gate, row, column);
    return g / (1 + std::exp(-g)) * u;
  }
  void check(const std::string& activation) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<double> activated;
      double size = 1;
      for (std::int64_t i = 0; i < d_ff; ++i) activated.push_back(hidden(activation, row, i)), size += std::abs(activated.back());
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
          for (int i = static_cast<int>(bound.steps.size()); i-- > 0;)  // a step alone, twice, finds what it found before
            bound.steps[static_cast<std::size_t>(i)].launch(static_cast<Device&>(*device));
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
    EXPECT_EQ(std::get<std::string>(fact(bound, "down_chosen_by")), "heuristic");
    EXPECT_TRUE(has(std::get<std::string>(fact(bound, "down_library_implementation")), "algorithm 100"));
  }
  EXPECT_EQ(stub().total_runs, 0);
  data.arguments.add("activation", std::string("swiglu"));
  const Bound bound = kernel(*device, "ffn", DType::bf16, "fused").bind(data.arguments, *device);
  EXPECT_EQ(std::get<std::int64_t>(fact(bound, "packed_bytes")), 2 * 8 * 16 * 2);
  EXPECT_EQ(std::get<std::int64_t>(fact(bound, "workspace_bytes")), kScratchBytes + 3 * 3 * 16 * 2);
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
    check_leaks(*device, kernel(*device, "ffn", DType::bf16, variant), data.arguments, 1000);
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
    arguments.add("causal", std::int64_t{causal});
    const Shape queries = {batch, heads, seq_q, dim}, keys = {batch, kv_heads, seq_kv, dim};
    arguments.add(tensor("q", q, dtype, queries)), arguments.add(tensor("k", k, dtype, keys));
    arguments.add(tensor("v", v, dtype, keys)), arguments.add(tensor("out", out, dtype, queries));
  }
  void check() const {
    for (std::int64_t head = 0; head < batch * heads; ++head)
      for (std::int64_t i = 0; i < seq_q; ++i) {
        const std::int64_t kv = head / (heads / kv_heads) * seq_kv;
        std::vector<double> weight;
        double sum = 0;
        for (std::int64_t j = 0; j < (causal ? i + seq_kv - seq_q + 1 : seq_kv); ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < dim; ++d)
            score += element(dtype, q, (head * seq_q + i) * dim + d) * element(dtype, k, (kv + j) * dim + d);
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(dim)))), sum += weight.back();
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          double want = 0;
          for (std::size_t j = 0; j < weight.size(); ++j)
            want += weight[j] / sum * element(dtype, v, (kv + static_cast<std::int64_t>(j)) * dim + d);
          const double got = element(dtype, out, (head * seq_q + i) * dim + d);
          ASSERT_NEAR(got, want, 4 * half_step(dtype)) << head << " " << i << " " << d;
        }
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
        EXPECT_EQ(std::get<std::int64_t>(fact(bound, "workspace_bytes")),
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
  check_leaks(*device, kernel(*device, "attention", DType::bf16), data.arguments, 1000);
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
  double product(const void* weights, std::int64_t expert, std::int64_t token, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t l = 0; l < d_model; ++l)
      sum += element(dtype, x, token * d_model + l) * element(dtype, weights, (expert * d_model + l) * d_ff + column);
    return sum;
  }
  void check() const {
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<double> want(static_cast<std::size_t>(d_model));
      double size = 1;
      for (std::int64_t j = 0; j < k + shared; ++j) {
        const std::int64_t expert = j < k ? chosen[token * k + j] : experts + j - k;
        const double weight = j < k ? static_cast<const float*>(gates)[token * k + j] : 1;
        for (std::int64_t i = 0; i < d_ff; ++i) {
          const double u = product(up, expert, token, i), g = activation == "swiglu" ? product(gate, expert, token, i) : 0;
          const double hidden = activation == "relu"   ? std::max(u, 0.0)
                                : activation == "gelu" ? 0.5 * u * (1 + std::erf(u * std::sqrt(0.5)))
                                                       : g / (1 + std::exp(-g)) * u;
          size += std::abs(weight * hidden);
          for (std::int64_t d = 0; d < d_model; ++d)
            want[static_cast<std::size_t>(d)] += weight * hidden * element(dtype, down, (expert * d_ff + i) * d_model + d);
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
        for (int i = static_cast<int>(bound.steps.size()); i-- > 0;)
          bound.steps[static_cast<std::size_t>(i)].launch(static_cast<Device&>(*device));
        run(bound, *device);
        data.check();
        std::vector<std::int32_t> met(data.chosen, data.chosen + tokens * k);
        std::sort(met.begin(), met.end());
        const auto touched = std::unique(met.begin(), met.end()) - met.begin() + shared;
        EXPECT_EQ(std::get<std::int64_t>(fact(bound, "experts_with_tokens")), touched);
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
  check_leaks(*device, kernel(*device, "grouped_matmul", DType::bf16), data.arguments, 1000);
}

}  // namespace
