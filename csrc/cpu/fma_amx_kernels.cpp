// Multiply-adds of AMX: four accumulator tiles, as the products of two tiles of rows and two of columns.
//
// A tile instruction adds 16 x 16 sums of 16 pairs (bf16) or fours (int8): sixteen steps of 256 chains at once, plus and minus in
// turn within it. It takes 16 cycles and its result 52, so that four in turn leave no gap. What remains below sixteen steps is one
// more instruction, whose further products are 0. Nothing reaches memory inside the loop.
#include "cpu/amx_tiles.h"
#include "cpu/fma_kernels.h"
#include "cpu/isa.h"

namespace roofline::cpu {
namespace {

constexpr int kRows = 16, kRowBytes = 64, kWholeTile = kRows * kRowBytes;
constexpr int kStepsAtOnce = 16;

void begin() { configure(kRows, kRows); }

void end() { _tile_release(); }

// An operand: 16 rows of 16 words, each word a pair of bf16 or four int8. A row of the right operand is one step of every column.
struct alignas(64) Tile {
  std::uint32_t words[kRows][kRowBytes / 4];
};

// The first `steps` rows: plus and minus in turn; the others 0.
void alternate(Tile& tile, std::int64_t steps, std::uint32_t plus, std::uint32_t minus) {
  for (int row = 0; row < kRows; ++row)
    for (std::uint32_t& word : tile.words[row]) word = row >= steps ? 0 : row % 2 ? minus : plus;
}

// Dependent multiplications of 3 cycles each, for the clocks.
template <int Beats>
[[gnu::always_inline]] inline void beats(std::int64_t& beat) {
  if constexpr (Beats > 0) {
    asm volatile("imul %k0, %k0" : "+r"(beat) : : "cc");
    beats<Beats - 1>(beat);
  }
}

// Few and Many beats follow the tile instructions in turn: none, or what fills the cycles of a turn.
#define ROOFLINE_AMX_PRODUCTS(instruction)                                                               \
  instruction(0, 4, 6);                                                                                  \
  beats<Few>(beat);                                                                                      \
  instruction(1, 4, 7);                                                                                  \
  beats<Many>(beat);                                                                                     \
  instruction(2, 5, 6);                                                                                  \
  beats<Few>(beat);                                                                                      \
  instruction(3, 5, 7);                                                                                  \
  beats<Many>(beat);
// The rest below sixteen steps, and the end.
#define ROOFLINE_AMX_END(instruction)                                                                    \
  if (steps % kStepsAtOnce) {                                                                            \
    _tile_loadd(4, left.words, kRowBytes);                                                               \
    _tile_loadd(5, left.words, kRowBytes);                                                               \
    _tile_loadd(6, rest.words, kRowBytes);                                                               \
    _tile_loadd(7, rest.words, kRowBytes);                                                               \
    instruction(0, 4, 6);                                                                                \
    instruction(1, 4, 7);                                                                                \
    instruction(2, 5, 6);                                                                                \
    instruction(3, 5, 7);                                                                                \
  }                                                                                                      \
  char* to = static_cast<char*>(result);                                                                 \
  _tile_stored(0, to, kRowBytes);                                                                        \
  _tile_stored(1, to + kWholeTile, kRowBytes);                                                           \
  _tile_stored(2, to + 2 * kWholeTile, kRowBytes);                                                       \
  _tile_stored(3, to + 3 * kWholeTile, kRowBytes);
// The accumulators, and what they are multiplied with.
#define ROOFLINE_AMX_BEGIN(factor, plus, minus)                                                          \
  Tile left, right, rest;                                                                                \
  for (auto& row : left.words)                                                                           \
    for (std::uint32_t& word : row) word = factor;                                                       \
  alternate(right, kStepsAtOnce, plus, minus);                                                           \
  alternate(rest, steps % kStepsAtOnce, plus, minus);                                                    \
  /* GCC's tile loads do not say that they read memory. */                                               \
  asm volatile("" : : "r"(&left), "r"(&right), "r"(&rest) : "memory");                                   \
  std::int64_t beat = 1;                                                                                 \
  const char* from = static_cast<const char*>(start);                                                    \
  _tile_loadd(0, from, kRowBytes);                                                                       \
  _tile_loadd(1, from + kWholeTile, kRowBytes);                                                          \
  _tile_loadd(2, from + 2 * kWholeTile, kRowBytes);                                                      \
  _tile_loadd(3, from + 3 * kWholeTile, kRowBytes);
#define ROOFLINE_AMX_KERNEL(name, instruction, factor, plus, minus)                                      \
  template <int Few, int Many>                                                                           \
  void name(const void* start, void* result, std::int64_t steps, const FmaOperands*) {                   \
    ROOFLINE_AMX_BEGIN(factor, plus, minus)                                                              \
    _tile_loadd(4, left.words, kRowBytes);                                                               \
    _tile_loadd(5, left.words, kRowBytes);                                                               \
    _tile_loadd(6, right.words, kRowBytes);                                                              \
    _tile_loadd(7, right.words, kRowBytes);                                                              \
    for (std::int64_t turn = steps / kStepsAtOnce; turn > 0; --turn) {                                   \
      ROOFLINE_AMX_PRODUCTS(instruction)                                                                 \
    }                                                                                                    \
    ROOFLINE_AMX_END(instruction)                                                                        \
  }                                                                                                      \
  /* As matrix products do it: two tiles of rows and two of columns are loaded for four products. */     \
  template <int Few, int Many>                                                                           \
  void name##_operands(const void* start, void* result, std::int64_t steps, const FmaOperands* operands) { \
    ROOFLINE_AMX_BEGIN(factor, plus, minus)                                                              \
    const char *rows = operands->left, *columns = operands->right;                                       \
    const char* const rows_end = rows + operands->left_pairs * FmaOperands::kPairBytes;                  \
    const char* const columns_end = columns + operands->right_pairs * FmaOperands::kPairBytes;           \
    for (std::int64_t turn = steps / kStepsAtOnce; turn > 0; --turn) {                                   \
      _tile_loadd(4, rows, kRowBytes);                                                                   \
      _tile_loadd(6, columns, kRowBytes);                                                                \
      _tile_loadd(7, columns + kWholeTile, kRowBytes);                                                   \
      _tile_loadd(5, rows + kWholeTile, kRowBytes);                                                      \
      ROOFLINE_AMX_PRODUCTS(instruction)                                                                 \
      rows += FmaOperands::kPairBytes;                                                                   \
      columns += FmaOperands::kPairBytes;                                                                \
      if (rows == rows_end) rows = operands->left;                                                       \
      if (columns == columns_end) columns = operands->right;                                             \
    }                                                                                                    \
    ROOFLINE_AMX_END(instruction)                                                                        \
  }                                                                                                      \
  void name##_fill(const FmaOperands& operands) {                                                        \
    Tile* rows = reinterpret_cast<Tile*>(operands.left);                                                 \
    for (std::int64_t tile = 0; tile < 2 * operands.left_pairs; ++tile)                                  \
      for (auto& row : rows[tile].words)                                                                 \
        for (std::uint32_t& word : row) word = factor;                                                   \
    Tile* columns = reinterpret_cast<Tile*>(operands.right);                                             \
    for (std::int64_t tile = 0; tile < 2 * operands.right_pairs; ++tile)                                 \
      alternate(columns[tile], kStepsAtOnce, plus, minus);                                               \
  }
ROOFLINE_AMX_KERNEL(bf16, _tile_dpbf16ps, 0x40404040u, 0x40A040A0u, 0xC0A0C0A0u)  // pairs of 3; 5, -5
ROOFLINE_AMX_KERNEL(int8, _tile_dpbssd, 0x03030303u, 0x05050505u, 0xFBFBFBFBu)    // fours of them

static_assert(FmaOperands::kPairBytes == 2 * kWholeTile);
constexpr FmaKernel kNone = {0, nullptr};
constexpr std::int64_t kBlock = 4 * kWholeTile / 4;
static_assert(4 * kWholeTile == kWidestFmaBlockBytes);

}  // namespace

// Four tile instructions take 64 cycles, with operands from memory up to 110.
#define ROOFLINE_AMX_ENTRY(name)                                                                              \
  {                                                                                                           \
    kBlock, name<0, 0>, begin, end, {{name<5, 6>, kStepsAtOnce, 3 * 22}, { name<6, 7>, kStepsAtOnce, 3 * 26 }}  \
  }
#define ROOFLINE_AMX_OPERANDS(name)                                                                           \
  {                                                                                                           \
    kBlock, name##_operands<0, 0>, begin, end,                                                                \
        {{name##_operands<7, 8>, kStepsAtOnce, 3 * 30}, {name##_operands<9, 10>, kStepsAtOnce, 3 * 38}}, name##_fill \
  }

extern const FmaKernels ROOFLINE_TABLE(fma) = {
    kNone, kNone, kNone, ROOFLINE_AMX_ENTRY(bf16), ROOFLINE_AMX_ENTRY(int8), kNone, kNone};
extern const FmaOperandKernels ROOFLINE_TABLE(fma_operands) = {ROOFLINE_AMX_OPERANDS(bf16), ROOFLINE_AMX_OPERANDS(int8)};

}  // namespace roofline::cpu
