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

TEST_F(OnFakeGpu, NothingIsLeftOfFfn) {
  const auto device = cuda::open(0);
  FfnData data(*device, DType::bf16, 1, 2, 4, 4);
  data.arguments.add("activation", std::string("swiglu"));
  for (const char* variant : {"library", "fused"})
    check_leaks(*device, kernel(*device, "ffn", DType::bf16, variant), data.arguments, 1000);
}

}  // namespace
