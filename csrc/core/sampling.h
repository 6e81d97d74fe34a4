// The one timing policy: warm-up, batch length, stopping, brackets, contention, cancellation, for every backend alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend.h"

namespace roofline {

// The caller sets every field; Python's `Policy` has the defaults.
struct Policy {
  double warmup_min_s = 0;
  double warmup_max_s = 0;  // even if the samples are not steady by then
  double batch_s = 0;       // a sample is one batch of at least this length
  int min_samples = 0;
  double min_s = 0;
  double max_s = 0;
  double noise = 0;      // stop when the 95 % interval's half-width is below this share of the median
  double bracket_s = 0;  // of each roof, before and after
  int tries = 0;         // while contended or while the roof moves

  void check() const;  // throws Error naming the field
};

// What is timed: launch i runs sets[i mod n]. Several sets of buffers keep the data cold.
struct Target {
  std::vector<std::vector<Launch>> sets;
  std::vector<std::vector<Extent>> memory;  // of each set
  bool flush_each = false;
  bool callable = false;  // a user's function: not pinned, and its threads are not ours
  bool host_timed = false;  // see Batch
  std::function<double()> clock;  // see Bound; nothing else then comes between warm-up, clock and batches for 0.1 ms
  std::shared_ptr<ForeignStream> stream;
  std::int64_t entries = 0;  // see Batch
  std::string name;  // for profilers
};

struct Sampled {
  std::vector<double> samples_s;  // seconds per launch, one value per batch
  std::int64_t launches_per_sample = 1;
  double warmup_s = 0;
  std::string stop_reason;  // "noise": narrow enough; "time": max_s spent
  Load load;
  double clock_before_hz = 0;
  double clock_after_hz = 0;
};

struct Bracketed {
  Sampled sampled;
  std::vector<std::vector<double>> before_s;  // [roofs][samples], seconds per launch
  std::vector<std::vector<double>> after_s;
  std::size_t limiting = 0;  // the roof that decides whether it moved
  int repeats = 0;           // tries beyond the first
  bool contended = false;
  bool roof_moved = false;
};

using Poll = std::function<void()>;  // called between batches; throws to cancel
// Called with the brackets taken before, before the target runs: freezes the prediction and returns the limiting roof.
using Freeze = std::function<std::size_t(const std::vector<std::vector<double>>& before_s)>;

struct Interval {
  double median, low, high;
};
// Median and its distribution-free 95 % interval: order statistics of ranks floor((n - 1.96 sqrt n)/2) and ceil(1 + (n + 1.96 sqrt
// n)/2). Where the lag-1 autocorrelation r of the samples, in the order given, is above 0.3, 1.96 sqrt n grows by sqrt((1 + r)/(1 -
// r)). machine/statistics.py reports the same interval: tests compare them.
Interval median_interval(std::vector<double> samples);

bool is_contended(const Load& load, bool callable);

Sampled sample(Backend& backend, const Target& target, const Policy& policy, const Poll& poll);

Bracketed sample_bracketed(Backend& backend, const Target& target, const std::vector<Target>& roofs, const Policy& policy,
                           const Freeze& freeze, const Poll& poll);

}  // namespace roofline
