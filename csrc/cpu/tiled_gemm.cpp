// Our own matrix product on all cores. Up to kMostFewRows rows a part of c is a range of columns over all of inner, and the reading of
// b decides. Above, arithmetic decides: threads take blocks of rows and columns of c. Where columns are few they read a as it lies;
// else they pack it first, as much as a cache holds: each what it alone reads, or its own copy of a small a; else all together.
#include "cpu/tiled_gemm.h"

#include <algorithm>
#include <bitset>
#include <numeric>
#include <utility>
#include <vector>

#include "core/stopwatch.h"
#include "cpu/gemm_kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

constexpr std::int64_t kPartColumns = 256;       // of a part: its sums and its b stay there too
constexpr std::int64_t kPackedBytes = 8 << 20;   // of packed a at a time
constexpr std::int64_t kPartsPerThread = 8;  // so that the last to end leaves little idle
constexpr std::int64_t kLeastStrips = 4;     // of a part, and tiles of rows: fewer do not reuse what a cache holds
constexpr std::int64_t kWholeRows = 64;      // by tiles that take all of inner at a time
constexpr std::int64_t kMostRowParts = 64;   // of a group that each thread packs for itself
// Rows of few that lie whole pages apart share sets of the first cache, which lose their lines to b: from so many rows and columns
// on each thread rather copies them a line further apart.
constexpr std::int64_t kSharingRows = 5, kCopyColumns = 2048;

template <class Number>
std::int64_t number_bytes(Stored type, bool fp32) {
  return fp32 || type == Stored::fp32 ? sizeof(Number) : type >= Stored::int8 ? 1 : 2;
}

// What a thread prepared for itself in this launch. A cache line written by another core takes longer to fetch than to make again.
struct alignas(64) Prepared {
  bool widened = false;
  std::int64_t group = -1;            // of rows, and
  std::bitset<kMostRowParts> packed;  // which of its parts
  std::int64_t unpacked = -1;         // part of b
};

}  // namespace

Choice<GemmKernels> choose_gemm(Stored type) {
  const bool pairs = type == Stored::bf16 || is_fp8(type);
  if (ROOFLINE_HAVE_amx && (type == Stored::int8 || type == Stored::bf16) && has(Isa::amx)) return {Isa::amx, &gemm_amx};
  if (ROOFLINE_HAVE_avx512_vnni && type == Stored::int8 && has(Isa::avx512_vnni)) return {Isa::avx512_vnni, &gemm_quads_avx512_vnni};
  if (ROOFLINE_HAVE_avx512_bf16 && pairs && has_fast_bf16_pairs()) return {Isa::avx512_bf16, &gemm_pairs_avx512_bf16};
  return choose<GemmKernels>(ROOFLINE_TABLES(gemm));
}

Choice<GemmKernelsOf<double>> choose_doubles() { return choose<GemmKernelsOf<double>>(ROOFLINE_TABLES(gemm_doubles)); }

template <class Number>
void widen_rows(const GemmKernelsOf<Number>& table, Stored type, bool fp32, const void* a, std::int64_t rows, std::int64_t inner,
                Number* to) {
  const std::int64_t numbers = table.numbers[index(type)], words = words_of(table, type, inner), whole = inner / numbers, over = inner % numbers;
  const std::int64_t size = number_bytes<Number>(type, fp32);
  const auto widen = fp32 && numbers > 1 ? table.pair : table.widen[index(fp32 ? Stored::fp32 : type)];
  const auto* from = static_cast<const char*>(a);
  if (words == whole && !over) return widen(from, to, rows * words);  // nothing is filled up
  for (std::int64_t row = 0; row < rows; ++row, from += inner * size, to += words) {
    widen(from, to, whole);
    std::fill(to + whole, to + words, Number{0});
    alignas(8) char last[8] = {};
    std::copy_n(from + whole * numbers * size, over * size, last);
    if (over) widen(last, to + whole, 1);
  }
}

template void widen_rows(const GemmKernels&, Stored, bool, const void*, std::int64_t, std::int64_t, float*);
template void widen_rows(const GemmKernelsOf<double>&, Stored, bool, const void*, std::int64_t, std::int64_t, double*);

template <class Number>
void widen_words(const GemmKernelsOf<Number>& table, Stored type, bool fp32, const void* row, std::int64_t inner, std::int64_t k,
                 std::int64_t n, Number* to) {
  const std::int64_t numbers = table.numbers[index(type)], first = k * numbers;
  const auto* const from = static_cast<const char*>(row) + first * number_bytes<Number>(type, fp32);
  widen_rows(table, type, fp32, from, 1, std::min(n * numbers, inner - first), to);
}

template void widen_words(const GemmKernels&, Stored, bool, const void*, std::int64_t, std::int64_t, std::int64_t, float*);

Stored stored(DType dtype, const char* op) {
  switch (dtype) {
    case DType::fp32: return Stored::fp32;
    case DType::bf16: return Stored::bf16;
    case DType::fp16: return Stored::fp16;
    case DType::int8: return Stored::int8;
    default: throw Unsupported(std::string(op) + ": there is no CPU kernel for " + name(dtype) + "; use fp32, bf16 or fp16");
  }
}

Blocks blocks_of(int width, int tile_rows, int multiple, const Caches& caches, int number_bytes) {
  // By tiles a third of the first cache is for a strip, beside what comes of a and sums; half of the second for a block of both.
  const bool tiles = multiple > 1;
  const std::int64_t strip_bytes = tiles ? caches.l1_bytes / 3 : caches.l2_bytes / 8;
  const std::int64_t inner = std::clamp<std::int64_t>(strip_bytes / (number_bytes * width) / 16 * 16, 64, 1024);
  const std::int64_t rows = tiles ? caches.l2_bytes / 2 / (4 * (inner + kPartColumns)) : caches.l2_bytes * 3 / 4 / (number_bytes * inner);
  return {inner, std::clamp<std::int64_t>(rows / tile_rows * tile_rows, 4 * tile_rows, tiles ? 512 : 384)};
}

std::int64_t inner_block_of(std::int64_t inner, std::int64_t most, std::int64_t multiple) {
  const std::int64_t step = std::max<std::int64_t>(multiple, 4);
  return std::min(inner, parts_of(parts_of(inner, parts_of(inner, most)), step) * step);
}

// One stream is fetched ahead by hardware too, and prefetches of all its lines, or of some, help some CPUs and hold up others; some
// read faster at several places, and others at half the rate. With more rows, the sums of fewer streams go to the cache and back less
// often. Rows of one tile that take as long as memory does gain most by prefetches into L1; where there are more tiles, their
// prefetches go to both caches, and there is no level to choose. What stays in the last cache is read quickest as one stream into L1,
// at least on Zen 5. Nor is there a level with AMX: its tiles read two strips at a time and prefetch into L2.
template <class Number>
Streams read_streams(Device& device, Choice<GemmKernelsOf<Number>> choice, Stored type, std::int64_t rows, std::int64_t b_bytes) {
  const auto [isa, table] = choice;
  if (isa == Isa::amx) return {.count = 2};
  constexpr std::int64_t kMost = GemmKernels::kMostFewRows, kSparse = GemmKernels::kMostSparseRows;
  const std::int64_t tile = std::min<std::int64_t>(GemmKernels::kPageRows, table->tile_rows);  // a trial's rows are whole pages long
  const std::int64_t trial = rows > kMost / 2 ? kMost : rows > kSparse ? tile : rows > 2 ? std::min<std::int64_t>(4, tile) : 1;
  const std::int64_t bytes = number_bytes<Number>(type, false), row_bytes = table->width * bytes * table->numbers[index(type)];
  const std::string what = "streams of " + std::to_string(trial) + " rows, " + std::to_string(bytes) + " bytes, type ";
  return read_streams<Number>(device, what + std::to_string(index(type)), trial, b_bytes, table->width, row_bytes,
                              trial > tile ? 1 : 2, table->few[index(type)]);
}

template <class Number>
Streams read_streams(Device& device, const std::string& what, std::int64_t rows, std::int64_t b_bytes, int width,
                     std::int64_t row_bytes, int levels, const std::function<void(const GemmPartOf<Number>&)>& few) {
  constexpr std::int64_t kInner = 4096, kBytes = std::int64_t{16} << 20;
  const std::int64_t strip_bytes = kInner * row_bytes, lasting = std::min(device.lasting_bytes() / 2, kBytes);
  // A pass over as much as the cache holds drops lines before their next turn.
  const bool lasts = b_bytes <= device.lasting_bytes() / 4 * 3 && lasting >= strip_bytes * device.threads();
  std::vector<Streams> candidates;
  const bool sparse = rows * width * std::int64_t{sizeof(Number)} <= GemmKernels::kMostSparseRows * row_bytes;
  if (rows <= GemmKernels::kMostSparseRows) candidates.push_back({.sparse = true, .prefetch = false});
  for (const bool to_l1 : {false, true}) {
    if (to_l1 && levels == 1) break;
    if (sparse) candidates.push_back({.to_l1 = to_l1, .sparse = true});
    for (const int count : {1, 2, 4, GemmKernels::kMostStreams}) candidates.push_back({count, to_l1});
  }
  return candidates[device.quickest(lasts ? what + " in the last cache" : what, candidates.size(), [=, &device]() -> Device::Trial {
    const std::int64_t strips = (lasts ? lasting : kBytes) / strip_bytes, columns = strips * width;
    const std::int64_t own_numbers = whole_pages(GemmKernels::kMostStreams * rows * width * sizeof(Number)) / sizeof(Number);
    // A strip may end with numbers with which its sums begin.
    const auto b = workspace(device, strips * (strip_bytes + width * std::int64_t{sizeof(Number)}), Fill::uniform);
    const auto rest = workspace(device, sizeof(Number) * (rows * (kInner + columns) + own_numbers * device.threads()));
    std::vector<Extent> cold;
    if (!lasts) cold.push_back({b.get(), strips * strip_bytes});
    return {cold, [=, &device](int candidate) {
              auto* const a = static_cast<Number*>(rest.get());
              device.pool().run([&](int worker) {
                const Range own = share(strips, worker, device.threads(), 1);
                Number* const c = a + rows * kInner;
                few({.a = a, .b = static_cast<const char*>(b.get()) + own.first * strip_bytes, .c = c + own.first * width,
                     .workspace = c + rows * columns + worker * own_numbers, .rows = rows, .columns = own.size() * width,
                     .c_stride = columns, .inner = kInner, .first = 0, .last = own.size(), .streams = candidates[candidate]});
              });
            }};
  })];
}

template Streams read_streams(Device&, Choice<GemmKernels>, Stored, std::int64_t, std::int64_t);
template Streams read_streams(Device&, const std::string&, std::int64_t, std::int64_t, int, std::int64_t, int,
                              const std::function<void(const GemmPart&)>&);

bool reads_as_stored(Device& device, const GemmKernels& table, Stored type) {
  if (table.multiple > 1 || number_bytes<float>(type, false) * table.numbers[index(type)] != 2) return false;
  constexpr std::int64_t kRows = 64, kInner = 1024, kStrips = 8;
  return device.quickest("strips of type " + std::to_string(index(type)) + " as stored", 2, [&]() -> Device::Trial {
    const std::int64_t columns = kStrips * table.width, own_floats = (kRows + table.width) * kInner + kRows * columns;
    const auto b = workspace(device, 2 * kInner * columns, Fill::uniform);
    const auto own = workspace(device, 4 * own_floats * device.threads());
    return {{}, [=, &device, block = table.block[index(type)]](int candidate) {
              device.pool().run([&](int worker) {
                float* const a = static_cast<float*>(own.get()) + worker * own_floats;
                block({.b = b.get(), .c = a + kRows * kInner, .workspace = a + kRows * (kInner + columns), .rows = kRows, .columns = columns,
                       .c_stride = columns, .inner = kInner, .first = 0, .last = kStrips, .inner_block = kInner, .panels = a,
                       .as_stored = candidate == 0});
              });
            }};
  }) == 0;
}

namespace {

template <class Number>
TiledGemm plan_with(const TiledProblem& problem, Device& device, Stored type, Choice<GemmKernelsOf<Number>> choice) {
  constexpr std::int64_t kNumber = sizeof(Number);
  const auto [isa, table] = choice;
  const std::int64_t numbers = table->numbers[index(type)];
  const std::int64_t rows = problem.rows, columns = problem.columns;
  const std::int64_t inner = words_of(*table, type, problem.inner);
  const std::int64_t strips = parts_of(columns, table->width);
  const std::int64_t sums_behind = table->begun[index(type)] ? kNumber : 0;  // bytes of a column
  const std::int64_t strip_bytes =
      product({inner * size_bytes(problem.dtype) * numbers + sums_behind, table->width}, "tiled: bytes of packed b");

  TiledGemm plan{};
  plan.isa = isa;
  plan.tile = std::to_string(table->tile_rows) + "x" + std::to_string(table->width);
  plan.packed_bytes = problem.unpack ? 0 : product({strips, strip_bytes}, "tiled: bytes of packed b");
  const std::shared_ptr<void> packed = workspace(device, plan.packed_bytes);
  const Stopwatch watch;
  if (!problem.unpack)
    device.pool().for_each(strips, [&](int, std::int64_t strip) {
      table->pack[index(type)](problem.b, packed.get(), columns, problem.inner, strip, strip + 1);
    });
  plan.pack_s = watch.seconds();

  const bool few = !problem.unpack && rows <= GemmKernels::kMostFewRows;
  if (few) plan.streams = read_streams<Number>(device, choice, type, rows, plan.packed_bytes);
  bool as_stored = false;
  if constexpr (kNumber == sizeof(float))  // up to two tiles of rows read them so in any case
    as_stored = rows > 2 * table->tile_rows && reads_as_stored(device, *table, type);
  const bool words_lie = numbers * size_bytes(problem.dtype) == kNumber && !problem.a_is_fp32 && problem.inner == inner * numbers;
  const bool lies = !few && words_lie && table->lies(strips);
  const Blocks most = blocks_of(table->width, table->tile_rows, table->multiple, device.caches(), kNumber);
  // Tiles of some rows wait for memory: they read a strip to its end, and their sums stay in registers.
  const bool whole = table->own_sums && rows <= kWholeRows && (rows + table->width) * inner * kNumber <= device.caches().l2_bytes / 2;
  plan.inner_block = few ? 0 : whole ? inner : inner_block_of(inner, most.inner, table->multiple);
  // Many rows: some at a time, whose a is packed by all threads before it meets b.
  const std::int64_t tile_rows = table->tile_rows;
  const std::int64_t fitting = std::max(kPackedBytes / (kNumber * inner) / tile_rows, most.rows / tile_rows) * tile_rows;
  const std::int64_t turns = few ? 1 : parts_of(rows, fitting), turn_rows = parts_of(parts_of(rows, tile_rows), turns) * tile_rows;
  const std::int64_t turn_most = std::min(rows, turn_rows);
  const std::int64_t wanted = kPartsPerThread * device.threads();
  const std::int64_t most_strips = few ? strips : std::min(strips, kPartColumns / table->width);
  // Whole sets of streams where there are enough strips for them.
  std::int64_t most_parts = std::max<std::int64_t>(strips / (few ? plan.streams.count : kLeastStrips), 1);
  const std::int64_t least_rows = parts_of(turn_most, most.rows), most_rows = std::max(turn_most / (kLeastStrips * tile_rows), least_rows);
  std::int64_t row_parts = few ? 1 : std::clamp(parts_of(wanted, most_parts), least_rows, most_rows);
  if (row_parts > device.threads())
    row_parts = std::min(parts_of(row_parts, device.threads()) * device.threads(), parts_of(turn_most, tile_rows));
  // Panels that another core packed arrive slowly: few strips are split by rows where every thread gets half a tile of them, or a
  // whole one where parts are of whole tiles.
  const std::int64_t row_multiple = table->panel_multiple > 1 ? tile_rows : 1;  // of a part
  const bool splits = turn_most >= device.threads() * tile_rows / 2 && parts_of(turn_most, row_multiple) >= device.threads();
  if (row_parts * most_parts < device.threads() && splits && !few) row_parts = device.threads();
  if (row_parts * most_parts < device.threads()) most_parts = std::min<std::int64_t>(strips, device.threads());
  if (row_parts * most_parts < device.threads() && !few)
    row_parts = std::min<std::int64_t>(device.threads(), parts_of(turn_most, tile_rows));
  // Threads in groups share rows, so that what they pack and what they write for the next product stays in their caches.
  const std::int64_t groups = problem.unpack ? 1 : std::gcd(row_parts, device.threads()), group_rows = row_parts / groups;
  const std::int64_t column_parts = std::min(std::max(parts_of(strips, most_strips), parts_of(wanted, row_parts)), most_parts);
  const std::int64_t part_rows = parts_of(parts_of(turn_most, row_multiple), row_parts) * row_multiple;
  plan.row_block = std::min(turn_most, part_rows);
  plan.column_block = std::min(columns, parts_of(strips, column_parts) * table->width);
  // Each thread has workspace for the kernels, and for sums that something takes out of a cache.
  const std::int64_t part_columns = parts_of(strips, column_parts) * table->width;
  const std::int64_t floats =
      few ? table->few_floats(rows) : table->width * plan.inner_block + table->sums_floats(plan.row_block, part_columns);
  Take take = problem.take;
  const Stored c_stored = problem.c_dtype == DType::fp32 ? Stored::fp32 : stored(problem.c_dtype, "tiled");
  const std::int64_t c_size = c_stored == Stored::fp32 ? kNumber : size_bytes(problem.c_dtype);
  if constexpr (kNumber == sizeof(float))
    if (few && c_stored != Stored::fp32)
      take = [narrow = table->narrow[index(c_stored)], c = static_cast<char*>(problem.c)](
                 float* sums, std::int64_t at, std::int64_t n) { narrow(sums, c + at * 2, n); };
  const bool own_sums = take || (c_stored != Stored::fp32 && !(table->own_sums && !few));
  const std::int64_t sums = whole_pages(floats * kNumber);  // where they begin
  const std::int64_t unpacked = sums + (own_sums ? whole_pages(product({plan.row_block, part_columns, kNumber}, "tiled: sums")) : 0);
  const std::int64_t thread_bytes =
      unpacked + (problem.unpack ? whole_pages(product({parts_of(strips, column_parts), strip_bytes}, "tiled: a part of b")) : 0);
  // Few rows are widened once by each thread; of many fp8 and words, but for those that lie so in a, before a block of them is
  // packed, to rows of whole lines.
  const Stored a_stored = problem.a_is_fp32 ? Stored::fp32 : type;
  const bool spread = few && inner % GemmKernelsOf<Number>::kPageWords == 0 && rows >= kSharingRows && columns >= kCopyColumns;
  const bool widened = spread || (!words_lie && (numbers > 1 || is_fp8(type) || (a_stored != Stored::fp32 && few)));
  const bool words = widened || words_lie;
  const std::int64_t wide_stride = few ? inner + (spread ? 64 / kNumber : 0) : whole_lines(plan.inner_block);  // of its rows
  const std::int64_t wide_bytes = widened ? whole_pages(product({plan.row_block, wide_stride, kNumber}, "tiled: bytes of a in fp32")) : 0;
  const std::int64_t part_bytes = few || lies ? 0 : product({part_rows, inner, kNumber}, "tiled: packed a");
  const bool near = !problem.unpack && plan.packed_bytes + part_rows * inner * kNumber <= device.caches().l2_bytes / 2;
  // Each thread packs what it reads where no other one reads these rows: it waits for none then. Or where a is small.
  const bool small = turns == 1 && wide_bytes + row_parts * part_bytes <= device.caches().l2_bytes / 4;
  const bool alone = part_bytes && group_rows <= kMostRowParts && (small || groups == device.threads());
  const std::int64_t packed_parts = alone ? group_rows : row_parts, copies = alone ? device.threads() : 1;
  const std::int64_t panel_bytes = part_bytes ? whole_pages(product({packed_parts, part_bytes}, "tiled: packed a")) : 0;
  plan.workspace_bytes = (thread_bytes + wide_bytes) * device.threads() + product({panel_bytes, copies}, "tiled: copies of a");
  const std::shared_ptr<void> memory = workspace(device, plan.workspace_bytes);
  // Rows that each thread has widened, then packed ones.
  auto* const wide = reinterpret_cast<Number*>(static_cast<char*>(memory.get()) + thread_bytes * device.threads());
  Number* const panels = wide + wide_bytes / kNumber * device.threads();
  const std::int64_t copy_floats = alone ? panel_bytes / kNumber : 0;  // from one thread's to the next one's

  plan.launch = [=, table = table, take = std::move(take), finish = problem.finish](Queue& queue) {
    Pool& threads = pool(queue);
    const std::int64_t a_size = number_bytes<Number>(type, problem.a_is_fp32);
    const auto own = [&](int worker, std::int64_t at) { return static_cast<char*>(memory.get()) + worker * thread_bytes + at; };
    const auto part_of = [&](int worker, std::int64_t in_turn, std::int64_t row_part) {
      const Range turn = share(rows, static_cast<int>(in_turn), static_cast<int>(turns), tile_rows);
      const Range rows_of_part = share(turn.size(), static_cast<int>(row_part), static_cast<int>(row_parts), row_multiple);
      GemmPartOf<Number> part{};
      part.a = static_cast<const char*>(problem.a) + (turn.first + rows_of_part.first) * problem.inner * a_size;
      part.lies = lies, part.near = near, part.as_stored = as_stored;
      part.panels = panel_bytes ? panels + worker * copy_floats + row_part % packed_parts * part_bytes / kNumber : nullptr;
      part.rows = rows_of_part.size(), part.inner = inner, part.inner_block = plan.inner_block;
      part.a_stored = words ? Stored::fp32 : a_stored;
      part.streams = plan.streams;
      return std::pair(part, turn.first + rows_of_part.first);
    };
    const auto pack = [&](int worker, GemmPartOf<Number> part, std::int64_t block) {
      const std::int64_t k = block * plan.inner_block, n = std::min(plan.inner_block, inner - k);
      Number* const to = const_cast<Number*>(part.panels) + k * table->panel_rows(part.rows);
      if (!widened) return table->pack_a(part, k, n, to);
      Number* const rows_of_block = wide + worker * wide_bytes / kNumber;
      for (std::int64_t row = 0; row < part.rows; ++row)
        widen_words(*table, type, problem.a_is_fp32, static_cast<const char*>(part.a) + row * problem.inner * a_size, problem.inner,
                    k, n, rows_of_block + row * wide_stride);
      part.a = rows_of_block, part.inner = wide_stride;
      table->pack_a(part, 0, n, to);
    };
    std::vector<Prepared> prepared(alone || (few && widened) || problem.unpack ? threads.threads() : 0);
    const std::int64_t together = alone ? turns : 1;  // turns that no thread waits between
    for (std::int64_t i = 0; i < turns; i += together) {
      const std::int64_t blocks = few ? 0 : parts_of(inner, plan.inner_block);
      if (!alone && panel_bytes)
        threads.for_each(row_parts * blocks, [&](int worker, std::int64_t item) {
          pack(worker, part_of(worker, i, item / blocks).first, item % blocks);
        });
      threads.for_each(together * row_parts * column_parts, [&](int worker, std::int64_t item) {
        const std::int64_t column_part = item / group_rows % column_parts;  // the same columns of b for all rows of a group in turn
        const std::int64_t group = item / (group_rows * column_parts);      // one of each turn after the other
        const std::int64_t row_part = group / together * group_rows + item % group_rows;
        auto [part, row] = part_of(worker, i + group % together, row_part);
        if (part.rows == 0) return;  // a last turn may be of fewer tiles than parts
        if (few && widened) {
          Number* const to = wide + worker * wide_bytes / kNumber;
          const std::int64_t left = std::exchange(prepared[worker].widened, true) ? 0 : rows;
          for (std::int64_t i = 0; i < left; ++i)
            widen_rows(*table, type, problem.a_is_fp32, static_cast<const char*>(problem.a) + i * problem.inner * a_size, 1,
                       problem.inner, to + i * wide_stride);
          part.a = to, part.behind = wide_stride - inner;
        }
        if (alone && std::exchange(prepared[worker].group, group) != group) prepared[worker].packed.reset();
        if (alone && !prepared[worker].packed[item % group_rows]) {
          prepared[worker].packed.set(item % group_rows);
          for (std::int64_t block = 0; block < blocks; ++block) pack(worker, part, block);
        }
        const std::int64_t first = strips * column_part / column_parts, last = strips * (column_part + 1) / column_parts;
        const std::int64_t column = first * table->width, n = std::min(last * table->width, columns) - column;
        auto* const c = static_cast<char*>(problem.c);
        part.b = static_cast<const char*>(packed.get()) + first * strip_bytes;
        if (problem.unpack) {
          part.b = own(worker, unpacked);
          if (std::exchange(prepared[worker].unpacked, column_part) != column_part)
            problem.unpack(first, last, own(worker, unpacked));
        }
        const std::int64_t c_at = (row * columns + column) * c_size;
        part.c = reinterpret_cast<Number*>(own_sums ? own(worker, sums) : c + c_at);
        if (!take && c_stored != Stored::fp32) part.to = c + c_at, part.to_stride = columns, part.to_stored = c_stored;
        part.workspace = reinterpret_cast<Number*>(own(worker, 0));
        part.columns = n, part.c_stride = own_sums ? n : columns;
        part.last = last - first;
        if (!few && !problem.unpack && item % group_rows == group_rows - 1 && last < strips)  // the thread goes on to other columns
          part.later[0] = {static_cast<const char*>(packed.get()) + last * strip_bytes, plan.inner_block * strip_bytes / inner};
        (few ? table->few : table->block)[index(type)](part);
        for (std::int64_t r = 0; r < part.rows; ++r) {
          const std::int64_t at = (row + r) * columns + column;
          if constexpr (kNumber == sizeof(float))
            if (take) take(part.c + r * n, at, n);
          if (finish) finish(at, n);
        }
      });
    }
  };
  return plan;
}

}  // namespace

TiledGemm plan_tiled(const TiledProblem& problem, Device& device) {
  if (problem.dtype == DType::fp64) return plan_with(problem, device, Stored::fp32, choose_doubles());
  const Stored type = problem.dtype == DType::fp8_e4m3   ? Stored::fp8_e4m3  // of operands only
                      : problem.dtype == DType::fp8_e5m2 ? Stored::fp8_e5m2
                                                         : stored(problem.dtype, "tiled");
  return plan_with(problem, device, type, choose_gemm(type));
}

}  // namespace roofline::cpu
