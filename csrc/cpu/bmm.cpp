// bmm on a CPU. library: one OpenBLAS call for a block of one product, each on one thread. tiled: our own kernels (gemm_kernels.h).
// b may change between launches, so nothing is packed in bind: few rows read it as it lies, once; for more each thread packs the
// columns it works on, in fp32 or fp64: strip by strip where rows and inner are one block, so that the first cache holds packed strips
// (by the first tile of rows, where that reads a in place); else all of them, which its caches keep for all rows.
#include "ops/bmm.h"

#include <algorithm>
#include <atomic>

#include "cpu/device.h"
#include "cpu/gemm.h"
#include "cpu/kernels.h"
#include "cpu/library.h"
#include "cpu/products.h"
#include "cpu/share.h"
#include "cpu/tiled_gemm.h"
#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
#include "cpu/onednn_objects.h"
#endif

namespace roofline::cpu {
namespace {

using ops::Bmm;

constexpr std::int64_t kColumns = 64;         // parts of columns begin at whole cache lines and register tiles
constexpr std::int64_t kPackedColumns = 512;  // of a part that is packed, or more that fill half of the second cache
constexpr std::int64_t kPartsPerThread = 4;   // so that the last to end leaves little idle
constexpr std::int64_t kMost32 = 0x7FFFFFFF;  // OpenBLAS counts in 32 bits

void refuse_scales(const Bmm& problem, const char* variant) {
  if (problem.scales.kind != ops::Scales::Kind::none)
    throw Unsupported(std::string("bmm ") + variant + ": its kernels on a CPU take no scales; use scales none");
}

template <class T>
Launch calls(const Bmm& problem, std::vector<Block> blocks, OpenBlas::Gemm<T> gemm) {
  return [problem, blocks = std::move(blocks), gemm](Queue& queue) {
    const std::int64_t rows = problem.rows, columns = problem.columns, inner = problem.inner;
    const auto each = static_cast<std::int64_t>(blocks.size());
    pool(queue).for_each(problem.batch * each, [&](int, std::int64_t item) {
      const Block& block = blocks[item % each];
      const std::int64_t i = item / each;
      gemm(OpenBlas::kRowMajor, OpenBlas::kNoTranspose, OpenBlas::kNoTranspose, static_cast<int>(block.rows),
           static_cast<int>(block.columns), static_cast<int>(inner), T{1},
           static_cast<const T*>(problem.a) + (i * rows + block.row) * inner, static_cast<int>(inner),
           static_cast<const T*>(problem.b) + i * inner * columns + block.column, static_cast<int>(columns), T{0},
           static_cast<T*>(problem.c) + (i * rows + block.row) * columns + block.column, static_cast<int>(columns));
    });
  };
}

#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)

// What a thread runs a block of one shape with, on whichever operands.
struct Call {
  Owned<dnnl_primitive_t> primitive;
  Owned<dnnl_stream_t> stream;
  Owned<dnnl_memory_t> a, b, c, scratchpad;
  std::shared_ptr<void> scratch;
};

// What a bound product keeps alive.
struct Calls {
  explicit Calls(const OneDnn& library) : objects(library) {}

  Objects objects;  // its engine outlives what was made on it
  std::vector<Call> of;  // each thread, each block
};

// One product of a block by oneDNN in 16 bits, single-threaded. b may change, so it is read where it lies.
Bound library_of_halves(const Bmm& problem, Device& device, const Split& split) {
  const OneDnn& dnnl = onednn();
  const SingleThreaded one(dnnl);  // a plan is made for the width it finds
  const auto plan = std::make_shared<Calls>(dnnl);
  const Objects& objects = plan->objects;
  const dnnl_data_type_t type = type_of(problem.dtype);
  const std::int64_t size = size_bytes(problem.dtype);
  std::int64_t workspace_bytes = 0;
  std::string implementation;
  std::vector<Owned<dnnl_primitive_desc_t>> descriptions;
  for (const Block& block : split.blocks) {
    const OwnedLayout a = objects.plain(type, block.rows, problem.inner, problem.inner);
    const OwnedLayout b = objects.plain(type, problem.inner, block.columns, problem.columns);
    const OwnedLayout c = objects.plain(type, block.rows, block.columns, problem.columns);
    descriptions.push_back(objects.matmul(a.get(), b.get(), c.get(), name(problem.dtype)));
    implementation = objects.implementation(descriptions.back());
    refuse_reference(implementation, problem.dtype);
  }
  for (int thread = 0; thread < device.threads(); ++thread)
    for (const auto& description : descriptions) {
      const auto memory = [&](dnnl_query_t what, void* data) { return objects.memory(objects.layout(description, what), data); };
      Call call{objects.primitive(description), objects.stream(), memory(dnnl_query_src_md, nullptr),
                memory(dnnl_query_weights_md, nullptr), memory(dnnl_query_dst_md, nullptr), nullptr, nullptr};
      if (const std::size_t bytes = objects.scratchpad_bytes(description)) {
        workspace_bytes += static_cast<std::int64_t>(bytes);
        call.scratch = workspace(device, bytes);
        call.scratchpad = memory(dnnl_query_scratchpad_md, call.scratch.get());
      }
      plan->of.push_back(std::move(call));
    }
  Bound bound = planned("library/oneDNN " + dnnl.info.version, device);
  bound.plan.set("library_implementation", implementation);
  bound.plan.set("split", std::to_string(split.row_parts) + "x" + std::to_string(split.column_parts));
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.steps.push_back({"bmm", [problem, plan, size, &dnnl, blocks = split.blocks](Queue& queue) {
    const auto each = static_cast<std::int64_t>(blocks.size());
    std::atomic<int> failed{dnnl_success};
    pool(queue).for_each(problem.batch * each, [&](int worker, std::int64_t item) {
      const SingleThreaded single(dnnl);
      const Block& block = blocks[item % each];
      const Call& call = plan->of[worker * each + item % each];
      const std::int64_t i = item / each;
      const auto point = [&](const Owned<dnnl_memory_t>& memory, const void* tensor, std::int64_t element) {
        dnnl.memory_set_data_handle(memory.get(), static_cast<char*>(const_cast<void*>(tensor)) + element * size);
      };
      point(call.a, problem.a, (i * problem.rows + block.row) * problem.inner);
      point(call.b, problem.b, i * problem.inner * problem.columns + block.column);
      point(call.c, problem.c, (i * problem.rows + block.row) * problem.columns + block.column);
      const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, call.a.get()},
                                           {DNNL_ARG_WEIGHTS, call.b.get()},
                                           {DNNL_ARG_DST, call.c.get()},
                                           {DNNL_ARG_SCRATCHPAD, call.scratchpad.get()}};
      const int count = call.scratchpad ? 4 : 3;
      if (const auto status = dnnl.primitive_execute(call.primitive.get(), call.stream.get(), count, arguments);
          status != dnnl_success)
        failed.store(status);
    });
    check(static_cast<dnnl_status_t>(failed.load()), "running a kernel");
  }});
  return bound;
}

#else

Bound library_of_halves(const Bmm&, Device&, const Split&) {
  onednn();  // throws the reason
  throw Unsupported("roofline was built without oneDNN's headers");
}

#endif

Bound library(const Bmm& problem, Device& device) {
  refuse_scales(problem, "library");
  if (problem.out_dtype != problem.dtype)
    throw Unsupported("bmm library: on a CPU c is in the dtype of a and b; use out_dtype " + name(problem.dtype));
  if (problem.inner > kMost32 || problem.columns > kMost32 || problem.rows > kMost32)
    throw Unsupported("the libraries have 32-bit dimensions; use rows, columns and inner below 2^31");
  // Enough products keep all threads busy, each with its own; of few every one is cut.
  Split split = split_gemm(problem.rows, problem.columns, problem.inner,
                           problem.batch >= kPartsPerThread * device.threads() ? 1 : device.threads());
  if (size_bytes(problem.dtype) == 2) return library_of_halves(problem, device, split);
  const OpenBlas& blas = openblas();
  Bound bound = planned("library/OpenBLAS " + blas.info.version, device);
  bound.plan.set("library_implementation", blas.core);
  bound.plan.set("split", std::to_string(split.row_parts) + "x" + std::to_string(split.column_parts));
  bound.plan.set("workspace_bytes", 0);
  bound.steps.push_back({"bmm", problem.dtype == DType::fp64 ? calls<double>(problem, std::move(split.blocks), blas.dgemm)
                                                             : calls<float>(problem, std::move(split.blocks), blas.sgemm)});
  return bound;
}

// What a thread needs for one part of one product.
struct Parts {
  std::int64_t rows, columns;        // how many parts
  std::int64_t row_block, inner_block;
  bool one_block;                    // of all rows and all of inner
  std::int64_t most_columns;         // of a part
  std::int64_t strips;               // that are packed at a time, at most
  Held held;                         // b, where rows are few
  std::int64_t most_ahead;           // bytes of the next product's operands that are fetched meanwhile
  // Where what a thread owns begins: what the kernel needs, a as it reads it, packed b, sums before they are rounded; the last is
  // the end.
  std::int64_t wide, packed, sums, bytes;
};

// Tables of double have fp64 where those of float have fp32.
Stored stored_of(DType dtype) { return dtype == DType::fp64 ? Stored::fp32 : stored(dtype, "bmm"); }

template <class Number>
Parts plan_parts(const Bmm& problem, const GemmKernelsOf<Number>& table, Device& device) {
  constexpr std::int64_t kNumber = sizeof(Number);
  const Stored type = stored_of(problem.dtype);
  const std::int64_t words = words_of(table, type, problem.inner);
  const bool in_words = table.numbers[index(type)] > 1;
  const bool few = problem.rows <= GemmKernels::kMostFewRows;
  // Every part of the columns packs a again: only where whole products would leave much idle.
  const std::int64_t threads = device.threads(), turns = parts_of(problem.batch, threads);
  const std::int64_t wanted = turns * threads - problem.batch > turns * threads / 8 ? kPartsPerThread * threads : threads;
  const std::int64_t lines = parts_of(problem.columns, kColumns);
  const std::int64_t packed = std::max(kPackedColumns, device.caches().l2_bytes / 2 / (kNumber * words) / kColumns * kColumns);
  const Blocks most = blocks_of(table.width, table.tile_rows, table.multiple, device.caches(), kNumber);
  Parts parts{};
  parts.columns = std::clamp(parts_of(wanted, problem.batch), few ? 1 : parts_of(problem.columns, packed), lines);
  // Every part of the rows packs b again: only where threads had nothing to do otherwise.
  const std::int64_t items = problem.batch * parts.columns;
  parts.rows =
      few || items >= device.threads() ? 1 : std::min(parts_of(device.threads(), items), parts_of(problem.rows, table.tile_rows));
  parts.most_columns = std::min(problem.columns, parts_of(lines, parts.columns) * kColumns);
  parts.inner_block = inner_block_of(words, most.inner, table.multiple);
  const std::int64_t b_bytes = product({problem.batch, problem.inner, problem.columns, size_bytes(problem.dtype)}, "bmm: b");
  parts.held = b_bytes <= threads * (device.caches().l2_bytes / 2) ? Held::in_second
               : b_bytes <= device.lasting_bytes()                   ? Held::in_last
                                                                     : Held::nowhere;
  parts.most_ahead = device.caches().l2_bytes / 2;
  parts.row_block = few ? problem.rows : parts_of(problem.rows, parts_of(problem.rows, most.rows));
  parts.one_block = parts.row_block == problem.rows && parts.inner_block == words;
  parts.strips = parts.one_block ? 1 : parts_of(parts.most_columns, table.width);
  const auto numbers = [](const std::vector<std::int64_t>& sizes) {
    std::int64_t all = kNumber;
    for (const std::int64_t size : sizes) all = product({all, size}, "bmm: workspace");
    return whole_pages(all);
  };
  parts.wide = few ? 0 : numbers({table.block_floats(parts.row_block, parts.one_block ? 0 : parts.most_columns, parts.inner_block)});
  parts.packed = parts.wide + (in_words || (few && type != Stored::fp32) ? numbers({parts.row_block, words}) : 0);
  parts.sums = parts.packed + (few ? 0 : numbers({parts.strips * table.width, words}));
  const bool in_c = few || stored_of(problem.out_dtype) == Stored::fp32 || table.own_sums;
  parts.bytes = parts.sums + (in_c ? 0 : numbers({parts.row_block, parts.most_columns}));
  return parts;
}

// One part of one product, by one thread in `own` memory.
template <class Number>
void multiply(const Bmm& problem, const GemmKernelsOf<Number>& table, const Parts& parts, std::int64_t item, char* own) {
  const Stored type = stored_of(problem.dtype), c_type = stored_of(problem.out_dtype);
  const bool few = problem.rows <= GemmKernels::kMostFewRows, rounded = c_type != Stored::fp32;
  const bool in_words = table.numbers[index(type)] > 1;
  const std::int64_t size = size_bytes(problem.dtype), c_size = size_bytes(problem.out_dtype);
  const std::int64_t row_part = item % parts.rows, column_part = item / parts.rows % parts.columns,
                     i = item / parts.rows / parts.columns;
  const Range columns = share(problem.columns, static_cast<int>(column_part), static_cast<int>(parts.columns), kColumns);
  const Range rows = share(problem.rows, static_cast<int>(row_part), static_cast<int>(parts.rows), table.tile_rows);
  const char* const a = static_cast<const char*>(problem.a) + i * problem.rows * problem.inner * size;
  const char* const b = static_cast<const char*>(problem.b) + (i * problem.inner * problem.columns + columns.first) * size;
  char* const c = static_cast<char*>(problem.c) + (i * problem.rows * problem.columns + columns.first) * c_size;
  auto* const packed = reinterpret_cast<Number*>(own + parts.packed);
  const std::int64_t words = words_of(table, type, problem.inner), row_bytes = problem.inner * size;
  const bool are_words = type == Stored::bf16 && words * table.numbers[index(type)] == problem.inner;  // rows of a
  // What a thread reads next is fetched while it computes: its next rows of a, and the next product where it takes whole ones, b
  // first, as it is packed first.
  const std::int64_t a_bytes = problem.rows * row_bytes, b_bytes = problem.columns * row_bytes;
  const bool next = parts.rows == 1 && parts.columns == 1 && i + 1 < problem.batch,
             both = next && a_bytes + b_bytes <= parts.most_ahead;
  const std::int64_t strips = parts_of(columns.size(), table.width);
  const bool lies = (in_words || type == Stored::fp32) && table.lies(strips);
  for (std::int64_t row = rows.first, n; row < rows.last; row += n) {
    n = std::min(parts.row_block, rows.last - row);
    char* const to = c + row * problem.columns * c_size;
    const void* from = a + row * problem.inner * size;
    if (in_words ? !are_words : few && type != Stored::fp32) {
      auto* const wide = reinterpret_cast<Number*>(own + parts.wide);
      widen_rows(table, type, false, from, n, problem.inner, wide);
      from = wide;
    }
    if (few) {
      table.plain[index(type)](static_cast<const Number*>(from), b, problem.columns, to, problem.columns, n, columns.size(),
                               problem.inner, c_type, parts.held);
      continue;
    }
    auto* const sums = reinterpret_cast<Number*>(rounded ? own + parts.sums : to);
    const std::int64_t stride = rounded ? columns.size() : problem.columns;
    for (std::int64_t s = 0, each; s < strips; s += each) {
      each = std::min(parts.strips, strips - s);
      const std::int64_t column = s * table.width, some = std::min(each * table.width, columns.size() - column);
      const bool unpacked = parts.one_block && lies && some == table.width && (!in_words || are_words) && table.panel_multiple == 1;
      if (row == rows.first && !unpacked) table.pack_wide[index(type)](b + column * size, problem.columns, packed, some, problem.inner);
      const auto share_of = [&](const char* all, std::int64_t bytes, std::int64_t done, std::int64_t now, std::int64_t total) {
        return Later{all + bytes * done / total, bytes * (done + now) / total - bytes * done / total};
      };
      const auto of_product = [&](const char* all, std::int64_t bytes) {
        return share_of(all, bytes, row * strips + n * s, n * each, problem.rows * strips);
      };
      const std::int64_t then = std::min(parts.row_block, rows.last - row - n);
      const Later first = both   ? of_product(b + b_bytes, b_bytes)
                          : then ? share_of(a + (row + n) * row_bytes, then * row_bytes, s, each, strips)
                          : next ? share_of(b + b_bytes, std::min(b_bytes, parts.most_ahead), s, each, strips)
                                 : Later{};
      table.block[index(in_words ? type : Stored::fp32)]({
          .a = from,
          .b = packed,
          .c = sums + column,
          .workspace = reinterpret_cast<Number*>(own),
          .rows = n,
          .columns = some,
          .c_stride = stride,
          .inner = words,
          .first = 0,
          .last = each,
          .inner_block = parts.inner_block,
          .panels = s && !lies ? reinterpret_cast<Number*>(own) : nullptr,  // where the first strip has left them
          .a_stored = in_words ? Stored::fp32 : type,
          .lies = lies,
          .near = (n + each * table.width) * words * static_cast<std::int64_t>(sizeof(Number)) <= parts.most_ahead,
          .to = rounded ? to + column * c_size : nullptr,
          .to_stride = problem.columns,
          .to_stored = c_type,
          .later = {first, both ? of_product(a + a_bytes, a_bytes) : Later{}},
          .unpacked = {unpacked ? b + column * size : nullptr, problem.columns, packed},
      });
    }
  }
}

template <class Number>
Bound bind_parts(const Bmm& problem, Device& device, Choice<GemmKernelsOf<Number>> choice) {
  const bool few = problem.rows <= GemmKernels::kMostFewRows;
  const Stored type = stored_of(problem.dtype);
  const auto [isa, table] = choice;
  const Parts parts = plan_parts(problem, *table, device);
  const std::int64_t workspace_bytes = product({parts.bytes, device.threads()}, "bmm: workspace");
  const std::shared_ptr<void> memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  const std::int64_t packed =
      few ? 0
          : product({problem.batch, parts.rows, problem.columns, words_of(*table, type, problem.inner), sizeof(Number)}, "bmm: packed b");
  Bound bound = planned("tiled/" + name(isa), device);
  bound.plan.set("tile", std::to_string(table->tile_rows) + "x" + std::to_string(table->width));
  bound.plan.set("row_parts", parts.rows);
  bound.plan.set("column_parts", parts.columns);
  bound.plan.set("packed_in_launch_bytes", Value(packed));
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.steps.push_back({"bmm", [=, memory = memory, table = table](Queue& queue) {
    pool(queue).for_each(problem.batch * parts.columns * parts.rows, [&](int worker, std::int64_t item) {
      multiply(problem, *table, parts, item, static_cast<char*>(memory.get()) + worker * parts.bytes);
    });
  }});
  return bound;
}

Bound tiled(const Bmm& problem, Device& device) {
  refuse_scales(problem, "tiled");
  if (problem.dtype == DType::fp64) {
    if (problem.out_dtype != DType::fp64) throw Unsupported("bmm tiled: on a CPU c is fp64 where a and b are; use out_dtype fp64");
    return bind_parts(problem, device, choose_doubles());
  }
  stored(problem.out_dtype, "bmm tiled: out_dtype");
  if (problem.out_dtype == DType::int8)
    throw Unsupported("bmm tiled: c is fp32, bf16 or fp16 on a CPU; use one of them as out_dtype");
  const Stored type = stored_of(problem.dtype);
  Choice<GemmKernels> choice = choose_gemm(type);
  if (problem.rows <= GemmKernels::kMostFewRows && !choice.table->plain[index(type)])
    choice = choose<GemmKernels>(ROOFLINE_TABLES(gemm));
  return bind_parts(problem, device, choice);
}

}  // namespace

std::vector<KernelEntry> bmm_kernels() {
  const auto dtypes = {DType::fp32, DType::fp64, DType::bf16, DType::fp16};
  return joined({library_kernels(dtypes, library), kernels_of(dtypes, "tiled", "", tiled)});
}

}  // namespace roofline::cpu
