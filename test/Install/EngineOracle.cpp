// Compares what docs/examples/engine wrote with the oracle, sequence by
// sequence as one recurrence over prompt and decoded tokens.
//
// usage: engine-oracle FILE [TARGET]; the target decides the tolerance.
#include "kdac/Reference/Float.h"
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/Tolerance.h"

#include <cmath>
#include <cstdio>
#include <fstream>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t betaRow = 8; ///< as the engine pads it

struct Header {
  int64_t heads, dim, sequences, steps, firstPrompt, tokens;
};

/// The engine's file; arrays as it stored them.
struct Run {
  Header header;
  std::vector<uint16_t> fused, gate, beta, out;
  std::vector<float> aLog, dtBias, state;
  bool good = false;

  explicit Run(const char *path) {
    std::ifstream file(path, std::ios::binary);
    auto read = [&](auto &array, int64_t count) {
      array.resize(static_cast<size_t>(count));
      file.read(reinterpret_cast<char *>(array.data()),
                static_cast<std::streamsize>(array.size() * sizeof(array[0])));
    };
    file.read(reinterpret_cast<char *>(&header), sizeof header);
    if (!file)
      return;
    const Header &h = header;
    int64_t width = h.heads * h.dim;
    read(fused, h.tokens * 3 * width);
    read(gate, h.tokens * width);
    read(beta, h.tokens * betaRow);
    read(aLog, h.heads);
    read(dtBias, width);
    read(out, h.tokens * width);
    read(state, h.sequences * width * h.dim);
    good = file && file.peek() == std::ifstream::traits_type::eof();
  }

  int64_t prefillTokens() const {
    return header.tokens - header.steps * header.sequences;
  }
  /// Sequence n is oracle tokens begin(n) .. begin(n + 1).
  int64_t begin(int64_t n) const {
    return n == 0   ? 0
           : n == 1 ? header.firstPrompt + header.steps
                    : header.tokens;
  }
  /// Where the engine has the oracle's token.
  int64_t place(int64_t token) const {
    int64_t n = token >= begin(1), t = token - begin(n);
    int64_t prompt = begin(n + 1) - begin(n) - header.steps;
    if (t < prompt)
      return (n ? header.firstPrompt : 0) + t;
    return prefillTokens() + (t - prompt) * header.sequences + n;
  }
};

double relative(double error, double norm) { return std::sqrt(error / norm); }

int judge(const char *what, double error, double bound) {
  bool good = error <= bound; // false for a NaN
  std::printf("%s: relative error %.2e, bound %.2e%s\n", what, error, bound,
              good ? "" : ", TOO FAR");
  return good ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  Run run(argc > 1 ? argv[1] : "");
  if (!run.good || run.header.sequences != 2) {
    std::fprintf(stderr, "engine-oracle: not an engine's file\n");
    return 2;
  }
  const Header &h = run.header;
  auto rows = [&](const std::vector<uint16_t> &from, int64_t stride,
                  int64_t offset, int64_t width) {
    return [&, stride, offset, width](int64_t t, int64_t head, double *row) {
      for (int64_t i = 0; i < width; ++i)
        row[i] = floatOfBF16(from[static_cast<size_t>(
            run.place(t) * stride + offset + head * width + i)]);
    };
  };
  int64_t width = h.heads * h.dim;
  GateMap map;
  map.gate = Gate::Bounded;
  map.aLog = [&](int64_t, int64_t head, double *row) { *row = run.aLog[head]; };
  map.dtBias = [&](int64_t, int64_t head, double *row) {
    for (int64_t i = 0; i < h.dim; ++i)
      row[i] = run.dtBias[head * h.dim + i];
  };
  Operands o;
  o.heads = o.valueHeads = h.heads;
  o.keyDim = o.valueDim = h.dim;
  o.offsets = {0, run.begin(1), run.begin(2)};
  o.q = l2norm(rows(run.fused, 3 * width, 0, h.dim), h.dim);
  o.k = l2norm(rows(run.fused, 3 * width, width, h.dim), h.dim);
  o.v = rows(run.fused, 3 * width, 2 * width, h.dim);
  o.decay = logDecay(map, rows(run.gate, width, 0, h.dim), h.dim);
  o.perChannel = o.delta = true;
  o.beta = writeStrength(Beta::Sigmoid, rows(run.beta, betaRow, 0, 1));
  o.scale = 1 / std::sqrt(static_cast<double>(h.dim));
  Results expected = reference::run(o);

  double error = 0, norm = 0;
  for (int64_t t = 0; t < h.tokens; ++t)
    for (int64_t i = 0; i < width; ++i) {
      double e = expected.out[static_cast<size_t>(t * width + i)];
      double d =
          floatOfBF16(run.out[static_cast<size_t>(run.place(t) * width + i)]) -
          e;
      error += d * d;
      norm += e * e;
    }
  double stateError = 0, stateNorm = 0;
  for (size_t i = 0; i < run.state.size(); ++i) {
    double e = expected.finalState[i], d = run.state[i] - e;
    stateError += d * d;
    stateNorm += e * e;
  }
  Variant v;
  v.keyDim = v.valueDim = h.dim;
  v.target = argc > 2 ? argv[2] : "host";
  if (resolve(v) || !findTarget(v.target))
    return 2;
  Tolerance tolerance = toleranceOf(v, Difficulty::Plain);
  int64_t elements = h.tokens * width;
  int bad =
      judge("out", relative(error, norm),
            tolerance.out * smallSampleFactor(elements, h.tokens * h.heads));
  return bad +
         judge("state", relative(stateError, stateNorm),
               tolerance.state *
                   smallSampleFactor(static_cast<int64_t>(run.state.size()),
                                     h.sequences * h.heads));
}
