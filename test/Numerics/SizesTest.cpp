// Sizes beyond 16 and 32 bits, and offsets that lie.
#include "CaseSurgery.h"
#include "HostKernel.h"

#include "kdac/Reference/Places.h"

#include "gtest/gtest.h"

#include <sys/mman.h>

#include <cstring>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// Address space without memory behind it until it is touched.
class SparseMemory {
public:
  explicit SparseMemory(int64_t bytes)
      : size(static_cast<size_t>(bytes)),
        base(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() { munmap(base, size); }
  SparseMemory(SparseMemory &&) = delete;

  std::byte *data() const { return static_cast<std::byte *>(base); }
  bool isMapped() const { return base != MAP_FAILED; }

private:
  size_t size;
  void *base;
};

/// Sets the arguments called `name`, or ending in it, to `value`.
void setSizes(const Case &c, void **argv, std::string_view name,
              int64_t value) {
  std::vector<Arg> args = kernelArgs(c.spec().variant);
  for (size_t i = 0; i < args.size(); ++i) {
    std::string_view text = args[i].name;
    if (text.size() >= name.size() &&
        text.substr(text.size() - name.size()) == name &&
        args[i].kind == ArgKind::Size)
      *static_cast<int64_t *>(argv[i]) = value;
  }
}

/// A copy of a sequence tensor with tokens `stride` elements apart.
class StretchedTensor {
public:
  StretchedTensor(Buffer &original, int64_t stride)
      : original(original), bytes(stride * dtypeSize(original.dtype())),
        memory(original.layout().tokens * bytes) {
    for (int64_t t = 0; memory.isMapped() && t < original.layout().tokens; ++t)
      std::memcpy(memory.data() + t * bytes, rowOf(original, t),
                  rowBytes(original));
  }

  void copyBack() {
    for (int64_t t = 0; t < original.layout().tokens; ++t)
      std::memcpy(rowOf(original, t), memory.data() + t * bytes,
                  rowBytes(original));
  }
  void *data() const { return memory.data(); }
  bool isMapped() const { return memory.isMapped(); }

private:
  Buffer &original;
  int64_t bytes;
  SparseMemory memory;
};

/// Runs the case with the tokens of every sequence tensor `stride` apart.
std::optional<std::string> runStretched(Case &c, int64_t stride) {
  std::vector<std::unique_ptr<StretchedTensor>> stretched;
  std::vector<void *> addresses;
  for (Buffer &buffer : c.buffers()) {
    addresses.push_back(buffer.data());
    if (!isPerToken(buffer, c))
      continue;
    stretched.push_back(std::make_unique<StretchedTensor>(buffer, stride));
    if (!stretched.back()->isMapped())
      return "no address space";
    addresses.back() = stretched.back()->data();
  }
  const HostVariant &kernel = hostVariant(c.spec().variant);
  void **argv = c.argv(&addresses);
  setSizes(c, argv, "_stride", stride);
  auto error = kernel.runRange(argv, 0, c.programs(kernel.vTile));
  for (auto &tensor : stretched)
    tensor->copyBack();
  return error;
}

} // namespace

// 33,000 sequences of 2 heads are more than 65,535 program instances.
TEST(Sizes, MoreThan65535SequenceHeads) {
  for (Form form : {Form::Step, Form::Chunk}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant.keyDim = spec.variant.valueDim = 16;
    spec.variant = resolved(spec.variant);
    spec.heads = 2;
    spec.lengths.assign(33000, 1);
    spec.lengths[0] = spec.lengths[32999] = 0;
    spec.lengths[17] = 3;
    expectCorrect(spec);
  }
}

// Tokens 2^31 elements apart: an offset computed in 32 bits reads the wrong
// one.
TEST(Sizes, TokenStridesBeyond32Bits) {
  constexpr int64_t stride = (int64_t(1) << 31) + 64;
  for (Form form : {Form::Chunk, Form::Step}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant = resolved(spec.variant);
    spec.tokens = 3;
    spec.heads = 2;
    Case c = makeCase(spec);
    CheckResult result =
        check(c, [](Case &t) { return runStretched(t, stride); });
    EXPECT_TRUE(result.passed()) << toString(result);
  }
}

// The last of 140,001 states of 128 x 128 starts beyond 2^31 elements; only its
// program instances run.
TEST(Sizes, StatesBeyond32Bits) {
  constexpr int64_t sequences = 140001, matrix = 128 * 128;
  for (Form form : {Form::Chunk, Form::Step}) {
    CaseSpec spec;
    spec.variant.form = form;
    spec.variant = resolved(spec.variant);
    spec.lengths = {5};
    Case c = makeCase(spec);
    CheckResult result = check(c, [&](Case &t) -> std::optional<std::string> {
      SparseMemory h0(sequences * matrix * 4), ht(sequences * matrix * 4);
      if (!h0.isMapped() || !ht.isMapped())
        return "no address space";
      std::vector<int32_t> offsets(sequences + 1, 0);
      offsets[sequences] = 5;
      int64_t last = (sequences - 1) * matrix * 4;
      std::memcpy(h0.data() + last, t.find("h0")->data(), matrix * 4);
      std::vector<void *> addresses;
      for (Buffer &buffer : t.buffers())
        addresses.push_back(buffer.name() == "h0"        ? h0.data()
                            : buffer.name() == "ht"      ? ht.data()
                            : buffer.name() == "offsets" ? offsets.data()
                                                         : buffer.data());
      void **argv = t.argv(&addresses);
      setSizes(t, argv, "N", sequences);
      const HostVariant &kernel = hostVariant(t.spec().variant);
      int64_t each = t.programs(kernel.vTile); // of one sequence and head
      auto error =
          kernel.runRange(argv, (sequences - 1) * each, sequences * each);
      std::memcpy(t.find("ht")->data(), ht.data() + last, matrix * 4);
      return error;
    });
    EXPECT_TRUE(result.passed()) << toString(result);
  }
}

// A page that begins beyond 2^31 elements of all pages.
TEST(Sizes, PagesOfLatentsBeyond32Bits) {
  constexpr int32_t number = 1 << 26;
  CaseSpec spec;
  spec.variant.form = Form::Rows;
  spec.variant.rows = RowOp::Latent;
  spec.variant.dtype = DType::F32;
  spec.variant.width = 64;
  spec.variant = resolved(spec.variant);
  spec.tokens = 1;
  spec.columns = 40;
  Case c = makeCase(spec);
  CheckResult result = check(c, [&](Case &t) -> std::optional<std::string> {
    PageTable table = pageTableOf(t);
    Buffer &out = *t.find("out");
    int64_t row = out.layout().stride * 4, first = number * table.page;
    SparseMemory pages((first + table.page) * row);
    if (!pages.isMapped())
      return "no address space";
    std::vector<int32_t> entries(table.pages.size(), number);
    std::vector<void *> addresses;
    for (Buffer &buffer : t.buffers())
      addresses.push_back(buffer.name() == "table" ? entries.data()
                          : buffer.name() == "out" ? pages.data()
                                                   : buffer.data());
    void **argv = t.argv(&addresses);
    setSizes(t, argv, "R", first + table.page);
    auto error = hostVariant(t.spec().variant).runRange(argv, 0, 1);
    int64_t place = placesOf(t).front();
    std::memcpy(static_cast<std::byte *>(out.data()) + place * row,
                pages.data() + (first + place % table.page) * row,
                static_cast<size_t>(row));
    return error;
  });
  EXPECT_TRUE(result.passed()) << toString(result);
}

// Offsets that run backwards, below zero or past the buffer make results wrong,
// but no kernel leaves its buffers for them.
TEST(Sizes, BadOffsetsAreClamped) {
  for (Form form : {Form::Chunk, Form::Step})
    for (DType offsets : {DType::I32, DType::I64}) {
      CaseSpec spec;
      spec.variant.form = form;
      spec.variant.offsetDtype = offsets;
      spec.variant.keyDim = spec.variant.valueDim = 32;
      spec.variant = resolved(spec.variant);
      spec.lengths = {10, 10, 10, 10, 10, 10};
      Case c = makeCase(spec);
      double bad[] = {-3, 20, 64, 1e9, 5, -1e9, 61};
      for (int64_t n = 0; n < 7; ++n)
        c.find("offsets")->set(0, 0, n, bad[n]);
      std::optional<std::string> error = hostVariant(c.spec().variant).run(c);
      EXPECT_FALSE(error) << *error;
      for (const Buffer &buffer : c.buffers())
        EXPECT_TRUE(buffer.guardsIntact()) << buffer.name();
    }
}
