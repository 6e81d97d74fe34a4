// How a range is cut over the threads: contiguous parts on cache-line boundaries, the same for filling and for working, so that
// each thread touches first what it will read.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roofline::cpu {

struct Range {
  std::int64_t first;
  std::int64_t last;  // past the end
  std::int64_t size() const { return last - first; }
};

// `worker`'s part of n elements; boundaries are multiples of `line` elements.
inline Range share(std::int64_t n, int worker, int workers, std::int64_t line) {
  const std::int64_t lines = (n + line - 1) / line;
  const auto edge = [&](std::int64_t w) {
    return std::min(n, (lines / workers * w + std::min<std::int64_t>(w, lines % workers)) * line);
  };
  return {edge(worker), edge(worker + 1)};
}

// Parts of at most `size` that n takes.
inline std::int64_t parts_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// Rows of so many floats begin at whole lines: stores that cross lines wait for each in turn where it is not in the first cache.
inline std::int64_t whole_lines(std::int64_t floats) { return (floats + 15) / 16 * 16; }

// What threads own starts on a page of its own, and a page further than its neighbour ends: they share no lines, and Zen 4 fetches
// ahead beyond the end of a page, which took lines from the other thread.
inline std::int64_t whole_pages(std::int64_t size_bytes) { return (size_bytes + 4095) / 4096 * 4096 + 4096; }

}  // namespace roofline::cpu
