// The operators over tokens on a CPU: each thread takes one contiguous range of tokens, and of heads in rope.
#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/routers_kernels.h"
#include "cpu/share.h"
#include "cpu/tokens_kernels.h"
#include "ops/tokens.h"

namespace roofline::cpu {
namespace {

Choice<TokensKernels> choose_tokens() { return choose<TokensKernels>(ROOFLINE_TABLES(tokens)); }
Choice<RoutersKernels> choose_routers() { return choose<RoutersKernels>(ROOFLINE_TABLES(routers)); }

void state(Plan& plan, const Device& device, Isa isa, std::int64_t items, std::int64_t workspace_bytes) {
  plan.set("implementation", "fused/" + name(isa));
  plan.set("threads", static_cast<int>(std::min<std::int64_t>(items, device.threads())));  // with something to do
  plan.set("workspace_bytes", Value(workspace_bytes));
}

// One step that gives each worker its items: work(items, worker).
template <class Work>
Bound over(const char* step, std::int64_t items, Work work) {
  Bound bound;
  bound.steps.push_back({step, [=](Queue& queue) {
    pool(queue).share_out(items, 1, [&](int worker, Range mine) {
      if (mine.size() > 0) work(mine, worker);
    });
  }});
  return bound;
}

const char* at(const void* memory, std::int64_t bytes) { return static_cast<const char*>(memory) + bytes; }

Bound rope(const ops::Rope& problem, Device& device) {
  const auto [isa, table] = choose_tokens();
  const std::int64_t half = problem.head_dim / 2, items = problem.tokens() * (problem.heads + problem.kv_heads);
  const bool from_memory = isa != Isa::scalar && items * problem.head_dim * size_bytes(problem.dtype) > device.lasting_bytes();
  if (from_memory && problem.dtype == DType::fp32) choose_pace(device);  // stores of 16 bits are not paced
  const auto run = table->rope[element_of(problem.dtype, problem.op)][from_memory];
  const Element element = element_of(problem.table_dtype, problem.op);
  const bool as_they_lie = element == kFp32 && problem.dtype != DType::bf16;
  const std::int64_t scratch_bytes = as_they_lie ? 0 : whole_pages(2 * half * std::int64_t{sizeof(float)});
  const std::shared_ptr<void> scratch = scratch_bytes ? workspace(device, device.threads() * scratch_bytes) : nullptr;
  const RopePart whole = {problem.q, problem.k, problem.cos, problem.sin, nullptr, 0, items, problem.heads, problem.kv_heads, half,
                          element};
  Bound bound = over("rope", items, [=](const Range& mine, int worker) {
    RopePart part = whole;
    part.scratch = reinterpret_cast<float*>(static_cast<char*>(scratch.get()) + worker * scratch_bytes);
    part.first = mine.first, part.last = mine.last;
    run(part);
  });
  state(bound.plan, device, isa, items, device.threads() * scratch_bytes);
  return bound;
}

// Which of the kernels with non-temporal stores is the faster. The few buffers of L1's misses serve such stores too: an Intel Xeon
// has too few to fetch rows into L1 as well, and Zen 5 is up to 1.15 times as fast so.
int past_caches(Device& device, const TokensKernels& table) {
  constexpr std::int64_t kTokens = 2048, kRowBytes = 4096, kBytes = kTokens * kRowBytes, kApart = 1031;  // rows out of order
  return 1 + device.quickest("fetches of rows beside stores past the caches", 2, [&]() -> Device::Trial {
    const auto rows = workspace(device, kBytes, Fill::uniform), out = workspace(device, kBytes);
    std::vector<std::int32_t> ids(kTokens);
    for (std::int64_t i = 0; i < kTokens; ++i) ids[i] = static_cast<std::int32_t>(i * kApart % kTokens);
    return {{{rows.get(), kBytes}, {out.get(), kBytes}}, [=, &device, &table](int candidate) {
              device.pool().run([&](int worker) {
                const Range own = share(kTokens, worker, device.threads(), 1);
                table.embedding[1 + candidate]({ids.data() + own.first, static_cast<const char*>(rows.get()),
                                                static_cast<char*>(out.get()) + own.first * kRowBytes, own.size(), kRowBytes});
              });
            }};
  });
}

Bound embedding(const ops::Embedding& problem, Device& device) {
  const auto [isa, table] = choose_tokens();
  const std::int64_t row_bytes = problem.d_model * size_bytes(problem.dtype);
  const bool non_temporal = bypass(device, isa, problem.out, problem.tokens, row_bytes);
  const auto run = table->embedding[non_temporal ? past_caches(device, *table) : 0];
  Bound bound = over("embedding", problem.tokens, [=](const Range& mine, int) {
    run({static_cast<const std::int32_t*>(problem.ids) + mine.first, static_cast<const char*>(problem.table),
         static_cast<char*>(problem.out) + mine.first * row_bytes, mine.size(), row_bytes});
  });
  state(bound.plan, device, isa, problem.tokens, 0);
  state_stores(bound, problem.out, non_temporal);
  return bound;
}

// of_all: whether the exponentials of all experts are needed, not only those of the chosen.
Bound topk(const ops::Topk& problem, const char* op, bool sigmoid, const void* bias, bool of_all, Device& device) {
  if (problem.experts > INT32_MAX)
    throw Unsupported(std::string(op) + ": experts is " + std::to_string(problem.experts) + "; their numbers are int32");
  const auto [isa, table] = choose_routers();
  const auto run = table->topk[element_of(problem.dtype, op)];
  const std::int64_t room = problem.experts_per_token + 4 * TopkPart::kBlock, chosen = problem.experts_per_token;
  const std::int64_t scores = TopkPart::rows(problem.experts, chosen) * TopkPart::pitch(problem.experts);
  const std::int64_t floats = scores + 2 * chosen * TopkPart::kTogether;
  const std::int64_t scratch_bytes = whole_pages(2 * room * std::int64_t{sizeof(double)} + floats * std::int64_t{sizeof(float)});
  const std::shared_ptr<void> scratch = workspace(device, device.threads() * scratch_bytes);
  Bound bound = over("topk", problem.tokens, [=](const Range& mine, int worker) {
    TopkPart part{};
    part.logits = at(problem.logits, mine.first * problem.experts * size_bytes(problem.dtype));
    part.bias = static_cast<const float*>(bias);
    part.weights = static_cast<float*>(problem.weights) + mine.first * chosen;
    part.numbers = static_cast<std::int32_t*>(problem.chosen) + mine.first * chosen;
    part.scores = reinterpret_cast<float*>(static_cast<char*>(scratch.get()) + worker * scratch_bytes);
    part.picked = part.scores + scores;
    part.found = part.picked + chosen * TopkPart::kTogether;
    part.candidates = reinterpret_cast<double*>(part.found + chosen * TopkPart::kTogether);
    part.ordered = part.candidates + room;
    part.room = room;
    part.tokens = mine.size();
    part.experts = problem.experts;
    part.chosen = chosen;
    part.sigmoid = sigmoid;
    part.renormalise = problem.renormalise;
    run(part);
  });
  state(bound.plan, device, isa, problem.tokens, device.threads() * scratch_bytes);
  bound.plan.set("exponentials", Value(problem.tokens * (of_all ? problem.experts : chosen)));
  return bound;
}

Bound topk_softmax(const ops::TopkSoftmax& problem, Device& device) {
  return topk(problem, problem.op, false, nullptr, !problem.renormalise, device);
}

Bound topk_sigmoid(const ops::TopkSigmoid& problem, Device& device) {
  return topk(problem, problem.op, true, problem.bias, problem.bias != nullptr, device);
}

}  // namespace

std::vector<KernelEntry> rope_kernels() { return floating_kernels<ops::Rope>("fused", rope); }

std::vector<KernelEntry> embedding_kernels() { return floating_kernels<ops::Embedding>("fused", embedding); }

std::vector<KernelEntry> topk_softmax_kernels() { return floating_kernels<ops::TopkSoftmax>("fused", topk_softmax); }

std::vector<KernelEntry> topk_sigmoid_kernels() { return floating_kernels<ops::TopkSigmoid>("fused", topk_sigmoid); }

}  // namespace roofline::cpu
