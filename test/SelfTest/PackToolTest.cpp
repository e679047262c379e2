// kdac-pack on packs of hand-written kernels and a fake driver.
#include "../Runtime/Fixture.h"
#include "kdac/Runtime/Trust.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

using namespace kdac;

namespace {

struct Finished {
  int code = -1;
  std::string output; ///< stdout, then stderr
  nlohmann::json json;
};

std::string shell(const std::string &command, int &code) {
  std::string output;
  FILE *pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t got = std::fread(buffer, 1, sizeof buffer, pipe))
    output.append(buffer, got);
  code = WEXITSTATUS(::pclose(pipe));
  return output;
}

constexpr char stem[] = "linear.step.k32v32.f32.f32vk.none";

class PackTool : public ::testing::Test {
protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder.data()), nullptr); }
  void TearDown() override {
    int code;
    shell("rm -rf " + folder, code);
  }

  /// A pack with the kernel for a target, as if ptxas 13.0.88 had made it.
  std::string pack(const std::string &target, const std::string &fault) {
    PackWriter writer, ignored;
    bool host = target == "host";
    PackVariant v = fixture::addLinear(ignored, target, {}, "");
    v.launches[0].images = {writer.addImage(
        host ? ImageKind::HostSo : ImageKind::Cubin, host ? "x86-64" : target,
        fixture::readFile(std::string(LINEAR_FOLDER) + "/liblinear-" + fault +
                          ".so"))};
    v.launches[0].ptxSha256 = host ? "" : std::string(64, 'c');
    v.launches[0].registers = host ? 0 : 168;
    v.ptxasVersion = host ? "" : "13.0.88";
    v.workspace = workspace;
    v.launches[0].usesWorkspace = !workspace.empty();
    writer.add(v);
    std::string path = folder + "/" + fault + "-" + target + ".kdac";
    EXPECT_TRUE(writer.write(path).ok());
    return path;
  }

  Finished run(const std::string &arguments) {
    Finished result;
    std::string errors = folder + "/stderr";
    result.output = shell(
        std::string(PACK_TOOL) + " " + arguments + " 2>" + errors, result.code);
    result.json = nlohmann::json::parse(result.output, nullptr, false);
    result.output += fixture::readFile(errors);
    return result;
  }
  void expect(const std::string &arguments, int code, const std::string &part) {
    Finished r = run(arguments);
    EXPECT_EQ(r.code, code) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
  }
  /// Seeds are given: from the clock, inputs would differ from run to run.
  std::string onHost(const std::string &fault) {
    return pack("host", fault) + " --seed=7";
  }
  std::string onFake(const std::string &path) {
    return path + " --device=cuda:0 --seed=7 --driver=" FAKE_CUDA;
  }

  std::string workspace; ///< of packs made from now on
  std::string folder = "/tmp/kdac-packtool-XXXXXX";
};

TEST_F(PackTool, List) {
  std::string path = pack("sm_90a", "none");
  expect("list " + path, 0, "13.0.88 (listed)  never run on a GPU");
  expect("list " + path, 0, "listed: ptxas 13.0.88 is reported to");
  Finished r = run("list " + path + " --json");
  ASSERT_EQ(r.json.size(), 1u) << r.output;
  EXPECT_EQ(r.json[0]["name"], std::string(stem) + ".sm_90a");
  EXPECT_EQ(r.json[0]["registers"], 168);
  EXPECT_EQ(r.json[0]["ptxas_listed"], true);
  expect("list " + path + " --filter=kda", 2, "matches 'kda'");
}

TEST_F(PackTool, VerifyNamesTheDamage) {
  std::string path = pack("sm_90a", "none");
  expect("verify " + path, 0, "good; 1 variants, 1 images");
  EXPECT_EQ(run("verify --json " + path).json["good"], true);
  std::string bytes = fixture::readFile(path);
  bytes[bytes.size() - 200] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  expect("verify " + path, 1, "image 0 (cubin of linear.step");
  EXPECT_EQ(run("verify --json " + path).json["good"], false);
  std::ofstream(path, std::ios::binary) << bytes.substr(0, 90);
  expect("verify " + path, 1, "is truncated");
  expect("verify /no/such.kdac", 2, "/no/such.kdac");
}

TEST_F(PackTool, Explain) {
  std::string path = pack("sm_90a", "none");
  std::ofstream(folder + "/ledger.jsonl")
      << R"({"gpu":"NVIDIA H200","ptx_sha256":")" << std::string(64, 'c')
      << R"(","us":12.5,"floor_us":1.0,"case":{"N":3,"T":5,"HV":4,)"
      << R"("inputs":"random periodic"}})" << "\n";
  std::string arguments =
      path + " --shape=step:3:5:2:4 --ledger=" + folder + "/ledger.jsonl";
  Finished r = run("explain --json " + arguments);
  ASSERT_EQ(r.code, 0) << r.output;
  const nlohmann::json &v = r.json[0];
  EXPECT_EQ(v["launches"][0]["grid"], "N * HV * ceildiv(V, 32)");
  EXPECT_EQ(v["launches"][0]["block_threads"], 128);
  EXPECT_EQ(v["launches"][0]["registers"], 168);
  EXPECT_EQ(v["launches"][0]["shared_bytes"], 100 * 1024);
  EXPECT_EQ(v["arguments"].size(), 16u);
  EXPECT_EQ(v["arguments"][0]["multiple_of"], 16);
  EXPECT_EQ(v["cost"]["instances"], 12);
  // q, k: 15 tokens of 2 heads; v, out: 15 of 4; h0, ht: 12 states.
  EXPECT_EQ(v["cost"]["bytes"]["value"],
            4 * (2 * 15 * 2 * 32 + 2 * 15 * 4 * 32 + 2 * 12 * 32 * 32));
  EXPECT_EQ(v["cost"]["flops"]["formula"], "tokens * HV * 4 * K * V");
  EXPECT_NEAR(v["cost"]["floor_us"].get<double>(), 121344 / 4.27e6, 1e-6);
  EXPECT_EQ(v["ledger"]["summary"], "run on NVIDIA H200");
  EXPECT_EQ(v["ledger"]["timed"][0]["us"], 12.5);
  EXPECT_EQ(v["images"][0]["verified"], false);
  expect("explain " + arguments, 0, "UNVERIFIED ptxas 13.0.88 is reported");
  expect("explain " + arguments, 0,
         "parallelism: 12 instances for 132 multiprocessors");
  expect("explain " + arguments + " --gpu=A100", 0, "us on NVIDIA A100");
  expect("explain " + arguments + " --gpu=Voodoo", 2, "unknown GPU 'Voodoo'");
  expect("explain " + path + " --shape=chunk:1:2:3", 2, "another form");
  expect("explain " + path + " --shape=chunk", 2, "is not FORM:N:T:H");
}

TEST_F(PackTool, ExplainsTheWorkspace) {
  workspace = "ceildiv(tokens, 32) * HV * 100";
  std::string path = pack("sm_90a", "none");
  Finished r = run("explain --json --shape=step:3:15:2:4 " + path);
  ASSERT_EQ(r.code, 0) << r.output;
  EXPECT_EQ(r.json[0]["cost"]["workspace_bytes"]["formula"], workspace);
  EXPECT_EQ(r.json[0]["cost"]["workspace_bytes"]["value"], 2 * 4 * 100);
  expect("explain --shape=step:3:15:2:4 " + path, 0,
         "= 800 bytes, not counted in the floor");
}

TEST_F(PackTool, CheckOnTheHost) {
  expect("check " + onHost("none"), 0, "1 passed, 0 failed, 0 not run");
  expect("check " + onHost("wrong"), 1, "0 passed, 1 failed");
  expect("check " + onHost("crash"), 1, "crashed");
  Finished r = run("check --json " + onHost("none"));
  EXPECT_EQ(r.json["passed"], 1) << r.output;
  EXPECT_EQ(r.json["variants"][0]["outcome"], "passed");
  EXPECT_GE(r.json["variants"][0]["cases"].size(), 8u);
  r = run("check --json " + onHost("wrong"));
  EXPECT_EQ(r.json["failed"], 1) << r.output;
  EXPECT_EQ(r.json["variants"][0]["outcome"], "failed");
}

TEST_F(PackTool, CheckLeavesAReceipt) {
  std::string path = pack("sm_90a", "none");
  expect("check " + onFake(path), 0, "1 passed");
  StatusOr<Receipts> receipts = Receipts::read(receiptsPath(path));
  ASSERT_TRUE(receipts.ok()) << receipts.status().message();
  ASSERT_EQ(receipts->all().size(), 1u);
  StatusOr<PackReader> read = PackReader::open(path);
  EXPECT_NE(receipts->find(read->manifest().images[0].sha256, "Fake GPU"),
            nullptr);
}

TEST_F(PackTool, EmulatedCheckRecordsNothing) {
  std::string path = pack("sm_90a", "none");
  Finished r = run("check --emulated --json " + onFake(path));
  EXPECT_EQ(r.code, 0) << r.output;
  // One case less than on a GPU: that of 65,537 sequences.
  EXPECT_EQ(r.json["variants"][0]["cases"].size(), 10u) << r.output;
  EXPECT_TRUE(r.json["variants"][0]["cases"][0]["us"].is_null());
  StatusOr<Receipts> receipts = Receipts::read(receiptsPath(path));
  ASSERT_TRUE(receipts.ok()) << receipts.status().message();
  EXPECT_TRUE(receipts->all().empty());
  expect("check --emulated --ledger=x " + onFake(path), 2, "excludes");
}

TEST_F(PackTool, FailedCheckVoidsAReceipt) {
  for (const char *fault : {"wrong", "crash"}) {
    std::string path = pack("sm_90a", fault);
    StatusOr<PackReader> read = PackReader::open(path);
    ASSERT_TRUE(read.ok());
    Receipts old;
    old.add({read->manifest().images[0].sha256, "Fake GPU", "1", "2026", "x"});
    ASSERT_TRUE(old.write(receiptsPath(path)).ok());
    EXPECT_EQ(run("check " + onFake(path)).code, 1);
    StatusOr<Receipts> receipts = Receipts::read(receiptsPath(path));
    ASSERT_TRUE(receipts.ok());
    EXPECT_TRUE(receipts->all().empty()) << fault;
  }
}

TEST_F(PackTool, Bench) {
  std::string ledger = folder + "/out.jsonl";
  std::string shapes = " --shapes=step:3:5:2:4 --ledger=" + ledger;
  expect("bench " + onFake(pack("sm_90a", "none")) + shapes, 0, "floor");
  Finished r = run("bench --json " + onFake(pack("sm_90a", "none")) + shapes);
  EXPECT_EQ(r.json["variants"][0]["cases"][0]["case"]["HV"], 4) << r.output;
  std::string lines = fixture::readFile(ledger);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  expect("bench " + pack("host", "none") + shapes, 0, "1 passed");
}

TEST_F(PackTool, Embed) {
  std::string path = pack("host", "none");
  expect("embed " + path + " --name=mine -o " + folder, 0, "");
  std::string header = fixture::readFile(folder + "/mine.h");
  EXPECT_NE(header.find("mine_linear_step_k32v32_f32_f32vk_none(const "),
            std::string::npos);
  EXPECT_NE(header.find("const float *h0; /* f32 [N, HV, V, K], may be NULL"),
            std::string::npos);
  expect("embed " + path + " -o " + folder, 0, "");
  EXPECT_FALSE(fixture::readFile(folder + "/none_host.h").empty());
  expect("embed " + path + " --name=9x", 2, "name '9x' is not a C identifier");
  expect("embed " + path + " -o /no/such", 2, "cannot write '/no/such/none_");
}

TEST_F(PackTool, BadUsage) {
  std::string good = pack("sm_90a", "none");
  expect("", 2, "a command");
  expect("list", 2, "pack is required");
  expect("check " + good, 2, "selected for the host");
  expect("check " + good + " --device=gpu", 2, "use host, cuda:0");
  expect("check " + good + " --device=cuda:3 --driver=" FAKE_CUDA, 2,
         "no GPU number 3; there are 1");
  expect("check " + good + " --device=cuda:0 --driver=/no/libcuda.so", 2,
         "no CUDA driver");
  expect("bench " + good + " --shapes=step", 2, "is not FORM:N:T:H");
  expect("bench " + good + " --inputs=easy", 2,
         "inputs 'easy' are not known; use one of random");
  expect("list " + good + " --filter='('", 2, "regular expression");
  expect("list " + good + " --ledger=/no/ledger", 2, "cannot read ledger");
  expect("--help", 0, "examples:");
}

/// What a machine with nothing but a C library needs.
TEST_F(PackTool, LinksNeitherLlvmNorCuda) {
  int code;
  std::string libraries = shell("ldd " PACK_TOOL, code);
  ASSERT_EQ(code, 0) << libraries;
  for (const char *library : {"LLVM", "MLIR", "libcuda", "libstdc++", "libmd"})
    EXPECT_EQ(libraries.find(library), std::string::npos) << libraries;
}

} // namespace
