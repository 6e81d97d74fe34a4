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

// A strip of b fills half of the first cache; a packed block of a, with its part of c, half of the second.
struct Blocks {
  std::int64_t inner, rows;
};

Blocks blocks_of(const GemmKernels& table, const Caches& caches) {
  const std::int64_t inner = std::clamp<std::int64_t>(caches.l1_bytes / 2 / (4 * table.width) / 8 * 8, 64, 512);
  const std::int64_t rows = caches.l2_bytes / 2 / (4 * (inner + kColumnBlock)) / table.tile_rows * table.tile_rows;
  return {inner, std::clamp<std::int64_t>(rows, 4 * table.tile_rows, 384)};
}

std::int64_t parts_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

}  // namespace

TiledGemm plan_tiled(const TiledProblem& problem, Device& device) {
  if (problem.dtype != DType::fp32 && problem.dtype != DType::bf16)
    throw Unsupported("tiled: there is no CPU kernel for " + name(problem.dtype) + "; use fp32 or bf16, or variant library");
  const auto [isa, table] = choose<GemmKernels>(ROOFLINE_TABLES(gemm));
  const std::int64_t rows = problem.rows, columns = problem.columns, inner = problem.inner;
  const bool narrow = problem.dtype == DType::bf16;
  const std::int64_t strips = parts_of(columns, table->width);
  const std::int64_t strip_bytes = product({inner, table->width, size_bytes(problem.dtype)}, "tiled: bytes of packed b");

  TiledGemm plan{};
  plan.isa = isa;
  plan.tile = std::to_string(table->tile_rows) + "x" + std::to_string(table->width);
  plan.packed_bytes = product({strips, strip_bytes}, "tiled: bytes of packed b");
  const std::shared_ptr<void> packed = workspace(device, plan.packed_bytes);
  const auto begin = Clock::now();
  device.pool().for_each(strips, [&](int, std::int64_t strip) {
    table->pack[narrow](problem.b, packed.get(), columns, inner, strip, strip + 1);
  });
  plan.pack_s = std::chrono::duration<double>(Clock::now() - begin).count();

  const bool few = rows <= GemmKernels::kMostFewRows;
  const std::int64_t wanted = kPartsPerThread * device.threads();
  const Blocks most = blocks_of(*table, device.caches());
  const std::int64_t row_parts = few ? 1 : parts_of(rows, most.rows);
  const std::int64_t most_strips = few ? strips : std::min(strips, kColumnBlock / table->width);
  // Whole sets of streams where there are enough strips for them.
  const std::int64_t most_parts =
      few ? std::max<std::int64_t>(strips / GemmKernels::kStreams, std::min<std::int64_t>(strips, device.threads())) : strips;
  const std::int64_t column_parts = std::min(std::max(parts_of(strips, most_strips), parts_of(wanted, row_parts)), most_parts);
  plan.inner_block = few ? 0 : std::min(inner, most.inner);
  plan.row_block = std::min(rows, parts_of(parts_of(rows, table->tile_rows), row_parts) * table->tile_rows);
  plan.column_block = std::min(columns, parts_of(strips, column_parts) * table->width);
  const std::int64_t floats = few ? table->few_floats(rows) : table->block_floats(plan.row_block, plan.inner_block);
  const std::int64_t thread_bytes = whole_pages(floats * 4);
  const std::int64_t wide_bytes = narrow ? whole_pages(product({rows, inner, 4}, "tiled: bytes of a in fp32")) : 0;
  plan.workspace_bytes = thread_bytes * device.threads() + wide_bytes;
  const std::shared_ptr<void> memory = workspace(device, plan.workspace_bytes);
  auto* const wide = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + thread_bytes * device.threads());

  plan.launch = [=, table = table, finish = problem.finish](Queue& queue) {
    Pool& threads = pool(queue);
    if (narrow)
      threads.run([&](int worker) {
        const Range part = share(rows * inner, worker, threads.threads(), 32);
        table->widen(static_cast<const std::uint16_t*>(problem.a) + part.first, wide + part.first, part.size());
      });
    const float* const a = narrow ? wide : static_cast<const float*>(problem.a);
    threads.for_each(row_parts * column_parts, [&](int worker, std::int64_t item) {
      const std::int64_t row_part = item % row_parts, column_part = item / row_parts;  // the same columns of b for all rows in turn
      const Range own = share(rows, static_cast<int>(row_part), static_cast<int>(row_parts), table->tile_rows);
      const std::int64_t row = own.first, last_row = own.last;
      const GemmPart part = {
          .a = a + row * inner,
          .b = packed.get(),
          .c = problem.c + row * columns,
          .workspace = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + worker * thread_bytes),
          .rows = last_row - row,
          .columns = columns,
          .inner = inner,
          .first = strips * column_part / column_parts,
          .last = strips * (column_part + 1) / column_parts,
          .inner_block = plan.inner_block,
      };
      (few ? table->few : table->block)[narrow](part);
      if (!finish) return;
      const std::int64_t column = part.first * table->width, n = std::min(part.last * table->width, columns) - column;
      for (std::int64_t r = row; r < last_row; ++r) finish(r * columns + column, n);
    });
  };
  return plan;
}

}  // namespace roofline::cpu
