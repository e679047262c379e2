// Promises: what one compiled kernel is: every compile-time choice, its name,
// its arguments in ABI order. Does not: choose a schedule, know a launch
// geometry, or depend on LLVM.
#ifndef KDAC_VARIANT_VARIANT_H
#define KDAC_VARIANT_VARIANT_H

#include "kdac/Variant/Recurrence.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdac {

enum class Form {
  Chunk,
  Step,
  Rows,      ///< no recurrence: an operation on rows of one width, a RowOp
  Attention, ///< no recurrence: a token a sequence attends to latent rows
  Prompt,    ///< no recurrence: rows attend to expanded keys, causally
  Matmul,    ///< no recurrence: rows times the weights of their groups
};
/// What a kernel of form rows computes, on rows of D elements.
enum class RowOp {
  None,    ///< not of form rows
  Norm,    ///< s = x + branch, y = s / sqrt(mean(s²) + eps) * weight
  Add,     ///< y = x + branch
  Silu,    ///< y = gate * sigmoid(gate) * up
  Situ,    ///< y = beta tanh(gate / beta) sigmoid(gate) * linear tanh(up /
           ///< linear)
  Sigmoid, ///< y = sigmoid(gate) * up
  Gather,  ///< y_t = x_index[t]
  Combine, ///< y_t = sum over j of scales[t, j] * x_index[t, j]
  Latent,  ///< a row behind a page table: its first `rank` columns normalised
  Mix,     ///< y = sum over j of softmax_j(score of x_j) * x_j
};
enum class DType { BF16, F16, F32, I32, I64, I8 };
enum class StateLayout {
  VK, ///< [N, HV, V, K], the default
  KV, ///< [N, HV, K, V]
};
/// The inputs that a causal convolution of width W keeps, D channels.
enum class CacheLayout {
  Full,    ///< [slots, D, W], oldest first; the newest W - 1 are used
  History, ///< [slots, W - 1, D], oldest first
};
/// The gate of the output's RMS norm.
enum class OutputNorm { None, Sigmoid, Silu };
enum class Precision { Fast, Default, High };

/// Every compile-time choice of a kernel. `resolve` fills what is unset.
struct Variant {
  std::string recurrence = "kda";
  Form form = Form::Chunk;
  int64_t keyDim = 128;      ///< of forms attention and prompt: the most
  int64_t valueDim = 128;    ///< elements of a key, and of a value
  DType dtype = DType::BF16; ///< of q, k, v, beta, out (and a, b)
  DType stateDtype = DType::F32;
  StateLayout stateLayout = StateLayout::VK;
  std::optional<Gate> gate; ///< default: the recurrence's row
  std::optional<DType>
      gateDtype; ///< default: f32 for precomputed log-decay, else dtype
  std::optional<Beta> beta;       ///< default: the recurrence's row
  std::optional<bool> l2norm;     ///< default: the recurrence's row
  double lowerBound = -5.0;       ///< of the bounded gate, in (-inf, 0)
  DType offsetDtype = DType::I32; ///< of packed offsets: i32 or i64
  /// States in a pool of slots, found through indices of this type, i32 or i64.
  std::optional<DType> slots;
  /// Step form with slots: the state after each token goes to a slot of its
  /// own.
  bool snapshots = false;
  /// Step form with slots: a call leaves the pool alone and keeps a log of its
  /// tokens in the workspace; a second one commits the accepted ones.
  bool log = false;
  /// Width of a causal convolution with SiLU in front of q, k and v, 2 to 4; 0:
  /// none.
  int64_t conv = 0;
  CacheLayout cacheLayout = CacheLayout::Full;
  /// RMS norm of the output per head, times a gate.
  OutputNorm norm = OutputNorm::None;
  double normEps = 1e-5; ///< on the mean of squares
  Precision precision = Precision::Default;
  /// Of form rows; of form matmul none, or silu or situ, which join two
  /// products.
  RowOp rows = RowOp::None;
  /// Of operations that hold a row at once (holdsRow): the longest that the
  /// kernel takes; of latent, of the normalised columns and of those behind
  /// them. The others take any.
  int64_t width = 0;
  std::string target = "host"; ///< a row of lib/Target/Targets.cpp

  const Recurrence &row() const { return *findRecurrence(recurrence); }
};

/// Fills the unset options from the recurrence's row. Returns a sentence that
/// names option, value and what would work when the variant cannot exist.
std::optional<std::string> resolve(Variant &variant);

/// The variant's name without and with its target, options in a fixed order,
/// e.g. `kda.chunk.k128v128.bf16.f32vk.bounded.sm_90a`. Options equal to the
/// recurrence's defaults are not spelled, except the gate. Resolved variants
/// only.
std::string variantStem(const Variant &variant);
std::string variantName(const Variant &variant);

/// The symbol of the kernel that checks a pool variant's indices before it
/// runs: takes the same arguments, one program instance.
std::string checkEntryName(const Variant &variant);

/// The symbol of the kernel: the name with '.' and '-' replaced by '_'.
std::string entryName(const Variant &variant);

/// How an argument is passed and what it points to.
enum class ArgKind {
  Input,     ///< read-only device pointer
  Output,    ///< written device pointer
  Workspace, ///< scratch in device memory; null where the schedule needs none
  Size,      ///< int64 by value
  Scale,     ///< float by value
};

/// One kernel argument. Shapes are in terms of N sequences, H key heads, HV
/// value heads, K, V, `tokens`: all tokens of the call, sequence after
/// sequence, and `pool`: slots of a state pool.
struct Arg {
  std::string name;
  ArgKind kind;
  DType dtype;
  bool optional = false; ///< a null pointer is allowed and means absent
  std::string shape;     ///< for people: "[tokens, H, K]"
};

/// Arguments in ABI order: q k v g beta A_log dt_bias a b, q_conv k_conv v_conv
/// q_cache k_cache v_cache, z norm_weight, h0 slots sources snapshots accepted
/// offsets out ht workspace (chunk form, and with a log; whatever its schedule,
/// so that schedules are interchangeable) status, then sizes (N T H HV, pool
/// slot_pitch head_pitch, q_cache_pitch k_cache_pitch v_cache_pitch, and one
/// token stride, in elements, per sequence tensor), then scale. Absent tensors
/// have neither a pointer nor a stride. Without offsets every sequence has T
/// tokens; with them T is the number of all tokens.
///
/// Of form rows: x branch weight sum out (norm), x branch out (add), gate up
/// out (silu, situ, sigmoid), x index out (gather), x index scales out
/// (combine), x weight slots positions table out (latent) or x query out (mix),
/// then sizes, strides and scales (eps; situ: beta, linear). Sizes are T rows
/// and D elements of one; of gather and combine R rows of x; of combine and mix
/// E entries of a row, of mix x_pitch elements from one tensor to the next; of
/// latent rank normalised columns, R rows of out, and S slots of P pages of
/// `page` rows. Outputs may be inputs of the same place.
///
/// Of form attention: q pages table slots lengths out workspace, then sizes (N
/// sequences, H heads, D elements of a cached row and of a query, R of those,
/// elements of a value, P pages, S rows of the table, table_pitch entries of
/// one), then scale.
///
/// Of form prompt: q kv shared offsets key_offsets before before_logs out after
/// after_logs, then sizes (N sequences, H heads, D elements of a query, R of
/// those that all heads' keys share, E elements of a value, T rows of the
/// longest sequence, `later` keys that follow in other calls, and one row
/// stride for q, kv, shared and out), then scale.
///
/// Of form matmul: x weights up (with silu or situ) tiles starts order out
/// sums, then sizes (T entries, which are rows of out and sums, D elements of a
/// row of x, E of one of out, R rows of x, G groups, `tile_count` tiles of up
/// to matmulRows entries, `each` entries of a row of x, and one row stride for
/// x, out and sums), then scales (situ: beta, linear). tiles and starts are
/// absent together, of one group, whose tiles follow one another.
///
/// With slots, h0 and ht are pools, as a rule the same one: head hv of slot s
/// is the contiguous matrix at `s * slot_pitch + hv * head_pitch` elements.
/// docs/DECODE.md has the meaning of the indices and of the status word.
std::vector<Arg> kernelArgs(const Variant &variant);

/// Bytes of one element.
int64_t dtypeSize(DType dtype);

/// What a kernel computes, for people: its recurrence's equation or its
/// operation's.
std::string_view equationOf(const Variant &variant);

/// Cached rows of a page, of form attention. Longer pages are several of these.
constexpr int64_t pageKeys = 64;

/// Entries of a tile of form matmul.
constexpr int64_t matmulRows = 128;

/// True if the form computes a recurrence.
bool isRecurrent(Form form);

/// True of operations that read rows by index.
bool picksRows(RowOp op);
/// True of operations that hold a row at once.
bool holdsRow(RowOp op);
/// True of operations that make each row of E others.
bool hasEntries(RowOp op);

/// Entries of one channel of a convolution's cache: W or W - 1.
int64_t cacheEntries(const Variant &variant);

// Spellings, as used in names, flags and manifests. `parse*` return nothing on
// an unknown spelling; `*Choices` list what is accepted, comma separated.
std::string_view spell(Form);
std::string_view spell(DType);
std::string_view spell(StateLayout);
std::string_view spell(Precision);
std::string_view spell(CacheLayout);
std::string_view spell(OutputNorm);
std::string_view spell(RowOp);
std::string_view spell(Gate);
std::string_view spell(Beta);
std::string_view spell(Decay);
std::optional<Form> parseForm(std::string_view);
std::optional<DType> parseDType(std::string_view);
std::optional<StateLayout> parseStateLayout(std::string_view);
std::optional<CacheLayout> parseCacheLayout(std::string_view);
std::optional<OutputNorm> parseOutputNorm(std::string_view);
std::optional<RowOp> parseRowOp(std::string_view);
std::optional<Precision> parsePrecision(std::string_view);
std::optional<Gate> parseGate(std::string_view);
std::optional<Beta> parseBeta(std::string_view);

} // namespace kdac

#endif // KDAC_VARIANT_VARIANT_H
