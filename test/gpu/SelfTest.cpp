// Tests of the tester: kdac-gpu-test on a fake driver must pass the right
// kernel and fail every wrong one, without hanging.
#include "../Runtime/Fixture.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/wait.h>

using namespace kdac;

namespace {

struct Finished {
  int code = -1;
  std::string output;
  std::vector<nlohmann::json> ledger;
};

std::string shell(const std::string &command, int &code) {
  std::string output;
  FILE *pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t got = std::fread(buffer, 1, sizeof buffer, pipe))
    output.append(buffer, got);
  code = WEXITSTATUS(::pclose(pipe));
  return output;
}

class GpuTest : public ::testing::Test {
protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder.data()), nullptr); }
  void TearDown() override {
    int code;
    shell("rm -rf " + folder, code);
  }

  /// Writes a pack with the linear kernel, built with `fault`, for a target.
  std::string pack(const std::string &target, const std::string &fault) {
    PackWriter writer;
    bool host = target == "host";
    fixture::addLinear(writer, target,
                       {{host ? ImageKind::HostSo : ImageKind::Cubin,
                         host ? "x86-64" : target}},
                       fixture::readFile(std::string(LINEAR_FOLDER) +
                                         "/liblinear-" + fault + ".so"));
    std::string path = folder + "/" + fault + "-" + target + ".kdac";
    EXPECT_TRUE(writer.write(path).ok());
    return path;
  }

  Finished run(const std::string &arguments) {
    Finished result;
    std::string ledger = folder + "/ledger.jsonl";
    result.output =
        shell(std::string(GPU_TEST) + " --driver " + FAKE_CUDA + " --ledger " +
                  ledger + " --commit abc --seed 7 " + arguments,
              result.code);
    std::istringstream lines(fixture::readFile(ledger));
    for (std::string line; std::getline(lines, line);)
      result.ledger.push_back(nlohmann::json::parse(line, nullptr, false));
    return result;
  }

  void expectFailure(const std::string &fault, const std::string &sentence,
                     const std::string &limits = "") {
    Finished r = run(pack("sm_90a", fault) + limits);
    EXPECT_EQ(r.code, 1) << r.output;
    EXPECT_NE(r.output.find(sentence), std::string::npos) << r.output;
    EXPECT_TRUE(r.ledger.empty()) << "a failure reached the ledger";
  }

  std::string folder = "/tmp/kdac-gputest-XXXXXX";
};

TEST_F(GpuTest, RightKernelPassesAndIsRecorded) {
  Finished r = run(pack("sm_90a", "none"));
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_NE(r.output.find("1 passed, 0 failed, 0 not run"), std::string::npos)
      << r.output;
  ASSERT_GE(r.ledger.size(), 8u);
  for (const nlohmann::json &line : r.ledger) {
    for (const char *field :
         {"variant", "case", "gpu", "driver", "llvm", "ptxas", "ptx_sha256",
          "commit", "date", "err", "us", "floor_us"})
      EXPECT_TRUE(line.contains(field)) << field << " in " << line.dump();
    EXPECT_EQ(line.size(), 12u);
    for (const char *field :
         {"recurrence", "form", "B", "T", "N", "lengths", "H", "HV", "K", "V",
          "gate", "dtype", "state_dtype", "precision", "schedule", "inputs"})
      EXPECT_TRUE(line["case"].contains(field)) << field;
    EXPECT_EQ(line["gpu"], "Fake GPU");
    EXPECT_EQ(line["commit"], "abc");
    EXPECT_EQ(line["ptx_sha256"].get<std::string>().size(), 64u);
    EXPECT_LT(line["err"]["out"].get<double>(), 1e-5);
  }
}

TEST_F(GpuTest, BenchmarkShapes) {
  Finished r =
      run(pack("sm_90a", "none") + " --no-cases --bench step:3:5:2:4," +
          "step:1:4+0+9:1,chunk:1:64:1");
  EXPECT_EQ(r.code, 0) << r.output;
  ASSERT_EQ(r.ledger.size(), 2u) << r.output;
  EXPECT_EQ(r.ledger[0]["case"]["B"], 3);
  EXPECT_EQ(r.ledger[0]["case"]["HV"], 4);
  EXPECT_EQ(r.ledger[1]["case"]["lengths"], nlohmann::json({4, 0, 9}));
  EXPECT_EQ(r.ledger[1]["case"]["T"], 13);
  EXPECT_LT(r.ledger[0]["err"]["out"].get<double>(), 1e-5);
  // q, k: 15 tokens of 2 heads; v, out: 15 of 4; h0, ht: 12 states.
  double bytes = 4.0 * (2 * 15 * 2 * 32 + 2 * 15 * 4 * 32 + 2 * 12 * 32 * 32);
  EXPECT_NEAR(r.ledger[0]["floor_us"].get<double>(), bytes / 4.27e6, 1e-4);
  EXPECT_NE(r.output.find("device copy:"), std::string::npos);
}

TEST_F(GpuTest, BenchmarkOfAWrongKernelFails) {
  Finished r = run(pack("sm_90a", "wrong") + " --no-cases --bench step:2:3:2");
  EXPECT_EQ(r.code, 1) << r.output;
  EXPECT_NE(r.output.find("sampled heads: out"), std::string::npos) << r.output;
  EXPECT_TRUE(r.ledger.empty());
}

TEST_F(GpuTest, WrongValues) { expectFailure("wrong", "out relative 0.01"); }
TEST_F(GpuTest, WrongState) { expectFailure("state", "ht relative"); }
TEST_F(GpuTest, UnwrittenOutput) { expectFailure("unwritten", "unwritten"); }
TEST_F(GpuTest, Crash) { expectFailure("crash", "none.sm_90a: crashed"); }
TEST_F(GpuTest, Hang) {
  // Long enough for a worker to begin on a busy machine.
  expectFailure("hang", "made no progress and was ended", " --stall-limit 5");
}

TEST_F(GpuTest, ACrashFailsAlone) {
  Finished r = run(pack("sm_90a", "crash") + " " + pack("sm_90a", "none") +
                   " " + pack("sm_90a", "hang") + " " +
                   pack("sm_90a", "wrong") + " --stall-limit 20");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("1 passed, 3 failed, 0 not run"), std::string::npos)
      << r.output;
}

TEST_F(GpuTest, HostImages) {
  Finished r = run("--host " + pack("host", "none") + " --bench step:2:3:2");
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_GE(r.ledger.size(), 9u);
  EXPECT_EQ(run("--host " + pack("host", "state")).code, 1);
}

TEST_F(GpuTest, InProcess) {
  EXPECT_EQ(run(pack("sm_90a", "none") + " --in-process").code, 0);
  EXPECT_EQ(run(pack("sm_90a", "wrong") + " --in-process").code, 1);
}

TEST_F(GpuTest, TimeIsUp) {
  Finished r = run(pack("sm_90a", "hang") + " " + pack("sm_90a", "none") +
                   " --time-limit 1 --stall-limit 2");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("none.sm_90a: was not run"), std::string::npos)
      << r.output;
}

TEST_F(GpuTest, BadUsage) {
  std::string good = pack("sm_90a", "none");
  auto refused = [&](const std::string &arguments, const std::string &part) {
    Finished r = run(arguments);
    EXPECT_EQ(r.code, 2) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
  };
  refused("/no/such.kdac", "/no/such.kdac");
  refused(GPU_TEST, "is not a kdac pack");
  refused(good + " --bench chunk:1:2", "shape 'chunk:1:2' is not FORM");
  refused(good + " --filter '('", "not a valid regular expression");
  refused(good + " --filter nothing", "no variant");
  refused(good + " --host", "selected for the host");
  refused(good + " --device 3", "no GPU number 3; there are 1");
  refused(good + " --driver /no/libcuda.so", "no CUDA driver");
  refused(good + " --wat", "--wat");
}

/// The test of graphs tells right from wrong, on two GPUs at once.
TEST_F(GpuTest, Graphs) {
  auto graphs = [&](const std::string &fault, int expected,
                    const std::string &part) {
    int code;
    std::string output = shell("KDAC_FAKE_GPUS=2 " GRAPH_TEST " " +
                                   pack("sm_90a", fault) + " 0,1 " FAKE_CUDA,
                               code);
    EXPECT_EQ(code, expected) << output;
    EXPECT_NE(output.find(part), std::string::npos) << output;
  };
  graphs("none", 0, "graphs: 2 passed, 0 failed");
  graphs("wrong", 1, "graphs: 0 passed, 2 failed");
  graphs("unwritten", 1, "unwritten");
}

/// What a machine with nothing but a C library and a driver needs.
TEST_F(GpuTest, LinksNeitherLlvmNorCuda) {
  int code;
  std::string libraries = shell("ldd " GPU_TEST, code);
  ASSERT_EQ(code, 0) << libraries;
  for (const char *library : {"LLVM", "MLIR", "libcuda", "libstdc++", "libmd"})
    EXPECT_EQ(libraries.find(library), std::string::npos) << libraries;
}

} // namespace
