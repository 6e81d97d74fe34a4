// Copies to and from the host and a peer, empty launches and graphs, and batches timed by the host's clock: over a runtime without
// a GPU (fake_cuda.h), in which every call can fail.
#include <thread>

#include "on_fake_gpu.h"

namespace {

using Transfers = OnFakeGpu;

struct Buffers {
  Buffers(Backend& device, std::int64_t size) : device(device), size(size) {
    for (unsigned char** each : {&a, &c, &sample}) *each = static_cast<unsigned char*>(device.allocate(size));
    for (std::int64_t i = 0; i < size; ++i) a[i] = static_cast<unsigned char>(i * 37 + i / 251);
  }
  ~Buffers() {
    for (unsigned char* each : {a, c, sample}) device.release(each, 0);
  }
  Arguments arguments(const std::string& op, const std::string& direction, std::int64_t pieces) const {
    Arguments all(op, DType::int8);
    all.add("direction", direction), all.add("size_bytes", size), all.add("peer", std::int64_t{1});
    for (const auto& [name, data, n] : {std::tuple{"a", a, size}, {"c", c, size}, {"sample", sample, pieces}})
      all.add(tensor(name, data, DType::int8, {n}));
    return all;
  }
  Backend& device;
  std::int64_t size;
  unsigned char *a, *c, *sample;
};

// What comes back of `size` bytes, as operators/transfer.py states it.
std::vector<unsigned char> pieces_of(const unsigned char* a, std::int64_t size) {
  const std::int64_t width = std::min<std::int64_t>(size, 64), pieces = std::min<std::int64_t>(size / width, 64);
  std::vector<unsigned char> all;
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    for (std::int64_t i = 0; i < width; ++i) all.push_back(a[piece * (size / pieces) + i]);
  return all;
}

constexpr std::pair<const char*, const char*> kVariants[] = {
    {"host_copy", "pinned"}, {"host_copy", "pageable"}, {"peer_copy", "copy_engine"}, {"peer_copy", "kernel"}};

TEST_F(Transfers, EveryDirectionBringsWhatItShould) {
  fake::runtime().devices = 2;
  const auto device = cuda::open(0);
  for (const auto& [op, variant] : kVariants) {
    const bool host = std::string(op) == "host_copy";
    for (const std::int64_t size : {1, 63, 64, 100, 4096, 4097, 100003})
      for (const char* direction : {host ? "to_device" : "from_peer", host ? "from_device" : "to_peer", "both"}) {
        SCOPED_TRACE(std::string(op) + " " + variant + " " + direction + " " + std::to_string(size));
        const Buffers buffers(*device, size);
        const std::vector<unsigned char> want = pieces_of(buffers.a, size);
        const Arguments arguments = buffers.arguments(op, direction, static_cast<std::int64_t>(want.size()));
        const Bound bound = kernel(*device, op, DType::int8, variant).bind(arguments, *device);
        std::memset(buffers.c, 0xEE, size), std::memset(buffers.sample, 0xEE, size);
        bound.steps.at(0).launch(static_cast<Device&>(*device));
        const bool in = std::string(direction) != (host ? "from_device" : "to_peer");
        const bool out = std::string(direction) != (host ? "to_device" : "from_peer");
        const auto expect = [](const unsigned char* got, bool written, const unsigned char* all, std::size_t bytes) {
          EXPECT_EQ(std::memcmp(got, all, bytes) == 0, written);
          EXPECT_EQ(got[0] == 0xEE, !written);
        };
        expect(buffers.c, in, buffers.a, size);
        expect(buffers.sample, out, want.data(), want.size());
        ASSERT_EQ(bound.host_timed, std::string(variant) == "pageable") << "a copy from pageable memory waits";
        ASSERT_EQ(fake::runtime().current, 0) << "the device stays the thread's";
      }
  }
}

TEST_F(Transfers, WhateverFailsNothingIsLeft) {
  fake::runtime().devices = 2;
  const auto device = cuda::open(0);
  const Buffers buffers(*device, 5000);
  const auto count = fake::runtime().allocations.size();
  const int streams = fake::runtime().streams, events = fake::runtime().events, pinned = fake::runtime().pinned;
  int failed = 0;
  for (const auto& [op, variant] : kVariants)
    failed += fail_each(
        {"cudaSetDevice", "cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaMemcpyAsync",
         "cudaMemcpyPeerAsync", "cudaStreamSynchronize", "cudaGetDeviceCount", "cudaDeviceCanAccessPeer",
         "cudaDeviceEnablePeerAccess"},
        3, cudaErrorLaunchOutOfResources,
        [&, op = op, variant = variant] {
          kernel(*device, op, DType::int8, variant).bind(buffers.arguments(op, "both", 4096), *device);
        },
        [&](const std::string& call) {
          ASSERT_EQ(fake::runtime().allocations.size(), count) << call;
          ASSERT_EQ(fake::runtime().streams, streams) << call;
          ASSERT_EQ(fake::runtime().events, events) << call;
          ASSERT_EQ(fake::runtime().pinned, pinned) << call;
        });
  EXPECT_GT(failed, 20);
}

TEST_F(Transfers, PinnedMemoryThatIsNotThere) {
  const auto device = cuda::open(0);
  const Buffers buffers(*device, 5000);
  fake::runtime().failures["cudaHostAlloc"] = {cudaErrorMemoryAllocation};
  const Arguments arguments = buffers.arguments("host_copy", "to_device", 4096);
  message<OutOfMemory>([&] { kernel(*device, "host_copy", DType::int8, "pinned").bind(arguments, *device); });
}

TEST_F(Transfers, PeersThatAreNotThere) {
  const auto device = cuda::open(0);
  const Buffers buffers(*device, 128);
  Arguments arguments = buffers.arguments("peer_copy", "from_peer", 128);
  const auto bind = [&](const char* variant) { kernel(*device, "peer_copy", DType::int8, variant).bind(arguments, *device); };
  EXPECT_TRUE(has(message<Unsupported>([&] { bind("copy_engine"); }), "one GPU"));
  fake::runtime().devices = 2;
  arguments.add("peer", std::int64_t{2});
  EXPECT_TRUE(has(message<Unsupported>([&] { bind("copy_engine"); }), "there are 2 GPUs"));
  arguments.add("peer", std::int64_t{0});
  EXPECT_TRUE(has(message<Error>([&] { bind("copy_engine"); }), "is cuda:0 itself"));
  arguments.add("peer", std::int64_t{1});
  fake::runtime().peer_access = false;
  EXPECT_TRUE(has(message<Unsupported>([&] { bind("kernel"); }), "use the variant copy_engine"));
  EXPECT_NO_THROW(bind("copy_engine")) << "through the host's memory";
  fake::runtime().peer_access = true;
  fake::runtime().failures["cudaDeviceEnablePeerAccess"] = {cudaErrorPeerAccessAlreadyEnabled};
  EXPECT_NO_THROW(bind("kernel"));
}

TEST_F(Transfers, TheDriverCopiesOncePerPass) {
  const auto device = cuda::open(0);
  const Buffers buffers(*device, 4000);
  const auto arguments = [&](const char* access, std::int64_t in_flight_bytes) {
    Arguments all("stream", DType::fp32);
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
             {"elements", 1000}, {"passes", 3}, {"streams", 1}, {"stride", 1}, {"in_flight_bytes", in_flight_bytes}})
      all.add(name, value);
    all.add("access", access), all.add("isa", ""), all.add("prefetch", "none"), all.add("factor", 3.0);
    for (const auto& [name, data] : {std::pair{"a", buffers.a}, {"b", buffers.sample}, {"c", buffers.c}})
      all.add(tensor(name, data, DType::fp32, {1000}));
    return all;
  };
  const KernelEntry& driver = kernel(*device, "stream", DType::fp32, "driver");
  const Bound bound = driver.bind(arguments("copy", 0), *device);
  std::memset(buffers.c, 0xEE, 4000);
  bound.steps.at(0).launch(static_cast<Device&>(*device));
  EXPECT_EQ(std::memcmp(buffers.c, buffers.a, 4000), 0);
  EXPECT_EQ(bound.steps.at(0).entries, 3);
  EXPECT_TRUE(has(message<Unsupported>([&] { driver.bind(arguments("triad", 0), *device); }), "use access copy"));
  EXPECT_TRUE(has(message<Unsupported>([&] { driver.bind(arguments("copy", 64 << 10), *device); }), "leave in_flight_bytes 0"));
}

// -- launches -----------------------------------------------------------------------------------------------------------------

Arguments calls(std::int64_t count) {
  Arguments arguments("fork_join", DType::fp32);
  arguments.add("calls", count);
  return arguments;
}

TEST_F(Transfers, EmptyLaunchesAreAsManyAsAsked) {
  const auto device = cuda::open(0);
  const struct {
    const char* variant;
    long launches, synchronised, nodes;
    bool host_timed;
  } expected[] = {{"pool", 5, 0, 0, false}, {"call", 5, 0, 0, true}, {"synchronised", 5, 5, 0, true}, {"graph", 0, 0, 5, false}};
  for (const auto& each : expected) {
    SCOPED_TRACE(each.variant);
    const Bound bound = kernel(*device, "fork_join", DType::fp32, each.variant).bind(calls(5), *device);
    EXPECT_EQ(bound.host_timed, each.host_timed);
    EXPECT_TRUE(has(fact<std::string>(bound.plan.facts(), "implementation"), each.variant));
    fake::Runtime& r = fake::runtime();
    r.empty_launches = r.synchronised = r.graph_nodes = 0;
    bound.steps.at(0).launch(static_cast<Device&>(*device));
    EXPECT_EQ(r.empty_launches, each.launches);
    EXPECT_EQ(r.synchronised, each.synchronised);
    EXPECT_EQ(r.graph_nodes, each.nodes);
  }
  EXPECT_EQ(kernel(*device, "fork_join", DType::fp32, "pool").variant, "pool");
  const KernelEntry& graph = kernel(*device, "fork_join", DType::fp32, "graph");
  EXPECT_TRUE(has(message<Unsupported>([&] { graph.bind(calls(1025), *device); }), "1024 nodes"));
}

TEST_F(Transfers, GraphsThatFailLeaveNothing) {
  const auto device = cuda::open(0);
  fail_each({"cudaGraphCreate", "cudaGraphAddKernelNode", "cudaGraphInstantiateWithFlags", "cudaGraphUpload"}, 3,
            cudaErrorLaunchOutOfResources, [&] { kernel(*device, "fork_join", DType::fp32, "graph").bind(calls(4), *device); },
            [](const std::string& call) { EXPECT_EQ(fake::runtime().graphs, 0) << call; });
}

// -- batches by the host's clock ------------------------------------------------------------------------------------------------

TEST_F(Transfers, HostTimedBatchesTakeTheHostsTimeAndNoGate) {
  const auto device = cuda::open(0);
  int launched = 0;
  const std::vector<std::vector<Launch>> sets = {{[&](Queue&) {
    ++launched;
    fake::runtime().clock_s += 100;  // what events would say
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }}};
  const double host_s = device->run_batch({.sets = &sets, .launches = 3, .host_timed = true});
  EXPECT_EQ(launched, 3);
  EXPECT_GE(host_s, 6e-3);
  EXPECT_LT(host_s, 50);
  EXPECT_EQ(fake::runtime().events, 0) << "no event was needed";
  EXPECT_NEAR(device->run_batch({.sets = &sets, .launches = 3}), 300, 1e-3) << "by events";
  launched = 0;
  const Batch cold{.sets = &sets, .launches = 2, .flush_each = true, .host_timed = true};
  EXPECT_GE(device->run_batch(cold), 4e-3) << "each launch alone, caches emptied between them";
  EXPECT_EQ(launched, 2);
}

}  // namespace
