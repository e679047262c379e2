// Promises: PTX snippets run on the emulator with arrays as parameters, and
// what tests of its reports share. Does not: check anything else.
#ifndef KDAC_PTXEMULATOR_HARNESS_H
#define KDAC_PTXEMULATOR_HARNESS_H

#include "Emulator.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kdac::ptx::test {

/// One kernel "k" whose parameters p0, p1, ... are addresses of arrays, of one
/// block unless grid() says otherwise.
class Kernel {
public:
  explicit Kernel(const std::string &body, unsigned threads = 32,
                  const std::string &parameters = "",
                  const std::string &directives = "")
      : threads(threads) {
    text =
        ".version 8.6\n.target sm_90a\n.address_size 64\n"
        ".extern .shared .align 1024 .b8 smem[];\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n" +
        directives +
        "\n{\n.reg .pred %p<32>;\n.reg .b16 %h<32>;\n.reg .b32 %r<400>;\n"
        ".reg .b64 %rd<64>;\n" +
        parameters + body + "\nret;\n}\n";
  }

  /// Makes the array the next parameter; its contents change in place.
  template <typename T> Kernel &with(std::vector<T> &array) {
    uint64_t base = memory.add(array.data(), array.size() * sizeof(T));
    const auto *bytes = reinterpret_cast<const uint8_t *>(&base);
    params.insert(params.end(), bytes, bytes + sizeof base);
    return *this;
  }

  Kernel &grid(unsigned blocks, unsigned cluster = 0) {
    launch.grid[0] = blocks;
    if (cluster)
      launch.cluster[0] = cluster, launch.cluster[1] = launch.cluster[2] = 1;
    return *this;
  }

  /// The report; empty where all went well.
  std::string run(const Options &options = {}, uint32_t shared = 65536) {
    std::string error;
    auto module = Module::parse(text, error);
    if (!module)
      return error;
    launch.entry = "k";
    launch.block[0] = threads;
    launch.dynamicShared = shared;
    launch.params = params;
    launch.params.resize(24);
    return module->launch(launch, memory, options);
  }

private:
  std::string text;
  unsigned threads;
  Memory memory;
  Launch launch;
  std::vector<uint8_t> params;
};

inline void expectReport(const std::string &report, const std::string &part) {
  EXPECT_NE(report.find(part), std::string::npos) << "report: " << report;
}

/// Late copies and products, in a random order of warps.
inline Options lateSeed(uint64_t seed) {
  Options o;
  o.late = true;
  o.seed = seed;
  return o;
}

/// What every test of lanes begins with: %r0 the thread, %rd0.. the arrays,
/// each advanced by 4 bytes a thread.
inline std::string prologue() {
  return "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd10, %r0, 4;\n"
         "ld.param.u64 %rd0, [p0];\nadd.s64 %rd0, %rd0, %rd10;\n"
         "ld.param.u64 %rd1, [p1];\nadd.s64 %rd1, %rd1, %rd10;\n"
         "ld.param.u64 %rd2, [p2];\nadd.s64 %rd2, %rd2, %rd10;\n";
}

} // namespace kdac::ptx::test

#endif // KDAC_PTXEMULATOR_HARNESS_H
