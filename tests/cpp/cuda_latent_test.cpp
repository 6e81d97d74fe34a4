// Warp-specialised mla_decode where there is no GPU: whole kernels, with their barriers, tensor copies and products under way, on
// emulated blocks against float64.
#define ROOFLINE_CUDA_EMULATED

#include <gtest/gtest.h>

#include "cuda/sm90a/mla.cuh"
#include "emulated_mla.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;
using Shape = LatentShape;

// resident: blocks that run at once.
template <class T>
void expect_latent(const MlaCase& s, Emulation mode, int resident, double growth = 1) {
  MlaOperands<T> operands(s);
  operands.grow(growth);
  LatentWork work;
  work.out = operands.out.data(), work.rows = s.rows(), work.seq_q = s.seq_q, work.keys = s.keys, work.rank = s.rank;
  work.c = operands.c.bits.data(), work.k_rope = operands.rope.bits.data(), work.rope_dim = s.rope_dim;
  work.causal = s.causal, work.scale = exponent_scale(s.rank + s.rope_dim);
  work.row_chunks = static_cast<int>(ceil_div(s.rows(), Shape::kRows));
  work.split = plan_split(s.batch, ceil_div(s.keys, Shape::kStepKeys), std::max(resident / work.row_chunks, 1), 1, 17);
  const std::int64_t part_rows = 2 * work.split.blocks * work.row_chunks * Shape::kRows;
  std::vector<float> parts(part_rows * Shape::kRank, NAN), stats(part_rows * 2, NAN);
  work.parts = parts.data(), work.stats = stats.data();
  LatentMaps maps;
  maps.q_latent = {operands.latent.bits.data(), s.rank, s.rows(), s.batch, Shape::kRows};
  maps.q_rope = {operands.rotated.bits.data(), s.rope_dim, s.rows(), s.batch, Shape::kRows};
  maps.c = {operands.c.bits.data(), s.rank, s.keys, s.batch, Shape::kStepKeys};
  maps.k_rope = {operands.rope.bits.data(), s.rope_dim, s.keys, s.batch, Shape::kStepKeys};
  emulate(work.split.blocks * work.row_chunks, Shape::kThreads, Shape::kSharedBytes, mode,
          [&] { latent_attention<T>(work, maps); });
  emulate(merge_blocks(s.batch, s.rows()), kMergeThreads, 0, mode, [&] { merge_latents<T>(work); });
  operands.expect();
}

TEST(Latent, EmulatedBlocksAgreeWithFloat64) {
  for (const bool late : {false, true})
    for (const bool last : {false, true}) {
      const Emulation mode = {.late_copies = late, .last_warp_first = last, .last_block_first = last};
      expect_latent<Bf16>({1, 70, 1, 300, 512, 64}, mode, 2);  // two chunks of rows, five tiles
      expect_latent<Fp16>({2, 16, 3, 150, 512, 64}, mode, 4);  // two blocks to a unit
    }
}

TEST(Latent, RowsAndColumnsEndAnywhere) {
  expect_latent<Bf16>({1, 1, 1, 1, 512, 64}, {.late_copies = true}, 132);
  expect_latent<Fp16>({3, 3, 1, 65, 256, 32, false}, {.late_copies = true}, 2);  // three units for two blocks
  expect_latent<Bf16>({1, 5, 3, 130, 40, 8}, {.last_warp_first = true}, 1);
}

TEST(Latent, PartsWithoutAKeyOfAQueryCountForNothing) { expect_latent<Bf16>({2, 3, 8, 66, 64, 16}, {.late_copies = true}, 4); }

TEST(Latent, SumsFollowGrowingMaxima) {
  expect_latent<Bf16>({1, 16, 1, 500, 512, 64}, {}, 1, 40);
  expect_latent<Fp16>({1, 16, 2, 500, 512, 64}, {.late_copies = true}, 3, 40);
}

}  // namespace
