// What operators compute, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace reference {

inline double relu(double x) { return std::max(x, 0.0); }
inline double gelu(double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }
inline double gelu_tanh(double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
inline double silu(double x) { return x / (1 + std::exp(-x)); }

// The sum of n products, in four sums, none of which waits for another.
inline double dot(const double* a, const double* b, std::int64_t n) {
  double first = 0, second = 0, third = 0, fourth = 0;
  for (; n >= 4; n -= 4, a += 4, b += 4) first += a[0] * b[0], second += a[1] * b[1], third += a[2] * b[2], fourth += a[3] * b[3];
  for (; n > 0; --n) first += *a++ * *b++;
  return first + second + third + fourth;
}

// softmax(q kᵀ / sqrt(dim)) v of one query over keys [first, last); and the logarithm of its sum where it is asked for.
inline std::vector<double> attend(const double* q, const double* k, const double* v, std::int64_t first, std::int64_t last,
                                  std::int64_t dim, double* logsumexp = nullptr) {
  std::vector<double> scores, out(static_cast<std::size_t>(dim), 0.0);
  double max = -INFINITY, sum = 0;
  for (std::int64_t j = first; j < last; ++j) {
    scores.push_back(dot(q, k + j * dim, dim) / std::sqrt(static_cast<double>(dim)));
    max = std::max(max, scores.back());
  }
  for (double& score : scores) sum += score = std::exp(score - max);
  if (logsumexp) *logsumexp = max + std::log(sum);
  for (std::int64_t j = first; j < last; ++j)
    for (std::int64_t d = 0; d < dim; ++d) out[d] += scores[j - first] / sum * v[j * dim + d];
  return out;
}

}  // namespace reference
