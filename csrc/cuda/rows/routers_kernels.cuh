// Routers of a mixture of experts, topk_softmax and topk_sigmoid: the largest few scores of each token, on a tie the lowest expert.
//
// listed: up to kListed experts of up to 32 * kMostValues. A few lanes share a token; each finds the largest of its own experts by
//         networks of minima and maxima, and lists of the lanes are merged likewise: next to no step depends on the data. Where
//         experts are many, groups of neighbours with the largest maxima are found so first, then the chosen among those.
// picked: any number of any number of experts. One warp per token, by successive maxima.
#pragma once

#include <cmath>

#include "cuda/rows/sorted_lists.cuh"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

struct TopkWork {
  std::int64_t tokens;
  int experts, chosen;  // chosen: experts per token
  bool renormalise;
  const float* bias;  // [experts], or null; of topk_sigmoid
  int lanes;          // of a warp that share a token: 2^n; 32 where experts are picked
  bool vectors;       // rows are whole vectors
};

constexpr int kTopkThreads = 128;

template <bool Sigmoid>
__device__ inline float weight_of(float logit) {
  return Sigmoid ? 1.f / (1.f + expf(-logit)) : logit;
}

// -- picked -------------------------------------------------------------------------------------------------------------------

// The choice of one token by `lanes` neighbouring lanes: of all experts that come behind the last chosen one, in the order of
// falling score and on a tie of rising number, the first is next. each(f): f(expert, score) for this lane's experts. Lanes of a
// warp come along where no token is left, and are not live: they write nothing.
template <class T, bool Sigmoid, class Each>
__device__ inline void pick(const T* row, float* weights, std::int32_t* numbers, const TopkWork& work, bool live, int rank,
                            int lanes, Each each) {
  // softmax: of all experts. The scores are the logits themselves, which stand in the same order.
  float largest = -INFINITY, sum = 0.f;
  if constexpr (!Sigmoid) {
    each([&](int, float score) { largest = fmaxf(largest, score); });
    for (int half = lanes / 2; half > 0; half /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, half));
    each([&](int, float score) { sum += expf(score - largest); });
    for (int half = lanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  }
  float last = INFINITY, of_chosen = 0.f;
  int last_expert = -1;
  for (int place = 0; place < work.chosen; ++place) {
    float best = -INFINITY;
    int best_expert = work.experts;
    each([&](int expert, float score) {
      const bool behind = score < last || (score == last && expert > last_expert);
      if (behind && (score > best || (score == best && expert < best_expert))) best = score, best_expert = expert;
    });
    for (int half = lanes / 2; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, best, half);
      const int other_expert = __shfl_xor_sync(0xFFFFFFFFu, best_expert, half);
      if (other > best || (other == best && other_expert < best_expert)) best = other, best_expert = other_expert;
    }
    last = best, last_expert = best_expert;
    // Nothing is behind NaN: such a row chooses no expert twice, but leaves places without one.
    const bool found = best_expert < work.experts;
    float weight = 0.f;
    if constexpr (Sigmoid)
      weight = found ? weight_of<true>(to_float(row[best_expert])) : NAN;
    else
      weight = found ? expf(best - largest) / sum : NAN;
    of_chosen += weight;
    if (live && rank == place % lanes) {
      weights[place] = weight;
      numbers[place] = found ? best_expert : -1;
    }
  }
  if (work.renormalise && live)  // each lane divides what it wrote itself
    for (int place = rank; place < work.chosen; place += lanes) weights[place] /= of_chosen;
}

template <class T, bool Sigmoid>
__device__ inline float score_at(const T* row, const TopkWork& work, int expert) {
  const float weight = weight_of<Sigmoid>(to_float(row[expert]));
  return Sigmoid && work.bias ? weight + work.bias[expert] : weight;
}

constexpr int kTopkKept = 8;  // scores that a lane keeps: 256 experts; with more they are read again, from L1

template <class T, bool Sigmoid>
__global__ void __launch_bounds__(kTopkThreads) topk_picked(const T* __restrict__ logits,        // [tokens, experts]
                                                            float* __restrict__ weights,         // [tokens, chosen]
                                                            std::int32_t* __restrict__ numbers,  // [tokens, chosen]
                                                            TopkWork work) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = kTopkThreads / 32;
  const bool fits = work.experts <= 32 * kTopkKept;
  for (std::int64_t token = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; token < work.tokens;
       token += std::int64_t{gridDim.x} * warps) {
    const T* const row = logits + token * work.experts;
    float kept[kTopkKept];
#pragma unroll
    for (int i = 0; i < kTopkKept; ++i)
      kept[i] = fits && lane + 32 * i < work.experts ? score_at<T, Sigmoid>(row, work, lane + 32 * i) : -INFINITY;
    pick<T, Sigmoid>(row, weights + token * work.chosen, numbers + token * work.chosen, work, true, lane, 32, [&](auto f) {
      if (fits) {
#pragma unroll
        for (int i = 0; i < kTopkKept; ++i)
          if (lane + 32 * i < work.experts) f(lane + 32 * i, kept[i]);
      } else {
        for (int expert = lane; expert < work.experts; expert += 32) f(expert, score_at<T, Sigmoid>(row, work, expert));
      }
    });
  }
}

// -- listed -------------------------------------------------------------------------------------------------------------------

// A key orders as its score does: the upper bits of the score, as an integer of the same order, above the number of the expert
// counted from the last. Where scores that differ in the lower bits alone decide, whole keys of 64 bits do it again.
using Key = int;
using WholeKey = long long;

__device__ inline int ordered(int bits) { return bits ^ (bits >> 31 & 0x7FFFFFFF); }
// A sum with 0 makes zeros equal, and of any NaN the one above infinity.
__device__ inline int ordered(float score) { return ordered(__float_as_int(score + 0.f)); }

__device__ inline float sum_over(float mine, int lanes) {
  for (int half = 1; half < lanes; half *= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, half);
  return mine;
}

// What listed keys order by.
template <bool Sigmoid>
__device__ inline float listed_score(float logit, const TopkWork& work, int expert) {
  if (!Sigmoid) return logit;
  const float weight = fast_inverse(1.f + fast_exp2(logit * -kLog2E));
  return work.bias ? weight + work.bias[expert] : weight;
}

constexpr int kGrouped = 4;  // neighbours whose maximum is looked at first

// What the neighbours from `first` on order by.
template <class T, bool Sigmoid>
__device__ inline void load_scores(const T* row, const TopkWork& work, int first, float (&score)[kGrouped]) {
  struct alignas(kGrouped * sizeof(T)) Logits {
    T of[kGrouped];
  } logits;
  if (work.vectors && first < work.experts) {
    logits = *reinterpret_cast<const Logits*>(row + first);
  } else {
#pragma unroll
    for (int j = 0; j < kGrouped; ++j) logits.of[j] = first + j < work.experts ? row[first + j] : from_float<T>(-INFINITY);
  }
#pragma unroll
  for (int j = 0; j < kGrouped; ++j)
    score[j] = first + j < work.experts ? listed_score<Sigmoid>(to_float(logits.of[j]), work, first + j) : -INFINITY;
}

template <class T, bool Sigmoid>
__device__ inline WholeKey whole_key(const T* row, const TopkWork& work, int expert, int numbered) {
  const int score = ordered(listed_score<Sigmoid>(to_float(row[expert]), work, expert));
  return static_cast<WholeKey>(score) * (WholeKey{1} << 32) + (numbered - expert);
}

// Lists by whole keys. known: who is chosen is, and only their order is not.
template <class T, bool Sigmoid, int Values>
__device__ inline void list_whole(const T* row, const TopkWork& work, int rank, int numbered, bool known, Key (&key)[kListed]) {
  constexpr WholeKey kNone = INT64_MIN;
  WholeKey whole[kListed];
  if (known) {
#pragma unroll
    for (int i = 0; i < kListed; ++i) {
      const int expert = numbered - (key[i] & numbered);
      whole[i] = expert < work.experts ? whole_key<T, Sigmoid>(row, work, expert, numbered) : kNone + (numbered - expert);
    }
    sort(whole);
  } else {
#pragma unroll
    for (int i = 0; i < kListed; ++i) whole[i] = kNone;
#pragma unroll 1
    for (int first = 0; first < Values; first += kListed) {
      WholeKey next[kListed];
#pragma unroll
      for (int j = 0; j < kListed; ++j) {
        const int expert = (first + j) * work.lanes + rank;
        next[j] = expert < work.experts ? whole_key<T, Sigmoid>(row, work, expert, numbered) : kNone;
      }
      sort(next);
      merge(whole, next);
    }
    merge_over(whole, work.lanes);
  }
#pragma unroll
  for (int i = 0; i < kListed; ++i)
    key[i] = (static_cast<int>(whole[i] >> 32) & ~numbered) | static_cast<int>(whole[i] & numbered);
}

// Blocks that an SM has room for, by its registers; from sm_100 on the compiler needs more for the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kListedBlocks = 4;
#else
constexpr int kListedBlocks = 5;
#endif

// Values: experts that a lane takes.
template <class T, bool Sigmoid, int Values>
__global__ void __launch_bounds__(kTopkThreads, Values == kMostValues ? kListedBlocks : 6)
    topk_listed(const T* __restrict__ logits,        // [tokens, experts]
                float* __restrict__ weights,         // [tokens, chosen]
                std::int32_t* __restrict__ numbers,  // [tokens, chosen]
                TopkWork work) {
  constexpr int kLanes = Pack<T>::kLanes;
  constexpr int kPlaces = kListed / kFewestLanes;  // of the chosen, that a lane writes: one every `lanes`
  constexpr bool kWholeKeys = sizeof(T) == 2 && !Sigmoid;  // a logit of 16 bits has no bits where the expert's number is
  const int rank = static_cast<int>(threadIdx.x) % work.lanes;
  const int together = kTopkThreads / work.lanes;  // tokens of a block
  const bool full = Values * work.lanes == work.experts;
  const int numbered = Values * work.lanes - 1;    // the last expert that there may be: all bits below a key's score
  for (std::int64_t base = std::int64_t{blockIdx.x} * together; base < work.tokens; base += std::int64_t{gridDim.x} * together) {
    // Past the last token lanes come along for that one, and write nothing.
    const std::int64_t place_of = base + static_cast<int>(threadIdx.x) / work.lanes;
    const bool live = place_of < work.tokens;
    const std::int64_t token = live ? place_of : work.tokens - 1;
    const T* const row = logits + token * work.experts;
    // Value i is that of expert (i / kLanes * lanes + rank) * kLanes + i % kLanes.
    float value[Values];
    if (work.vectors) {
      const T* at = row + rank * kLanes;
      const int step = work.lanes * kLanes;
      Pack<T> pack[Values / kLanes];
#pragma unroll
      for (int u = 0; u < Values / kLanes; ++u) {
        if (full || u * step + rank * kLanes < work.experts) {
          pack[u] = load_pack(at + u * step);
        } else {
#pragma unroll
          for (int j = 0; j < kLanes; ++j) pack[u].lane[j] = from_float<T>(-INFINITY);
        }
      }
#pragma unroll
      for (int i = 0; i < Values; ++i) value[i] = to_float(pack[i / kLanes].lane[i % kLanes]);
    } else {
#pragma unroll
      for (int i = 0; i < Values; ++i) {
        const int expert = (i / kLanes * work.lanes + rank) * kLanes + i % kLanes;
        value[i] = expert < work.experts ? to_float(row[expert]) : -INFINITY;
      }
    }
    if constexpr (Sigmoid) {
#pragma unroll
      for (int i = 0; i < Values; ++i) {
        const int expert = (i / kLanes * work.lanes + rank) * kLanes + i % kLanes;
        if (expert < work.experts) value[i] = listed_score<true>(value[i], work, expert);
      }
    }

    Key key[kListed];
    if constexpr (Values == kMostValues) {
      // The chosen are in the kListed groups with the largest maxima: of any other group, each of these has an element that comes
      // before all elements.
      const int last = Values / kGrouped * work.lanes - 1;
#pragma unroll
      for (int g = 0; g < kListed; ++g) {
        constexpr int kPerPack = kLanes / kGrouped;
        const float* const of = value + kGrouped * g;
        const int group = (g / kPerPack * work.lanes + rank) * kPerPack + g % kPerPack;
        key[g] = (ordered(larger(larger(of[0], of[1]), larger(of[2], of[3]))) & ~last) | (last - group);
      }
      sort(key);
      merge_over(key, work.lanes);
      // Each of four lanes takes two of them.
      const Key low = rank & 1 ? key[1] : key[0], high = rank & 1 ? key[3] : key[2];
      const Key low2 = rank & 1 ? key[5] : key[4], high2 = rank & 1 ? key[7] : key[6];
      const int group[2] = {last - ((rank & 2 ? high : low) & last), last - ((rank & 2 ? high2 : low2) & last)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float score[kGrouped];
        load_scores<T, Sigmoid>(row, work, kGrouped * group[h], score);
#pragma unroll
        for (int j = 0; j < kGrouped; ++j)
          key[kGrouped * h + j] = (ordered(score[j]) & ~numbered) | (numbered - kGrouped * group[h] - j);
      }
      sort(key);
      merge_over(key, kFewestLanes);
    } else {
#pragma unroll
      for (int i = 0; i < Values; i += kListed) {
        Key next[kListed];
#pragma unroll
        for (int j = 0; j < kListed; ++j) {
          const int expert = ((i + j) / kLanes * work.lanes + rank) * kLanes + (i + j) % kLanes;
          next[j] = (ordered(value[i + j]) & ~numbered) | (numbered - expert);
        }
        sort(next);
        if (i == 0) {
#pragma unroll
          for (int j = 0; j < kListed; ++j) key[j] = next[j];
        } else {
          merge(key, next);
        }
      }
      merge_over(key, work.lanes);
    }

    const bool nan = key[0] > (0x7F800000 | numbered);
    if constexpr (!kWholeKeys) {
      // Is the order of the chosen, and who is among them, decided by the upper bits?
      bool known = work.chosen == kListed || (key[kListed - 1] ^ key[kListed - 2]) > numbered, alike = false;
#pragma unroll
      for (int i = 0; i + 1 < kListed; ++i) alike |= i < work.chosen && (key[i] ^ key[i + 1]) <= numbered;
      if (work.chosen == kListed) {
        // Whoever reaches the least score that the last chosen may have adds 1, and who does not, unless by next to nothing, 0.
        const float least = __int_as_float(ordered(key[kListed - 1] & ~numbered));
        float reach = 0.f;
#pragma unroll
        for (int i = 0; i < Values; ++i) reach += __saturatef(fmaf(value[i] - least, 0x1p127f, 1.f));
        known = sum_over(reach, work.lanes) == static_cast<float>(kListed);
        alike |= !known;
      }
      if (__any_sync(0xFFFFFFFFu, alike)) {
        // Scores that fit in the upper bits all the same are told apart rightly.
        int lower = 0;
#pragma unroll
        for (int i = 0; i < Values; ++i) lower |= __float_as_int(value[i]) & numbered;
        for (int half = 1; half < work.lanes; half *= 2) lower |= __shfl_xor_sync(0xFFFFFFFFu, lower, half);
        alike = alike && lower != 0;
        if (__any_sync(0xFFFFFFFFu, alike))
          list_whole<T, Sigmoid, Values>(row, work, rank, numbered, !__any_sync(0xFFFFFFFFu, alike && !known), key);
      }
    }
    float* const to = weights + token * work.chosen;
    std::int32_t* const to_numbers = numbers + token * work.chosen;
    if (__any_sync(0xFFFFFFFFu, nan)) {
      pick<T, Sigmoid>(row, to, to_numbers, work, live, rank, work.lanes, [&](auto f) {
        for (int expert = rank; expert < work.experts; expert += work.lanes) f(expert, score_at<T, Sigmoid>(row, work, expert));
      });
      continue;
    }

    // The logits of the chosen come from L1 again.
    const float largest = !Sigmoid ? to_float(row[numbered - (key[0] & numbered)]) : 0.f;
    float inverse = 1.f;
    if (!Sigmoid && !work.renormalise) {
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < Values; ++i) sum += fast_exp2((value[i] - largest) * kLog2E);
      inverse = 1.f / sum_over(sum, work.lanes);
    }
    float weight[kPlaces], of_chosen = 0.f;
    int number[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int place = rank + i * work.lanes;
      const bool mine = place < work.chosen;
      number[i] = numbered - (at_place(key, place) & numbered);
      const float logit = mine ? to_float(row[number[i]]) : -INFINITY;
      weight[i] = Sigmoid ? weight_of<true>(logit) : expf(logit - largest) * inverse;
      of_chosen += mine ? weight[i] : 0.f;
    }
    if (work.renormalise) {
      of_chosen = sum_over(of_chosen, work.lanes);
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) weight[i] /= of_chosen;
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int place = rank + i * work.lanes;
      if (place >= work.chosen || !live) continue;
      to[place] = weight[i];
      to_numbers[place] = number[i];
    }
  }
}

}  // namespace roofline::cuda
