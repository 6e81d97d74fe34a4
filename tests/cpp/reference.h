// What operators compute, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
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

// logsumexp: the logarithm of the sum, where it is asked for.
inline std::vector<double> softmax(std::vector<double> x, double* logsumexp = nullptr) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& one : x) sum += one = std::exp(one - top);
  for (double& one : x) one /= sum;
  if (logsumexp) *logsumexp = top + std::log(sum);
  return x;
}

// The experts with the `chosen` largest scores of one token, the first of equal ones first, and their weights.
struct Topk {
  std::vector<int> numbers;
  std::vector<double> weights;
};
inline Topk topk(const std::vector<double>& logits, std::int64_t chosen, bool sigmoid, const float* bias, bool renormalise) {
  std::vector<double> all = logits, scores = logits;
  if (sigmoid)
    for (double& weight : all) weight = 1 / (1 + std::exp(-weight));
  else
    all = softmax(logits);
  for (std::size_t i = 0; bias && i < all.size(); ++i) scores[i] = all[i] + bias[i];
  Topk found;
  found.numbers.resize(all.size());
  std::iota(found.numbers.begin(), found.numbers.end(), 0);
  std::stable_sort(found.numbers.begin(), found.numbers.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  found.numbers.resize(static_cast<std::size_t>(chosen));
  for (const int number : found.numbers) found.weights.push_back(all[number]);
  const double sum = std::accumulate(found.weights.begin(), found.weights.end(), 0.0);
  for (double& weight : found.weights) weight /= renormalise ? sum : 1;
  return found;
}

// softmax(q kᵀ / sqrt(dim)) v of one query over keys [first, last); and the logarithm of its sum where it is asked for.
inline std::vector<double> attend(const double* q, const double* k, const double* v, std::int64_t first, std::int64_t last,
                                  std::int64_t dim, double* logsumexp = nullptr) {
  std::vector<double> scores, out(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t j = first; j < last; ++j) scores.push_back(dot(q, k + j * dim, dim) / std::sqrt(static_cast<double>(dim)));
  const std::vector<double> weights = softmax(std::move(scores), logsumexp);
  for (std::int64_t j = first; j < last; ++j)
    for (std::int64_t d = 0; d < dim; ++d) out[d] += weights[j - first] * v[j * dim + d];
  return out;
}

// Where the figure of cuBLASLt's reference has the scale of block `block` of row or column `i`: tiles of 128 by 4, 16 bytes
// to a row of the tile, in which the four quarters of it stand side by side.
inline std::uint64_t tiled(std::uint64_t i, std::uint64_t block, std::uint64_t blocks) {
  const std::uint64_t tile = i / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + i % 128 % 32 * 16 + i % 128 / 32 * 4 + block % 4;
}

}  // namespace reference
