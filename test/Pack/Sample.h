// Promises: a small pack with two variants and three images, for the tests of
// this folder. Does not: contain runnable code.
#ifndef KDAC_TEST_PACK_SAMPLE_H
#define KDAC_TEST_PACK_SAMPLE_H

#include "kdac/Pack/PackReader.h"
#include "kdac/Pack/PackWriter.h"

namespace kdac::sample {

inline Variant variant(const std::string &target, int64_t keyDim) {
  Variant v;
  v.target = target;
  v.keyDim = keyDim;
  resolve(v);
  return v;
}

inline PackVariant packVariant(const Variant &v, std::vector<size_t> images) {
  Launch launch;
  launch.entry = entryName(v);
  launch.args = launchArgs(v);
  launch.grid = gridExpr(64);
  launch.blockThreads = 128;
  launch.sharedBytes = 65536;
  launch.registers = 168;
  launch.ptxSha256 = std::string(64, 'a');
  launch.images = std::move(images);
  return {v, "#tile.schedule<chunk = 64>", "22.1.8", "13.0.88", "", {launch}};
}

/// Adds everything in one order or the reverse; the file must not show which.
inline PackWriter writer(bool reversed = false) {
  PackWriter w;
  auto addGpu = [&] {
    size_t cubin = w.addImage(ImageKind::Cubin, "sm_90a",
                              std::string("\x7f"
                                          "ELF\0cubin",
                                          10));
    size_t ptx = w.addImage(ImageKind::Ptx, "sm_90a", ".version 8.6\n");
    w.add(packVariant(variant("sm_90a", 128), {cubin, ptx}));
  };
  auto addHost = [&] {
    size_t so =
        w.addImage(ImageKind::HostSo, "x86-64-v3", std::string(60, 's'));
    w.add(packVariant(variant("host", 64), {so}));
  };
  reversed ? addHost() : addGpu();
  reversed ? addGpu() : addHost();
  return w;
}

} // namespace kdac::sample

#endif // KDAC_TEST_PACK_SAMPLE_H
