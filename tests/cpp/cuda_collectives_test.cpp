// Collectives over a fake runtime with several GPUs and a stub of NCCL: rank 0's result by hand, what is freed, what is refused.
#include <numeric>

#include "cuda/libraries/nccl.h"
#include "on_fake_gpu.h"

namespace {

class OnFakeGpus : public OnFakeGpu {
 protected:
  void SetUp() override {
    OnFakeGpu::SetUp();
    fake::runtime().devices = 4;
    if (static bool once = true; once) cuda::set_nccl_path(STUB_NCCL), once = false;
    device = cuda::open(1);
  }
  void TearDown() override {
    sets.clear();
    device.reset();
    OnFakeGpu::TearDown();
  }

  Bound bind(const std::string& op, DType dtype, std::int64_t elements, std::int64_t ranks, const std::vector<Tensor>& tensors) {
    Arguments arguments(op, dtype);
    arguments.add("elements", elements);
    arguments.add("ranks", ranks);
    for (const Tensor& tensor : tensors) arguments.add(tensor);
    return kernel(*device, op, dtype).bind(arguments, *device);
  }

  void run(const Bound& bound) { device->run_batch({&(sets = {{bound.steps.at(0).launch}}), 0, 1}); }

  std::shared_ptr<Backend> device;
  std::vector<std::vector<Launch>> sets;
};

using Floats = std::vector<float>;

Tensor tensor(const char* name, Floats& data, const Shape& shape) { return ::tensor(name, data.data(), DType::fp32, shape); }

TEST_F(OnFakeGpus, AllReduceAddsWhatTheOthersHold) {
  // Seven elements over three ranks: parts of three, the last of one.
  Floats x = {1, 2, 3, 4, 5, 6, 7}, partial = {10, 20, 30, 100, 200, 300}, finished = {40, 50, 60, 70, -1, -1};
  const Bound bound = bind("all_reduce", DType::fp32, 7, 3,
                           {tensor("x", x, {7}), tensor("partial", partial, {2, 3}), tensor("finished", finished, {2, 3})});
  EXPECT_EQ(x, (Floats{1, 2, 3, 4, 5, 6, 7})) << "binding leaves x as it was";
  for (int launch = 0; launch < 2; ++launch) {  // the second adds up the same numbers
    run(bound);
    EXPECT_EQ(x, (Floats{111, 222, 333, 40, 50, 60, 70}));
  }
}

TEST_F(OnFakeGpus, AllReduceOfOneRankIsItself) {
  Floats x = {1, 2, 3}, none(1);
  run(bind("all_reduce", DType::fp32, 3, 1,
           {tensor("x", x, {3}), tensor("partial", none, {0, 3}), tensor("finished", none, {0, 3})}));
  EXPECT_EQ(x, (Floats{1, 2, 3}));
}

TEST_F(OnFakeGpus, HalfPrecisionSumsAreRoundedOnce) {
  const auto number = [](float x) { return __float2bfloat16_rn(x); };
  __nv_bfloat16 x[2] = {number(1.f), number(3.f)}, partial[1] = {number(0.5f)}, finished[1] = {number(8.f)};
  const Bound bound = bind("all_reduce", DType::bf16, 2, 2,
                           {{"x", x, DType::bf16, {2}, {}},
                            {"partial", partial, DType::bf16, {1, 1}, {}},
                            {"finished", finished, DType::bf16, {1, 1}, {}}});
  run(bound);
  EXPECT_EQ(__bfloat162float(x[0]), 1.5f);
  EXPECT_EQ(__bfloat162float(x[1]), 8.f);
}

TEST_F(OnFakeGpus, ReduceScatterKeepsTheFirstPart) {
  Floats x = {1, 2, 3, 4, 5, 6, 7, 8}, partial = {10, 20, 30, 40, 50, 60}, out(2, -1);
  run(bind("reduce_scatter", DType::fp32, 8, 4,
           {tensor("x", x, {8}), tensor("partial", partial, {3, 2}), tensor("out", out, {2})}));
  EXPECT_EQ(out, (Floats{91, 122}));
}

TEST_F(OnFakeGpus, AllGatherAndAllToAllPutPartsInTheOrderOfRanks) {
  Floats part = {1, 2}, whole = {1, 2, 9, 9, 9, 9}, others = {3, 4, 5, 6}, out(6, -1);
  run(bind("all_gather", DType::fp32, 6, 3, {tensor("x", part, {2}), tensor("others", others, {2, 2}), tensor("out", out, {6})}));
  EXPECT_EQ(out, (Floats{1, 2, 3, 4, 5, 6}));
  std::fill(out.begin(), out.end(), -1.f);
  run(bind("all_to_all", DType::fp32, 6, 3, {tensor("x", whole, {6}), tensor("others", others, {2, 2}), tensor("out", out, {6})}));
  EXPECT_EQ(out, (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_F(OnFakeGpus, RefusalsSayWhy) {
  Floats data(64);
  const auto gather = [&](std::int64_t elements, std::int64_t ranks) {
    const std::int64_t part = (elements + ranks - 1) / ranks;
    return bind("all_gather", DType::fp32, elements, ranks,
                {tensor("x", data, {part}), tensor("others", data, {ranks - 1, part}), tensor("out", data, {elements})});
  };
  EXPECT_EQ(message<Unsupported>([&] { gather(8, 8); }),
            "all_gather: 8 ranks need as many GPUs, there are 4; ranks of other machines are not reached");
  EXPECT_EQ(message<Unsupported>([&] { gather(7, 2); }),
            "all_gather: NCCL takes parts of one size: elements must be a multiple of ranks, got 7 and 2");
  fake::runtime().total_bytes = 0;
  EXPECT_TRUE(has(message<OutOfMemory>([&] { gather(8, 2); }), "cuda:0: 16 bytes are needed there for rank 1"));
}

TEST_F(OnFakeGpus, AFailingCallIsNamedAndNothingIsLeft) {
  auto fail_after = reinterpret_cast<void (*)(int)>(dlsym(dlopen(STUB_NCCL, RTLD_NOW), "stub_nccl_fail_after"));
  fail_after(2);
  Floats x(4), others(2);
  EXPECT_EQ(message<Error>([&] {
    bind("all_reduce", DType::fp32, 4, 2,
         {tensor("x", x, {4}), tensor("partial", others, {1, 2}), tensor("finished", others, {1, 2})});
  }), "NCCL 2.27.3: ncclAllReduce: a system call failed; NCCL_DEBUG=WARN says more");
}

TEST(Nccl, SaysWhatIsWrongWithAFile) {
  const std::string text = message<Unsupported>([] { cuda::open_nccl({"libnot_there.so", "libm.so.6"}); });
  EXPECT_TRUE(has(text, "libnot_there.so: cannot open") && has(text, "libm.so.6: it has no symbol ncclGetVersion") &&
              has(text, "pip install nvidia-nccl-cu13"))
      << text;
}

}  // namespace
