// Our own matrix product on all cores: parts of c are handed out one by one. Up to kMostFewRows rows a part is a range of columns over
// all of inner, and the reading of b decides; above, a block of rows and columns, and arithmetic decides.
#include "cpu/tiled_gemm.h"

#include <algorithm>
#include <chrono>

#include "cpu/gemm_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kColumnBlock = 512;   // of c: packing a block of a costs 1 or 2 % of what it is used for
constexpr std::int64_t kPartsPerThread = 8;  // so that the last to end leaves little idle
constexpr std::int64_t kLeastStrips = 4;     // of a part, and tiles of rows: it packs its rows of a

}  // namespace

Choice<GemmKernels> choose_gemm([[maybe_unused]] Stored type) {
#if defined(ROOFLINE_HAVE_amx)
  if ((type == Stored::int8 || type == Stored::bf16) && has(Isa::amx)) return {Isa::amx, &gemm_amx};
#endif
#if defined(ROOFLINE_HAVE_avx512_bf16)
  if ((type == Stored::int8 && has(Isa::avx512_bf16)) || (type == Stored::bf16 && has_fast_bf16_pairs())) return {Isa::avx512_bf16, &gemm_pairs_avx512_bf16};
#endif
  return choose<GemmKernels>(ROOFLINE_TABLES(gemm));
}

void widen_rows(const GemmKernels& table, Stored type, bool fp32, const void* a, std::int64_t rows, std::int64_t inner, float* to) {
  const std::int64_t numbers = table.numbers[index(type)], words = words_of(table, type, inner), whole = inner / numbers, over = inner % numbers;
  const bool bytes = type == Stored::int8 || type == Stored::fp8_e4m3;
  const std::int64_t size = fp32 || type == Stored::fp32 ? 4 : bytes ? 1 : 2;
  const auto widen = fp32 && numbers > 1 ? table.pair : table.widen[index(fp32 ? Stored::fp32 : type)];
  const auto* from = static_cast<const char*>(a);
  if (words == whole && !over) return widen(from, to, rows * words);  // nothing is filled up
  for (std::int64_t row = 0; row < rows; ++row, from += inner * size, to += words) {
    widen(from, to, whole);
    std::fill(to + whole, to + words, 0.0f);
    alignas(8) char last[8] = {};
    std::copy_n(from + whole * numbers * size, over * size, last);
    if (over) widen(last, to + whole, 1);
  }
}

Stored stored(DType dtype, const char* op) {
  switch (dtype) {
    case DType::fp32: return Stored::fp32;
    case DType::bf16: return Stored::bf16;
    case DType::fp16: return Stored::fp16;
    case DType::int8: return Stored::int8;
    default: throw Unsupported(std::string(op) + ": there is no CPU kernel for " + name(dtype) + "; use fp32, bf16 or fp16");
  }
}

Blocks blocks_of(int width, int tile_rows, const Caches& caches) {
  const std::int64_t inner = std::clamp<std::int64_t>(caches.l1_bytes / 2 / (4 * width) / 8 * 8, 64, 512);
  const std::int64_t rows = caches.l2_bytes / 2 / (4 * (inner + kColumnBlock)) / tile_rows * tile_rows;
  return {inner, std::clamp<std::int64_t>(rows, 4 * tile_rows, 384)};
}

// One stream is fetched ahead by hardware too; some CPUs read faster at several places, and others at half the rate.
int read_streams(Device& device) {
  constexpr std::int64_t kInner = 1024, kBytes = std::int64_t{32} << 20;
  return 1 << device.quickest("streams of few rows", 4, [&device]() -> Device::Trial {
    const GemmKernels* const table = choose<GemmKernels>(ROOFLINE_TABLES(gemm)).table;
    const std::int64_t strip_bytes = kInner * table->width * 4, strips = kBytes / strip_bytes, columns = strips * table->width;
    const std::int64_t own_floats = whole_pages(table->few_floats(1) * 4) / 4;
    const auto b = workspace(device, kBytes);
    const auto rest = workspace(device, 4 * (kInner + columns + own_floats * device.threads()));
    return {{{b.get(), kBytes}}, [=, &device](int candidate) {
              auto* const a = static_cast<float*>(rest.get());
              device.pool().run([&](int worker) {
                const Range own = share(strips, worker, device.threads(), 1);
                table->few[0]({.a = a, .b = static_cast<const char*>(b.get()) + own.first * strip_bytes, .c = a + kInner + own.first * table->width,
                               .workspace = a + kInner + columns + worker * own_floats, .rows = 1, .columns = own.size() * table->width,
                               .c_stride = columns, .inner = kInner, .first = 0, .last = own.size(), .streams = 1 << candidate});
              });
            }};
  });
}

TiledGemm plan_tiled(const TiledProblem& problem, Device& device) {
  const Stored type = problem.dtype == DType::fp8_e4m3 ? Stored::fp8_e4m3 : stored(problem.dtype, "tiled");  // of operands only
  const auto [isa, table] = choose_gemm(type);
  const std::int64_t numbers = table->numbers[index(type)];
  const std::int64_t rows = problem.rows, columns = problem.columns;
  const std::int64_t inner = words_of(*table, type, problem.inner);
  const std::int64_t strips = parts_of(columns, table->width);
  const std::int64_t strip_bytes =
      product({inner, table->width, size_bytes(problem.dtype) * numbers}, "tiled: bytes of packed b");

  TiledGemm plan{};
  plan.isa = isa;
  plan.tile = std::to_string(table->tile_rows) + "x" + std::to_string(table->width);
  plan.packed_bytes = product({strips, strip_bytes}, "tiled: bytes of packed b");
  const std::shared_ptr<void> packed = workspace(device, plan.packed_bytes);
  const auto begin = Clock::now();
  device.pool().for_each(strips, [&](int, std::int64_t strip) {
    table->pack[index(type)](problem.b, packed.get(), columns, problem.inner, strip, strip + 1);
  });
  plan.pack_s = std::chrono::duration<double>(Clock::now() - begin).count();

  const bool few = rows <= GemmKernels::kMostFewRows;
  plan.streams = few ? read_streams(device) : 0;
  const std::int64_t wanted = kPartsPerThread * device.threads();
  const Blocks most = blocks_of(table->width, table->tile_rows, device.caches());
  const std::int64_t most_strips = few ? strips : std::min(strips, kColumnBlock / table->width);
  // Whole sets of streams where there are enough strips for them.
  std::int64_t most_parts = std::max<std::int64_t>(strips / (few ? plan.streams : kLeastStrips), 1);
  const std::int64_t least_rows = parts_of(rows, most.rows), most_rows = std::max(rows / (kLeastStrips * table->tile_rows), least_rows);
  const std::int64_t row_parts = few ? 1 : std::clamp(parts_of(wanted, most_parts), least_rows, most_rows);
  if (row_parts * most_parts < device.threads()) most_parts = std::min<std::int64_t>(strips, device.threads());
  const std::int64_t column_parts = std::min(std::max(parts_of(strips, most_strips), parts_of(wanted, row_parts)), most_parts);
  plan.inner_block = few ? 0 : std::min(inner, most.inner / table->multiple * table->multiple);
  plan.row_block = std::min(rows, parts_of(parts_of(rows, table->tile_rows), row_parts) * table->tile_rows);
  plan.column_block = std::min(columns, parts_of(strips, column_parts) * table->width);
  const std::int64_t floats = few ? table->few_floats(rows) : table->block_floats(plan.row_block, plan.inner_block);
  // Sums that are rounded afterwards lie in a part of their own.
  const bool rounded = problem.c_dtype != DType::fp32;
  const Stored c_stored = rounded ? stored(problem.c_dtype, "tiled") : Stored::fp32;
  const std::int64_t part_columns = parts_of(strips, column_parts) * table->width;
  const std::int64_t sums = whole_pages(floats * 4);  // where they begin
  const std::int64_t thread_bytes = sums + (rounded ? whole_pages(product({plan.row_block, part_columns, 4}, "tiled: sums")) : 0);
  // Few rows, fp8 and words are widened once; of 16 bits a block of many rows is when it is packed.
  const Stored a_stored = problem.a_is_fp32 ? Stored::fp32 : type;
  const bool widened = numbers > 1 || type == Stored::fp8_e4m3 || (a_stored != Stored::fp32 && few);
  const std::int64_t wide_bytes = widened ? whole_pages(product({rows, inner, 4}, "tiled: bytes of a in fp32")) : 0;
  plan.workspace_bytes = thread_bytes * device.threads() + wide_bytes;
  const std::shared_ptr<void> memory = workspace(device, plan.workspace_bytes);
  auto* const wide = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + thread_bytes * device.threads());

  plan.launch = [=, table = table, finish = problem.finish](Queue& queue) {
    Pool& threads = pool(queue);
    if (widened)
      threads.run([&](int worker) {
        const bool flat = problem.inner == inner * numbers;  // words that no row's end cuts
        const std::int64_t each = flat ? numbers : problem.inner, words = flat ? 1 : inner;
        const Range own = share(flat ? rows * inner : rows, worker, threads.threads(), flat ? 32 : 1);
        const auto* const from = static_cast<const char*>(problem.a) + own.first * each * (problem.a_is_fp32 ? 4 : size_bytes(problem.dtype));
        widen_rows(*table, type, problem.a_is_fp32, from, flat ? 1 : own.size(), flat ? own.size() * each : each, wide + own.first * words);
      });
    const auto* const a = static_cast<const char*>(widened ? wide : problem.a);
    const std::int64_t row_bytes = inner * (widened || a_stored == Stored::fp32 ? 4 : 2);
    threads.for_each(row_parts * column_parts, [&](int worker, std::int64_t item) {
      const std::int64_t row_part = item % row_parts, column_part = item / row_parts;  // the same columns of b for all rows in turn
      const Range own = share(rows, static_cast<int>(row_part), static_cast<int>(row_parts), table->tile_rows);
      const std::int64_t row = own.first, last_row = own.last;
      const std::int64_t first = strips * column_part / column_parts, last = strips * (column_part + 1) / column_parts;
      const std::int64_t column = first * table->width, n = std::min(last * table->width, columns) - column;
      char* const own_memory = static_cast<char*>(memory.get()) + worker * thread_bytes;
      auto* const c = static_cast<char*>(problem.c);
      const GemmPart part = {
          .a = a + row * row_bytes,
          .b = static_cast<const char*>(packed.get()) + first * strip_bytes,
          .c = reinterpret_cast<float*>(rounded ? own_memory + sums : c + (row * columns + column) * 4),
          .workspace = reinterpret_cast<float*>(own_memory),
          .rows = last_row - row,
          .columns = n,
          .c_stride = rounded ? n : columns,
          .inner = inner,
          .first = 0,
          .last = last - first,
          .inner_block = plan.inner_block,
          .a_stored = widened ? Stored::fp32 : a_stored,
          .streams = plan.streams,
      };
      (few ? table->few : table->block)[index(type)](part);
      for (std::int64_t r = row; r < last_row; ++r) {
        if (rounded) table->narrow[index(c_stored)](part.c + (r - row) * n, c + (r * columns + column) * 2, n);
        if (finish) finish(r * columns + column, n);
      }
    });
  };
  return plan;
}

}  // namespace roofline::cpu
