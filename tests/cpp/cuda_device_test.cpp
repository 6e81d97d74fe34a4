// The CUDA backend over a runtime without a GPU (fake_cuda.h) and a stub of cuBLASLt: what each error says, what is freed, and
// every product by its numbers.
#include "cuda/launch.cuh"
#include "on_fake_gpu.h"
#include "reference.h"

namespace {

// -- opening ------------------------------------------------------------------------------------------------------------------

TEST_F(OnFakeGpu, NoDriver) {
  fake::runtime().failures["cudaGetDeviceCount"] = {cudaErrorInsufficientDriver};
  const std::string text = message<Unsupported>([] { cuda::open(0); });
  EXPECT_TRUE(has(text, "cuda:0") && has(text, "cudaErrorInsufficientDriver") && has(text, "driver for CUDA 13.0")) << text;
  fake::runtime().failures["cudaGetDeviceCount"] = {cudaErrorInsufficientDriver};
  EXPECT_TRUE(has(cuda::list_devices().at(0).missing, "cudaErrorInsufficientDriver"));
}

TEST_F(OnFakeGpu, NoDevice) {
  fake::runtime().devices = 0;
  const std::string text = message<Unsupported>([] { cuda::open(0); });
  EXPECT_TRUE(has(text, "cudaErrorNoDevice")) << text;
  fake::runtime().devices = 2;
  const std::string which = message<Unsupported>([] { cuda::open(2); });
  EXPECT_TRUE(has(which, "there are 2 GPUs") && has(which, "CUDA_VISIBLE_DEVICES")) << which;
}

TEST_F(OnFakeGpu, WrongArchitecture) {
  fake::runtime().failures["load_primitives"] = {cudaErrorNoKernelImageForDevice};
  const std::string text = message<Unsupported>([] { cuda::open(0); });
  EXPECT_TRUE(has(text, "cudaErrorNoKernelImageForDevice") && has(text, "CUDAARCHS")) << text;
}

TEST_F(OnFakeGpu, NeedsOfAnotherArchitecture) {
  fake::runtime().capability = 80;
  const auto device = cuda::open(0);
  EXPECT_EQ(device->lacks("sm_80"), "");
  EXPECT_EQ(device->lacks("sm_90a"), "it needs sm_90a, and this GPU is sm_80");
}

// Whichever call fails, the error names it, and what was made before is gone.
TEST_F(OnFakeGpu, EveryFailureWhileOpening) {
  const int named = fail_each(
      {"cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceGetAttribute", "cudaStreamCreateWithFlags", "cudaHostAlloc",
       "cudaHostGetDevicePointer"},
      1, cudaErrorLaunchOutOfResources, [] { cuda::open(0); },
      [](const std::string& call) { EXPECT_EQ(fake::runtime().streams + fake::runtime().pinned, 0) << call; });
  EXPECT_EQ(named, 6);
}

// -- clocks -----------------------------------------------------------------------------------------------------------------------

TEST_F(OnFakeGpu, TheClockOfBatchesIsReadInThem) {
  const auto device = cuda::open(0);
  const std::vector<std::vector<Launch>> sets = {{[](Queue&) { fake::runtime().clock_s += 1e-3; }}};
  const auto seen = [&] {
    for (const auto& [name, value] : device->end_load().conditions)
      if (name == "sm_clock_in_batches_hz") return std::get<double>(value);
    return 0.0;
  };
  device->begin_load();
  EXPECT_EQ(seen(), 0) << "no batch, no clock";
  device->begin_load();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(device->run_batch({&sets, 0, 700}), 0.7, 1e-3);  // of several chunks
  EXPECT_NEAR(seen(), 1.5e9, 1e3);
  device->begin_load();
  EXPECT_EQ(seen(), 0) << "each load counts its own batches";
}

// -- memory and errors of kernels -----------------------------------------------------------------------------------------------

TEST_F(OnFakeGpu, OutOfMemory) {
  const auto device = cuda::open(0);
  const long before = fake::runtime().mallocs;
  std::string text = message<OutOfMemory>([&] { device->allocate(std::size_t{1} << 40); });
  EXPECT_TRUE(has(text, "1099511627776 bytes are needed") && has(text, "smaller problem")) << text;
  EXPECT_EQ(fake::runtime().mallocs, before) << "it is refused before the driver is asked";
  fake::runtime().failures["cudaMalloc"] = {cudaErrorMemoryAllocation};
  text = message<OutOfMemory>([&] { device->allocate(1000); });
  EXPECT_TRUE(has(text, "1000 bytes are needed")) << text;
  device->release(device->allocate(1000), 1000);  // the refusal does not stick
}

TEST_F(OnFakeGpu, StickyErrorSaysThatTheContextIsLost) {
  {
    const auto device = cuda::open(0);
    void* memory = device->allocate(64);
    char byte = 0;
    fake::runtime().failures["cudaStreamSynchronize"] = {cudaErrorIllegalAddress, 0, true};
    std::string text = message<Error>([&] { device->copy_out(&byte, memory, 1); });
    EXPECT_TRUE(has(text, "cudaStreamSynchronize") && has(text, "cudaErrorIllegalAddress") && has(text, "start a new process"))
        << text;
    text = message<Error>([&] { device->copy_out(&byte, memory, 1); });  // and so does every later call
    EXPECT_TRUE(has(text, "cudaErrorIllegalAddress") && has(text, "start a new process")) << text;
    device->release(memory, 64);
  }
}

TEST_F(OnFakeGpu, AnErrorOfALaunchSurfacesInItsBatchAndNotInTheNext) {
  const auto device = cuda::open(0);
  const std::vector<std::vector<Launch>> sets = {{[](Queue&) {}}};
  fake::runtime().failures["a launch"] = {cudaErrorLaunchOutOfResources};
  EXPECT_THROW(device->run_batch({&sets, 0, 3}), Error);
  EXPECT_NO_THROW(device->run_batch({&sets, 0, 3}));
}

// -- streams and memory of others -----------------------------------------------------------------------------------------------

TEST_F(OnFakeGpu, StreamsAreOrderedByAnEventThatIsRecordedOnTheFirst) {
  const auto device = cuda::open(0);
  const std::string ours = "stream " + std::to_string(device->stream_handle());
  EXPECT_GT(device->stream_handle(), 2u) << "no default stream: other libraries' work must not wait for a gate";
  const auto event = [] { return fake::runtime().order.at(0).substr(0, fake::runtime().order.at(0).find(" on ")); };
  for (const std::uintptr_t theirs : {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{2}, std::uintptr_t{0x7F00}}) {
    const std::string other = "stream " + std::to_string(theirs);
    fake::runtime().order.clear();
    device->wait_for(theirs);
    EXPECT_EQ(fake::runtime().order, (std::vector<std::string>{event() + " on " + other, ours + " after " + event()}));
    fake::runtime().order.clear();
    device->signal(theirs);
    EXPECT_EQ(fake::runtime().order, (std::vector<std::string>{event() + " on " + ours, other + " after " + event()}));
  }
  EXPECT_EQ(fake::runtime().events, 1) << "one event serves them all";
  for (const char* call : {"cudaEventRecord", "cudaStreamWaitEvent"}) {
    fake::runtime().failures[call] = {cudaErrorLaunchOutOfResources};
    EXPECT_TRUE(has(message<Error>([&] { device->wait_for(1); }), call));
  }
}

void some_kernel(int) {}
void other_kernel(int) {}

// Two plans of one kernel live side by side: the second must not take from the first what it was allowed.
TEST_F(OnFakeGpu, SharedMemoryOnceAllowedStays) {
  const auto of = [](void (*kernel)(int)) {
    cudaFuncAttributes attributes{};
    cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    return attributes.maxDynamicSharedSizeBytes;
  };
  Device device(0);
  for (const int size : {128 << 10, 192 << 10, 32 << 10, 16}) allow_shared(device, some_kernel, size);
  EXPECT_EQ(of(some_kernel), 192 << 10);
  EXPECT_EQ(of(other_kernel), 48 << 10);
  EXPECT_THROW(allow_shared(device, some_kernel, 256 << 10), Error);
}

TEST_F(OnFakeGpu, WhereMemoryLies) {
  const auto device = cuda::open(0);
  void* ours = device->allocate(64);
  EXPECT_EQ(device->place_of(static_cast<char*>(ours) + 32), "cuda:0");
  char host = 0, elsewhere = 0, managed = 0;
  cudaPointerAttributes attributes{};
  attributes.type = cudaMemoryTypeDevice, attributes.device = 3;
  fake::runtime().pointers[&elsewhere] = attributes;
  attributes.type = cudaMemoryTypeManaged, attributes.device = 1;
  fake::runtime().pointers[&managed] = attributes;
  EXPECT_EQ(device->place_of(&host), "cpu");
  EXPECT_EQ(device->place_of(&elsewhere), "cuda:3");
  EXPECT_EQ(device->place_of(&managed), "cuda:1");
  device->release(ours, 64);
}

// -- cuBLASLt -----------------------------------------------------------------------------------------------------------------

TEST_F(OnFakeGpu, CublasMissing) {
  const std::string text = message<Unsupported>([] { open_cublas_lt({"/nowhere/libcublasLt.so.13", "libcublasLt-not-here.so"}); });
  EXPECT_TRUE(has(text, "cuBLASLt cannot be used") && has(text, "/nowhere/libcublasLt.so.13") && has(text, "not-here") &&
              has(text, "pip install"))
      << text;
  const std::string other = message<Unsupported>([] { open_cublas_lt({"libm.so.6"}); });
  EXPECT_TRUE(has(other, "no symbol cublasLtCreate")) << other;
  stub().version = 120903;
  const std::string old = message<Unsupported>([] { open_cublas_lt({STUB_CUBLAS_LT}); });
  EXPECT_TRUE(has(old, "12.9.3")) << old;
}

TEST_F(OnFakeGpu, CublasSaysWhichItIs) {
  const LibraryInfo info = cublas_lt_info();
  EXPECT_EQ(info.name, "cublaslt");
  EXPECT_EQ(info.version, "13.1.1");
  EXPECT_TRUE(has(info.path, "libcublasLt.so.13")) << info.path;
  EXPECT_EQ(info.missing, "");
}

constexpr std::int64_t kShapes[][4] = {{1, 1, 1, 1}, {1, 3, 5, 7},  {1, 17, 2, 9}, {1, 1, 33, 4},
                                       {4, 3, 5, 7}, {3, 8, 4, 16}, {2, 1, 6, 3}};

TEST_F(OnFakeGpu, ProductsOfEveryDtypeAndLayout) {
  const auto device = cuda::open(0);
  const std::pair<DType, DType> dtypes[] = {{DType::fp64, DType::fp64}, {DType::fp32, DType::fp32}, {DType::tf32, DType::fp32},
                                            {DType::fp16, DType::fp32}, {DType::fp16, DType::fp16}, {DType::bf16, DType::fp32},
                                            {DType::bf16, DType::bf16}, {DType::int8, DType::int32}};
  for (const auto& [dtype, out] : dtypes)
    for (const auto& [batch, m, n, k] : kShapes)
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(batch) + ":" + std::to_string(m) + "x" + std::to_string(n) + "x" +
                     std::to_string(k));
        const Operands data(*device, dtype, out, batch, m, n, k);
        GemmProblem problem{dtype, out};
        problem.batch = batch, problem.rows = m, problem.columns = n, problem.inner = k;
        problem.a = data.a, problem.b = data.b, problem.c = data.c, problem.b_transposed = transposed;
        const Gemm gemm = plan_gemm(problem, static_cast<Device&>(*device));
        std::memset(data.c, 0xFF, static_cast<std::size_t>(batch * m * n * size_bytes(out)));
        gemm.launch(static_cast<Device&>(*device));
        for (std::int64_t i = 0; i < batch; ++i)
          for (std::int64_t row = 0; row < m; ++row)
            for (std::int64_t column = 0; column < n; ++column) {
              double sum = 0;
              for (std::int64_t l = 0; l < k; ++l)
                sum += element(dtype, data.a, (i * m + row) * k + l) *
                       element(dtype, data.b, i * k * n + (transposed ? column * k + l : l * n + column));
              ASSERT_EQ(element(out, data.c, (i * m + row) * n + column), sum) << i << " " << row << " " << column;
            }
      }
  EXPECT_EQ(stub().compute, lt::compute_32i);
  EXPECT_EQ(stub().scale, lt::r_32i);
}

TEST_F(OnFakeGpu, EpiloguesAndAlpha) {
  const auto device = cuda::open(0);
  const Operands data(*device, DType::bf16, DType::fp32, 1, 4, 6, 5);
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu_tanh}) {
    GemmProblem problem{DType::bf16, DType::fp32};
    problem.rows = 4, problem.columns = 6, problem.inner = 5, problem.a = data.a, problem.b = data.b, problem.c = data.c;
    problem.alpha = 0.125, problem.activation = activation;
    plan_gemm(problem, static_cast<Device&>(*device)).launch(static_cast<Device&>(*device));
    for (int i = 0; i < 24; ++i) {
      double x = 0;
      for (int l = 0; l < 5; ++l) x += element(DType::bf16, data.a, i / 6 * 5 + l) * element(DType::bf16, data.b, l * 6 + i % 6);
      x *= 0.125;
      const double want = activation == Activation::none   ? x
                          : activation == Activation::relu ? reference::relu(x)
                                                           : reference::gelu_tanh(x);
      ASSERT_NEAR(element(DType::fp32, data.c, i), want, 1e-6);
    }
  }
  GemmProblem exact{DType::fp32, DType::fp32};
  exact.rows = exact.columns = exact.inner = 2, exact.activation = Activation::gelu_tanh;
  EXPECT_TRUE(has(message<Unsupported>([&] { plan_gemm(exact, static_cast<Device&>(*device)); }), "by tanh"));
}

GemmProblem small(const Operands& data) {
  GemmProblem problem{DType::fp32, DType::fp32};
  problem.rows = 3, problem.columns = 5, problem.inner = 7, problem.a = data.a, problem.b = data.b, problem.c = data.c;
  return problem;
}

TEST_F(OnFakeGpu, TheFastestCandidateOfTheSecondTimingIsTaken) {
  const auto device = cuda::open(0);
  const Operands data(*device, DType::fp32, DType::fp32, 1, 3, 5, 7);
  stub().proposals = 5;
  stub().states[0] = lt::not_supported;  // not run at all
  stub().run[1] = lt::not_supported;     // proposed, and fails
  stub().workspace_bytes[2] = 4096, stub().workspace_bytes[3] = 100, stub().workspace_bytes[4] = 0;
  // 2 looks fastest at first, and is not when measured again.
  stub().on_run = [](int which, long) {
    fake::runtime().clock_s += which == 2 ? (stub().runs[2] <= 4 ? 1e-3 : 9e-3) : which == 3 ? 2e-3 : 5e-3;
  };
  const Gemm gemm = plan_gemm(small(data), static_cast<Device&>(*device));
  EXPECT_EQ(stub().runs[0], 0);
  EXPECT_EQ(gemm.candidates, 3);
  EXPECT_TRUE(has(gemm.library_implementation, "cuBLASLt 13.1.1 algorithm 103")) << gemm.library_implementation;
  EXPECT_NEAR(gemm.chosen_s, 2e-3, 1e-6);
  EXPECT_EQ(gemm.workspace_bytes, 100);
  EXPECT_EQ(fake::runtime().allocations.size(), 4u) << "the trial's workspace is gone, the plan's is there";
  EXPECT_EQ(stub().workspace_limit, std::size_t{32} << 20);
  EXPECT_EQ(stub().alignment[0], 256u);
}

TEST_F(OnFakeGpu, AddressesAreDeclaredAsAlignedAsTheyAre) {
  const auto device = cuda::open(0);
  const Operands data(*device, DType::fp32, DType::fp32, 1, 30, 50, 7);
  GemmProblem problem = small(data);
  problem.a = static_cast<const float*>(data.a) + 1;
  problem.b = static_cast<const float*>(data.b) + 4;
  plan_gemm(problem, static_cast<Device&>(*device));
  EXPECT_EQ(stub().alignment[0], 16u) << "the library's A is our b";
  EXPECT_EQ(stub().alignment[1], 4u);
}

TEST_F(OnFakeGpu, WhatCublasRefusesIsSaid) {
  const auto device = cuda::open(0);
  auto& gpu = static_cast<Device&>(*device);
  const Operands data(*device, DType::fp32, DType::fp32, 1, 3, 5, 7);
  stub().heuristics = lt::not_supported;
  std::string text = message<Unsupported>([&] { plan_gemm(small(data), gpu); });
  EXPECT_TRUE(has(text, "fp32 3 x 5 x 7 on sm_90") && has(text, "NOT_SUPPORTED")) << text;
  stub().heuristics = {};
  stub().proposals = 0;
  EXPECT_TRUE(has(message<Unsupported>([&] { plan_gemm(small(data), gpu); }), "no kernel for fp32"));
  stub().proposals = 2;
  stub().run[0] = stub().run[1] = lt::invalid_value;
  EXPECT_TRUE(has(message<Error>([&] { plan_gemm(small(data), gpu); }), "running fp32"));
  GemmProblem other = small(data);
  other.out_dtype = DType::int32;
  EXPECT_TRUE(has(message<Unsupported>([&] { plan_gemm(other, gpu); }), "no product of fp32 with a result in int32"));
  GemmProblem large = small(data);
  large.rows = std::int64_t{1} << 31;
  EXPECT_TRUE(has(message<Unsupported>([&] { plan_gemm(large, gpu); }), "2^31 - 1"));
}

}  // namespace
