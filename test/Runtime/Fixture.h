// Promises: packs of the hand-written linear kernel, and a call of it.
// Does not: compile anything.
#ifndef KDAC_TEST_RUNTIME_FIXTURE_H
#define KDAC_TEST_RUNTIME_FIXTURE_H

#include "kdac/Pack/PackReader.h"
#include "kdac/Pack/PackWriter.h"
#include "kdac/Runtime/Kernel.h"

#include <array>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace kdac::fixture {

inline std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline Variant linear(const std::string &target) {
  Variant v;
  v.recurrence = "linear";
  v.form = Form::Step;
  v.keyDim = v.valueDim = 32;
  v.dtype = DType::F32;
  v.target = target;
  EXPECT_EQ(resolve(v), std::nullopt);
  return v;
}

/// The kernel as a variant for `target` with one image per (kind, arch).
inline PackVariant
addLinear(PackWriter &writer, const std::string &target,
          const std::vector<std::pair<ImageKind, std::string>> &images,
          const std::string &bytes) {
  Launch launch;
  Variant v = linear(target);
  launch.entry = entryName(v);
  launch.args = launchArgs(v);
  launch.grid = gridExpr(32);
  launch.blockThreads = 128;
  launch.sharedBytes = 100 * 1024;
  launch.scratchBytes = 64;
  for (const auto &[kind, arch] : images)
    launch.images.push_back(writer.addImage(kind, arch, bytes));
  PackVariant packed{v, "#tile.schedule<none>", "22.1.8", "", "", {launch}};
  writer.add(packed);
  return packed;
}

inline StatusOr<PackReader> read(const PackWriter &writer) {
  StatusOr<std::string> bytes = writer.serialize();
  if (!bytes.ok())
    return bytes.status();
  return PackReader::fromBytes(std::move(*bytes), "fixture");
}

/// A call: two sequences of three tokens, two key and four value heads.
struct Call {
  static constexpr int64_t sequences = 2, tokens = 3, heads = 2, valueHeads = 4,
                           dim = 32;
  using Floats = std::vector<float>;
  static constexpr int64_t states = sequences * valueHeads * dim * dim;

  Floats q = ramp(sequences * tokens * heads * dim, 3);
  Floats k = ramp(sequences * tokens * heads * dim, 5);
  Floats v = ramp(sequences * tokens * valueHeads * dim, 7);
  Floats h0 = ramp(states, 11);
  Floats out = Floats(sequences * tokens * valueHeads * dim, NAN);
  Floats ht = Floats(states, NAN);

  // Values of arguments, in ABI order.
  std::array<void *, 7> pointers = {q.data(), k.data(),   v.data(), h0.data(),
                                    nullptr,  out.data(), ht.data()};
  std::array<int64_t, 8> sizes = {sequences,       tokens,         heads,
                                  valueHeads,      heads *dim,     heads *dim,
                                  valueHeads *dim, valueHeads *dim};
  float scale = 0.5f;
  std::array<void *, 16> argv{};

  void **arguments() {
    for (size_t i = 0; i < 7; ++i)
      argv[i] = &pointers[i];
    for (size_t i = 0; i < 8; ++i)
      argv[7 + i] = &sizes[i];
    argv[15] = &scale;
    return argv.data();
  }

  /// What the kernel should have written to `out`, computed the plain way.
  Floats expected() const {
    Floats result(out.size());
    for (int64_t n = 0; n < sequences; ++n)
      for (int64_t hv = 0; hv < valueHeads; ++hv)
        for (int64_t j = 0; j < dim; ++j)
          expectColumn(n, hv, j, result);
    return result;
  }

private:
  static Floats ramp(int64_t count, int period) {
    Floats values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(i % period) - 1.0f);
    return values;
  }
  void expectColumn(int64_t n, int64_t hv, int64_t j, Floats &result) const {
    std::array<float, dim> column;
    for (int64_t i = 0; i < dim; ++i)
      column[i] = h0[((n * valueHeads + hv) * dim + j) * dim + i];
    for (int64_t t = n * tokens; t < (n + 1) * tokens; ++t) {
      const float *qt = &q[(t * heads + hv / 2) * dim];
      const float *kt = &k[(t * heads + hv / 2) * dim];
      float sum = 0;
      for (int64_t i = 0; i < dim; ++i) {
        column[i] += kt[i] * v[(t * valueHeads + hv) * dim + j];
        sum += column[i] * qt[i];
      }
      result[(t * valueHeads + hv) * dim + j] = sum * scale;
    }
  }
};

} // namespace kdac::fixture

#endif // KDAC_TEST_RUNTIME_FIXTURE_H
