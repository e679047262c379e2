#include "Fixture.h"

using namespace kdac;

namespace {

const std::string image = fixture::readFile(LINEAR_KERNEL);
constexpr char driver[] = FAKE_CUDA;

using Images = std::vector<std::pair<ImageKind, std::string>>;

TEST(HostKernel, RunsFromAPack) {
  PackWriter writer;
  fixture::addLinear(writer, "host", {{ImageKind::HostSo, "x86-64"}}, image);
  StatusOr<PackReader> pack = fixture::read(writer);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  auto kernel = HostKernel::load(*pack, pack->manifest().variants[0]);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(kernel->origin(), "host-so x86-64");
  for (int threads : {0, 1, 3}) {
    fixture::Call call;
    Status status = kernel->launch(call.arguments(), threads);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(call.out, call.expected());
    EXPECT_EQ(call.ht[0], call.ht[0]) << "the final state was not written";
  }
}

/// Each kernel is its own code, however many are loaded at once.
TEST(HostKernel, TwoAtOnce) {
  auto load = [](const char *fault) {
    PackWriter writer;
    fixture::addLinear(writer, "host", {{ImageKind::HostSo, "x86-64"}},
                       fixture::readFile(std::string(LINEAR_FOLDER) +
                                         "/liblinear-" + fault + ".so"));
    StatusOr<PackReader> pack = fixture::read(writer);
    return HostKernel::load(*pack, pack->manifest().variants[0]);
  };
  auto right = load("none"), wrong = load("wrong");
  ASSERT_TRUE(right.ok() && wrong.ok());
  fixture::Call a, b;
  ASSERT_TRUE(right->launch(a.arguments()).ok());
  ASSERT_TRUE(wrong->launch(b.arguments()).ok());
  EXPECT_EQ(a.out, a.expected());
  EXPECT_NE(b.out, b.expected());
}

TEST(HostKernel, ChecksTheCall) {
  PackWriter writer;
  fixture::addLinear(writer, "host", {{ImageKind::HostSo, "x86-64"}}, image);
  StatusOr<PackReader> pack = fixture::read(writer);
  auto kernel = HostKernel::load(*pack, pack->manifest().variants[0]);
  ASSERT_TRUE(kernel.ok());
  fixture::Call call;
  call.sizes[0] = -2;
  Status status = kernel->launch(call.arguments());
  EXPECT_EQ(status.code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(status.message(), "linear.step.k32v32.f32.f32vk.none.host: "
                              "argument N = -2 is negative");
}

/// Loading a host variant with these images must fail with this sentence.
void expectHostRefusal(const Images &images, const std::string &bytes,
                       const std::string &part) {
  PackWriter writer;
  fixture::addLinear(writer, "host", images, bytes);
  StatusOr<PackReader> pack = fixture::read(writer);
  ASSERT_TRUE(pack.ok());
  auto kernel = HostKernel::load(*pack, pack->manifest().variants[0]);
  ASSERT_FALSE(kernel.ok());
  EXPECT_NE(kernel.status().message().find(part), std::string::npos)
      << kernel.status().message();
}

TEST(HostKernel, Refusals) {
  expectHostRefusal({{ImageKind::HostSo, "riscv64"}}, image,
                    "no image runs on this processor");
  expectHostRefusal({{ImageKind::Ptx, "sm_90a"}}, image, "none for a host");
  expectHostRefusal({{ImageKind::HostSo, "x86-64"}}, "not an ELF file",
                    "its shared object does not load");
  expectHostRefusal({{ImageKind::HostSo, "x86-64"}},
                    fixture::readFile(FAKE_CUDA), "has no symbol kdac_linear");
}

TEST(GpuKernel, NoDriver) {
  StatusOr<Device> device = Device::open(0, "libno-such-driver.so");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), ErrorCode::Unavailable);
  EXPECT_NE(device.status().message().find("no CUDA driver"),
            std::string::npos);
  // A library that is no driver: it lacks the entry points.
  EXPECT_NE(Device::open(0, LINEAR_KERNEL).status().message().find("cuInit"),
            std::string::npos);
}

TEST(GpuKernel, NoSuchDevice) {
  EXPECT_EQ(Device::open(7, driver).status().message(),
            "no GPU number 7; there are 1");
}

struct Loaded {
  StatusOr<Device> device = Device::open(0, driver);
  StatusOr<PackReader> pack = Status(ErrorCode::NotFound, "not read");
  StatusOr<GpuKernel> kernel = Status(ErrorCode::NotFound, "not loaded");

  Loaded(const std::string &target, const Images &images,
         const std::string &bytes) {
    PackWriter writer;
    fixture::addLinear(writer, target, images, bytes);
    pack = fixture::read(writer);
    if (device.ok() && pack.ok())
      kernel = GpuKernel::load(*device, *pack, pack->manifest().variants[0]);
  }
};

/// A kernel with Triton's parameters gets two null pointers after its own.
TEST(GpuKernel, PassesTritonsScratchPointers) {
  std::string code =
      fixture::readFile(std::string(LINEAR_FOLDER) + "/liblinear-scratch.so");
  PackWriter bare, triton;
  PackVariant variant =
      fixture::addLinear(bare, "sm_90a", {{ImageKind::Cubin, "sm_90a"}}, code);
  variant.launches[0].abi = LaunchAbi::Triton;
  triton.addImage(ImageKind::Cubin, "sm_90a", code);
  triton.add(variant);
  StatusOr<PackReader> pack = fixture::read(triton);
  StatusOr<Device> device = Device::open(0, driver);
  ASSERT_TRUE(pack.ok() && device.ok());
  auto kernel = GpuKernel::load(*device, *pack, pack->manifest().variants[0]);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  fixture::Call call;
  Status status = kernel->launch(nullptr, call.arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(call.out, call.expected());
}

/// Two schedules of a variant: the sizes of a call pick one, unless the caller
/// does. The driver's GPU has 132 multiprocessors.
TEST(GpuKernel, SizesPickASchedule) {
  PackWriter one, two;
  PackVariant variant =
      fixture::addLinear(one, "sm_90a", {{ImageKind::Cubin, "sm_90a"}}, image);
  variant.launches.push_back(variant.launches[0]);
  std::string many = "less(sms, N * HV)", few = "less(N * HV, sms + 1)";
  variant.launches[0].when = many;
  variant.launches[1].when = few;
  two.addImage(ImageKind::Cubin, "sm_90a", image);
  two.add(variant);
  StatusOr<PackReader> pack = fixture::read(two);
  StatusOr<Device> device = Device::open(0, driver);
  ASSERT_TRUE(pack.ok() && device.ok());
  auto kernel = GpuKernel::load(*device, *pack, pack->manifest().variants[0]);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  fixture::Call call; // 8 instances
  using Grids = GpuKernel::Grids;
  EXPECT_EQ(*kernel->check(call.arguments()), (Grids{0, 8}));
  EXPECT_EQ(*kernel->check(call.arguments(), &few), (Grids{0, 8}));
  EXPECT_EQ(*kernel->check(call.arguments(), &many), (Grids{8, 0}));
  Status status = kernel->launch(nullptr, call.arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(call.out, call.expected());
}

/// How many clusters run at once is asked of the driver.
TEST(GpuKernel, SizesKnowClusters) {
  PackWriter one, two;
  PackVariant variant =
      fixture::addLinear(one, "sm_90a", {{ImageKind::Cubin, "sm_90a"}}, image);
  variant.launches[0].grid = "min(N * HV, clusters) + clusters";
  two.addImage(ImageKind::Cubin, "sm_90a", image);
  two.add(variant);
  StatusOr<PackReader> pack = fixture::read(two);
  StatusOr<Device> device = Device::open(0, driver);
  ASSERT_TRUE(pack.ok() && device.ok());
  auto kernel = GpuKernel::load(*device, *pack, pack->manifest().variants[0]);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  fixture::Call call; // 8 instances
  EXPECT_EQ(*kernel->check(call.arguments()), (GpuKernel::Grids{38}));
}

TEST(GpuKernel, PrefersMachineCodeThatFits) {
  Loaded both("sm_90a",
              {{ImageKind::Ptx, "sm_90a"}, {ImageKind::Cubin, "sm_90a"}},
              image);
  ASSERT_TRUE(both.kernel.ok()) << both.kernel.status().message();
  EXPECT_EQ(both.kernel->origin(), "cubin sm_90a");
  Loaded older("sm_90a",
               {{ImageKind::Ptx, "sm_80"}, {ImageKind::Cubin, "sm_80"}}, image);
  ASSERT_TRUE(older.kernel.ok()) << older.kernel.status().message();
  EXPECT_EQ(older.kernel->origin(),
            "ptx sm_80, compiled by the driver: no cubin fits");
}

TEST(GpuKernel, LaunchesOnTheStream) {
  Loaded l("sm_90a", {{ImageKind::Cubin, "sm_90a"}}, image);
  ASSERT_TRUE(l.kernel.ok()) << l.kernel.status().message();
  auto stream = StreamHandle::create(*l.device);
  ASSERT_TRUE(stream.ok());
  fixture::Call call;
  Status status = l.kernel->launch(stream->get(), call.arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(call.out, call.expected());
}

TEST(GpuKernel, EmptyCallLaunchesNothing) {
  Loaded l("sm_90a", {{ImageKind::Cubin, "sm_90a"}}, image);
  fixture::Call call;
  call.sizes[0] = 0; // the fake driver, like CUDA, refuses a grid of 0
  EXPECT_TRUE(l.kernel->launch(nullptr, call.arguments()).ok());
}

TEST(GpuKernel, Refusals) {
  Loaded wrong("sm_90a", {{ImageKind::Cubin, "sm_100a"}}, image);
  EXPECT_NE(wrong.kernel.status().message().find(
                "no image runs on Fake GPU (sm_90); there is cubin sm_100a"),
            std::string::npos)
      << wrong.kernel.status().message();
  Loaded broken("sm_90a", {{ImageKind::Cubin, "sm_90a"}}, "no ELF");
  EXPECT_NE(broken.kernel.status().message().find("not an image"),
            std::string::npos)
      << broken.kernel.status().message();
  Loaded symbol("sm_80", {{ImageKind::Ptx, "sm_80"}}, image);
  EXPECT_NE(symbol.kernel.status().message().find(
                "symbol kdac_linear_step_k32v32_f32_f32vk_none_sm_80"),
            std::string::npos)
      << symbol.kernel.status().message();
}

TEST(Device, RunsOn) {
  DeviceInfo hopper;
  hopper.computeMajor = 9;
  DeviceInfo ada;
  ada.computeMajor = 8;
  ada.computeMinor = 9;
  EXPECT_TRUE(runsOn(hopper, "sm_90", false));
  EXPECT_TRUE(runsOn(hopper, "sm_90a", false));
  EXPECT_TRUE(runsOn(ada, "sm_80", false));
  EXPECT_FALSE(runsOn(hopper, "sm_80", false));
  EXPECT_TRUE(runsOn(hopper, "sm_80", true));
  EXPECT_FALSE(runsOn(ada, "sm_90a", true));
  EXPECT_FALSE(runsOn(hopper, "sm_100a", true));
  EXPECT_FALSE(runsOn(hopper, "sm_120", true));
  EXPECT_FALSE(runsOn(hopper, "x86-64", true));
  EXPECT_FALSE(runsOn(hopper, "sm_90x", true));
}

TEST(Device, CopiesAreBounded) {
  StatusOr<Device> device = Device::open(0, driver);
  ASSERT_TRUE(device.ok());
  StatusOr<DeviceBuffer> buffer = DeviceBuffer::allocate(*device, 16);
  ASSERT_TRUE(buffer.ok());
  char bytes[32] = "0123456789abcde";
  EXPECT_TRUE(buffer->upload(bytes, 16).ok());
  EXPECT_FALSE(buffer->upload(bytes, 17).ok());
  EXPECT_FALSE(buffer->upload(bytes, 1, 16).ok());
  EXPECT_FALSE(buffer->download(bytes, 1, SIZE_MAX).ok());
  char back[16];
  EXPECT_TRUE(buffer->download(back, 16).ok());
  EXPECT_STREQ(back, bytes);
}

} // namespace
