// What ptxas prints becomes a report or an error; a broken ptxas never becomes
// a cubin.
#include "kdac/Target/Ptxas.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

using namespace kdac;
using llvm::StringRef;

namespace {

constexpr char cleanReport[] = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
ptxas info    : Compiling entry function 'mine' for 'sm_90a'
ptxas info    : Function properties for mine
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1040 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 12.483 ms
)";

TEST(PtxasReport, ReadsTheSectionOfItsKernelOnly) {
  auto report = parsePtxasReport(cleanReport, "mine");
  ASSERT_TRUE(static_cast<bool>(report));
  EXPECT_EQ(report->registers, 168);
  EXPECT_EQ(report->sharedBytes, 1040);
  EXPECT_EQ(report->stackBytes, 0);
  EXPECT_EQ(report->spillStoreBytes, 0);
  EXPECT_TRUE(report->performanceLosses.empty());
}

TEST(PtxasReport, ReadsSpillsAndStack) {
  auto report = parsePtxasReport(cleanReport, "other");
  ASSERT_TRUE(static_cast<bool>(report));
  EXPECT_EQ(report->registers, 255);
  EXPECT_EQ(report->stackBytes, 64);
  EXPECT_EQ(report->spillStoreBytes, 8);
  EXPECT_EQ(report->spillLoadBytes, 12);
}

TEST(PtxasReport, KeepsPerformanceLosses) {
  std::string output =
      "ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async "
      "instructions are serialized in function 'mine'\n" +
      std::string(cleanReport);
  auto report = parsePtxasReport(output, "mine");
  ASSERT_TRUE(static_cast<bool>(report));
  ASSERT_EQ(report->performanceLosses.size(), 1u);
  EXPECT_NE(report->performanceLosses[0].find("C7513"), std::string::npos);
}

TEST(PtxasReport, RefusesOutputWithoutItsKernel) {
  StringRef cut = StringRef(cleanReport).split("Used 255").first;
  for (auto [output, entry] :
       {std::pair(StringRef(""), "mine"), std::pair(StringRef("hello"), "mine"),
        std::pair(StringRef(cleanReport), "absent"), std::pair(cut, "other")}) {
    auto report = parsePtxasReport(output, entry);
    ASSERT_FALSE(static_cast<bool>(report)) << output.str();
    EXPECT_EQ(llvm::toString(report.takeError()),
              "ptxas printed no report for kernel '" + std::string(entry) +
                  "'");
  }
}

/// A directory with an executable `ptxas` of the given shell text.
class FakePtxas : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("kdac-fake", dir));
    path = (dir + "/ptxas").str();
    keep = (dir + "/keep").str();
  }
  void TearDown() override { llvm::sys::fs::remove_directories(dir); }

  void write(StringRef script) {
    std::error_code code;
    llvm::raw_fd_ostream os(path, code);
    os << "#!/bin/sh\n"
          "[ \"$1\" = --version ] && echo 'release 13.0, V13.0.88' && exit 0\n"
       << script;
    os.close();
    namespace fs = llvm::sys::fs;
    ASSERT_FALSE(
        fs::setPermissions(path, fs::all_read | fs::all_exe | fs::owner_write));
  }

  /// The error of assembling some text with this fake.
  std::string assembleError() {
    auto assembler = findPtxas("", {std::string(dir)});
    if (!assembler)
      return llvm::toString(assembler.takeError());
    auto assembly = assemblePtx(*assembler, ".version 8.6", {"mine"},
                                *findTarget("sm_90a"), keep);
    return assembly ? "" : llvm::toString(assembly.takeError());
  }

  llvm::SmallString<128> dir;
  std::string path, keep;
};

TEST_F(FakePtxas, SuccessWithoutOutputIsRefused) {
  write("echo all good; exit 0\n");
  std::string error = assembleError();
  EXPECT_NE(error.find("reported success but wrote no cubin"),
            std::string::npos);
  EXPECT_NE(error.find("all good"), std::string::npos);
}

TEST_F(FakePtxas, GarbageOutputIsRefused) {
  write("while [ \"$1\" != -o ]; do shift; done; echo garbage > \"$2\"\n");
  EXPECT_NE(assembleError().find("wrote no cubin"), std::string::npos);
}

TEST_F(FakePtxas, ALossIsOfTheKernelItNames) {
  write("while [ \"$1\" != -o ]; do shift; done\n"
        "{ printf '\\177ELF\\002\\001\\001\\101'; head -c 10 /dev/zero\n"
        "  printf '\\276\\000'; head -c 100 /dev/zero; } >\"$2\"\n"
        "echo \"Potential Performance Loss: serialized in function 'second'\"\n"
        "for kernel in first second; do\n"
        "  echo \"Compiling entry function '$kernel' for 'sm_90a'\"\n"
        "  echo '0 bytes stack frame, 0 bytes spill stores, 0 bytes spill "
        "loads'\n"
        "  echo 'Used 64 registers'\n"
        "done\n");
  auto assembler = findPtxas("", {std::string(dir)});
  ASSERT_TRUE(static_cast<bool>(assembler));
  std::string unfit;
  auto assembly = assemblePtx(*assembler, ".version 8.6", {"first", "second"},
                              *findTarget("sm_90a"), keep, &unfit);
  ASSERT_FALSE(static_cast<bool>(assembly));
  EXPECT_NE(llvm::toString(assembly.takeError()).find("Performance Loss"),
            std::string::npos);
  EXPECT_EQ(unfit, "second");
}

TEST_F(FakePtxas, FailureShowsOutputCommandAndKeptInput) {
  write("echo 'syntax error near line 7' >&2; exit 3\n");
  std::string error = assembleError();
  EXPECT_NE(error.find("ptxas 13.0.88 failed with exit code 3"),
            std::string::npos);
  EXPECT_NE(error.find("syntax error near line 7"), std::string::npos);
  EXPECT_NE(error.find("-v -O3 -arch=sm_90a"), std::string::npos);
  StringRef kept = StringRef(error).split("PTX kept at ").second;
  kept = kept.split('\n').first;
  EXPECT_TRUE(llvm::sys::fs::exists(kept)) << error;
}

TEST(FindPtxas, RefusesWhatIsNotThere) {
  auto missing = findPtxas("/nonexistent/ptxas", {});
  ASSERT_FALSE(static_cast<bool>(missing));
  EXPECT_EQ(llvm::toString(missing.takeError()),
            "no ptxas at '/nonexistent/ptxas'");
  auto nowhere = findPtxas("", {"/nonexistent"});
  ASSERT_FALSE(static_cast<bool>(nowhere));
  EXPECT_EQ(llvm::toString(nowhere.takeError()), "no ptxas in /nonexistent");
  auto other = findPtxas("/bin/false", {});
  ASSERT_FALSE(static_cast<bool>(other));
  EXPECT_NE(
      llvm::toString(other.takeError()).find("does not answer like ptxas"),
      std::string::npos);
}

} // namespace
