// Callables on streams of others, what holds them back, and what profilers are shown, over a runtime without a GPU.
#include <cstdlib>

#include "core/sampling.h"
#include "on_fake_gpu.h"

namespace {

using Order = std::vector<std::string>;

constexpr std::uintptr_t kTheirs = 0x7F00;
const std::string kStream = "stream " + std::to_string(kTheirs);

class Streams : public OnFakeGpu {
 protected:
  // What the runtime was told, with the events numbered as they came.
  static Order told() {
    std::map<std::string, std::string> names;
    Order all;
    for (const std::string& line : fake::runtime().order) {
      const auto end = line.find(" on ");
      if (line.rfind("event ", 0) != 0 || end == std::string::npos) {
        all.push_back(line);
        continue;
      }
      const auto name = names.emplace(line.substr(0, end), "event " + std::to_string(names.size() + 1)).first->second;
      all.push_back(name + line.substr(end));
    }
    fake::runtime().order.clear();
    return all;
  }
  // How often something was held back on a stream since then.
  static std::ptrdiff_t gates(std::uintptr_t stream) {
    const Order all = told();
    return std::count(all.begin(), all.end(), "gate on stream " + std::to_string(stream));
  }
  int calls = 0;
  std::vector<std::vector<Launch>> sets = {{[this](Queue&) {
    ++calls;
    fake::runtime().order.push_back("call");
    fake::runtime().clock_s += 1e-3;
  }}};
};

TEST_F(Streams, ACallableIsTimedByEventsOnItsOwnStreamBehindAGateThere) {
  const auto device = cuda::open(0);
  for (const std::uintptr_t handle : {kTheirs, std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{2}}) {
    ForeignStream theirs{handle};
    const std::string stream = "stream " + std::to_string(handle);
    device->run_batch({.sets = &sets, .launches = 1, .pin = Pin::never, .stream = &theirs});
    EXPECT_EQ(told(), (Order{"event 1 on " + stream, "call", "event 2 on " + stream})) << "the first may load code, which waits";
    EXPECT_NEAR(device->run_batch({.sets = &sets, .launches = 3, .pin = Pin::never, .stream = &theirs}), 3e-3, 1e-9);
    EXPECT_EQ(told(), (Order{"gate on " + stream, "event 1 on " + stream, "call", "call", "call", "event 2 on " + stream}));
    EXPECT_FALSE(theirs.waits);
  }
}

TEST_F(Streams, ManyCallsAreEnqueuedAFewAtATime) {
  const auto device = cuda::open(0);
  ForeignStream theirs{kTheirs, true};
  EXPECT_NEAR(device->run_batch({.sets = &sets, .launches = 40, .pin = Pin::never, .stream = &theirs}), 40e-3, 1e-6);
  EXPECT_EQ(calls, 40);
  EXPECT_EQ(gates(kTheirs), 3) << "16, 16 and 8";
}

// The gate of a call that waits for the GPU times out: fewer at once, and then none.
TEST_F(Streams, ACallThatWaitsIsNotHeldBackAgain) {
  const auto device = cuda::open(0);
  ForeignStream theirs{kTheirs, true};
  fake::runtime().gate_times_out = true;
  device->run_batch({.sets = &sets, .launches = 64, .pin = Pin::never, .stream = &theirs});
  EXPECT_EQ(calls, 64) << "every call is made once";
  EXPECT_TRUE(theirs.waits);
  EXPECT_EQ(theirs.chunk, 1);
  EXPECT_EQ(gates(kTheirs), 3) << "of 16, 4 and 1";
  device->run_batch({.sets = &sets, .launches = 1, .pin = Pin::never, .stream = &theirs});
  EXPECT_EQ(told(), (Order{"event 1 on " + kStream, "call", "event 2 on " + kStream}));
  // Our own kernels keep their gate.
  fake::runtime().gate_times_out = false;
  device->run_batch({&sets, 0, 1});
  EXPECT_EQ(told().at(0), "gate on stream " + std::to_string(device->stream_handle()));
  EXPECT_EQ(fact<std::int64_t>(device->facts(), "gate_timeouts"), 3);
}

// A chunk whose gate timed out holds gaps: its time is not counted where others have none.
TEST_F(Streams, WhatHoldsGapsIsNotCounted) {
  const auto device = cuda::open(0);
  const std::vector<std::vector<Launch>> gaps = {{[this](Queue&) {
    if (++calls == 7) fake::waits();
    fake::runtime().clock_s += calls <= 512 ? 50e-3 : 1e-3;
  }}};
  EXPECT_NEAR(device->run_batch({&gaps, 0, 1000}), 1.0, 1e-6);
  EXPECT_EQ(calls, 1000) << "every launch is made once";
}

// Kernels that wait once, to be loaded, are held back the next time; those that wait always are not.
TEST_F(Streams, OneKernelThatIsLoadedLateDoesNotTakeAwayTheGate) {
  static const int late_kernel = 0;
  const auto device = cuda::open(0);
  const std::vector<std::vector<Launch>> late = {{[](Queue&) { fake::loads(&late_kernel); }}};
  const auto gates_of = [&](const std::vector<std::vector<Launch>>& which) {
    told();
    for (int i = 0; i < 4; ++i) device->run_batch({&which, 0, 1});
    return gates(device->stream_handle());
  };
  EXPECT_EQ(gates_of(late), 4);
  EXPECT_EQ(gates_of({{[](Queue&) { fake::waits(); }}}), 2);
  EXPECT_EQ(gates_of(late), 0);
}

// What is queued is finite: a step says how much of it it takes.
TEST_F(Streams, StepsOfManyKernelsAreQueuedAFewAtATime) {
  const auto device = cuda::open(0);
  const auto gates_of = [&](std::int64_t entries) {
    told();
    device->run_batch({.sets = &sets, .launches = 10, .entries = entries});
    return gates(device->stream_handle());
  };
  EXPECT_EQ(gates_of(0), 1);
  EXPECT_EQ(gates_of(256), 5);
  EXPECT_EQ(gates_of(600), 10);
  EXPECT_EQ(gates_of(1000), 0) << "the queue is full in any case";
}

TEST_F(Streams, AFailingCallLeavesNoClosedGate) {
  const auto device = cuda::open(0);
  ForeignStream theirs{kTheirs};
  const std::vector<std::vector<Launch>> broken = {{[](Queue&) { throw Error("the callable's own"); }}};
  EXPECT_THROW(device->run_batch({.sets = &broken, .launches = 1, .pin = Pin::never, .stream = &theirs}), Error);
  EXPECT_NEAR(device->run_batch({.sets = &sets, .launches = 2, .pin = Pin::never, .stream = &theirs}), 2e-3, 1e-9);
}

TEST_F(Streams, UnderAProfilerNothingIsHeldBack) {
  const auto device = cuda::open(0);
  device->begin_profile();
  device->run_batch({.sets = &sets, .gate = false});
  device->end_profile();
  const std::string ours = "stream " + std::to_string(device->stream_handle());
  EXPECT_EQ(told(), (Order{"profile", "event 1 on " + ours, "call", "event 2 on " + ours, "end of profile"}));
}

#if defined(STUB_NVTX)
TEST_F(Streams, RangesAreWhatAProfilerSees) {
  setenv("NVTX_INJECTION64_PATH", STUB_NVTX, 1);  // read at the first range of the process
  const auto device = cuda::open(0);
  auto& said = *reinterpret_cast<std::vector<std::string>* (*)()>(dlsym(dlopen(STUB_NVTX, RTLD_NOW), "stub_nvtx"))();
  said.clear();
  {
    const Range outer(*device, "bind matmul library bf16");
    const Range inner(*device, "a step");
  }
  const std::vector<std::string> expected = {"push roofline: bind matmul library bf16", "push roofline: a step", "pop", "pop"};
  EXPECT_EQ(said, expected);
  said.clear();
  Target target;
  target.sets = sets, target.name = "relu fused fp32";
  const Policy policy{.batch_s = 5e-3, .min_samples = 3, .tries = 1};
  sample(*device, target, policy, {});
  EXPECT_EQ(said.at(0), "push roofline: relu fused fp32") << "every batch is one";
  EXPECT_EQ(std::count(said.begin(), said.end(), "pop"), std::count(said.begin(), said.end(), said.at(0)));
}
#endif

}  // namespace
