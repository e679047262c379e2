// Prefix checkpoints, on the host or on a GPU or its emulator: pitfalls.md
// STA-10. A request of 130 tokens leaves its states after 64 and 128 tokens in
// slots of their own; who begins with the same tokens goes on from there. The
// state after 130 is no checkpoint of 128, and no token counts twice.
// Arguments: OnPack.h; the pack's chunk and step variants come in pairs.
#include "../Numerics/CaseSurgery.h"
#include "OnPack.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Check.h"
#include "kdac/Reference/Float.h"

#include <cmath>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t kTokens = 130, kPage = 64;
/// Slots: of the whole prompt at once, of its checkpoints, of the first request
/// and of those after it.
enum Slot : int64_t { Whole, After64, After128, First, Later, None = -1 };

/// A piece of the prompt, from the state in one slot to another slot.
struct Piece {
  Form form;
  int64_t first, count;
  int64_t from, to;
};

bool isMemory(const Buffer &buffer) {
  return buffer.name() == "h0" || isCache(buffer.name());
}

/// The prompt, and a pool with caches that lasts from call to call.
class Prompt {
public:
  Prompt(const Variant &chunk, const Variant &step, selftest::Kernel &chunks,
         selftest::Kernel &steps)
      : variants{chunk, step}, kernels{&chunks, &steps},
        inputs(makeCase(specOf({Form::Chunk, 0, kTokens, None, Whole}))),
        expected(oracleOf(inputs)) {
    for (const Buffer &buffer : inputs.buffers())
      if (isMemory(buffer))
        memory.emplace_back(static_cast<const char *>(buffer.data()),
                            static_cast<size_t>(buffer.bytes()));
  }

  /// Runs a piece. Its outputs become those of its tokens.
  bool run(const Piece &piece) {
    Case c = makeCase(specOf(piece));
    takeTokens(c, piece);
    size_t next = 0;
    for (Buffer &buffer : c.buffers())
      if (isMemory(buffer)) {
        std::memcpy(buffer.data(), memory[next].data(), memory[next].size());
        ++next;
      }
    if (!kernels[piece.form == Form::Step]->run(c).ok())
      return false;
    next = 0;
    for (const Buffer &buffer : c.buffers())
      if (isMemory(buffer))
        memory[next++].assign(static_cast<const char *>(buffer.data()),
                              static_cast<size_t>(buffer.bytes()));
    copyRows(*c.find("out"), 0, *inputs.find("out"), piece.first, piece.count);
    return true;
  }

  /// What a slot holds: its states, and what it has in every cache.
  std::string slot(int64_t number, bool onlyStates = false) const {
    std::string bytes;
    auto add = [&](size_t buffer, size_t at, size_t size) {
      bytes += memory[buffer].substr(at, size);
    };
    eachPart(number, add, onlyStates);
    return bytes;
  }
  /// Puts there what slot() gave.
  void fill(int64_t number, const std::string &bytes) {
    size_t next = 0;
    auto take = [&](size_t buffer, size_t at, size_t size) {
      memory[buffer].replace(at, size, bytes, next, size);
      next += size;
    };
    eachPart(number, take, /*onlyStates=*/false);
  }

  bool outputsAreRight() const {
    Comparison out = compare(*inputs.find("out"), expected.out, kTokens);
    setBounds(out, bound().out, variants[0].valueDim, bound().outRow);
    return out.passed();
  }
  /// How far the state in a slot is from that after the whole prompt, in
  /// bounds.
  double distance(int64_t number) const {
    std::string bytes = slot(number, /*onlyStates=*/true);
    double error = 0, norm = 0;
    for (size_t i = 0; i < expected.finalState.size(); ++i) {
      double want = expected.finalState[i];
      double got = load(bytes.data(), DType::F32, static_cast<int64_t>(i));
      error += (got - want) * (got - want);
      norm += want * want;
    }
    return std::sqrt(error / norm) / bound().state;
  }
  std::string outputs() const {
    const Buffer &out = *inputs.find("out");
    return std::string(static_cast<const char *>(out.data()),
                       static_cast<size_t>(out.bytes()));
  }

private:
  CaseSpec specOf(const Piece &piece) const {
    CaseSpec spec;
    spec.variant = variants[piece.form == Form::Step];
    spec.tokens = piece.count;
    spec.valueHeads = 2;
    spec.slots = {piece.to};
    spec.hasSources = true;
    spec.sources = {piece.from};
    return spec;
  }
  Tolerance bound() const {
    return toleranceOf(variants[0], Difficulty::Plain);
  }
  void takeTokens(Case &c, const Piece &piece) const {
    for (Buffer &buffer : c.buffers()) {
      const Buffer &source = *inputs.find(buffer.name());
      bool isIndex =
          buffer.dtype() == DType::I32 || buffer.dtype() == DType::I64;
      if (buffer.kind() != ArgKind::Input || isMemory(buffer) || isIndex)
        continue;
      bool hasTokens = isPerToken(source, inputs);
      copyRows(source, hasTokens ? piece.first : 0, buffer, 0,
               buffer.layout().tokens);
    }
  }
  /// Calls `body` with the bytes of each part of a slot: where in which buffer
  /// of `memory`, and how many.
  template <typename Body>
  void eachPart(int64_t number, Body body, bool onlyStates) const {
    size_t next = 0;
    for (const Buffer &buffer : inputs.buffers()) {
      if (!isMemory(buffer))
        continue;
      bool isPool = buffer.name() == "h0";
      if (onlyStates && !isPool) {
        ++next;
        continue;
      }
      auto start = static_cast<const std::byte *>(buffer.data());
      for (int64_t head = 0; head < (isPool ? inputs.valueHeads() : 1); ++head)
        body(next,
             static_cast<size_t>(
                 rowOf(buffer, isPool ? inputs.poolRow(number, head) : number) -
                 start),
             rowBytes(buffer));
      ++next;
    }
  }

  Variant variants[2]; ///< chunk, step
  selftest::Kernel *kernels[2];
  Case inputs;
  Results expected;
  std::vector<std::string> memory; ///< of h0 and the caches
};

class Test {
public:
  Test(Prompt &prompt, const std::string &name) : prompt(prompt), name(name) {}

  bool run() {
    expect(prompt.run({Form::Chunk, 0, kTokens, None, Whole}),
           "the prompt runs");
    expectRight(Whole, "the prompt in one go");
    // The first request keeps a checkpoint at the end of every whole page.
    bool ran = prompt.run({Form::Chunk, 0, kPage, None, After64}) &&
               prompt.run({Form::Chunk, kPage, kPage, After64, After128}) &&
               prompt.run({Form::Step, 2 * kPage, 2, After128, First});
    expect(ran, "a request in pages runs");
    expectRight(First, "a request in pages");
    std::string pages[] = {prompt.slot(After64), prompt.slot(After128)};
    std::string wanted = prompt.slot(First), outputs = prompt.outputs();
    auto expectSame = [&](const char *what) {
      expect(prompt.slot(Later) == wanted && prompt.outputs() == outputs, what);
    };
    ran = prompt.run({Form::Step, 2 * kPage, 2, After128, Later});
    expect(ran, "128 tokens restored run");
    expectSame("128 tokens restored, then 2: the bits of the first request");
    ran = prompt.run({Form::Chunk, kPage, kPage, After64, Later}) &&
          prompt.run({Form::Step, 2 * kPage, 2, Later, Later});
    expect(ran, "64 tokens restored run");
    expectSame("64 tokens restored, then 66: the bits of the first request");
    // Through the caller's memory, where a checkpoint may outlive the pool.
    prompt.fill(Later, pages[1]);
    ran = prompt.run({Form::Step, 2 * kPage, 1, Later, Later}) &&
          prompt.run({Form::Step, 2 * kPage + 1, 1, Later, Later});
    expect(ran, "an exported checkpoint runs");
    expectSame("exported, imported, then 1 and 1: the same bits");
    expect(prompt.slot(After64) == pages[0] &&
               prompt.slot(After128) == pages[1],
           "checkpoints stay as they are");
    expectWrong({{Form::Step, 2 * kPage, 2, First, Later}},
                "the state after 130 taken for that after 128");
    expectWrong({{Form::Step, 2 * kPage + 1, 1, First, Later}},
                "the last token applied twice");
    expectWrong({{Form::Step, 2 * kPage, 1, After128, Later},
                 {Form::Step, 2 * kPage, 2, Later, Later}},
                "the first token behind the page applied twice");
    return passed;
  }

private:
  void expect(bool condition, const std::string &what) {
    if (!condition)
      std::printf("%s: %s: no\n", name.c_str(), what.c_str());
    passed &= condition;
  }
  void expectRight(int64_t slot, const std::string &what) {
    expect(prompt.outputsAreRight(), what + " has the oracle's outputs");
    expect(prompt.distance(slot) <= 1, what + " has the oracle's state");
  }
  /// The bound tells what is wrong from what is right, with room to spare.
  void expectWrong(const std::vector<Piece> &pieces, const std::string &what) {
    for (const Piece &piece : pieces)
      expect(prompt.run(piece), what + " runs");
    expect(prompt.distance(Later) > 3, what + " is seen");
  }

  Prompt &prompt;
  std::string name;
  bool passed = true;
};

/// The step variant of `chunk`'s options, or null.
const PackVariant *stepOf(const PackReader &pack, const PackVariant &chunk) {
  for (const PackVariant &v : pack.manifest().variants) {
    Variant like = v.variant;
    like.form = Form::Chunk;
    if (v.variant.form == Form::Step &&
        variantName(like) == variantName(chunk.variant))
      return &v;
  }
  return nullptr;
}

} // namespace

int main(int argc, char **argv) {
  return selftest::testOnPack(
      argc, argv,
      [](PackReader &pack, selftest::Executor &executor) -> StatusOr<bool> {
        bool passed = true;
        int pairs = 0;
        for (const PackVariant &chunk : pack.manifest().variants) {
          const PackVariant *step = stepOf(pack, chunk);
          if (chunk.variant.form != Form::Chunk || !step ||
              !executor.supports(pack, chunk))
            continue;
          auto chunks = executor.load(pack, chunk);
          if (!chunks.ok())
            return chunks.status();
          auto steps = executor.load(pack, *step);
          if (!steps.ok())
            return steps.status();
          Prompt prompt(chunk.variant, step->variant, **chunks, **steps);
          passed &= Test(prompt, chunk.name()).run();
          ++pairs;
        }
        std::printf("%d pairs\n", pairs);
        return passed && pairs > 0;
      });
}
