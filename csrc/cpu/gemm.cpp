// A matrix product on all cores: c is cut into blocks of rows and columns, and each thread calls the library, single-threaded, on
// its own. oneDNN reads a, a packed copy of the block's columns of b (made in bind), and writes c; OpenBLAS packs in every call.
#include "cpu/gemm.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <map>

#include "core/stopwatch.h"
#include "cpu/library.h"
#include "cpu/share.h"
#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
#include "cpu/onednn_objects.h"
#endif

namespace roofline::cpu {
namespace {

// Parts of columns begin at whole cache lines of c and at whole register tiles of packed b, for every library and element type.
constexpr std::int64_t kColumns = 64;

// The 32-bit integers of OpenBLAS, and of some oneDNN kernels inside, must hold any index within one call's operands.
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();

// work(block) for every block, block i on thread i mod threads.
template <class Work>
void run_blocks(Pool& threads, const std::vector<Block>& blocks, Work&& work) {
  threads.run([&](int worker) {
    for (std::size_t i = worker; i < blocks.size(); i += threads.threads()) work(worker, i);
  });
}

void finish_block(const GemmProblem& problem, const Block& block) {
  if (!problem.finish) return;
  for (std::int64_t row = block.row; row < block.row + block.rows; ++row)
    problem.finish(row * problem.columns + block.column, block.columns);
}

template <class T>
Launch openblas_launch(const GemmProblem& problem, std::vector<Block> blocks, OpenBlas::Gemm<T> gemm) {
  return [problem, blocks = std::move(blocks), gemm](Queue& queue) {
    const auto* a = static_cast<const T*>(problem.a);
    const auto* b = static_cast<const T*>(problem.b);
    auto* c = static_cast<T*>(problem.c);
    const int inner = static_cast<int>(problem.inner), columns = static_cast<int>(problem.columns);
    run_blocks(pool(queue), blocks, [&](int, std::size_t i) {
      const Block& block = blocks[i];
      gemm(OpenBlas::kRowMajor, OpenBlas::kNoTranspose, OpenBlas::kNoTranspose, static_cast<int>(block.rows),
           static_cast<int>(block.columns), inner, T{1}, a + block.row * problem.inner, inner, b + block.column, columns, T{0},
           c + block.row * problem.columns + block.column, columns);
      finish_block(problem, block);
    });
  };
}

Gemm plan_openblas(const GemmProblem& problem, Device& device) {
  const OpenBlas& blas = openblas();
  if (problem.inner > kMostElements || problem.columns > kMostElements)
    throw Unsupported("OpenBLAS has 32-bit dimensions; use fewer than 2^31 columns and a smaller inner dimension");
  Split split = split_gemm(problem.rows, problem.columns, problem.inner, device.threads());
  Gemm gemm;
  gemm.implementation = "library/OpenBLAS " + blas.info.version;
  gemm.library_implementation = blas.core;
  gemm.split = std::to_string(split.row_parts) + "x" + std::to_string(split.column_parts);
  gemm.launch = problem.dtype == DType::fp64 ? openblas_launch<double>(problem, std::move(split.blocks), blas.dgemm)
                                             : openblas_launch<float>(problem, std::move(split.blocks), blas.sgemm);
  return gemm;
}

#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)

// Rows that one thread moves from its own dense block into c.
struct CopyOut {
  const char* from = nullptr;
  char* to = nullptr;
  std::int64_t rows = 0, row_bytes = 0, to_stride_bytes = 0;

  void run() const {
    for (std::int64_t row = 0; row < rows; ++row) std::memcpy(to + row * to_stride_bytes, from + row * row_bytes, row_bytes);
  }
};

// A primitive with everything it runs on, all made in bind.
struct Call {
  Owned<dnnl_primitive_t> primitive;
  Owned<dnnl_stream_t> stream;
  std::vector<Owned<dnnl_memory_t>> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  CopyOut copy_out;
  std::function<void()> finish = {};

  void add(int argument, Owned<dnnl_memory_t> memory) {
    arguments.push_back({argument, memory.get()});
    memories.push_back(std::move(memory));
  }

  dnnl_status_t run(const OneDnn& dnnl) const {
    const dnnl_status_t status =
        dnnl.primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
    if (status != dnnl_success) return status;
    copy_out.run();
    if (finish) finish();
    return dnnl_success;
  }
};

// What one bound product keeps alive.
struct OneDnnPlan {
  explicit OneDnnPlan(const OneDnn& library) : dnnl(&library), objects(library) {}

  const OneDnn* dnnl;
  Objects objects;  // its engine outlives what was made on it
  std::vector<Call> calls;                    // one per block
  std::vector<std::shared_ptr<void>> memory;  // packed b, scratchpads

  void run(Pool& threads, const std::vector<Call>& which) const {
    std::atomic<int> failed{dnnl_success};
    threads.run([&](int worker) {
      const SingleThreaded one(*dnnl);
      for (std::size_t i = worker; i < which.size(); i += threads.threads())
        if (const dnnl_status_t status = which[i].run(*dnnl); status != dnnl_success) failed.store(status);
    });
    check(static_cast<dnnl_status_t>(failed.load()), "running a kernel");
  }
};

Gemm plan_onednn(const GemmProblem& problem, Device& device) {
  const OneDnn& dnnl = onednn();
  const SingleThreaded one(dnnl);  // a plan is made for the width it finds
  const auto plan = std::make_shared<OneDnnPlan>(dnnl);
  const Objects& objects = plan->objects;
  const DType c_dtype = problem.dtype == DType::int8 ? DType::int32 : problem.c_dtype;
  const dnnl_data_type_t type = type_of(problem.dtype), c_type = type_of(c_dtype);
  const std::int64_t size = size_bytes(problem.dtype), c_size = size_bytes(c_dtype);

  const Split split = split_gemm(problem.rows, problem.columns, problem.inner, device.threads());
  Gemm gemm;
  gemm.implementation = "library/oneDNN " + dnnl.info.version;
  gemm.split = std::to_string(split.row_parts) + "x" + std::to_string(split.column_parts);

  struct Shape {  // blocks of one shape share their kernel
    Owned<dnnl_primitive_desc_t> description;
    Owned<dnnl_primitive_t> primitive;
    bool copied = false;  // computed in a dense block of its own and copied to c
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Shape> shapes;
  std::size_t scratchpad_bytes = 0, dense_bytes = 0;
  const auto plan_shape = [&](const Block& block) {
    const OwnedLayout a = objects.plain(type, block.rows, problem.inner, problem.inner);
    const OwnedLayout any_b = objects.any(type, problem.inner, block.columns);
    const OwnedLayout dense_b = objects.plain(type, problem.inner, block.columns, block.columns);
    const OwnedLayout natural_b = objects.plain(type, problem.inner, block.columns, problem.columns);
    const OwnedLayout dense_c = objects.plain(c_type, block.rows, block.columns, block.columns);
    const OwnedLayout natural_c = objects.plain(c_type, block.rows, block.columns, problem.columns);
    Shape shape;
    // Kernels on packed b take a dense c only (oneDNN 2 and 3.2), so a block narrower than c is computed apart where that gets one.
    const bool narrow = block.columns != problem.columns && block.rows > 1;
    Layout c = narrow ? natural_c.get() : dense_c.get();
    shape.description = objects.matmul(a.get(), any_b.get(), c, name(problem.dtype));
    std::string implementation = objects.implementation(shape.description);
    if (narrow) {
      auto dense = objects.matmul(a.get(), any_b.get(), dense_c.get(), name(problem.dtype));
      if (const std::string other = objects.implementation(dense); other != implementation) {
        shape.description = std::move(dense);
        shape.copied = true;
        implementation = other;
        c = dense_c.get();
        dense_bytes = std::max(dense_bytes, dnnl.memory_desc_get_size(dense_c.get()));
      }
    }
    // Where packing would only be a copy of those columns, or is not possible, b is read where it is.
    const Layout wanted_b = objects.layout(shape.description, dnnl_query_weights_md);
    const bool packable = objects.packable(natural_b.get(), wanted_b) || objects.packable(dense_b.get(), wanted_b);
    if (dnnl.memory_desc_equal(wanted_b, dense_b.get()) || !packable) {
      shape.description = objects.matmul(a.get(), natural_b.get(), c, name(problem.dtype));
      implementation = objects.implementation(shape.description);
    }
    refuse_reference(implementation, problem.dtype);
    if (problem.dtype == DType::int8 && !dnnl.vnni && implementation.find("vnni") == std::string::npos)
      throw Unsupported("oneDNN's int8 kernel for this CPU (" + implementation +
                        ") adds pairs of products in 16 bits, which saturate: exact sums need AVX512_VNNI, "
                        "and ROOFLINE_ISA must allow it");
    if (gemm.library_implementation.find(implementation) == std::string::npos)
      gemm.library_implementation += (gemm.library_implementation.empty() ? "" : ", ") + implementation;
    shape.primitive = objects.primitive(shape.description);
    scratchpad_bytes = std::max(scratchpad_bytes, objects.scratchpad_bytes(shape.description));
    return shape;
  };
  for (const Block& block : split.blocks)
    if (Shape& shape = shapes[{block.rows, block.columns}]; !shape.primitive) shape = plan_shape(block);

  // Each part of the columns is packed once, for all blocks that read it and agree on the layout.
  struct Packed {
    int column_part;
    Layout layout;
    void* data;
  };
  std::vector<Packed> packed;
  std::vector<Call> packing;
  std::vector<std::shared_ptr<void>> packing_memory;
  double copy_s = 0;
  const auto pack = [&](const Block& block, Layout layout) -> void* {
    char* data = const_cast<char*>(static_cast<const char*>(problem.b)) + block.column * size;
    const OwnedLayout natural = objects.plain(type, problem.inner, block.columns, problem.columns);
    if (dnnl.memory_desc_equal(natural.get(), layout)) return data;
    for (const Packed& known : packed)
      if (known.column_part == block.column_part && dnnl.memory_desc_equal(known.layout, layout)) return known.data;
    const std::size_t bytes = dnnl.memory_desc_get_size(layout);
    plan->memory.push_back(workspace(device, bytes));
    gemm.packed_bytes += static_cast<std::int64_t>(bytes);
    packed.push_back({block.column_part, layout, plan->memory.back().get()});
    const OwnedLayout dense = objects.plain(type, problem.inner, block.columns, block.columns);
    const bool direct = objects.packable(natural.get(), layout);
    const OwnedLayout& from = direct ? natural : dense;
    if (!direct) {
      packing_memory.push_back(workspace(device, static_cast<std::size_t>(problem.inner * block.columns * size)));
      char* copy = static_cast<char*>(packing_memory.back().get());
      const Stopwatch watch;
      for (std::int64_t row = 0; row < problem.inner; ++row)
        std::memcpy(copy + row * block.columns * size, data + row * problem.columns * size, block.columns * size);
      copy_s += watch.seconds();
      data = copy;
    }
    const auto description = objects.reorder(from.get(), layout);
    Call call;
    call.primitive = objects.primitive(description);
    call.stream = objects.stream();
    call.add(DNNL_ARG_FROM, objects.memory(from.get(), data));
    call.add(DNNL_ARG_TO, objects.memory(layout, packed.back().data));
    if (const std::size_t scratch = objects.scratchpad_bytes(description)) {
      packing_memory.push_back(workspace(device, scratch));
      const Layout layout = objects.layout(description, dnnl_query_scratchpad_md);
      call.add(DNNL_ARG_SCRATCHPAD, objects.memory(layout, packing_memory.back().get()));
    }
    packing.push_back(std::move(call));
    return packed.back().data;
  };

  struct Own {
    void* scratchpad = nullptr;
    char* dense = nullptr;
  };
  std::vector<Own> own(device.threads());
  const auto take = [&](std::size_t bytes) {
    plan->memory.push_back(workspace(device, bytes));
    gemm.workspace_bytes += static_cast<std::int64_t>(bytes);
    return plan->memory.back().get();
  };
  for (std::size_t i = 0; i < split.blocks.size(); ++i) {
    const Block& block = split.blocks[i];
    const Shape& shape = shapes[{block.rows, block.columns}];
    const auto md = [&](dnnl_query_t what) { return objects.layout(shape.description, what); };
    const char* a = static_cast<const char*>(problem.a) + block.row * problem.inner * size;
    char* c = static_cast<char*>(problem.c) + (block.row * problem.columns + block.column) * c_size;
    Call call;
    call.primitive = shape.primitive;
    call.stream = objects.stream();
    call.add(DNNL_ARG_SRC, objects.memory(md(dnnl_query_src_md), const_cast<char*>(a)));
    call.add(DNNL_ARG_WEIGHTS, objects.memory(md(dnnl_query_weights_md), pack(block, md(dnnl_query_weights_md))));
    Own& mine = own[i % own.size()];
    if (shape.copied) {
      if (!mine.dense) mine.dense = static_cast<char*>(take(dense_bytes));
      call.copy_out = {mine.dense, c, block.rows, block.columns * c_size, problem.columns * c_size};
    }
    call.add(DNNL_ARG_DST, objects.memory(md(dnnl_query_dst_md), shape.copied ? mine.dense : c));
    if (scratchpad_bytes) {
      if (!mine.scratchpad) mine.scratchpad = take(scratchpad_bytes);
      call.add(DNNL_ARG_SCRATCHPAD, objects.memory(md(dnnl_query_scratchpad_md), mine.scratchpad));
    }
    if (problem.finish) call.finish = [problem, block] { finish_block(problem, block); };
    plan->calls.push_back(std::move(call));
  }

  const Stopwatch watch;
  plan->run(device.pool(), packing);
  if (gemm.packed_bytes) gemm.pack_s = copy_s + watch.seconds();
  gemm.launch = [plan](Queue& queue) { plan->run(pool(queue), plan->calls); };
  return gemm;
}

#else

Gemm plan_onednn(const GemmProblem&, Device&) {
  onednn();  // throws the reason
  throw Unsupported("roofline was built without oneDNN's headers");
}

#endif

}  // namespace

Split split_gemm(std::int64_t rows, std::int64_t columns, std::int64_t inner, int threads) {
  const std::int64_t most_column_parts = (columns + kColumns - 1) / kColumns;
  // Fetching one element of a or b, or copying one of c, costs a thread about as much as this many multiply-adds: it does 16 in a
  // cycle, and two elements come from a shared cache or memory.
  constexpr double kFetch = 8;
  Split best{1, 1, {}};
  double least = std::numeric_limits<double>::infinity();
  for (int column_parts = 1; column_parts <= std::min<std::int64_t>(threads, most_column_parts); ++column_parts) {
    const int row_parts = static_cast<int>(std::min<std::int64_t>(threads / column_parts, rows));
    const double block_rows = static_cast<double>((rows + row_parts - 1) / row_parts);
    const double block_columns =
        static_cast<double>(std::min(columns, (most_column_parts + column_parts - 1) / column_parts * kColumns));
    const double copied = column_parts > 1 && block_rows > 1 ? block_rows * block_columns : 0;
    const double depth = static_cast<double>(inner);
    const double cost = depth * (block_rows * block_columns + kFetch * (block_rows + block_columns)) + kFetch * copied;
    if (cost < least) {  // equal: fewer column parts, so that blocks are whole rows of c
      least = cost;
      best = {row_parts, column_parts, {}};
    }
  }
  for (int row_part = 0; row_part < best.row_parts; ++row_part) {
    const Range part = share(rows, row_part, best.row_parts, 1);
    const std::int64_t at_once = std::max<std::int64_t>(1, kMostElements / std::max(inner, columns));
    for (int column_part = 0; column_part < best.column_parts; ++column_part) {
      const Range part_columns = share(columns, column_part, best.column_parts, kColumns);
      for (std::int64_t row = part.first; row < part.last; row += at_once)
        best.blocks.push_back({row, std::min(at_once, part.last - row), part_columns.first, part_columns.size(), column_part});
    }
  }
  return best;
}

Gemm plan_gemm(const GemmProblem& problem, Device& device) {
  if (problem.dtype == DType::fp64) return plan_openblas(problem, device);
  if (problem.dtype != DType::fp32) return plan_onednn(problem, device);
  // oneDNN 3.2 has fp32 kernels for packed operands from AVX-512 on. Below, it packs in every call, and pays for it where one side
  // is short: 256 x 4096 x 1024 on one Zen 3 core 40 GFLOP/s and OpenBLAS 0.3.34 76 to 82, but 1024 cubed 80 and 72.
  const bool onednn_first = has(Isa::avx512) || std::min(problem.rows, problem.columns) >= 1024;
  const auto preferred = onednn_first ? plan_onednn : plan_openblas;
  const auto other = onednn_first ? plan_openblas : plan_onednn;
  std::string why_not;
  try {
    return preferred(problem, device);
  } catch (const Unsupported& why) {
    why_not = why.what();
  }
  try {
    Gemm gemm = other(problem, device);
    gemm.instead_of = why_not;
    return gemm;
  } catch (const Unsupported& why) {
    throw Unsupported(why_not + "; " + why.what());
  }
}

}  // namespace roofline::cpu
