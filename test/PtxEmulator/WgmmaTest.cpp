// wgmma against a naive product, in the layouts of shared memory that the
// hand-written Hopper kernels use.
#include "Harness.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace kdac::ptx;
using namespace kdac::ptx::test;

namespace {

uint16_t bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>(bits >> 16);
}

/// A matrix [mn][k] of small integers, which bf16 holds.
struct Matrix {
  unsigned mn, k;
  std::vector<float> values;
  Matrix(unsigned mn, unsigned k, unsigned seed) : mn(mn), k(k) {
    std::mt19937 random(seed);
    for (unsigned i = 0; i < mn * k; ++i)
      values.push_back(float(int(random() % 17) - 8));
  }
  float at(unsigned i, unsigned j) const { return values[i * k + j]; }
};

/// Rows of `width` bytes whose 16-byte units are exchanged by the row's number.
unsigned swizzled(unsigned row, unsigned byte, unsigned width) {
  unsigned address = row * width + byte;
  unsigned mask = width / 16 - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

/// K-major: rows of mn, 128-byte swizzle; panels of 64 k.
std::vector<uint8_t> kMajor(const Matrix &m, unsigned width = 128) {
  std::vector<uint8_t> image(m.mn * m.k * 2);
  for (unsigned i = 0; i < m.mn; ++i)
    for (unsigned j = 0; j < m.k; ++j) {
      unsigned panel = j * 2 / width * (m.mn * width);
      uint16_t x = bf16(m.at(i, j));
      std::memcpy(&image[panel + swizzled(i, j * 2 % width, width)], &x, 2);
    }
  return image;
}

/// MN-major: rows of k; panels of 64 mn.
std::vector<uint8_t> mnMajor(const Matrix &m, unsigned width = 128) {
  std::vector<uint8_t> image(m.mn * m.k * 2);
  for (unsigned i = 0; i < m.mn; ++i)
    for (unsigned j = 0; j < m.k; ++j) {
      unsigned panel = i * 2 / width * (m.k * width);
      uint16_t x = bf16(m.at(i, j));
      std::memcpy(&image[panel + swizzled(j, i * 2 % width, width)], &x, 2);
    }
  return image;
}

std::string number(uint64_t x) { return std::to_string(x); }

struct Form {
  unsigned n, k;
  bool aFromRegisters, aKMajor, bKMajor;
  unsigned width = 128;
};

uint64_t swizzleBits(unsigned width) {
  return (width == 128 ? uint64_t(1) : width == 64 ? 2 : 3) << 62;
}

/// Bytes between k-steps, and the descriptor without its address.
struct Layout {
  uint64_t bits;
  unsigned step;
};
Layout layoutOf(unsigned mn, unsigned k, bool isKMajor, unsigned width) {
  (void)mn;
  if (isKMajor)
    return {uint64_t(1) << 16 | uint64_t(8 * width / 16) << 32 |
                swizzleBits(width),
            32};
  return {uint64_t(k * width / 16) << 16 | uint64_t(8 * width / 16) << 32 |
              swizzleBits(width),
          16 * width};
}

/// The kernel: copies both images into shared memory, multiplies, and stores.
std::string kernelText(const Form &f, unsigned aBytes, unsigned bBytes,
                       bool waits = true, bool fences = true) {
  std::string s = "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [p0];\n"
                  "ld.param.u64 %rd1, [p1];\nld.param.u64 %rd2, [p2];\n"
                  "mov.b32 %r1, smem;\nshl.b32 %r2, %r0, 4;\n";
  // Images side by side: A, then B.
  auto copy = [&](const char *from, unsigned bytes, unsigned at) {
    std::string label = "L" + number(at);
    s += "mov.b32 %r3, %r2;\n" + label + ":\n";
    s += "setp.ge.u32 %p1, %r3, " + number(bytes) + ";\n@%p1 bra " + label +
         "D;\ncvt.u64.u32 %rd5, %r3;\nadd.s64 %rd6, " + from +
         ", %rd5;\nld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd6];\n"
         "add.u32 %r8, %r1, %r3;\nst.shared.v4.b32 [%r8+" +
         number(at) + "], {%r4,%r5,%r6,%r7};\nadd.u32 %r3, %r3, 2048;\nbra " +
         label + ";\n" + label + "D:\n";
  };
  copy("%rd0", aBytes, 0);
  copy("%rd1", bBytes, aBytes);
  if (fences)
    s += "fence.proxy.async.shared::cta;\n";
  s += "bar.sync 0;\n";
  // Addresses in descriptors: (address & 0x3ffff) >> 4.
  Layout a = layoutOf(64, f.k, f.aKMajor, f.width);
  Layout b = layoutOf(f.n, f.k, f.bKMajor, f.width);
  s += "shr.u32 %r9, %r1, 4;\ncvt.u64.u32 %rd7, %r9;\n";
  for (unsigned i = 0; i < f.n / 2; ++i)
    s += "mov.b32 %r" + number(100 + i) + ", 0f00000000;\n";
  s += "wgmma.fence.sync.aligned;\n";
  for (unsigned step = 0; step < f.k / 16; ++step) {
    auto advance = [&](unsigned mn, bool isKMajor, const Layout &layout) {
      if (!isKMajor)
        return step * layout.step;
      unsigned perPanel = f.width / 32;
      return step / perPanel * (mn * f.width) + step % perPanel * 32;
    };
    uint64_t bAt = (aBytes + advance(f.n, f.bKMajor, b)) / 16;
    s += "add.s64 %rd8, %rd7, " + number(b.bits + bAt) + ";\n";
    if (f.aFromRegisters) {
      // A fragments straight from the plain matrix behind the image.
      for (unsigned r = 0; r < 4; ++r)
        s += "and.b32 %r10, %r0, 31;\nshr.u32 %r11, %r0, 5;\n"
             "shl.b32 %r11, %r11, 4;\nshr.u32 %r12, %r10, 2;\n"
             "add.u32 %r11, %r11, %r12;\nadd.u32 %r11, %r11, " +
             number(r % 2 * 8) + ";\nmul.lo.u32 %r11, %r11, " +
             number(f.k * 2) +
             ";\nand.b32 %r12, %r10, 3;\nshl.b32 %r12, %r12, 2;\n"
             "add.u32 %r11, %r11, %r12;\ncvt.u64.u32 %rd9, %r11;\n"
             "add.s64 %rd9, %rd9, %rd0;\nld.global.b32 %r" +
             number(20 + step * 4 + r) + ", [%rd9+" +
             number(step * 32 + r / 2 * 16) + "];\n";
    } else {
      uint64_t aAt = advance(64, f.aKMajor, a) / 16;
      s += "add.s64 %rd11, %rd7, " + number(a.bits + aAt) + ";\n";
    }
    if (f.aFromRegisters)
      s += "wgmma.fence.sync.aligned;\n";
    s += "wgmma.mma_async.sync.aligned.m64n" + number(f.n) +
         "k16.f32.bf16.bf16 {";
    for (unsigned i = 0; i < f.n / 2; ++i)
      s += (i ? "," : "") + std::string("%r") + number(100 + i);
    s += "}, ";
    if (f.aFromRegisters) {
      std::string first = "%r" + number(20 + step * 4);
      s += "{" + first + ",%r" + number(21 + step * 4) + ",%r" +
           number(22 + step * 4) + ",%r" + number(23 + step * 4) + "}";
    } else {
      s += "%rd11";
    }
    s += ", %rd8, 1, 1, 1";
    if (!f.aFromRegisters)
      s += f.aKMajor ? ", 0" : ", 1";
    s += f.bKMajor ? ", 0;\n" : ", 1;\n";
  }
  s += "wgmma.commit_group.sync.aligned;\n";
  if (waits)
    s += "wgmma.wait_group.sync.aligned 0;\n";
  // D row-major [64][n] of f32.
  s += "and.b32 %r10, %r0, 31;\nshr.u32 %r11, %r0, 5;\nshl.b32 %r11, %r11, 4;\n"
       "shr.u32 %r12, %r10, 2;\nadd.u32 %r11, %r11, %r12;\n"
       "mul.lo.u32 %r11, %r11, " +
       number(f.n * 4) +
       ";\nand.b32 %r12, %r10, 3;\nshl.b32 %r12, %r12, 3;\n"
       "add.u32 %r11, %r11, %r12;\ncvt.u64.u32 %rd9, %r11;\n"
       "add.s64 %rd9, %rd9, %rd2;\n";
  for (unsigned i = 0; i < f.n / 2; ++i)
    s += "st.global.b32 [%rd9+" +
         number(i / 4 * 32 + i % 2 * 4 + i / 2 % 2 * 8 * f.n * 4) + "], %r" +
         number(100 + i) + ";\n";
  return s;
}

std::string multiply(const Form &f, std::vector<float> &d, const Matrix &a,
                     const Matrix &b, const Options &options = {},
                     bool waits = true, bool fences = true) {
  std::vector<uint8_t> aImage =
      f.aKMajor ? kMajor(a, f.width) : mnMajor(a, f.width);
  if (f.aFromRegisters)
    for (unsigned i = 0; i < a.mn; ++i)
      for (unsigned j = 0; j < a.k; ++j) {
        uint16_t x = bf16(a.at(i, j));
        std::memcpy(&aImage[(i * a.k + j) * 2], &x, 2);
      }
  std::vector<uint8_t> bImage =
      f.bKMajor ? kMajor(b, f.width) : mnMajor(b, f.width);
  Kernel kernel(kernelText(f, unsigned(aImage.size()), unsigned(bImage.size()),
                           waits, fences),
                128);
  return kernel.with(aImage).with(bImage).with(d).run(options);
}

std::vector<float> expected(const Matrix &a, const Matrix &b) {
  std::vector<float> d(a.mn * b.mn);
  for (unsigned m = 0; m < a.mn; ++m)
    for (unsigned n = 0; n < b.mn; ++n)
      for (unsigned k = 0; k < a.k; ++k)
        d[m * b.mn + n] += a.at(m, k) * b.at(n, k);
  return d;
}

void check(const Form &f) {
  Matrix a(64, f.k, 1), b(f.n, f.k, 2);
  for (bool late : {false, true}) {
    std::vector<float> d(64 * f.n, NAN);
    Options options;
    options.late = late;
    ASSERT_EQ(multiply(f, d, a, b, options), "");
    EXPECT_EQ(d, expected(a, b));
  }
}

} // namespace

TEST(Wgmma, registersTimesKMajor) { check({64, 128, true, true, true}); }
TEST(Wgmma, registersTimesMNMajor) { check({128, 64, true, true, false}); }
TEST(Wgmma, kMajorTimesKMajor) { check({64, 64, false, true, true}); }
TEST(Wgmma, mnMajorTimesMNMajor) { check({64, 32, false, false, false}); }
TEST(Wgmma, mnMajorTimesKMajor) { check({256, 64, false, false, true}); }
TEST(Wgmma, swizzle64) { check({32, 64, false, true, true, 64}); }
TEST(Wgmma, swizzle64MNMajor) { check({64, 32, false, false, false, 64}); }
TEST(Wgmma, swizzle32) { check({32, 32, false, true, true, 32}); }
TEST(Wgmma, narrow) { check({8, 64, false, true, true}); }

TEST(Wgmma, accumulatorReadBeforeWait) {
  Form f{64, 64, false, true, true};
  std::vector<float> d(64 * 64);
  Matrix a(64, 64, 1), b(64, 64, 2);
  std::string report = multiply(f, d, a, b, {}, false);
  EXPECT_NE(report.find("has not been waited for"), std::string::npos)
      << report;
}

TEST(Wgmma, missingProxyFence) {
  Form f{64, 64, false, true, true};
  std::vector<float> d(64 * 64);
  Matrix a(64, 64, 1), b(64, 64, 2);
  std::string report = multiply(f, d, a, b, {}, true, false);
  EXPECT_NE(report.find("without fence.proxy.async"), std::string::npos)
      << report;
}
