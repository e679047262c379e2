#include "kdac/Runtime/Trust.h"
#include "Fixture.h"

#include <unistd.h>

using namespace kdac;

namespace {

const std::string code(64, 'a'), other(64, 'b');

PackVariant madeBy(const std::string &ptxas) {
  PackVariant v;
  v.variant = fixture::linear("sm_90a");
  v.ptxasVersion = ptxas;
  return v;
}

Image cubin() { return {ImageKind::Cubin, "sm_90a", 0, 1, code}; }

TEST(Trust, ListedAssemblers) {
  ASSERT_NE(findSuspectAssembler("13.0.88"), nullptr);
  ASSERT_NE(findSuspectAssembler("12.8.93"), nullptr);
  EXPECT_EQ(findSuspectAssembler("13.1.80"), nullptr);
  EXPECT_EQ(findSuspectAssembler(""), nullptr);
}

TEST(Trust, NeedsAReceiptOfTheCodeAndTheGpu) {
  Receipts receipts;
  Trust none = trustOf(madeBy("13.0.88"), cubin(), "NVIDIA H200", receipts);
  EXPECT_FALSE(none.verified);
  EXPECT_NE(none.why.find("ptxas 13.0.88 is reported to write outside"),
            std::string::npos)
      << none.why;
  EXPECT_NE(none.why.find("has not passed `kdac-pack check` on NVIDIA H200"),
            std::string::npos)
      << none.why;
  receipts.add({other, "NVIDIA H200", "580", "2026-01-01", "x"});
  receipts.add({code, "NVIDIA H100", "580", "2026-01-01", "x"});
  EXPECT_FALSE(
      trustOf(madeBy("13.0.88"), cubin(), "NVIDIA H200", receipts).verified);
  receipts.add({code, "NVIDIA H200", "580", "2026-01-01", "x"});
  Trust good = trustOf(madeBy("13.0.88"), cubin(), "NVIDIA H200", receipts);
  EXPECT_TRUE(good.verified);
  EXPECT_NE(good.why.find("passed its self-test on NVIDIA H200, driver 580"),
            std::string::npos);
  receipts.remove(code, "NVIDIA H200");
  EXPECT_FALSE(
      trustOf(madeBy("13.0.88"), cubin(), "NVIDIA H200", receipts).verified);
}

TEST(Trust, OthersNeedNone) {
  EXPECT_TRUE(trustOf(madeBy("13.1.80"), cubin(), "g", {}).verified);
  Image ptx = cubin();
  ptx.kind = ImageKind::Ptx;
  EXPECT_TRUE(trustOf(madeBy("13.0.88"), ptx, "g", {}).verified);
}

TEST(Receipts, RoundTrip) {
  std::string path = "/tmp/kdac-receipts." + std::to_string(::getpid());
  Receipts written;
  written.add({code, "NVIDIA H200", "580.1", "2026-11-29", "kda"});
  written.add({other, "A\tB", "580.1", "2026-11-29", "kda"});
  written.add({code, "NVIDIA H200", "590", "2026-12-01", "kda"}); // replaces
  ASSERT_TRUE(written.write(path).ok());
  StatusOr<Receipts> read = Receipts::read(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->all().size(), 2u);
  ASSERT_NE(read->find(code, "NVIDIA H200"), nullptr);
  EXPECT_EQ(read->find(code, "NVIDIA H200")->driver, "590");
  EXPECT_NE(read->find(other, "A B"), nullptr);
  ::unlink(path.c_str());
}

TEST(Receipts, Refusals) {
  EXPECT_EQ(Receipts::parse("", "f").status().message(),
            "'f' does not begin with 'kdac receipts 1'");
  EXPECT_EQ(Receipts::parse("kdac receipts 1\nabc\tx\n", "f").status().code(),
            ErrorCode::Corrupt);
  EXPECT_TRUE(Receipts::read("/no/such/file").ok());
  EXPECT_FALSE(Receipts().write("/no/such/folder/file").ok());
}

} // namespace
