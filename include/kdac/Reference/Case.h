// Promises: one problem: a variant, sizes, inputs from a seed, poisoned
// outputs, and the argument array of a launch, in host memory. Does not: run
// anything, or judge results (Check.h).
#ifndef KDAC_REFERENCE_CASE_H
#define KDAC_REFERENCE_CASE_H

#include "kdac/Reference/Buffer.h"
#include "kdac/Reference/Recipe.h"
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/RowOps.h"
#include "kdac/Variant/Variant.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kdac::reference {

/// What to run. Plain data; `makeCase` allocates.
struct CaseSpec {
  Variant variant; ///< resolved
  /// Dense: `sequences` of `tokens` each, offsets absent. Packed when `lengths`
  /// is not empty: offsets given, `sequences` and `tokens` ignored.
  int64_t sequences = 1;
  int64_t tokens = 64;
  std::vector<int64_t> lengths;
  int64_t trailing =
      0;             ///< packed: tokens at the end that belong to no sequence
  int64_t heads = 1; ///< H
  int64_t valueHeads = 0; ///< HV; 0: H
  /// Of form rows: D; 0: the variant's width, or 256. `hasInitial`,
  /// `hasFinal` and `hasSlots` are about branch, sum and index there, and
  /// `sequences` is 1.
  int64_t columns = 0;
  /// Of form attention: `sequences` of `tokens` keys each, or `lengths`;
  /// `columns` is D, 0: the variant's key width. Indices out of range among the
  /// others, which must not be followed:
  bool hasBadIndices = false;
  /// Of form prompt: keys of each sequence beyond as many as it has rows, or
  /// below 0 short of them; empty: none. `hasInitial` and `hasFinal` are about
  /// `before` and `after`, `columns` is D, 0: the variant's key width.
  std::vector<int64_t> pasts;
  int64_t later = 0;
  /// Of form matmul: `lengths` are entries of each group; without them there is
  /// one group, and no list of tiles. `heads` are entries of a row of x,
  /// `hasSlots` and `hasFinal` are about `order` and `sums`, `columns` is D and
  /// this E:
  int64_t outputs = 200;
  std::string recipe = "random";
  uint64_t seed = 42;
  bool hasInitial = true; ///< h0; else null
  bool hasFinal = true;   ///< ht; else null
  bool hasALog = true;
  bool hasDtBias = true;
  std::optional<double> scale; ///< default K^-0.5; of attention 3
  /// Elements between the tokens of every strided tensor; a multiple of 8.
  int64_t tokenGap = 0;
  // Of variants with slots (Pool.h). Indices that are not given are drawn:
  // slots a random choice of the pool with a -1 among them.
  bool inPlace = true;      ///< ht is h0
  bool hasSlots = true;     ///< else sequence n has slot n
  bool hasSources = false;  ///< states come from slots of their own
  bool hasSnapshots = true; ///< of variants with snapshots
  bool checked = true;      ///< a status word
  std::vector<int64_t> slots, sources, snapshots;
  /// Of variants with a log: a second call commits `accepted`, drawn where it
  /// is not given; else the first alone runs.
  bool commits = true;
  std::vector<int64_t> accepted;
  bool hasCaches = true; ///< of variants with a convolution
  int64_t cacheGap = 0;  ///< elements between slots of a cache; a multiple of 8
  int64_t headGap = 0;   ///< elements between heads of a slot; a multiple of 8
  int64_t slotGap = 0;   ///< heads that a slot has room for beyond HV
  double gateNormalizer = 1.0; ///< of recipe fla: FLA's gln
  double gateMask = 0.0;       ///< of recipes fla and fla_packed: FLA's mask_p
  double gateFloor = -1e30; ///< of recipes fla and fla_packed: FLA's safe_gate
};

/// A short description for messages: variant, sizes, recipe.
std::string describe(const CaseSpec &spec);

/// The optional arguments that are null: " no-h0 no-ht", or nothing.
std::string describeAbsent(const CaseSpec &spec);

/// A spec with its memory. Movable; argument pointers survive a move.
class Case {
public:
  const CaseSpec &spec() const { return description; }
  int64_t sequences() const { return static_cast<int64_t>(bounds.size()) - 1; }
  /// Tokens of the buffers, trailing ones included.
  int64_t tokens() const { return bufferTokens; }
  /// Tokens that belong to a sequence.
  int64_t coveredTokens() const { return bounds.back(); }
  /// Sequence n is tokens offsets()[n] .. offsets()[n + 1], dense or packed.
  const std::vector<int64_t> &offsets() const { return bounds; }
  int64_t heads() const { return description.heads; }
  int64_t valueHeads() const { return description.valueHeads; }
  int64_t columns() const { return description.columns; }
  /// Rows that form rows' gather reads from: some that are not asked for.
  int64_t sourceRows() const { return bufferTokens + 3; }
  /// Of form rows' latent: columns that are normalised.
  int64_t rank() const;
  /// Of operations that make a row of several: how many; else 1.
  int64_t entries() const;
  /// Rows from one of mix's tensors to the next: with gaps, one that is
  /// nobody's.
  int64_t rowsOfEntry() const {
    return bufferTokens + (description.tokenGap ? 1 : 0);
  }
  float scale() const { return scaleValue; }

  /// Program instances for slices of `vTile` columns: N * HV * ceil(V / vTile).
  int64_t programs(int64_t vTile) const;

  /// The buffers that exist, in ABI order. Absent optional arguments have none.
  std::vector<Buffer> &buffers() { return tensors; }
  const std::vector<Buffer> &buffers() const { return tensors; }
  /// The buffer of an argument, or null when it is absent.
  Buffer *find(std::string_view name);
  const Buffer *find(std::string_view name) const;
  /// Its rows, for an oracle; none when it is absent.
  Rows rows(std::string_view name) const;
  /// The value of the size `name`, a tensor's stride; 0 when that is absent.
  int64_t strideOf(const std::string &name) const;

  /// Pointers to each argument in ABI order (cuLaunchKernel's convention): to a
  /// pointer, an int64_t or a float. Valid until the case dies or argv is
  /// called again. `addresses`, if given, replaces the address of every buffer,
  /// in the order of buffers(): for device copies.
  void **argv(const std::vector<void *> *addresses = nullptr);
  /// The scratch memory that argv passes on; null until then.
  void useWorkspace(void *address) { workspace = address; }
  /// Scratch memory of the host's, filled with 0xff: results must not depend on
  /// what it holds.
  void provideWorkspace(int64_t bytes);
  const void *workspaceAddress() const { return workspace; }

  /// Slots of the pool, and where a state lies in h0 and ht: row (slot, head).
  int64_t poolSlots() const { return poolCount; }
  int64_t poolRow(int64_t slot, int64_t head) const {
    return slot * (valueHeads() + description.slotGap) + head;
  }
  /// Indices in use: slots of sequences, where their states come from, and of
  /// tokens (empty: no snapshots).
  const std::vector<int64_t> &slots() const { return slotOf; }
  const std::vector<int64_t> &sources() const { return sourceOf; }
  const std::vector<int64_t> &snapshots() const { return snapshotOf; }
  /// Of a variant with a log: how many tokens the second call commits.
  const std::vector<int64_t> &accepted() const { return acceptedOf; }
  /// True if there is a second call; argv is that call's from `commit` on.
  bool commits() const { return !acceptedOf.empty(); }
  void commit(bool isSecond) { committing = isSecond; }
  bool isSlot(int64_t index) const { return index >= 0 && index < poolCount; }
  /// The pool before the run: h0 itself changes in place.
  const Buffer *poolBefore() const { return before.get(); }
  /// The pool that is written: ht, or h0 in place. Null: none.
  const Buffer *poolAfter() const;

  /// A convolution's cache before the run; null if there is none.
  const Buffer *cacheBefore(std::string_view name) const;

  /// Poisons the outputs, for another run.
  void poisonOutputs();

private:
  friend Case makeCase(CaseSpec spec);
  void addBuffers();
  void choosePool(); // Pool.cpp
  void fillIndices();
  void restorePool();
  void keepCaches();
  int64_t sizeOf(const std::string &name) const;
  void fill();
  void fillPlaces(Buffer &buffer);

  CaseSpec description;
  std::vector<int64_t> bounds;
  int64_t bufferTokens = 0;
  float scaleValue = 1.0f;
  std::vector<Arg> args;
  int64_t poolCount = 0;
  std::vector<int64_t> slotOf, sourceOf, snapshotOf, acceptedOf;
  bool committing = false;
  std::shared_ptr<Buffer> before;
  std::vector<std::shared_ptr<Buffer>> cachesBefore;
  std::vector<Buffer> tensors;
  std::vector<uint64_t> values; ///< argument values: pointer, int64 or float
  void *workspace = nullptr;
  std::vector<std::byte> workspaceMemory;
  std::vector<void *> pointers;
};

/// The sentence that says why `spec` cannot be a case, if it cannot.
std::optional<std::string> validate(const CaseSpec &spec);

/// Allocates and fills a valid spec.
Case makeCase(CaseSpec spec);

/// The operands of the oracle that read the buffers of `c`, which must outlive
/// them: inputs are taken as stored, after rounding to their types.
Operands operandsOf(const Case &c);
RowOperands rowOperandsOf(const Case &c);

/// The oracle's results, of any form.
Results oracleOf(const Case &c, int threads = 0);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_CASE_H
