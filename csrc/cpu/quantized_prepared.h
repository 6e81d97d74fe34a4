// What quantized_matmul makes of a before it meets b.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/isa.h"
#include "cpu/pool.h"
#include "cpu/share.h"
#include "cpu/tiled_gemm.h"
#include "ops/quantized_matmul.h"

namespace roofline::cpu {

// The kernels that take a problem.
struct QuantizedMethod {
  Isa isa;
  const QuantizedKernels* table;
  const GemmKernels* plain;
  const QuantizedTiles* tiles;  // or null
  const FixedPoint* fixed;      // what a becomes; null: fp32
  bool few;                     // of the table or of `fixed` takes the rows; else `block`

  std::int64_t tile_rows() const { return tiles ? QuantizedTiles::kRows : table->tile_rows; }
};

// a as kernels read it: `block` in its own bits, `few` in fp32 or fixed point with its sums over chunks of groups. The threads share
// one copy, or each makes its own of a small a.
class PreparedA {
 public:
  PreparedA(const ops::QuantizedMatmul& problem, const QuantizedMethod& method, std::int64_t chunk, int threads)
      : problem_(problem), method_(method), type_(stored(problem.dtype, "quantized_matmul")), chunk_(chunk), made_(threads) {
    const std::int64_t rows = problem.rows, inner = problem.inner;
    widened_ = method.few && type_ != Stored::fp32;
    if (method.fixed || rows <= method.table->tile_rows) sums_ = problem.groups * parts_of(problem.group, chunk);
    if (method.fixed) words_ = method.fixed->words(problem.group, problem.groups);
    // Fixed point comes from fp32 one row at a time.
    const std::int64_t wide_rows = method.fixed ? threads : rows;
    const std::int64_t filled = method.tiles ? parts_of(rows, method.tile_rows()) * method.tile_rows() : rows;
    const std::int64_t sums_bytes = whole_pages(product({rows, sums_, 4}, "quantized_matmul: sums of a"));
    sums_at_ = widened_ ? whole_pages(product({wide_rows, inner, 4}, "quantized_matmul: a in fp32")) : 0;
    scales_at_ = sums_at_ + sums_bytes;
    words_at_ = scales_at_ + (method.fixed ? sums_bytes : 0);
    copy_bytes_ = words_at_ + whole_pages(product({filled, words_, 4}, "quantized_matmul: a in fixed point"));
    alone_ = (rows - parts_of(rows, threads)) * inner <= kMadeAgain;
  }

  std::int64_t row_bytes() const {
    return method_.fixed ? words_ * 4 : problem_.inner * (widened_ || type_ == Stored::fp32 ? 4 : 2);
  }
  std::int64_t bytes() const { return copy_bytes_ * (alone_ ? static_cast<std::int64_t>(made_.size()) : 1); }

  void begin(Pool& threads, char* memory) {
    memory_ = memory;
    ++launch_;
    if (!alone_ && (widened_ || sums_)) threads.share_out(problem_.rows, 1, [this](int worker, const Range& own) { make(worker, own); });
  }

  // What a part reads, from `row` on.
  void give(int worker, std::int64_t row, QuantizedPart& part) {
    if (alone_ && std::exchange(made_[worker].launch, launch_) != launch_) make(worker, {0, problem_.rows});
    const char* const copy = copy_of(worker);
    part.a = (method_.fixed ? copy + words_at_ : widened_ ? copy : static_cast<const char*>(problem_.a)) + row * row_bytes();
    part.a_stored = widened_ ? Stored::fp32 : type_;
    part.sums = reinterpret_cast<const float*>(copy + sums_at_) + row * sums_;
    part.scales_of_a = reinterpret_cast<const float*>(copy + scales_at_) + row * sums_;
  }

 private:
  // Numbers of a that a thread rather prepares again than wakes others, and fetches what they have written.
  static constexpr std::int64_t kMadeAgain = 1024;

  struct alignas(64) Made {
    std::int64_t launch = 0;  // for which a thread has made its own copy
  };

  char* copy_of(int worker) const { return memory_ + (alone_ ? worker * copy_bytes_ : 0); }

  void make(int worker, const Range& own) {
    char* const copy = copy_of(worker);
    for (std::int64_t row = own.first; row < own.last; ++row) {
      const auto* from = static_cast<const float*>(problem_.a) + row * problem_.inner;
      if (widened_) {
        float* const wide = reinterpret_cast<float*>(copy) + (method_.fixed ? worker : row) * problem_.inner;
        method_.plain->widen[index(type_)](static_cast<const char*>(problem_.a) + row * problem_.inner * 2, wide, problem_.inner);
        from = wide;
      }
      float* const sums = reinterpret_cast<float*>(copy + sums_at_) + row * sums_;
      if (method_.fixed)
        method_.fixed->fix(from, reinterpret_cast<std::uint32_t*>(copy + words_at_) + row * words_,
                           reinterpret_cast<float*>(copy + scales_at_) + row * sums_, sums, 1, problem_.inner, problem_.group, chunk_,
                           problem_.zero != nullptr);
      else if (sums_)
        method_.table->add_up(from, sums, 1, problem_.inner, problem_.group, chunk_);
    }
  }

  ops::QuantizedMatmul problem_;
  QuantizedMethod method_;
  Stored type_;
  std::int64_t chunk_, launch_ = 0;
  std::vector<Made> made_;
  bool widened_, alone_;
  std::int64_t sums_ = 0, words_ = 0;                        // of a row
  std::int64_t sums_at_, scales_at_, words_at_, copy_bytes_;  // of a copy
  char* memory_ = nullptr;
};

}  // namespace roofline::cpu
