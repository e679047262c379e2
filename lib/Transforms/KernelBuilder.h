// Promises: the frame every tile kernel shares: arguments, the program's
// sequence, head and slice, mapped loads of token rows, state load and store.
// Does not: know the chunk or the step form.
#ifndef KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
#define KDAC_LIB_TRANSFORMS_KERNELBUILDER_H

#include "KernelFunction.h"
#include "Problem.h"

#include <vector>

namespace kdac {

/// What a kernel does of a sequence that is cut into segments (Segments.cpp).
enum class Part {
  Whole,  ///< all of it: the sequence is not cut
  Images, ///< what prepare passes to the chain, of every chunk
  First,  ///< the first segment
  Middle, ///< of those between the ends what becomes of any state
  Join,   ///< from that, every segment's initial state
  Late,   ///< all segments but the first
  Rest,   ///< all of it, of the programs that clusters with assistants leave
};

/// Builds one kernel function. After construction the insertion point is inside
/// its body and the members below are set.
class KernelBuilder : public KernelFunction {
public:
  KernelBuilder(mlir::func::FuncOp source, const Problem &problem,
                tile::ScheduleAttr schedule, Part part = Part::Whole);

  const Problem &problem;
  const Part part;
  int64_t imageBytes = 0; ///< of a chunk in the workspace, with segments

  /// Channels that one program convolves, and their cache.
  struct Channels {
    Value tokens, stride, weight, cache, pitch; ///< arguments
    Value first, count; ///< of the channels, among `all` of a token
    Value all;
    int64_t tileWidth, taps;
    bool isFull;      ///< layout of the cache
    std::string name; ///< q, k or v, where it is one of them
    /// Entries of the cache, and of those in use the first.
    int64_t entries() const { return isFull ? taps : taps - 1; }
  };

  int64_t keyTile, valueTile; ///< tile widths: K padded to 16, v_tile
  /// Of this program instance; of a program that goes from head to head, in its
  /// chunk loop of the present turn.
  Value sequence, keyHead, valueHead;
  Value begin, length;        ///< first token and number of tokens, index
  Value sequenceBegin;        ///< the same, where the sequence is not cut
  Value firstColumn, columns; ///< of the slice of V, index
  Value isOwned;              ///< i1 of pools: the sequence is not skipped

  /// `rows` token rows from token `first`, of which `valid` exist, as
  /// [rows, width] (rank 1 when rows is 0: one token), in their own dtype.
  Value loadKeyRows(llvm::StringRef name, Value first, int64_t rows,
                    Value valid);
  Value loadValueRows(Value first, int64_t rows, Value valid,
                      llvm::StringRef name = "v");
  /// One token's row of q, k or v in f32, convolved if the problem says so:
  /// then `inputs` gets what its taps saw, oldest first.
  Value loadConvolved(llvm::StringRef name, const MappedOperand &source,
                      Value token, llvm::SmallVectorImpl<Value> &inputs);
  /// What the norm of one token's output is multiplied with, or null.
  Value loadOutputGate(Value token);
  /// The output after its norm and gate `open`, if the problem has one.
  Value gated(Value out, Value open);
  /// beta as f32 [rows], or a scalar when rows is 0; null when absent.
  Value loadBeta(Value first, int64_t rows, Value valid);
  /// The gate operand of `rows` tokens in f32: [rows, K], [rows], or for one
  /// token (rows 0) [K] or a scalar. Null when absent.
  Value loadGate(Value first, int64_t rows, Value valid);
  /// The base-2 log-decay of what loadGate gave; zero on rows past `valid`.
  Value logDecay(Value gate, int64_t rows, Value valid);
  /// Writes [rows, v_tile] (or [v_tile]) of the output.
  void storeOut(Value out, Value first, Value valid);

  /// In chunk `number` of the loop: where tile-split-roles may keep its values.
  void markCut(Value number);

  Value loadState();
  /// Asks for the state of a program instance some way ahead, or for this one's
  /// where it is loaded late.
  void prefetchState();
  void storeState(Value state);

  /// Where rows of q, k and v lie in the workspace: one row a token, q, then k,
  /// then v, each from a multiple of 16 bytes on.
  struct ConvolvedRows {
    Value ref, stride;            ///< elements from one token to the next
    Value after;                  ///< bytes before the first row, or null: none
    llvm::StringMap<Value> start; ///< of q, k and v in a row
  };

  //===-- Log.cpp
  //-----------------------------------------------------------===//
  /// What one token does to a state, vectors of K and of the slice of V:
  /// decay, then + k wᵀ, then + a cᵀ.
  struct Update {
    Value decay; ///< factors [K] or a scalar; null: none
    Value k, w, a, c;
  };
  Value decayed(const Update &update, Value state);
  Value written(const Update &update, Value decayed);
  /// True if the kernel leaves the pool alone and keeps updates.
  bool keepsLog() const {
    dplr::RecurrenceOp op = problem.recurrence;
    return static_cast<bool>(op.getAccepted());
  }
  void storeLog(const Update &update, Value token);
  Update loadLog(Value token);
  /// Where a log with convolutions keeps what they saw of every token: rows as
  /// those of convolvedRows(), behind its own.
  ConvolvedRows loggedInputs();
  /// Puts a token's inputs there: the last of what each channel's taps saw.
  void logInputs(llvm::ArrayRef<Channels> channels,
                 llvm::ArrayRef<Value> inputs, Value token);
  /// Tokens of the sequence that are committed.
  Value committedTokens();
  /// Bytes of the log, as an expression of the call's sizes.
  std::string logBytes() const;
  /// The same if the sequence has `tokens` tokens; nothing with snapshots.
  void storeStateAfter(Value state, Value tokens);
  /// Writes the state after `token` to its snapshot's slot; nothing in kernels
  /// without snapshots.
  void storeSnapshot(Value state, Value token);
  /// The channels of this program's head in front of every convolved operand.
  /// Where several programs share a key head none has its caches.
  std::vector<Channels> allChannels();
  /// The inputs at `position` of the sequence, or from before it: entry `entry`
  /// of the slot it starts from. f32.
  Value inputAt(const Channels &channels, Value position, Value entry);
  /// The weights of one tap, oldest input first. f32.
  Value weightOf(const Channels &channels, int64_t tap);
  /// Reads, then writes, the newest inputs of the convolutions, entry by entry
  /// of each cache: reads first and all at once, since a cache changes in
  /// place.
  llvm::SmallVector<Value> loadCaches(llvm::ArrayRef<Channels> channels);
  void storeCaches(llvm::ArrayRef<Channels> channels,
                   llvm::ArrayRef<Value> kept);
  /// What the caches hold after a token whose taps saw `inputs`, of all
  /// channels: to the sequence's slot if it is the last of `tokens` tokens, and
  /// to the token's snapshot unless the sequence starts from its slot.
  void storeInputs(llvm::ArrayRef<Channels> channels,
                   llvm::ArrayRef<Value> inputs, Value tokens);
  /// Writes the newest inputs after every token to its snapshot's slot, last
  /// the slot that the sequence starts from, or with `onlySource` just that
  /// one; nothing in kernels without snapshots.
  void storeCacheSnapshots(llvm::ArrayRef<Channels> channels, bool onlySource);
  /// Parts of the gated norm: 1 / sqrt(mean + eps) of sums of squares, the
  /// weights [v_tile], and the activation of the gate's logits.
  Value inverseMean(Value squares);
  Value loadNormWeight();
  Value openGate(Value gate);

  /// From `after` bytes of the workspace on; null: from the first.
  ConvolvedRows convolvedRows(Value after = {});
  /// Bytes of those rows, as an expression of the call's sizes.
  std::string convolvedBytes() const;

  /// In a kernel of rows: which of `blocks` blocks of columns this program has,
  /// and tiles of the schedule's chunk rows in turn: `turn`, `turn + turns`,
  /// ... Sets the sequence. The grid goes with it, given `blocks` as a factor
  /// of an expression. Without turns a block has one program.
  struct RowProgram {
    Value block, turn, turns;
  };
  RowProgram locateRows(Value blocks, const std::string &expression,
                        bool inTurns = true);
  /// Brings the caches of a sequence without tokens to where it goes.
  void moveCaches(llvm::ArrayRef<Channels> channels);

  /// Part::Join: goes through the segments in order and turns what segment s
  /// does to a state into the state after it.
  void joinSegments();

  /// Ends the function.
  void finish();

  /// How many turns the chunk loop takes for `chunks` of the sequence.
  Value turnsOf(Value chunks);
  /// The chunk of turn `turn`; finds the head that it is of.
  Value enterTurn(Value turn);

private:
  void locateProgram();
  bool isSegment() const { return part != Part::Whole && part != Part::Rest; }
  Value keyHeadOf(Value head);
  Value clampProgram(Value id);
  Value programsBefore(int64_t slices);
  void locateSequence();
  void readConvolved();
  void locateSlots();
  void guardArguments(Value live);
  void guard(llvm::StringRef name, Value condition);

  //===-- Segments.cpp
  //------------------------------------------------------===//
  std::pair<Value, Value> locateSegment(Value id);
  void narrowToSegment();
  void guardSegment();
  Value startsAs(Value state);
  Value segmentState(Value number);
  Value segmentTransfer(Value number);
  Value transferMemory();
  std::pair<Value, Value> splitState(Value x);
  void storeMiddle(Value state);
  void awaitLaunch();
  Value heads();
  Value behindImages();

  void prefetchOwnState();
  Value isSlot(Value index);
  Value snapshotOf(Value token);
  Channels channelsOf(llvm::StringRef name, const MappedOperand &source);
  void loadGateParameters();
  Value mapGate(Value logits);
  Value loadRows(llvm::StringRef name, Value first, Value offset, int64_t rows,
                 Value valid, int64_t tileWidth, Value width,
                 int64_t fullWidth);
  /// Rows of one number per token and head.
  Value loadPerHead(llvm::StringRef name, Value first, int64_t rows,
                    Value valid);
  struct LogRow;
  LogRow logRow(Value token);
  void storeRow(const LogRow &row, Value vector, int64_t section, bool isKey);
  Value loadRow(const LogRow &row, int64_t section, bool isKey);
  struct StateAccess {
    Value base, stride;
    llvm::SmallVector<Value> valid;
    int64_t align;
    bool transposed;
  };
  StateAccess segmentAccess(Value base);
  void storeSegment(Value x, Value memory, Value base, Value condition);
  void storeNext(Value state, Value condition);
  /// Of the first `count` tokens, and to a slot.
  llvm::SmallVector<Value> loadCaches(llvm::ArrayRef<Channels> channels,
                                      Value count);
  void storeCaches(llvm::ArrayRef<Channels> channels,
                   llvm::ArrayRef<Value> kept, Value slot);
  Value unlessSnapshots(Value ref);
  StateAccess stateAccess(Value slot);
  void storeState(Value state, Value ref, Value slot);

  Value segment;       ///< number of this program's, index
  Value segments;      ///< of every sequence
  Value firstHead;     ///< Part::Images: of turn 0
  Value imageTurns;    ///< Part::Images: how many
  Value pastSequence;  ///< Part::Images: the number of its chunks
  Value lastSegment;   ///< the last that has tokens, or 0
  Value isReal;        ///< i1 of clusters: the program exists
  Value isTransfer;    ///< i1, Part::Middle: the program carries the identity
  Value tokenLimit;    ///< tokens of the call
  Value segmentMemory; ///< the workspace as f32
  Value isLive;        ///< i1, Part::First and Join: the program has a state

  Value source,
      slot;        ///< where the state comes from and goes to: sequence or slot
  Value hasSource; ///< i1: the sequence starts from a slot; null: always
  Value logGuard;  ///< i1: the sequence has a log
  Value valid;     ///< i1 of pools: a checked launch found no bad index
  llvm::StringMap<Value> given; ///< args before any guard
  llvm::StringMap<Value>
      starts; ///< of rows that begin inside a token, elements
  Value
      imagesAfter; ///< bytes of the workspace before a split's images, or null
  Value constantGate; ///< the head's logit where tokens share one
  Value gateRate;     ///< exp(A_log) of the head, kept finite, f32
  Value gateBias;     ///< dt_bias of the head: [K] or a scalar
};

/// The kernel that checks the indices of a pool kernel's calls. It comes first.
mlir::func::FuncOp buildSlotCheck(const KernelBuilder &kernel);

/// The three kernels of a call whose sequences are cut into segments, which
/// stands in for `kernel` where it has few programs of many chunks; gives the
/// size expression that says where.
std::string buildSegments(mlir::func::FuncOp source, const Problem &problem,
                          tile::ScheduleAttr schedule, int64_t count);

/// Fill the body of a kernel. dplr-to-tile's two forms.
void buildChunkForm(KernelBuilder &kernel);
void buildStepForm(KernelBuilder &kernel);
/// Replays what a log holds.
void buildCommit(KernelBuilder &kernel);

/// The kernels before and after the chunk form's, of schedules of form rows.
void buildConvolution(KernelBuilder &kernel);
void buildOutputNorm(KernelBuilder &kernel);
/// The kernel after a step whose value heads share key heads: brings the caches
/// of q and k, which all their programs have read, to the end of the sequence.
void buildKeyCaches(KernelBuilder &kernel);
/// The kernel beside a commit: brings all caches to the end of what is
/// committed, from the inputs in the log.
void buildLoggedCaches(KernelBuilder &kernel);

/// Bytes that every line of `count` elements is known to be aligned to.
inline int64_t lineAlignment(int64_t count, mlir::Type element) {
  int64_t bytes = count * tile::bytesOf(element);
  return std::min<int64_t>(16, bytes & -bytes);
}

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_KERNELBUILDER_H
