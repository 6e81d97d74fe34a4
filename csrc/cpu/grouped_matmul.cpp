// grouped_matmul on a CPU, by our own kernels (gemm_kernels.h) on weights packed in bind. Every launch routes anew: rows are
// numbered by expert, then x is gathered in that order, few rows of an expert in fp32 and blocks of more packed, then threads take
// parts of the columns of one expert after the other: up, gate and activation together, in fp32, then down, and at last the results
// of each token are added up. Weights of experts without tokens are not read; those of a touched one once, where its rows are few.
#include "ops/grouped_matmul.h"

#include <algorithm>
#include <vector>

#include "core/stopwatch.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/rows_kernels.h"
#include "cpu/share.h"
#include "cpu/tiled_gemm.h"

namespace roofline::cpu {
namespace {

using ops::GroupedMatmul;

constexpr std::int64_t kMostColumns = 512;   // of a part: packing a block of a costs 1 or 2 % of what it is used for
constexpr std::int64_t kPartsPerThread = 8;  // so that the last to end leaves little idle

// The packed weights of all experts, and how their columns are cut.
struct Weights {
  const char* packed;  // [experts, strips, strip_bytes]
  std::int64_t columns, inner, words, strips, strip_bytes, parts;  // words: of a row of a and of a strip
};

struct RowBlock {
  std::int64_t expert, row, rows;
};

struct Plan {
  const GemmKernels* table;
  const RowsKernels* activations;
  Stored type;
  GroupedMatmul problem;
  Blocks most;
  Streams streams;  // in which few rows read weights
  bool as_stored;   // see GemmPart
  Weights up, gate, down;
  std::int64_t thread_bytes;
  std::shared_ptr<void> memory, packed;
  char* own;                // [threads, thread_bytes]
  float* x;                             // [rows, words of d_model], of blocks of many rows in panels
  float *hidden, *gates, *results;      // [rows, d_ff] twice, [rows, d_model]
  float* activated;         // [rows, words of d_ff]: hidden itself, where words are fp32
  std::int32_t* token;      // [rows]: whose row of x this is
  std::int32_t* place;      // [tokens, per_token]: the row of each result of a token
  std::int64_t* first;      // [experts + 1]: the rows of an expert
  std::vector<RowBlock> blocks;  // of all experts
  std::vector<std::int64_t> own_blocks;  // where those of each expert with rows begin, and their end
};

bool few(std::int64_t rows) { return rows <= GemmKernels::kMostFewRows; }
std::int64_t inner_block(const Plan& plan, const Weights& weights) {
  return inner_block_of(weights.words, plan.most.inner, plan.table->multiple);
}
// Where x of a block begins: panels of an expert may be filled up with some rows.
float* x_of(const Plan& plan, const RowBlock& block) {
  return plan.x + (block.row + block.expert * (plan.table->panel_multiple - 1)) * plan.up.words;
}

std::int64_t rows_of(const GroupedMatmul& problem) { return problem.tokens * problem.per_token(); }

// Rows numbered by expert, the shared ones last, with every token, and cut into blocks.
void route(Plan& plan) {
  const GroupedMatmul& problem = plan.problem;
  const std::int64_t each = problem.experts_per_token, all = problem.all_experts();
  std::fill_n(plan.first, all + 1, 0);
  for (std::int64_t i = 0; i < problem.tokens * each; ++i) ++plan.first[problem.chosen[i] + 1];
  for (std::int64_t e = problem.experts; e < all; ++e) plan.first[e + 1] = problem.tokens;
  for (std::int64_t e = 0; e < all; ++e) plan.first[e + 1] += plan.first[e];
  const auto put = [&](std::int64_t expert, std::int64_t token, std::int64_t which) {
    const std::int64_t row = plan.first[expert]++;  // and back below
    plan.token[row] = static_cast<std::int32_t>(token);
    plan.place[token * problem.per_token() + which] = static_cast<std::int32_t>(row);
  };
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (std::int64_t i = 0; i < each; ++i) put(problem.chosen[t * each + i], t, i);
    for (std::int64_t i = 0; i < problem.shared_experts; ++i) put(problem.experts + i, t, each + i);
  }
  for (std::int64_t e = all; e > 0; --e) plan.first[e] = plan.first[e - 1];
  plan.first[0] = 0;
  plan.blocks.clear(), plan.own_blocks.clear();
  for (std::int64_t e = 0; e < all; ++e) {
    if (plan.first[e] < plan.first[e + 1]) plan.own_blocks.push_back(static_cast<std::int64_t>(plan.blocks.size()));
    for (std::int64_t row = plan.first[e]; row < plan.first[e + 1]; row += plan.most.rows)
      plan.blocks.push_back({e, row, std::min(plan.most.rows, plan.first[e + 1] - row)});
  }
  plan.own_blocks.push_back(static_cast<std::int64_t>(plan.blocks.size()));
}

void gather(const Plan& plan, Pool& threads) {
  const std::int64_t words = plan.up.words, each = inner_block(plan, plan.up), parts = parts_of(words, each);
  const std::int64_t row_bytes = plan.problem.d_model * size_bytes(plan.problem.dtype);
  threads.for_each(static_cast<std::int64_t>(plan.blocks.size()) * parts, [&](int worker, std::int64_t item) {
    const RowBlock& block = plan.blocks[item / parts];
    const std::int64_t k = item % parts * each, n = std::min(each, words - k), stride = few(block.rows) ? words : whole_lines(each);
    auto* const wide = few(block.rows) ? x_of(plan, block) + k : reinterpret_cast<float*>(plan.own + worker * plan.thread_bytes);
    for (std::int64_t row = 0; row < block.rows; ++row)
      widen_words(*plan.table, plan.type, false, static_cast<const char*>(plan.problem.x) + plan.token[block.row + row] * row_bytes,
                  plan.problem.d_model, k, n, wide + row * stride);
    if (few(block.rows)) return;
    GemmPart part{};
    part.a = wide, part.inner = stride, part.rows = block.rows;
    plan.table->pack_a(part, 0, n, x_of(plan, block) + k * plan.table->panel_rows(block.rows));
  });
}

// c[rows, columns of a part] of a block: of rows of `a`, or of x where there is none.
void multiply(const Plan& plan, const Weights& weights, const RowBlock& block, std::int64_t part, const float* a, float* c,
              int worker) {
  const std::int64_t first = weights.strips * part / weights.parts, last = weights.strips * (part + 1) / weights.parts;
  const std::int64_t column = first * plan.table->width, n = std::min(last * plan.table->width, weights.columns) - column;
  (few(block.rows) ? plan.table->few : plan.table->block)[index(plan.type)]({
      .a = a ? a + block.row * weights.words : x_of(plan, block),
      .b = weights.packed + (block.expert * weights.strips + first) * weights.strip_bytes,
      .c = c + block.row * weights.columns + column,
      .workspace = reinterpret_cast<float*>(plan.own + worker * plan.thread_bytes),
      .rows = block.rows,
      .columns = n,
      .c_stride = weights.columns,
      .inner = weights.words,
      .first = 0,
      .last = last - first,
      .inner_block = inner_block(plan, weights),
      .panels = a ? nullptr : x_of(plan, block),
      .as_stored = plan.as_stored,
      .streams = plan.streams,
  });
}

// work(worker, block, part) for every block of rows and part of the columns of its expert's weights.
template <class Work>
void for_parts(const Plan& plan, Pool& threads, std::int64_t parts, Work&& work) {
  threads.for_each(static_cast<std::int64_t>(plan.own_blocks.size() - 1) * parts, [&](int worker, std::int64_t item) {
    const auto* const own = &plan.own_blocks[item / parts];
    for (std::int64_t block = own[0]; block < own[1]; ++block) work(worker, plan.blocks[block], item % parts);
  });
}

void up_and_activate(const Plan& plan, Pool& threads) {
  const auto work = [&](int worker, const RowBlock& block, std::int64_t part) {
    multiply(plan, plan.up, block, part, nullptr, plan.hidden, worker);
    if (plan.problem.gated()) multiply(plan, plan.gate, block, part, nullptr, plan.gates, worker);
    const std::int64_t first = plan.up.strips * part / plan.up.parts * plan.table->width;
    const std::int64_t last = std::min(plan.up.strips * (part + 1) / plan.up.parts * plan.table->width, plan.up.columns);
    for (std::int64_t r = block.row; r < block.row + block.rows; ++r) {
      float* const up = plan.hidden + r * plan.up.columns + first;
      switch (plan.problem.activation) {
        case GroupedMatmul::Activation::relu: plan.activations->relu[0](up, up, last - first); break;
        case GroupedMatmul::Activation::gelu: plan.activations->gelu[0](up, up, last - first); break;
        case GroupedMatmul::Activation::swiglu:
          plan.activations->silu_mul[0](plan.gates + r * plan.up.columns + first, up, up, last - first);
          break;
      }
    }
  };
  for_parts(plan, threads, plan.up.parts, work);
}

// A token's results, each times its gate, in the order of its experts.
void combine(const Plan& plan, Pool& threads) {
  const GroupedMatmul& problem = plan.problem;
  const std::int64_t columns = problem.d_model, size = size_bytes(problem.dtype);
  threads.share_out(problem.tokens, 1, [&](int worker, Range own) {
    auto* const sum = reinterpret_cast<float*>(plan.own + worker * plan.thread_bytes);
    for (std::int64_t t = own.first; t < own.last; ++t) {
      for (std::int64_t i = 0; i < problem.per_token(); ++i) {
        const float gate = i < problem.experts_per_token ? problem.gates[t * problem.experts_per_token + i] : 1.0f;
        const float* const from = plan.results + plan.place[t * problem.per_token() + i] * columns;
        for (std::int64_t j = 0; j < columns; ++j) sum[j] = (i ? sum[j] : 0.0f) + gate * from[j];
      }
      plan.table->narrow[index(plan.type)](sum, static_cast<char*>(problem.out) + t * columns * size, columns);
    }
  });
}

Bound tiled(const GroupedMatmul& problem, Device& device) {
  const auto plan = std::make_shared<Plan>();
  plan->type = stored(problem.dtype, "grouped_matmul");
  const Choice<GemmKernels> choice = choose_gemm(plan->type);
  const auto [isa, table] = choice;
  const std::int64_t numbers = table->numbers[index(plan->type)];
  plan->table = table;
  plan->activations = &choose<RowsTable>(ROOFLINE_TABLES(rows)).table->of[kFp32];
  plan->problem = problem;
  plan->most = blocks_of(table->width, table->tile_rows, table->multiple, device.caches());
  const std::int64_t rows = rows_of(problem), experts = problem.all_experts();
  const std::int64_t all_numbers = product({experts, problem.gated() ? 3 : 2, problem.d_model, problem.d_ff}, "grouped_matmul: weights");
  plan->streams = read_streams(device, choice, plan->type, parts_of(rows, experts), all_numbers * size_bytes(problem.dtype));
  plan->as_stored = !few(problem.tokens) && reads_as_stored(device, *table, plan->type);

  std::int64_t packed_bytes = 0;
  const auto describe = [&](std::int64_t columns, std::int64_t inner) {
    Weights weights{};
    weights.columns = columns, weights.inner = inner, weights.words = words_of(*table, plan->type, inner);
    weights.strips = parts_of(columns, table->width);
    weights.strip_bytes =
        product({weights.words, table->width, size_bytes(problem.dtype) * numbers}, "grouped_matmul: packed weights");
    // Few experts are cut into enough parts for all threads, and into whole sets of address streams while there are enough strips.
    const std::int64_t wanted = parts_of(kPartsPerThread * device.threads(), std::min(rows, experts));
    const std::int64_t most = std::max<std::int64_t>(1, weights.strips / plan->streams.count);
    weights.parts = std::max(std::min(wanted, most), std::min(weights.strips, parts_of(columns, kMostColumns)));
    packed_bytes += product({experts, weights.strips, weights.strip_bytes}, "grouped_matmul: packed weights");
    return weights;
  };
  plan->up = describe(problem.d_ff, problem.d_model);
  if (problem.gated()) plan->gate = describe(problem.d_ff, problem.d_model);
  plan->down = describe(problem.d_model, problem.d_ff);
  plan->packed = workspace(device, static_cast<std::size_t>(packed_bytes));
  char* next = static_cast<char*>(plan->packed.get());
  const Stopwatch watch;
  const auto pack = [&](Weights& weights, const void* from) {
    weights.packed = next;
    next += experts * weights.strips * weights.strip_bytes;
    device.pool().for_each(experts * weights.strips, [&](int, std::int64_t item) {
      const std::int64_t expert = item / weights.strips, strip = item % weights.strips;
      table->pack[index(plan->type)](
          static_cast<const char*>(from) + expert * weights.columns * weights.inner * size_bytes(problem.dtype),
          const_cast<char*>(weights.packed) + expert * weights.strips * weights.strip_bytes, weights.columns, weights.inner, strip,
          strip + 1);
    });
  };
  pack(plan->up, problem.w_up);
  if (problem.gated()) pack(plan->gate, problem.w_gate);
  pack(plan->down, problem.w_down);
  const double pack_s = watch.seconds();

  const std::int64_t inner_block = whole_lines(std::min(std::max(plan->up.words, plan->down.words), plan->most.inner));
  const std::int64_t most_rows = std::min(rows, plan->most.rows);  // of a block: a token may name an expert more than once
  std::int64_t most_columns = 0;  // of a part
  for (const Weights& weights : {plan->up, plan->down})
    most_columns = std::max(most_columns, parts_of(weights.strips, weights.parts) * table->width);
  const std::int64_t floats = std::max(
      {table->few_floats(GemmKernels::kMostFewRows), table->block_floats(most_rows, most_columns, inner_block), problem.d_model});
  plan->thread_bytes = whole_pages(floats * 4);
  std::int64_t workspace_bytes = 0;
  const auto room = [&](std::int64_t count, std::int64_t each, std::int64_t size) {
    const std::int64_t at = workspace_bytes;
    workspace_bytes += whole_pages(product({count, each, size}, "grouped_matmul: workspace"));
    return at;
  };
  const std::int64_t own = room(device.threads(), plan->thread_bytes, 1),
                     x = room(rows + experts * (table->panel_multiple - 1), plan->up.words, 4),
                     hidden = room(rows, problem.d_ff, 4), activated = numbers > 1 ? room(rows, plan->down.words, 4) : hidden,
                     gates = room(problem.gated() ? rows : 0, problem.d_ff, 4), results = room(rows, problem.d_model, 4),
                     token = room(rows, 1, 4), place = room(rows, 1, 4), first = room(experts + 1, 1, 8);
  plan->memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  plan->blocks.reserve(static_cast<std::size_t>(experts + rows / plan->most.rows));
  plan->own_blocks.reserve(static_cast<std::size_t>(experts + 1));
  char* const memory = static_cast<char*>(plan->memory.get());
  plan->own = memory + own;
  plan->x = reinterpret_cast<float*>(memory + x), plan->hidden = reinterpret_cast<float*>(memory + hidden);
  plan->activated = reinterpret_cast<float*>(memory + activated);
  plan->gates = reinterpret_cast<float*>(memory + gates), plan->results = reinterpret_cast<float*>(memory + results);
  plan->token = reinterpret_cast<std::int32_t*>(memory + token), plan->place = reinterpret_cast<std::int32_t*>(memory + place);
  plan->first = reinterpret_cast<std::int64_t*>(memory + first);

  Bound bound = planned("tiled/" + name(isa), device);
  bound.plan.set("tile", std::to_string(table->tile_rows) + "x" + std::to_string(table->width));
  bound.plan.set("gathered", 1);
  bound.plan.set("streams", plan->streams.count);
  bound.plan.set("prefetch", prefetch_of(plan->streams));
  bound.plan.set("packed_bytes", Value(packed_bytes));
  bound.plan.set("pack_s", Value(pack_s));
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.steps.push_back({"route", [plan](Queue& queue) {
    route(*plan);
    gather(*plan, pool(queue));
  }});
  bound.steps.push_back({"up", [plan](Queue& queue) {
    up_and_activate(*plan, pool(queue));
    if (plan->activated == plan->hidden) return;
    pool(queue).run([&](int worker) {
      const Range part = share(rows_of(plan->problem), worker, pool(queue).threads(), 1);
      widen_rows(*plan->table, plan->type, true, plan->hidden + part.first * plan->down.inner, part.size(), plan->down.inner,
                 plan->activated + part.first * plan->down.words);
    });
  }});
  bound.steps.push_back({"down", [plan](Queue& queue) {
                           for_parts(*plan, pool(queue), plan->down.parts,
                                     [&](int worker, const RowBlock& block, std::int64_t part) {
                                       multiply(*plan, plan->down, block, part, plan->activated, plan->results, worker);
                                     });
                         }});
  bound.steps.push_back({"combine", [plan](Queue& queue) { combine(*plan, pool(queue)); }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> grouped_matmul_kernels() { return floating_kernels("tiled", tiled); }

}  // namespace roofline::cpu
