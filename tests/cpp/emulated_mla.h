// mla_decode as a case of a test on emulated blocks: random operands, and out against float64. After the header of a kernel.
#pragma once

#include "emulated_attention.h"

namespace roofline::cuda {

struct MlaCase {
  int batch, heads, seq_q, keys, rank, rope_dim;
  bool causal = true;
  int rows() const { return heads * seq_q; }
};

template <class T>
struct MlaOperands {
  MlaCase s;
  Operand<T> latent, rotated, c, rope;
  std::vector<std::uint16_t> out;  // and a few elements beyond it
  explicit MlaOperands(const MlaCase& shape)
      : s(shape),
        latent(std::int64_t{s.batch} * s.rows() * s.rank, 1),
        rotated(std::int64_t{s.batch} * s.rows() * s.rope_dim, 2),
        c(std::int64_t{s.batch} * s.keys * s.rank, 3),
        rope(std::int64_t{s.batch} * s.keys * s.rope_dim, 4),
        out(latent.bits.size() + 8, 0xFFFF) {}

  // Scores `times` as large: maxima then grow from tile to tile.
  void grow(double times) {
    for (std::size_t i = 0; i < latent.bits.size(); ++i) latent.set(i, latent.values[i] * times);
  }

  void expect() const {
    for (int entry = 0; entry < s.batch; ++entry) {
      std::vector<double> keys;  // latent and rotated part side by side
      for (int key = 0; key < s.keys; ++key) {
        const std::int64_t at = std::int64_t{entry} * s.keys + key;
        keys.insert(keys.end(), &c.values[at * s.rank], &c.values[at * s.rank] + s.rank);
        keys.insert(keys.end(), &rope.values[at * s.rope_dim], &rope.values[at * s.rope_dim] + s.rope_dim);
      }
      for (int row = 0; row < s.rows(); ++row) {
        const std::int64_t at = std::int64_t{entry} * s.rows() + row;
        std::vector<double> q(&latent.values[at * s.rank], &latent.values[at * s.rank] + s.rank);
        q.insert(q.end(), &rotated.values[at * s.rope_dim], &rotated.values[at * s.rope_dim] + s.rope_dim);
        const int past = s.causal ? row % s.seq_q + s.keys - s.seq_q + 1 : s.keys;
        const auto want = attend(q.data(), keys.data(), keys.data(), 0, past, s.rank + s.rope_dim);
        for (int d = 0; d < s.rank; ++d) {
          const double got = number(T{}, out[at * s.rank + d]);
          ASSERT_LE(std::fabs(got - want[d]), kTolerance<T> + 0.012 * std::fabs(want[d])) << entry << ", row " << row << ", " << d;
        }
      }
    }
    for (std::size_t i = latent.bits.size(); i < out.size(); ++i) ASSERT_EQ(out[i], 0xFFFF);
  }
};

}  // namespace roofline::cuda
