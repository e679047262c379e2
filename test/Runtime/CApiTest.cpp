// The C ABI, on the host and on the fake driver.
#include "Fixture.h"
#include "kdac-c/kdac.h"

#include <dlfcn.h>
#include <thread>
#include <unistd.h>

using namespace kdac;

extern "C" kdac_status *callFromC(kdac_device *, const kdac_pack *,
                                  const float *, const float *, const float *,
                                  const float *, float *, float *);

namespace {

const std::string image = fixture::readFile(LINEAR_KERNEL);
constexpr char stem[] = "linear.step.k32v32.f32.f32vk.none";

/// The sentence of a status, freed; "" for success.
std::string said(kdac_status *status) {
  std::string text = kdac_status_message(status);
  EXPECT_EQ(status == nullptr, kdac_status_code(status) == KDAC_OK);
  kdac_status_free(status);
  return text;
}

void expectSaid(kdac_status *status, kdac_code code, const std::string &part) {
  EXPECT_EQ(kdac_status_code(status), code);
  std::string text = said(status);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string bytesOfPack(const std::string &ptxas = "") {
  PackWriter both, ignored;
  fixture::addLinear(both, "host", {{ImageKind::HostSo, "x86-64"}}, image);
  PackVariant gpu = fixture::addLinear(ignored, "sm_90a", {}, image);
  gpu.ptxasVersion = ptxas;
  gpu.launches[0].images = {both.addImage(ImageKind::Cubin, "sm_90a", image)};
  both.add(gpu);
  StatusOr<std::string> bytes = both.serialize();
  EXPECT_TRUE(bytes.ok());
  return *bytes;
}

kdac_call callOf(fixture::Call &c) {
  kdac_call call{};
  call.struct_size = sizeof call;
  call.q = c.q.data();
  call.k = c.k.data();
  call.v = c.v.data();
  call.h0 = c.h0.data();
  call.out = c.out.data();
  call.ht = c.ht.data();
  call.N = c.sequences;
  call.T = c.tokens;
  call.H = c.heads;
  call.HV = c.valueHeads;
  call.scale = c.scale;
  return call;
}

/// A device, a pack with host and GPU code, and the kernel on it.
struct Opened {
  kdac_device *device = nullptr;
  kdac_pack *pack = nullptr;
  kdac_kernel *kernel = nullptr;

  explicit Opened(const char *name) {
    kdac_device_options options{};
    options.struct_size = sizeof options;
    options.library = FAKE_CUDA;
    EXPECT_EQ(said(kdac_device_open(name, &options, &device)), "");
    std::string bytes = bytesOfPack();
    EXPECT_EQ(said(kdac_pack_open_memory(bytes.data(),
                                         static_cast<int64_t>(bytes.size()),
                                         "fixture", &pack)),
              "");
    EXPECT_EQ(said(kdac_kernel_load_named(device, pack, stem, &kernel)), "");
  }
  Opened(const Opened &) = delete;
  ~Opened() {
    // Kernels outlive what they were made from.
    kdac_device_close(device);
    kdac_pack_close(pack);
    kdac_kernel_close(kernel);
  }
};

class EveryDevice : public ::testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(CApi, EveryDevice, ::testing::Values("host", "cuda:0"),
                         [](const auto &info) {
                           return std::string(info.param).substr(0, 4);
                         });

TEST_P(EveryDevice, CallsFromC) {
  Opened o(GetParam());
  fixture::Call c;
  ASSERT_EQ(said(callFromC(o.device, o.pack, c.q.data(), c.k.data(), c.v.data(),
                           c.h0.data(), c.out.data(), c.ht.data())),
            "");
  EXPECT_EQ(c.out, c.expected());
}

TEST_P(EveryDevice, KernelOutlivesDeviceAndPack) {
  Opened o(GetParam());
  kdac_device_close(o.device);
  kdac_pack_close(o.pack);
  o.device = nullptr;
  o.pack = nullptr;
  fixture::Call c;
  kdac_call call = callOf(c);
  ASSERT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  EXPECT_EQ(c.out, c.expected());
}

/// q, k and v as slices of one fused projection, out in a wider buffer.
TEST_P(EveryDevice, StridedInputs) {
  Opened o(GetParam());
  fixture::Call c;
  constexpr int64_t row = 64 + 64 + 128 + 32, tokens = 6;
  std::vector<float> fused(tokens * row, NAN), wide(tokens * 160, NAN);
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(&c.q[t * 64], 64, &fused[t * row]);
    std::copy_n(&c.k[t * 64], 64, &fused[t * row + 64]);
    std::copy_n(&c.v[t * 128], 128, &fused[t * row + 128]);
  }
  kdac_call call = callOf(c);
  call.q = &fused[0];
  call.k = &fused[64];
  call.v = &fused[128];
  call.q_stride = call.k_stride = call.v_stride = row;
  call.out = wide.data();
  call.out_stride = 160;
  ASSERT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  fixture::Call::Floats expected = c.expected();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < 160; ++j)
      if (j < 128)
        EXPECT_EQ(wide[t * 160 + j], expected[t * 128 + j]);
      else
        EXPECT_NE(wide[t * 160 + j], wide[t * 160 + j]) << "gap written";
}

TEST_P(EveryDevice, DefaultsOfHeadsAndScale) {
  Opened o(GetParam());
  fixture::Call c;
  kdac_call call = callOf(c);
  fixture::Call::Floats given(c.out.size(), NAN);
  call.H = 4; // K = V: the value tensor serves as keys too
  call.q = call.k = call.v;
  call.scale = static_cast<float>(1 / std::sqrt(32.0));
  call.out = given.data();
  ASSERT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  call.scale = 0;
  call.HV = 0;
  call.out = c.out.data();
  ASSERT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  EXPECT_EQ(c.out, given);
}

TEST_P(EveryDevice, RefusedCallsRunNothing) {
  Opened o(GetParam());
  auto refused = [&](void (*spoil)(kdac_call &), const std::string &part) {
    fixture::Call c;
    kdac_call call = callOf(c);
    spoil(call);
    expectSaid(kdac_kernel_launch(o.kernel, nullptr, &call),
               KDAC_INVALID_ARGUMENT, part);
    for (float value : c.out)
      ASSERT_NE(value, value) << "out was written";
  };
  refused([](kdac_call &c) { c.q = nullptr; }, "argument q is null");
  refused([](kdac_call &c) { c.v = static_cast<const char *>(c.v) + 4; },
          "is not a multiple of 16 bytes");
  refused([](kdac_call &c) { c.k_stride = 65; }, "k_stride = 65 is not");
  refused([](kdac_call &c) { c.out_stride = 64; }, "out_stride = 64 is less");
  refused([](kdac_call &c) { c.T = -1; }, "argument T = -1 is negative");
  refused([](kdac_call &c) { c.H = 3; }, "HV = 4 value heads");
  refused([](kdac_call &c) { c.beta = c.q; },
          "argument beta is given, but this variant has none");
  refused([](kdac_call &c) { c.HV = INT64_MAX, c.H = 1; }, "64 bits");
  refused([](kdac_call &c) { c.scale = NAN; }, "scale is not finite");
  refused([](kdac_call &c) { c.struct_size = 0; }, "struct_size of kdac_call");
  expectSaid(kdac_kernel_launch(o.kernel, nullptr, nullptr),
             KDAC_INVALID_ARGUMENT, "kdac_call is null");
}

TEST_P(EveryDevice, ManyThreads) {
  Opened o(GetParam());
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t i = 0; i < right.size(); ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        fixture::Call c;
        kdac_call call = callOf(c);
        right[i] +=
            said(kdac_kernel_launch(o.kernel, nullptr, &call)).empty() &&
            c.out == c.expected();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

TEST(CApi, LaunchNeitherAllocatesNorWaitsNorLoads) {
  Opened o("cuda:0");
  void *library = ::dlopen(FAKE_CUDA, RTLD_NOW);
  auto count = [&](const char *name) {
    return *static_cast<int *>(::dlsym(library, name));
  };
  int allocations = count("fakeCudaAllocations"),
      waits = count("fakeCudaWaits"), loads = count("fakeCudaLoads");
  fixture::Call c;
  kdac_call call = callOf(c);
  ASSERT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  EXPECT_EQ(c.out, c.expected());
  EXPECT_EQ(count("fakeCudaAllocations"), allocations);
  EXPECT_EQ(count("fakeCudaWaits"), waits);
  EXPECT_EQ(count("fakeCudaLoads"), loads);
  EXPECT_GT(loads, 0) << "the counters are not those of the driver in use";
  int64_t bytes = -1;
  ASSERT_EQ(said(kdac_kernel_workspace_bytes(o.kernel, &call, &bytes)), "");
  EXPECT_EQ(bytes, 0);
  ::dlclose(library);
}

/// Workspace is sized by a call and brought by the caller.
TEST(CApi, Workspace) {
  Opened o("cuda:0");
  PackWriter writer, ignored;
  PackVariant v = fixture::addLinear(ignored, "sm_90a", {}, "");
  v.launches[0].images = {writer.addImage(ImageKind::Cubin, "sm_90a", image)};
  v.workspace = "tokens * HV * 16";
  v.launches[0].usesWorkspace = true;
  Arg workspace = {"workspace", ArgKind::Workspace, DType::I8, true, "bytes"};
  v.launches[0].args.push_back({workspace, 16});
  writer.add(v);
  StatusOr<std::string> bytes = writer.serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  kdac_pack *pack = nullptr;
  kdac_kernel *kernel = nullptr;
  ASSERT_EQ(said(kdac_pack_open_memory(bytes->data(),
                                       static_cast<int64_t>(bytes->size()),
                                       nullptr, &pack)),
            "");
  ASSERT_EQ(said(kdac_kernel_load_named(o.device, pack, stem, &kernel)), "");
  fixture::Call c;
  kdac_call call = callOf(c);
  int64_t needed = -1;
  ASSERT_EQ(said(kdac_kernel_workspace_bytes(kernel, &call, &needed)), "");
  EXPECT_EQ(needed, c.sequences * c.tokens * c.valueHeads * 16);
  expectSaid(kdac_kernel_launch(kernel, nullptr, &call), KDAC_INVALID_ARGUMENT,
             "workspace is null, but this call needs 384 bytes");
  alignas(16) char memory[384];
  call.workspace = memory;
  call.workspace_bytes = needed - 1;
  expectSaid(kdac_kernel_launch(kernel, nullptr, &call), KDAC_INVALID_ARGUMENT,
             "workspace_bytes = 383, but this call needs 384");
  EXPECT_NE(c.out[0], c.out[0]) << "a refused call ran";
  call.workspace_bytes = needed;
  EXPECT_EQ(said(kdac_kernel_launch(kernel, nullptr, &call)), "");
  EXPECT_EQ(c.out, c.expected());
  // One workspace may serve kernels that need none.
  EXPECT_EQ(said(kdac_kernel_launch(o.kernel, nullptr, &call)), "");
  kdac_kernel_close(kernel);
  kdac_pack_close(pack);
}

/// A function runs only in the context it was loaded in.
TEST(CApi, SeveralGpusInOneProcess) {
  ::setenv("KDAC_FAKE_GPUS", "2", 1);
  {
    Opened first("cuda:0"), second("cuda:1");
    for (kdac_kernel *kernel :
         {second.kernel, first.kernel, second.kernel, first.kernel}) {
      fixture::Call c;
      kdac_call call = callOf(c);
      ASSERT_EQ(said(kdac_kernel_launch(kernel, nullptr, &call)), "");
      EXPECT_EQ(c.out, c.expected());
    }
  }
  ::unsetenv("KDAC_FAKE_GPUS");
}

TEST(CApi, CallersContext) {
  int mine = 0;
  kdac_device_options options{};
  options.struct_size = sizeof options;
  options.library = FAKE_CUDA;
  options.cuda_context = &mine;
  kdac_device *device = nullptr;
  ASSERT_EQ(said(kdac_device_open("cuda:0", &options, &device)), "");
  std::string bytes = bytesOfPack();
  kdac_pack *pack = nullptr;
  ASSERT_EQ(said(kdac_pack_open_memory(bytes.data(),
                                       static_cast<int64_t>(bytes.size()),
                                       nullptr, &pack)),
            "");
  // Loading made the caller's context current: the fake driver would not run
  // the kernel otherwise.
  fixture::Call c;
  EXPECT_EQ(said(callFromC(device, pack, c.q.data(), c.k.data(), c.v.data(),
                           c.h0.data(), c.out.data(), c.ht.data())),
            "");
  EXPECT_EQ(c.out, c.expected());
  kdac_pack_close(pack);
  kdac_device_close(device);
}

TEST(CApi, DeviceInfo) {
  Opened gpu("cuda:0"), host("host");
  kdac_device_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(said(kdac_device_get_info(gpu.device, &info)), "");
  EXPECT_STREQ(info.name, "Fake GPU");
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_EQ(info.multiprocessors, 132);
  EXPECT_EQ(info.is_host, 0);
  ASSERT_EQ(said(kdac_device_get_info(host.device, &info)), "");
  EXPECT_EQ(info.is_host, 1);
  EXPECT_GT(info.threads, 0);
  // A caller compiled against a shorter struct gets no byte beyond it.
  info.struct_size = offsetof(kdac_device_info, is_host);
  info.is_host = 42;
  ASSERT_EQ(said(kdac_device_get_info(host.device, &info)), "");
  EXPECT_EQ(info.is_host, 42);
}

TEST(CApi, BadDevices) {
  kdac_device *device;
  for (const char *name : {"gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", ""})
    expectSaid(kdac_device_open(name, nullptr, &device), KDAC_INVALID_ARGUMENT,
               "is not supported; use host, cuda:0");
  kdac_device_options options{};
  options.struct_size = sizeof options;
  options.library = "libno-such-driver.so";
  expectSaid(kdac_device_open("cuda:0", &options, &device), KDAC_UNAVAILABLE,
             "no CUDA driver");
  options.library = FAKE_CUDA;
  expectSaid(kdac_device_open("cuda:9", &options, &device), KDAC_NOT_FOUND,
             "no GPU number 9");
  options.threads = -1;
  expectSaid(kdac_device_open("host", &options, &device), KDAC_INVALID_ARGUMENT,
             "threads = -1");
  EXPECT_EQ(device, nullptr);
  expectSaid(kdac_device_open(nullptr, nullptr, &device), KDAC_INVALID_ARGUMENT,
             "name is null");
}

TEST(CApi, BadPacks) {
  kdac_pack *pack;
  expectSaid(kdac_pack_open_file("/no/such.kdac", &pack), KDAC_NOT_FOUND,
             "/no/such.kdac");
  std::string bytes = bytesOfPack();
  auto open = [&] {
    return kdac_pack_open_memory(
        bytes.data(), static_cast<int64_t>(bytes.size()), "mine", &pack);
  };
  bytes[bytes.size() - 100] ^= 1;
  expectSaid(open(), KDAC_CORRUPT, "pack 'mine' is damaged: image");
  bytes.resize(bytes.size() - 64);
  expectSaid(open(), KDAC_CORRUPT, "is truncated");
  bytes[8] = packVersion + 1;
  expectSaid(open(), KDAC_UNSUPPORTED,
             "has pack version " + std::to_string(packVersion + 1));
  bytes = "not a pack";
  expectSaid(open(), KDAC_CORRUPT, "is not a kdac pack");
  EXPECT_EQ(pack, nullptr);
  EXPECT_EQ(kdac_pack_count(nullptr), 0);
}

TEST(CApi, Names) {
  Opened o("host");
  ASSERT_EQ(kdac_pack_count(o.pack), 2);
  EXPECT_EQ(kdac_pack_name(o.pack, 0), std::string(stem) + ".host");
  EXPECT_EQ(kdac_pack_name(o.pack, 2), nullptr);
  EXPECT_EQ(kdac_pack_name(o.pack, -1), nullptr);
}

TEST(CApi, RequestsThatDoNotFit) {
  Opened o("host");
  kdac_kernel *kernel;
  kdac_request request{};
  request.struct_size = sizeof request;
  expectSaid(kdac_kernel_load(o.device, o.pack, &request, &kernel),
             KDAC_UNSUPPORTED, "has recurrence linear, not kda");
  request.recurrence = "linear";
  request.form = "step";
  request.key_dim = request.value_dim = 32;
  request.dtype = "f32";
  kdac_stride strides[] = {{"v", 130}};
  request.strides = strides;
  request.stride_count = 1;
  expectSaid(kdac_kernel_load(o.device, o.pack, &request, &kernel),
             KDAC_UNSUPPORTED, "a multiple of 4 elements, not 130");
  request.stride_count = 0;
  request.lower_bound = 3;
  request.recurrence = "kda";
  expectSaid(kdac_kernel_load(o.device, o.pack, &request, &kernel),
             KDAC_INVALID_ARGUMENT, "lower bound 3.0");
  request.lower_bound = 0;
  request.dtype = "float";
  expectSaid(kdac_kernel_load(o.device, o.pack, &request, &kernel),
             KDAC_INVALID_ARGUMENT, "dtype 'float' is not supported");
  expectSaid(kdac_kernel_load(o.device, nullptr, &request, &kernel),
             KDAC_INVALID_ARGUMENT, "pack is null");
  EXPECT_EQ(kernel, nullptr);
}

TEST(CApi, CodeOfAListedAssemblerIsUnverifiedUntilItsReceipt) {
  Opened o("cuda:0");
  std::string path = "/tmp/kdac-capi." + std::to_string(::getpid()) + ".kdac";
  std::ofstream(path, std::ios::binary) << bytesOfPack("13.0.88");
  auto infoOf = [&](std::string &why) {
    kdac_pack *pack = nullptr;
    kdac_kernel *kernel = nullptr;
    EXPECT_EQ(said(kdac_pack_open_file(path.c_str(), &pack)), "");
    EXPECT_EQ(said(kdac_kernel_load_named(o.device, pack, stem, &kernel)), "");
    kdac_kernel_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(said(kdac_kernel_get_info(kernel, &info)), "");
    EXPECT_STREQ(info.origin, "cubin sm_90a");
    EXPECT_EQ(info.key_dim, 32);
    why = info.why;
    kdac_pack_close(pack);
    kdac_kernel_close(kernel);
    return info.is_verified;
  };
  std::string why;
  EXPECT_EQ(infoOf(why), 0);
  EXPECT_NE(why.find("13.0.88"), std::string::npos) << why;
  StatusOr<PackReader> pack = PackReader::open(path);
  ASSERT_TRUE(pack.ok());
  const PackVariant *gpu = pack->find(std::string(stem) + ".sm_90a");
  ASSERT_NE(gpu, nullptr);
  std::ofstream(path + ".checked")
      << "kdac receipts 1\n"
      << pack->manifest().images[gpu->launches[0].images[0]].sha256
      << "\tFake GPU\t580\t2026-11-29\tlinear\n";
  EXPECT_EQ(infoOf(why), 1);
  EXPECT_NE(why.find("passed its self-test on Fake GPU"), std::string::npos);
  ::unlink(path.c_str());
  ::unlink((path + ".checked").c_str());
}

} // namespace
