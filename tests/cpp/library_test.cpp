// The libraries' matrix products: how they are split, and what is said where a library is missing.
#include "cpu/library.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "cpu/gemm.h"
#include "thrown.h"

namespace roofline::cpu {
namespace {

TEST(Split, CoversEveryElementOnce) {
  for (const int threads : {1, 2, 3, 7, 16, 64})
    for (const std::int64_t rows : {1, 2, 5, 64, 333})
      for (const std::int64_t columns : {1, 63, 64, 65, 200, 1000})
        for (const std::int64_t inner : {1, 64, 5000}) {
          const Split split = split_gemm(rows, columns, inner, threads);
          EXPECT_LE(split.row_parts * split.column_parts, threads);
          std::vector<int> covered(rows * columns);
          for (const Block& block : split.blocks)
            for (std::int64_t row = block.row; row < block.row + block.rows; ++row)
              for (std::int64_t column = block.column; column < block.column + block.columns; ++column)
                ++covered[row * columns + column];
          EXPECT_EQ(std::set<int>(covered.begin(), covered.end()), std::set<int>{1}) << rows << " " << columns << " " << threads;
        }
}

TEST(Split, FollowsTheShape) {
  const Split decode = split_gemm(1, 4096, 4096, 8);  // one row: only columns can be shared
  EXPECT_EQ(decode.row_parts, 1);
  EXPECT_EQ(decode.column_parts, 8);
  const Split tall = split_gemm(100000, 64, 64, 8);
  EXPECT_EQ(tall.row_parts, 8);
  const Split square = split_gemm(4096, 4096, 4096, 2);  // whole rows of c
  EXPECT_EQ(square.row_parts, 2);
  EXPECT_EQ(square.column_parts, 1);
}

TEST(Split, KeepsIndicesOfACallIn32Bits) {
  const std::int64_t rows = (std::int64_t{1} << 33) + 5;
  std::int64_t next = 0;
  for (const Block& block : split_gemm(rows, 3, 64, 1).blocks) {
    EXPECT_EQ(block.row, next);
    EXPECT_LE(block.rows * 64, std::numeric_limits<std::int32_t>::max());
    next += block.rows;
  }
  EXPECT_EQ(next, rows);
}

TEST(Missing, SaysWhyAndNamesTheCure) {
  const std::string gone = message<Unsupported>([] { open_openblas({"/nonexistent/libopenblas.so"}); });
  EXPECT_NE(gone.find("/nonexistent/libopenblas.so: cannot open"), std::string::npos) << gone;
  EXPECT_NE(gone.find("pip install scipy-openblas32"), std::string::npos) << gone;
  const std::string wrong = message<Unsupported>([] { open_openblas({"libm.so.6"}); });
  EXPECT_NE(wrong.find("libm.so.6: it has no symbol cblas_sgemm"), std::string::npos) << wrong;
  EXPECT_TRUE(::has(message<Unsupported>([] { open_openblas({}); }), "no file to try"));
}

TEST(LibraryPath, IsSetByKnownNameBeforeTheFirstUse) {
  EXPECT_THROW(set_library_path("mkl", "/lib/libmkl.so"), Error);
  EXPECT_THROW(set_library_path("onednn", ""), Error);
  for (const LibraryInfo& library : libraries()) {
    EXPECT_EQ(library.version.empty(), !library.missing.empty()) << library.name;
    EXPECT_EQ(library.path.empty(), !library.missing.empty()) << library.name;
    EXPECT_THROW(set_library_path(library.name, "/nonexistent/too-late.so"), Error);
  }
}

}  // namespace
}  // namespace roofline::cpu
