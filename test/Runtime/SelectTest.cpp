#include "kdac/Runtime/Select.h"
#include "kdac/Variant/Options.h"

#include "Fixture.h"
#include <map>

using namespace kdac;

namespace {

const std::string image = fixture::readFile(LINEAR_KERNEL);

/// Adds `options` on top of a linear step kernel of K = V = 32.
void add(PackWriter &writer, const std::string &target, ImageKind kind,
         const std::string &arch, void (*change)(Variant &) = nullptr) {
  Variant v = fixture::linear(target);
  if (change)
    change(v);
  ASSERT_EQ(resolve(v), std::nullopt);
  Launch launch;
  launch.entry = entryName(v);
  launch.args = launchArgs(v);
  launch.grid = gridExpr(32);
  launch.images = {writer.addImage(kind, arch, image + arch)};
  writer.add({v, "#tile.schedule<none>", "22.1.8", "", "", {launch}});
}

const DeviceInfo hopper = {"Fake GPU", "1", 9, 0, 132, 232448, 1 << 20};
const Request linearStep = {{{"recurrence", "linear"},
                             {"form", "step"},
                             {"key-dim", "32"},
                             {"value-dim", "32"},
                             {"dtype", "f32"}},
                            {}};

Request with(Request r, const std::string &option, const std::string &value) {
  r.options.emplace_back(option, value);
  return r;
}

class Select : public ::testing::Test {
protected:
  void SetUp() override {
    PackWriter writer;
    add(writer, "host", ImageKind::HostSo, "x86-64");
    add(writer, "host", ImageKind::HostSo, "x86-64",
        [](Variant &v) { v.offsetDtype = DType::I64; });
    add(writer, "host", ImageKind::HostSo, "x86-64",
        [](Variant &v) { v.stateLayout = StateLayout::KV; });
    add(writer, "sm_80", ImageKind::Ptx, "sm_80");
    add(writer, "sm_90a", ImageKind::Cubin, "sm_90a");
    StatusOr<PackReader> read = fixture::read(writer);
    ASSERT_TRUE(read.ok()) << read.status().message();
    pack.emplace(std::move(*read));
  }

  std::string choice(const Request &request, const Place &place = {}) {
    auto v = selectVariant(*pack, place, request);
    return v.ok() ? (*v)->name() : "refused: " + v.status().message();
  }
  void refuses(const Request &request, const std::string &part,
               const Place &place = {}) {
    std::string said = choice(request, place);
    EXPECT_EQ(said.rfind("refused: ", 0), 0u) << said;
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }

  std::optional<PackReader> pack;
};

TEST_F(Select, ByOptionsAndDefaults) {
  std::string stem = "linear.step.k32v32.f32.f32";
  EXPECT_EQ(choice(linearStep), stem + "vk.none.host");
  EXPECT_EQ(choice(with(linearStep, "offsets", "i64")),
            stem + "vk.none.oi64.host");
  EXPECT_EQ(choice(with(linearStep, "state-layout", "kv")),
            stem + "kv.none.host");
}

TEST_F(Select, ByPlace) {
  std::string stem = "linear.step.k32v32.f32.f32vk.none.";
  EXPECT_EQ(choice(linearStep, {&hopper}), stem + "sm_90a");
  DeviceInfo blackwell = hopper;
  blackwell.computeMajor = 10;
  EXPECT_EQ(choice(linearStep, {&blackwell}), stem + "sm_80");
  DeviceInfo volta = hopper;
  volta.computeMajor = 7;
  refuses(linearStep,
          stem + "sm_80 is for ptx sm_80, not for Fake GPU (sm_70); ",
          {&volta});
}

TEST_F(Select, EveryReasonIsSaid) {
  refuses(with(linearStep, "key-dim", "64"),
          "no variant of the pack fits linear.step.k64v32.f32.f32vk.none on "
          "this processor: linear.step.k32v32.f32.f32vk.none.host has key-dim "
          "32, not 64; ");
  refuses(with(linearStep, "dtype", "bf16"), "has dtype f32, not bf16");
  refuses(with(linearStep, "state-dtype", "bf16"), "state-dtype f32, not bf16");
  refuses(with(linearStep, "form", "chunk"), "has form step, not chunk");
  refuses(with(linearStep, "l2norm", "true"), "has l2norm false, not true");
  refuses(with(linearStep, "precision", "high"),
          "has precision default, not high");
  // All of a variant's reasons, in one list.
  refuses(with(with(linearStep, "form", "chunk"), "value-dim", "64"),
          "has form step, not chunk, has value-dim 32, not 64");
}

/// An option that selection forgot would pick a kernel that computes something
/// else: each is compared.
TEST_F(Select, ComparesEveryOption) {
  const std::map<std::string, std::vector<std::string>> others = {
      {"recurrence", {"delta"}},
      {"form", {"chunk"}},
      {"key-dim", {"64"}},
      {"value-dim", {"64"}},
      {"dtype", {"bf16"}},
      {"state-dtype", {"bf16"}},
      {"state-layout", {"kv"}},
      {"gate", {"softplus", "recurrence", "simple_gla"}},
      {"lower-bound", {"-3", "recurrence", "kda", "gate", "bounded"}},
      {"gate-dtype", {"bf16", "recurrence", "gla"}},
      {"beta", {"2sigmoid", "recurrence", "delta"}},
      {"l2norm", {"true"}},
      {"offsets", {"i64"}},
      {"precision", {"high"}},
      {"slots", {"i32"}},
      {"snapshots", {"true", "slots", "i32"}},
      {"log", {"true", "slots", "i32"}},
      {"conv", {"4"}},
      {"cache-layout", {"history", "conv", "4"}},
      {"norm", {"silu"}},
      {"norm-eps", {"0.001", "norm", "silu"}},
  };
  // A pack with none of these.
  PackWriter writer;
  add(writer, "host", ImageKind::HostSo, "x86-64");
  StatusOr<PackReader> read = fixture::read(writer);
  ASSERT_TRUE(read.ok());
  pack.emplace(std::move(*read));
  for (const VariantOption &option : variantOptions()) {
    std::string name(option.name);
    if (name == "rows" || name == "width")
      continue; // of another kind: the next test
    auto found = others.find(name);
    ASSERT_NE(found, others.end()) << name << " needs a line in this test";
    Request request = with(linearStep, name, found->second[0]);
    for (size_t i = 1; i < found->second.size(); i += 2)
      request = with(request, found->second[i], found->second[i + 1]);
    refuses(request, "has " + name + " ");
  }
}

/// Rows and recurrences do not stand in for one another, and are not listed as
/// if they nearly did.
TEST_F(Select, RowsAreAKindOfTheirOwn) {
  Request norm = {
      {{"form", "rows"}, {"rows", "norm"}, {"width", "64"}, {"dtype", "f32"}},
      {}};
  refuses(norm, "no variant of the pack fits rows.norm.w64.f32 on this "
                "processor: it has no operations on rows");
  Request attention = {{{"form", "attention"},
                        {"key-dim", "128"},
                        {"value-dim", "64"},
                        {"dtype", "f32"}},
                       {}};
  refuses(attention, "no variant of the pack fits attention.k128v64.f32 on "
                     "this processor: it has no attention");
  Request prompt = attention;
  prompt.options.front().second = "prompt";
  refuses(prompt,
          "no variant of the pack fits prompt.k128v64.f32 on this processor: "
          "it has no attention of prompts");
  refuses({{{"form", "matmul"}, {"rows", "none"}, {"dtype", "f32"}}, {}},
          "no variant of the pack fits matmul.f32 on this processor: it has no "
          "products of groups");
  PackWriter writer;
  add(writer, "host", ImageKind::HostSo, "x86-64", [](Variant &v) {
    v.form = Form::Rows;
    v.rows = RowOp::Norm;
    v.width = 64;
    v.dtype = DType::F32;
  });
  StatusOr<PackReader> read = fixture::read(writer);
  ASSERT_TRUE(read.ok());
  pack.emplace(std::move(*read));
  EXPECT_EQ(choice(norm), "rows.norm.w64.f32.host");
  EXPECT_EQ(choice(with(norm, "state-dtype", "bf16")), choice(norm));
  refuses(with(norm, "width", "32"), "has width 64, not 32");
  refuses(with(norm, "rows", "add"), "has rows norm, not add");
  refuses(with(norm, "dtype", "bf16"), "has dtype f32, not bf16");
  refuses(linearStep, "on this processor: it has no recurrences");
}

TEST_F(Select, Strides) {
  Request r = linearStep;
  r.strides = {{"q", 3 * 64}, {"out", 128}};
  EXPECT_EQ(choice(r), "linear.step.k32v32.f32.f32vk.none.host");
  r.strides = {{"q", 65}};
  refuses(r, "needs a stride of q that is a multiple of 4 elements, not 65");
  r.strides = {{"beta", 4}};
  refuses(r, "has no tensor 'beta' with a token stride");
}

TEST_F(Select, BadRequests) {
  refuses(with(linearStep, "dtyp", "f32"), "unknown option 'dtyp'");
  refuses(with(linearStep, "dtype", "f8"), "dtype 'f8' is not supported");
  refuses(with(linearStep, "recurrence", "rwkv9"), "unknown recurrence");
}

TEST_F(Select, ByName) {
  Place here;
  std::string stem = "linear.step.k32v32.f32.f32vk.none";
  auto byStem = selectNamed(*pack, {&hopper}, stem);
  ASSERT_TRUE(byStem.ok());
  EXPECT_EQ((*byStem)->name(), stem + ".sm_90a");
  EXPECT_EQ((*selectNamed(*pack, here, stem + ".host"))->name(),
            stem + ".host");
  EXPECT_EQ(selectNamed(*pack, here, "kda").status().message(),
            "the pack has no variant 'kda'");
  auto wrong = selectNamed(*pack, here, stem + ".sm_90a");
  EXPECT_EQ(wrong.status().code(), ErrorCode::Unsupported);
  EXPECT_NE(wrong.status().message().find("not for this processor"),
            std::string::npos);
}

} // namespace
