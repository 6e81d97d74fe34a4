// How attention's kernels cut their work into blocks: plain arithmetic, so that tests can check it on any machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "cuda/plan.h"

namespace roofline::cuda {

// Powers of two by which a score may pass what was its row's maximum when the row's sums were last made smaller.
constexpr float kSlack = 8.f;

// Scale of scores over `dims` dimensions, for exponentials in base 2: log2(e) / sqrt(dims).
inline float exponent_scale(std::int64_t dims) {
  return static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dims)));
}

// -- tiled: blocks of queries -----------------------------------------------------------------------------------------------

// Rows of queries that share K and V make up a unit: those of one head, or with few queries those of all heads of a KV head, which
// lie side by side. A block takes `block_q` rows of one unit.
struct QueryTiling {
  std::int64_t units = 0;
  std::int64_t unit_rows = 0;
  std::int64_t unit_blocks = 0;
  std::int64_t heads_per_unit = 0;  // of queries
  std::int64_t units_per_kv = 0;    // that read the same K and V
  std::int64_t section = 0;         // units whose blocks are handed out together, so that their K and V stay in L2
  ROOFLINE_HOST_DEVICE constexpr std::int64_t blocks() const { return units * unit_blocks; }
};

// kv_heads, heads: of the whole batch. kv_bytes: K and V of one KV head.
constexpr QueryTiling plan_queries(std::int64_t heads, std::int64_t kv_heads, std::int64_t seq_q, std::int64_t kv_bytes,
                                   int block_q, std::int64_t l2_bytes) {
  QueryTiling tiling;
  const std::int64_t group = heads / kv_heads;
  const bool together = group > 1 && seq_q < block_q;
  tiling.heads_per_unit = together ? group : 1;
  tiling.units_per_kv = together ? 1 : group;
  tiling.units = heads / tiling.heads_per_unit;
  tiling.unit_rows = tiling.heads_per_unit * seq_q;
  tiling.unit_blocks = ceil_div(tiling.unit_rows, block_q);
  // Half of L2: queries, results and data on their way need room too. Whole KV heads.
  const std::int64_t kept = std::max<std::int64_t>(1, l2_bytes / 2 / std::max<std::int64_t>(kv_bytes, 1));
  tiling.section = std::min(tiling.units, kept * tiling.units_per_kv);
  return tiling;
}

struct QueryBlock {
  std::int64_t unit;
  std::int64_t row;  // the first, within the unit
};

// Section by section; within one, the last rows of every unit first: with a causal mask they see the most keys, and the blocks that
// end the launch are then short.
// In 32 bits, which size_refuses sees to: a GPU divides longer numbers by a call.
ROOFLINE_HOST_DEVICE constexpr QueryBlock query_block(const QueryTiling& tiling, std::int64_t index, int block_q) {
  const auto all = static_cast<std::uint32_t>(tiling.units), unit_blocks = static_cast<std::uint32_t>(tiling.unit_blocks);
  const auto each = static_cast<std::uint32_t>(tiling.section), number = static_cast<std::uint32_t>(index);
  const std::uint32_t first = number / (each * unit_blocks) * each;
  const std::uint32_t units = all - first < each ? all - first : each, within = number - first * unit_blocks;
  return {first + within % units, (unit_blocks - 1 - within / units) * static_cast<std::uint32_t>(block_q)};
}

// Keys that rows of a unit see. Rows past its end count as its last, so that every row sees a key.
struct SeenKeys {
  int unit_rows = 0;
  int seq_q = 0;
  int seq_kv = 0;
  bool causal = false;
  ROOFLINE_HOST_DEVICE constexpr int of(int row) const {
    return causal ? (row < unit_rows ? row : unit_rows - 1) % seq_q + seq_kv - seq_q + 1 : seq_kv;
  }
  // The most and the fewest that `count` rows from `first` see: where a head ends among them, its last query and the next head's
  // first are both there.
  ROOFLINE_HOST_DEVICE constexpr int last(int first, int count) const {
    return (count < unit_rows - first ? first + count : unit_rows) - 1;
  }
  ROOFLINE_HOST_DEVICE constexpr int most(int first, int count) const {
    return last(first, count) / seq_q != first / seq_q ? seq_kv : of(last(first, count));
  }
  ROOFLINE_HOST_DEVICE constexpr int fewest(int first, int count) const {
    return last(first, count) / seq_q != first / seq_q ? of(0) : of(first);
  }
};

// Buffers for tiles of K and V: as many as fit, at most `most`, with as many blocks on an SM as its registers allow, or else fewer.
// At least 2; blocks is 0 where not even one block fits. Every block costs 1 KB of shared memory beyond its own.
struct Buffers {
  int slots = 0;
  int blocks_per_sm = 0;
  std::int64_t shared_bytes = 0;
};

constexpr Buffers plan_buffers(std::int64_t fixed_bytes, std::int64_t slot_bytes, int most, int blocks_by_registers,
                               std::int64_t shared_per_sm, std::int64_t shared_per_block) {
  for (int blocks = std::max(blocks_by_registers, 1); blocks > 0; --blocks) {
    const std::int64_t room = std::min(shared_per_block, shared_per_sm / blocks - 1024);
    const int slots = static_cast<int>(std::min<std::int64_t>(most, (room - fixed_bytes) / slot_bytes));
    if (room >= fixed_bytes && slots >= 2) return {slots, blocks, fixed_bytes + slots * slot_bytes};
  }
  return {};
}

// The same; throws Unsupported where not even two fit. kernel: as the error calls it.
inline Buffers need_buffers(const std::string& kernel, std::int64_t fixed_bytes, std::int64_t slot_bytes, int most,
                            int blocks_by_registers, std::int64_t shared_per_sm, std::int64_t shared_per_block) {
  const Buffers buffers = plan_buffers(fixed_bytes, slot_bytes, most, blocks_by_registers, shared_per_sm, shared_per_block);
  if (buffers.slots > 0) return buffers;
  throw Unsupported(kernel + " needs " + std::to_string(fixed_bytes + 2 * slot_bytes) +
                    " bytes of shared memory, this GPU gives a block " + std::to_string(shared_per_block));
}

// More tiles under way than this hide no further latency.
constexpr int kMostSlots = 4;

// Why the tiled kernels do not take a head_dim; empty if they do.
inline std::string head_refuses(const std::string& variant, std::int64_t head_dim, int element_bytes) {
  if (head_dim > 256) return variant + " takes head_dim up to 256, got " + std::to_string(head_dim) + "; use naive";
  if (element_bytes == 2 && head_dim % 8 != 0)
    return variant + " in 16 bits takes multiples of 8 as head_dim (rows of whole 16 bytes), got " + std::to_string(head_dim) +
           "; pad the heads, or use naive";
  return "";
}

// And for sizes: beyond 2^31 rows of a head's group or keys, or blocks, indices inside a block no longer fit.
inline std::string size_refuses(const char* variant, std::int64_t seq_kv, const QueryTiling& tiling) {
  const std::int64_t most = INT32_MAX - 256;
  if (seq_kv <= most && tiling.unit_rows <= most && tiling.blocks() <= most) return "";
  return std::string(variant) + " takes up to 2^31 keys, queries of one head, and blocks of queries; use smaller dimensions";
}

// -- split_kv: ranges of keys -----------------------------------------------------------------------------------------------

// Every unit (a KV head of a batch entry and up to `rows` of its queries) has the same number of steps over its keys. Lines of
// steps, of one unit, of several, or of all of them, are each shared out equally among the same number of blocks: a block's first
// and its last unit may be shared with others.
struct KvSplit {
  int units = 0;
  int unit_steps = 0;
  int blocks = 0;
  int line_steps = 0;
  int line_blocks = 1;
  int each = 0;  // steps of a block; the first `rest` blocks of a line take one more
  int rest = 0;
  ROOFLINE_HOST_DEVICE constexpr int steps() const { return units * unit_steps; }
  // Block b takes steps begin(b) up to begin(b + 1).
  ROOFLINE_HOST_DEVICE constexpr int begin(int block) const {
    const int line = block / line_blocks, within = block % line_blocks;
    return line * line_steps + within * each + (within < rest ? within : rest);
  }
  ROOFLINE_HOST_DEVICE constexpr int block_of(int step) const {
    const int longer = rest * (each + 1), line = step / line_steps, within = step % line_steps;
    return line * line_blocks + (within < longer ? within / (each + 1) : rest + (within - longer) / each);
  }
  // Blocks first ... last work on a unit.
  ROOFLINE_HOST_DEVICE constexpr int first_block(int unit) const { return block_of(unit * unit_steps); }
  ROOFLINE_HOST_DEVICE constexpr int last_block(int unit) const { return block_of((unit + 1) * unit_steps - 1); }
  // Where a block leaves its part of a unit: each block has two places, for its first unit and for its last.
  ROOFLINE_HOST_DEVICE constexpr int scratch(int block, int unit) const {
    return 2 * block + (begin(block) >= unit * unit_steps ? 0 : 1);
  }
};

// More steps would not be counted in 32 bits.
constexpr std::int64_t kMostSplitSteps = INT32_MAX / 2;

// resident: blocks that run at once. least_steps: of a block, since below it the parts cost more to merge than they save.
// Where at least `busy` sixteenths of the blocks that could run then do, a block takes whole units, as many as every other one, or
// a share of one unit: that makes no parts, or few. Else all units stand in one line.
constexpr KvSplit plan_split(std::int64_t units, std::int64_t unit_steps, std::int64_t resident, std::int64_t least_steps,
                             int busy) {
  const std::int64_t steps = units * unit_steps;
  const std::int64_t worth = std::max<std::int64_t>(steps / std::max<std::int64_t>(least_steps, 1), 1);
  const std::int64_t most = std::max<std::int64_t>(1, std::min({resident, worth, steps}));
  std::int64_t line_units = units, line_blocks = most;
  const std::int64_t each = ceil_div(units, most);  // units of a block
  if (each > 1 || units == most) {
    if (units % each == 0 && units / each * 16 >= most * busy) line_units = each, line_blocks = 1;
  } else {
    // As few blocks as do with the steps that the longest share has.
    const std::int64_t share = ceil_div(unit_steps, most / units), blocks = ceil_div(unit_steps, share);
    if (units * blocks * 16 >= most * busy) line_units = 1, line_blocks = blocks;
  }
  const std::int64_t line_steps = line_units * unit_steps;
  return {static_cast<int>(units), static_cast<int>(unit_steps), static_cast<int>(units / line_units * line_blocks),
          static_cast<int>(line_steps), static_cast<int>(line_blocks), static_cast<int>(line_steps / line_blocks),
          static_cast<int>(line_steps % line_blocks)};
}

// Parts of units that more than one block works on: what goes to memory and back.
constexpr std::int64_t split_parts(const KvSplit& split) {
  std::int64_t parts = 0;
  for (int block = 0; block < split.blocks; ++block) {
    const int begin = split.begin(block), end = split.begin(block + 1);
    const int first = begin / split.unit_steps, last = (end - 1) / split.unit_steps;
    const bool shares_first = begin % split.unit_steps != 0 || end < (first + 1) * split.unit_steps;
    parts += shares_first;
    if (last != first) parts += end % split.unit_steps != 0;
  }
  return parts;
}

// Why mla_decode's split_kv does not take a problem; empty if it does. rows: queries of all heads of the whole batch.
inline std::string mla_refuses(std::int64_t rank, std::int64_t rope_dim, std::int64_t keys, std::int64_t rows) {
  if (rank > 512 || rope_dim > 64 || rank % 8 != 0 || rope_dim % 8 != 0)
    return "split_kv takes multiples of 8 (rows of whole 16 bytes), up to 512 as kv_lora_rank and 64 as qk_rope_head_dim, got " +
           std::to_string(rank) + " and " + std::to_string(rope_dim);
  if (keys > INT32_MAX - 1024 || rows > INT32_MAX) return "split_kv takes up to 2^31 keys and queries; use smaller dimensions";
  return "";
}

constexpr int kMostSplitSlots = 6;
// How busy a GPU must be for shares that end where units do: sixteenths, of kernels that memory or that arithmetic limits.
constexpr int kBusyReading = 12, kBusyComputing = 14;

// Why split_kv does not take a problem; empty if it does. rows: queries of the whole batch.
inline std::string split_refuses(std::int64_t head_dim, std::int64_t seq_q, std::int64_t element_bytes, std::int64_t page_size,
                                 std::int64_t keys, std::int64_t rows) {
  const std::int64_t most_dim = element_bytes == 1 ? 128 : 256, multiple = 16 / element_bytes;
  if (seq_q > 8) return "split_kv takes seq_q up to 8, got " + std::to_string(seq_q) + "; use another variant";
  if (head_dim > most_dim)
    return "split_kv takes head_dim up to " + std::to_string(most_dim) + " with a cache of " + std::to_string(element_bytes) +
           "-byte numbers, got " + std::to_string(head_dim);
  if (head_dim % multiple != 0)
    return "split_kv takes multiples of " + std::to_string(multiple) + " as head_dim (rows of whole 16 bytes), got " +
           std::to_string(head_dim) + "; pad the heads";
  if (page_size % 16 != 0) return "split_kv takes multiples of 16 as page_size, got " + std::to_string(page_size);
  if (keys > INT32_MAX - 1024 || rows > INT32_MAX) return "split_kv takes up to 2^31 keys and queries; use smaller dimensions";
  return "";
}

}  // namespace roofline::cuda
