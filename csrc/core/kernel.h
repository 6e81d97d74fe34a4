// The kernel interface: bind outside the clock, launch inside it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/arguments.h"

namespace roofline {

class Backend;

// Where a launch goes: a thread pool on a CPU, a stream on a GPU. Each backend derives its own.
class Queue {
 public:
  virtual ~Queue() = default;
};

using Launch = std::function<void(Queue&)>;  // only enqueues: never allocates, copies or waits (but see Bound::host_timed)

struct Step {
  std::string name;
  Launch launch;
  std::int64_t entries = 1;  // of a queue that it takes: kernels, copies
};

// Facts of what will run: tiles, splits, workspace_bytes, packed_bytes, implementation ("tiled/avx2").
class Plan {
 public:
  void set(const std::string& name, Value value) { facts_.emplace_back(name, std::move(value)); }
  template <class T>
  std::enable_if_t<std::is_arithmetic_v<T>> set(const std::string& name, T value) {
    if constexpr (std::is_floating_point_v<T>)
      set(name, Value(static_cast<double>(value)));
    else
      set(name, Value(static_cast<std::int64_t>(value)));
  }
  void set(const std::string& name, const char* value) { set(name, Value(std::string(value))); }
  const std::vector<std::pair<std::string, Value>>& facts() const { return facts_; }

 private:
  std::vector<std::pair<std::string, Value>> facts_;
};

// A range of a device's memory.
struct Extent {
  const void* start;
  std::int64_t size_bytes;
  bool written = false;  // launches leave its lines in the caches, to be written back
};

struct Bound {
  std::vector<Step> steps;  // one for a fused kernel, one per pass for a naive one; the launches own their workspace
  Plan plan;
  std::vector<Extent> memory;  // that launches touch: tensors, and what bind allocated. `entry` fills it
  const void* past_caches = nullptr;  // the tensor that non-temporal stores write
  std::function<double()> clock;  // Hz of the cores at this very work, measured now; unset: the backend's clock serves
  bool host_timed = false;  // a launch may wait: it is timed by the host's clock, from an idle device to an idle one
};

// The one step of another kernel as a further step of this one, its facts under the step's name; memory is counted by the whole.
inline void append(Bound& bound, const std::string& step, Bound other) {
  for (const auto& [name, value] : other.plan.facts())
    if (name != "workspace_bytes") bound.plan.set(step + "_" + name, value);
  bound.steps.push_back({step, std::move(other.steps.at(0).launch), other.steps.at(0).entries});
}

// Every step owns `memory` too.
template <class Memory>
void keep(Bound& bound, const Memory& memory) {
  for (Step& step : bound.steps) step.launch = [launch = std::move(step.launch), memory](Queue& queue) { launch(queue); };
}

// A capability a kernel needs ("avx2", "sm_90a"); empty means none. The backend says whether it has it.
using Requires = std::string;

// A kernel without its types, as the backend lists it.
struct KernelEntry {
  std::string op;
  std::string variant;  // what the user asks for
  DType dtype;
  Requires needs;
  std::function<Bound(const Arguments&, Backend&)> bind;  // all planning; throws Unsupported with a reason
};

template <class Problem, class Device>
KernelEntry entry(const char* variant, DType dtype, const Requires& needs, Bound (*bind)(const Problem&, Device&)) {
  return {Problem::op, variant, dtype, needs, [bind](const Arguments& arguments, Backend& backend) {
            Device& device = static_cast<Device&>(backend);
            Bound bound;
            bound.memory = device.allocated_by([&] { bound = bind(Problem::from(arguments), device); });
            for (const auto& [name, tensor] : arguments.tensors()) {
              const bool result = tensor.role == Role::out || tensor.role == Role::in_out;
              bound.memory.push_back({tensor.data, tensor.size_bytes(), result && tensor.data != bound.past_caches});
            }
            return bound;
          }};
}

// One variant for several dtypes.
template <class Problem, class Device>
std::vector<KernelEntry> kernels_of(std::initializer_list<DType> dtypes, const char* variant, const Requires& needs,
                                    Bound (*bind)(const Problem&, Device&)) {
  std::vector<KernelEntry> all;
  for (const DType dtype : dtypes) all.push_back(entry(variant, dtype, needs, bind));
  return all;
}

// One variant for the three dtypes whose arithmetic is in fp32.
template <class Problem, class Device>
std::vector<KernelEntry> floating_kernels(const char* variant, Bound (*bind)(const Problem&, Device&)) {
  return kernels_of({DType::fp32, DType::fp16, DType::bf16}, variant, "", bind);
}
template <class Problem, class Device>
std::vector<KernelEntry> floating_kernels(const char* variant, Bound (*fp32)(const Problem&, Device&),
                                          Bound (*fp16)(const Problem&, Device&), Bound (*bf16)(const Problem&, Device&)) {
  return {entry(variant, DType::fp32, "", fp32), entry(variant, DType::fp16, "", fp16), entry(variant, DType::bf16, "", bf16)};
}

// Lists, one after the other.
inline std::vector<KernelEntry> joined(std::initializer_list<std::vector<KernelEntry>> lists) {
  std::vector<KernelEntry> all;
  for (const std::vector<KernelEntry>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace roofline
