// quantized_matmul on a CPU: b is packed in bind, in its own bits, a strip's scales and zero points before each group of its numbers, so
// that a strip is one address stream. Parts of c are handed out as in tiled_gemm.cpp; kernels: quantized_kernels.cpp.
#include "ops/quantized_matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/stopwatch.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/products.h"
#include "cpu/quantized_prepared.h"
#include "cpu/share.h"
#include "cpu/tiled_gemm.h"

namespace roofline::cpu {
namespace {

using ops::QuantizedMatmul;

constexpr std::int64_t kMostColumns = 512;   // of a part: packing a block of a costs 1 or 2 % of what it is used for
constexpr std::int64_t kPartsPerThread = 8;  // so that the last to end leaves little idle
constexpr int kMostWidth = 64;
constexpr std::int64_t kMostBesidePairs = 96;  // rows: more gain from weights that are rounded to bf16 for all of them
constexpr std::int64_t kDigitColumns = 512;  // fewer gain less from digits of few rows than making these costs
constexpr std::int64_t kCachedNumbers = std::int64_t{1} << 22;  // of b: 2 MiB of 4 bits

// Rows of a that the tiles of AMX take. Fewer than kLeastInTiles run as fast without them, and with weights of 8 bits and a of 16 bits
// fewer than kLeastOfBytes. More of bf16 than kMostInTiles run faster on weights rounded to bf16. A group that is shorter than a tile
// leaves part of it empty, so the least number grows in proportion.
constexpr std::int64_t kLeastInTiles = 5, kLeastOfBytes = 7, kMostInTiles = 64, kLeastGroup = 32;

// Number i of whole ones of 8 or 4 bits.
int whole(const void* numbers, DType dtype, std::int64_t i) {
  const auto* const bytes = static_cast<const std::int8_t*>(numbers);
  if (dtype == DType::int8) return bytes[i];
  const int four = (bytes[i / 2] >> (i % 2 * 4)) & 15;
  return four < 8 ? four : four - 16;
}

// Where what lies in packed b.
struct Packing {
  Stored scale;  // of scales and zero points: exact for either
  std::int64_t header_bytes, row_bytes, group_bytes, strip_bytes, strips;
};

Packing packing_of(const QuantizedMatmul& problem, int width) {
  Packing packing{};
  const bool whole_zero = problem.zero_dtype == DType::int8 || problem.zero_dtype == DType::int4;
  const bool wide = problem.scale_dtype == DType::fp32 || (problem.zero && !whole_zero && problem.zero_dtype == DType::fp32);
  packing.scale = stored(wide ? DType::fp32 : problem.scale_dtype, "quantized_matmul");
  packing.header_bytes = width * (wide ? 4 : 2) * (problem.zero ? 2 : 1);
  packing.row_bytes = width * bits(problem.b_dtype) / 8;
  packing.group_bytes = packing.header_bytes + product({parts_of(problem.group, 4) * 4, packing.row_bytes}, "quantized_matmul: packed b");
  packing.strip_bytes = product({problem.groups, packing.group_bytes}, "quantized_matmul: packed b");
  packing.strips = parts_of(problem.columns, width);
  return packing;
}

void pack_header(const QuantizedMatmul& problem, const Packing& packing, const GemmKernels& table, std::int64_t strip, std::int64_t group,
                 char* to) {
  const std::int64_t column = strip * table.width, n = std::min<std::int64_t>(table.width, problem.columns - column);
  const std::int64_t at = group * problem.columns + column;
  float scale[kMostWidth] = {}, zero[kMostWidth] = {};
  const auto read = [&](const void* numbers, DType dtype, float* into) {
    table.widen[index(stored(dtype, "quantized_matmul"))](static_cast<const char*>(numbers) + at * size_bytes(dtype), into, n);
  };
  if (problem.scale)
    read(problem.scale, problem.scale_dtype, scale);
  else
    std::fill_n(scale, n, 1.0f);
  table.narrow[index(packing.scale)](scale, to, table.width);
  if (!problem.zero) return;
  if (problem.zero_dtype == DType::int8 || problem.zero_dtype == DType::int4)
    for (std::int64_t j = 0; j < n; ++j) zero[j] = static_cast<float>(whole(problem.zero, problem.zero_dtype, at + j));
  else
    read(problem.zero, problem.zero_dtype, zero);
  table.narrow[index(packing.scale)](zero, to + packing.header_bytes / 2, table.width);
}

// together: rows that lie side by side, where b has 8 bits.
void pack_strip(const QuantizedMatmul& problem, const Packing& packing, const GemmKernels& table, int together,
                std::int64_t strip, char* to) {
  const std::int64_t width = table.width, lanes = width / 2, column = strip * width;
  for (std::int64_t group = 0; group < problem.groups; ++group, to += packing.group_bytes) {
    pack_header(problem, packing, table, strip, group, to);
    char* const numbers = to + packing.header_bytes;
    std::memset(numbers, 0, static_cast<std::size_t>(packing.group_bytes - packing.header_bytes));
    const std::int64_t first = group * problem.group, last = std::min(first + problem.group, problem.inner);
    for (std::int64_t k = first; k < last; ++k)
      for (std::int64_t j = 0; j < width && column + j < problem.columns; ++j) {
        const int number = whole(problem.b, problem.b_dtype, k * problem.columns + column + j);
        const std::int64_t row = k - first;
        if (problem.b_dtype == DType::int8) {
          const std::int64_t within = row % together, place = together == 4 ? within % 2 * 2 + within / 2 : within;
          numbers[(row / together * width + j) * together + place] = static_cast<char>(together == 4 ? number + 128 : number);
          continue;
        }
        std::uint32_t word;
        char* const at = numbers + (row / 4 * lanes + j % lanes) * 4;
        std::memcpy(&word, at, sizeof word);
        word |= static_cast<std::uint32_t>(number + 8) << (row % 2 * 16 + row % 4 / 2 * 8 + j / lanes * 4);
        std::memcpy(at, &word, sizeof word);
      }
  }
}

int which_of(const QuantizedMatmul& problem) { return problem.b_dtype == DType::int8 ? 0 : 1; }

// Kernels of tiles where this CPU has them and they are faster, or null.
const QuantizedTiles* tiles_for(const QuantizedMatmul& problem, const QuantizedKernels& table) {
  const bool two_digits = problem.dtype != DType::fp32;
  const std::int64_t least = two_digits && problem.b_dtype == DType::int8 ? kLeastOfBytes : kLeastInTiles;
  const std::int64_t filled = parts_of(problem.group, QuantizedTiles::kInner) * QuantizedTiles::kInner;
  const bool many = problem.dtype == DType::bf16 && problem.rows > kMostInTiles;
  const bool fills = problem.group >= kLeastGroup && problem.rows >= parts_of(least * filled, problem.group);
  return ROOFLINE_HAVE_amx && has(Isa::amx) && table.fixed[0][1].numbers && fills && !many ? &quantized_tiles_amx : nullptr;
}

// Whether a of 16 bits becomes 16-bit fixed point, whose products take as long as those of bf16 and half as long as those of fp32.
// Products of bf16 need no scales between groups, so many rows gain more by them than weights rounded to bf16 cost, and by tiles
// some rows do. NEON needs four instructions for two products of pairs, and two of fp32: there weights of 4 bits gain for few rows,
// as they are taken apart faster.
bool in_fixed_point(const QuantizedMatmul& problem, Isa isa, const QuantizedKernels& table) {
  if (isa == Isa::neon && problem.b_dtype == DType::int8) return false;
  const GemmKernels& bf16 = *choose_gemm(Stored::bf16).table;
  const bool in_pairs = problem.dtype == DType::bf16 && bf16.numbers[index(Stored::bf16)] > 1, in_tiles = in_pairs && bf16.multiple > 1;
  if (in_tiles || isa == Isa::neon || isa == Isa::scalar) return problem.rows <= std::max(table.tile_rows, 2 * (table.tile_rows - 2));
  return !in_pairs || problem.rows <= kMostBesidePairs;
}

// What a becomes, or null. fp32 becomes digits: three instructions multiply four numbers, not four, and b is taken apart in a third of
// the instructions, or in none; 8 bits of few columns gain less by that than one row of digits costs.
const FixedPoint* fixed_point_of(const QuantizedMatmul& problem, Isa isa, const QuantizedKernels& table, const QuantizedTiles* tiles) {
  const auto& fixed = table.fixed[which_of(problem)];
  const bool of_4_bits = problem.b_dtype == DType::int4, some_columns = problem.columns >= kDigitColumns;
  if (problem.dtype == DType::fp32)
    return tiles || (fixed[2].numbers && (of_4_bits || problem.rows > 1 || some_columns)) ? &fixed[2] : nullptr;
  if (tiles) return &fixed[1];
  if (!in_fixed_point(problem, isa, table)) return nullptr;
  // Two digits need fewer instructions for 4 bits, but a tile of them holds half as many rows, and memory gives weights faster to one
  // row of pairs: digits of one row are for what a cache may hold. Weights of 8 bits meet digits as they lie; but memory gives them
  // faster to rows that widen them to pairs.
  const bool cached = problem.columns * problem.inner <= kCachedNumbers;
  const bool digits = of_4_bits && problem.rows < 6 && some_columns && (problem.rows > 1 || cached);
  return &fixed[digits && fixed[1].numbers ? 1 : 0];
}

// Measured on strips of 4 bits in groups.
Streams streams_of_few_bits(const QuantizedKernels& table, std::int64_t b_bytes, Device& device) {
  const std::string what = "streams of few bits";
  return read_streams<float>(device, what, 1, b_bytes, table.width, table.width / 2, 1, [&table](const GemmPart& plain) {
    constexpr std::int64_t kGroup = 128, kScales = 4;  // rows: scales of bf16 are as long as four
    QuantizedPart part{};
    static_cast<GemmPart&>(part) = plain;
    part.group = kGroup, part.groups = plain.inner / (kGroup + kScales), part.inner = part.groups * kGroup;
    part.scale = Stored::bf16, part.sums = part.scales_of_a = static_cast<const float*>(plain.a);
    table.fixed[1][0].few(part);
  });
}

QuantizedMethod method_of(const QuantizedMatmul& problem) {
  const auto [isa, table] = ROOFLINE_HAVE_avx512_vnni && has(Isa::avx512_vnni)
                                ? Choice<QuantizedKernels>{Isa::avx512_vnni, &quantized_avx512_vnni}
                                : choose<QuantizedKernels>(ROOFLINE_TABLES(quantized));
  const QuantizedTiles* const tiles = tiles_for(problem, *table);
  const FixedPoint* const fixed = fixed_point_of(problem, isa, *table, tiles);
  return {isa, table, choose<GemmKernels>(ROOFLINE_TABLES(gemm)).table, tiles, fixed, fixed || problem.rows <= GemmKernels::kMostFewRows};
}

Bound tiled_by_groups(const QuantizedMatmul& problem, const Packing& packing, const QuantizedMethod& method,
                      const std::shared_ptr<void>& packed, Device& device) {
  const QuantizedKernels& table = *method.table;
  const FixedPoint* const fixed = method.fixed;
  const bool few = method.few, tiles = method.tiles;
  const Stored c_type = stored(problem.out_dtype, "quantized_matmul");
  const bool rounded = c_type != Stored::fp32;
  const int which = which_of(problem);
  const std::int64_t rows = problem.rows, columns = problem.columns, inner = problem.inner, strips = packing.strips;

  // In fixed point several tiles of rows take longer than memory does.
  const bool waits = few && !tiles && (!fixed || rows * fixed->digits <= table.tile_rows);
  const Streams streams = waits ? streams_of_few_bits(table, strips * packing.strip_bytes, device) : Streams{};
  // The longer a chunk is, the fewer times its sums meet scales: up to the bytes in flight.
  const int most_longer = fixed || rows <= table.tile_rows ? 2 : 0;
  int longer = 0;
  while (longer < most_longer && streams.count << longer < GemmKernels::kMostStreams) ++longer;
  const std::int64_t chunk = table.chunk[which] << longer;
  const auto prepared = std::make_shared<PreparedA>(problem, method, chunk, device.threads());
  const Blocks most = blocks_of(table.width, table.tile_rows, 1, device.caches());
  const std::int64_t fixed_rows = fixed ? std::max(device.caches().l2_bytes / 2 / prepared->row_bytes(), method.tile_rows()) : 0;
  const std::int64_t row_parts = parts_of(rows, fixed ? fixed_rows : few ? rows : most.rows);
  const std::int64_t wanted = parts_of(kPartsPerThread * device.threads(), row_parts);
  const std::int64_t least_parts = few ? 1 : parts_of(strips, kMostColumns / table.width);
  // Whole sets of streams where there are enough strips for them.
  const std::int64_t most_parts =
      few ? std::max<std::int64_t>(strips / streams.count, std::min<std::int64_t>(strips, device.threads())) : strips;
  const std::int64_t column_parts = std::min(std::max(least_parts, wanted), most_parts);
  const std::int64_t row_multiple = fixed && !tiles ? 1 : method.tile_rows();  // of a part
  const std::int64_t row_block = std::min(rows, parts_of(parts_of(rows, row_multiple), row_parts) * row_multiple);
  const std::int64_t inner_block = few ? 0 : std::min(inner, most.inner);
  const std::int64_t part_columns = parts_of(strips, column_parts) * table.width;
  const GemmKernels& plain = *method.plain;
  const std::int64_t sums = whole_pages((few ? plain.few_floats(row_block) : plain.block_floats(row_block, part_columns, inner_block)) * 4);
  const std::int64_t thread_bytes = sums + (rounded ? whole_pages(product({row_block, part_columns, 4}, "quantized_matmul: sums")) : 0);
  const std::int64_t workspace_bytes = thread_bytes * device.threads() + prepared->bytes();
  const std::shared_ptr<void> memory = workspace(device, static_cast<std::size_t>(workspace_bytes));

  Bound bound = planned("tiled/" + name(tiles ? Isa::amx : method.isa), device);
  bound.plan.set("tile", std::to_string(method.tile_rows()) + "x" + std::to_string(table.width));
  bound.plan.set("row_block", row_block);
  bound.plan.set("column_block", std::min(columns, part_columns));
  bound.plan.set("inner_block", inner_block);
  if (fixed) {
    // Outside tiles two products of int8 take as long as one of int16.
    bound.plan.set("arithmetic", problem.dtype == DType::fp32 || tiles ? "int8" : "int16");
    bound.plan.set("a_stored", (fixed->digits > 1 ? std::to_string(fixed->digits) + " digits of int8" : std::string("int16")) +
                                   " with a scale for " + std::to_string(std::min(problem.group, chunk)) + " numbers");
  }
  if (few && !tiles) bound.plan.set("streams", streams.count);
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  const auto run = tiles ? method.tiles->few[which][fixed->digits - 2] : fixed ? fixed->few : few ? table.few[which] : table.block[which];
  bound.steps.push_back({"quantized_matmul", [=, width = table.width, &plain](Queue& queue) {
    Pool& threads = pool(queue);
    auto* const own_memories = static_cast<char*>(memory.get());
    prepared->begin(threads, own_memories + thread_bytes * threads.threads());
    threads.for_each(row_parts * column_parts, [&](int worker, std::int64_t item) {
      const std::int64_t row_part = item % row_parts, column_part = item / row_parts;
      const Range own = share(rows, static_cast<int>(row_part), static_cast<int>(row_parts), row_multiple);
      const std::int64_t first = strips * column_part / column_parts, last = strips * (column_part + 1) / column_parts;
      const std::int64_t column = first * width, n = std::min(last * width, columns) - column;
      char* const own_memory = own_memories + worker * thread_bytes;
      auto* const c = static_cast<char*>(problem.c);
      QuantizedPart part{};
      prepared->give(worker, own.first, part);
      part.b = static_cast<const char*>(packed.get()) + first * packing.strip_bytes;
      part.c = reinterpret_cast<float*>(rounded ? own_memory + sums : c + (own.first * columns + column) * 4);
      part.workspace = reinterpret_cast<float*>(own_memory);
      part.rows = own.size(), part.columns = n, part.c_stride = rounded ? n : columns, part.inner = inner;
      part.first = 0, part.last = last - first, part.inner_block = inner_block;
      part.streams = streams;
      part.group = problem.group, part.groups = problem.groups, part.longer = longer;
      part.scale = packing.scale, part.zeros = problem.zero != nullptr;
      run(part);
      for (std::int64_t row = 0; rounded && row < own.size(); ++row)
        plain.narrow[index(c_type)](part.c + row * n, c + ((own.first + row) * columns + column) * 2, n);
    });
  }});
  return bound;
}

// Many rows of bf16 where there are kernels for pairs: a thread turns its part of b, rounded to bf16, into strips for them.
Bound tiled_in_pairs(const QuantizedMatmul& problem, const Packing& packing, const QuantizedKernels& table,
                     const std::shared_ptr<void>& packed, Device& device) {
  const GemmKernels& pairs = *choose_gemm(Stored::bf16).table;
  const std::int64_t words = words_of(pairs, Stored::bf16, problem.inner), filled = parts_of(problem.inner, 2);
  QuantizedPart part{};
  part.inner = problem.inner, part.group = problem.group, part.groups = problem.groups;
  part.scale = packing.scale, part.zeros = problem.zero != nullptr;
  const auto unpack = [=, &table, &pairs, strip_bytes = packing.strip_bytes](std::int64_t first, std::int64_t last, void* strips) {
    constexpr std::int64_t kRows = 64;  // in the first cache
    alignas(64) float wide[kRows * kMostWidth];
    auto* to = static_cast<float*>(strips);
    for (std::int64_t strip = first; strip < last; ++strip, to += words * table.width) {
      for (std::int64_t k = 0; k < problem.inner; k += kRows) {
        const std::int64_t n = std::min(kRows, problem.inner - k);
        table.widen[which_of(problem)](part, static_cast<const char*>(packed.get()) + strip * strip_bytes, k, n, wide);
        if (n % 2) std::fill_n(wide + n * table.width, table.width, 0.0f);
        pairs.pair_rows(wide, to + k / 2 * table.width, parts_of(n, 2));
      }
      std::fill(to + filled * table.width, to + words * table.width, 0.0f);
    }
  };
  return bind_tiled("quantized_matmul",
                    {.dtype = DType::bf16, .rows = problem.rows, .columns = problem.columns, .inner = problem.inner, .a = problem.a,
                     .b = nullptr, .c = problem.c, .c_dtype = problem.out_dtype, .unpack = unpack},
                    device);
}

Bound tiled(const QuantizedMatmul& problem, Device& device) {
  if (problem.out_dtype != DType::fp32 && problem.out_dtype != DType::bf16 && problem.out_dtype != DType::fp16)
    throw Unsupported("quantized_matmul: c is fp32, bf16 or fp16 on a CPU; use one of them as out_dtype");
  const QuantizedMethod method = method_of(problem);
  const QuantizedKernels& table = *method.table;
  const Packing packing = packing_of(problem, table.width);
  const std::int64_t packed_bytes = product({packing.strips, packing.strip_bytes}, "quantized_matmul: packed b");
  const std::shared_ptr<void> packed = workspace(device, static_cast<std::size_t>(packed_bytes));
  const Stopwatch watch;
  device.pool().for_each(packing.strips, [&](int, std::int64_t strip) {
    char* const to = static_cast<char*>(packed.get()) + strip * packing.strip_bytes;
    pack_strip(problem, packing, *method.plain, method.fixed ? method.fixed->numbers : 1, strip, to);
  });
  const double pack_s = watch.seconds();

  const GemmKernels& pairs = *choose_gemm(Stored::bf16).table;
  const bool in_pairs = problem.dtype == DType::bf16 && problem.rows > table.tile_rows && !method.fixed &&
                        pairs.numbers[index(Stored::bf16)] == 2 && pairs.width == table.width;
  Bound bound = in_pairs ? tiled_in_pairs(problem, packing, table, packed, device)
                         : tiled_by_groups(problem, packing, method, packed, device);
  bound.plan.set("packed_bytes", Value(packed_bytes));
  bound.plan.set("pack_s", Value(pack_s));
  return bound;
}

}  // namespace

std::vector<KernelEntry> quantized_matmul_kernels() { return floating_kernels("tiled", tiled); }

}  // namespace roofline::cpu
