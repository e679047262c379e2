#include "kdac/SelfTest/Plan.h"
#include "kdac/Reference/Tolerance.h"

#include <cstdlib>

namespace kdac::selftest {

namespace {

using reference::CaseSpec;

/// A variant this small affords one case with more sequence-heads than a grid's
/// y dimension holds.
constexpr int64_t smallState = 64 * 64;

CaseSpec dense(int64_t sequences, int64_t tokens, int64_t heads,
               int64_t valueHeads, const char *recipe = "random") {
  CaseSpec spec;
  spec.sequences = sequences;
  spec.tokens = tokens;
  spec.heads = heads;
  spec.valueHeads = valueHeads;
  spec.recipe = recipe;
  return spec;
}

CaseSpec packed(std::vector<int64_t> lengths, int64_t heads, int64_t valueHeads,
                const char *recipe = "random") {
  CaseSpec spec = dense(1, 0, heads, valueHeads, recipe);
  spec.lengths = std::move(lengths);
  return spec;
}

CaseSpec bare(CaseSpec spec) {
  spec.hasInitial = spec.hasALog = spec.hasDtBias = false;
  return spec;
}

CaseSpec spaced(CaseSpec spec) {
  spec.trailing = 3;
  spec.tokenGap = 16;
  return spec;
}

CaseSpec stateless(CaseSpec spec) {
  spec.hasInitial = spec.hasFinal = false;
  return spec;
}

std::vector<CaseSpec> chunkCases() {
  return {
      dense(2, 197, 2, 2),
      spaced(packed({0, 1, 37, 0, 64, 130, 15, 0}, 1, 2)),
      dense(1, 100, 2, 2, "correlated"),
      bare(dense(1, 129, 1, 3, "gate_extreme")),
      packed({70, 0, 17}, 1, 2, "saturated_A"),
      stateless(dense(1, 65, 1, 1, "large_v")),
      dense(1, 96, 2, 4, "tiny_qk"),
      dense(1, 75, 1, 2, "huge_v"),
      dense(1, 75, 1, 2, "faint_v"),
      dense(2, 0, 1, 2),
  };
}

std::vector<CaseSpec> stepCases() {
  return {
      dense(5, 1, 2, 4),
      spaced(packed({0, 1, 3, 0, 1, 0}, 1, 2)),
      dense(1, 40, 2, 2, "correlated"),
      bare(dense(2, 7, 1, 3, "gate_extreme")),
      packed({3, 0, 1}, 1, 2, "saturated_A"),
      stateless(dense(2, 3, 1, 1, "large_v")),
      dense(1, 24, 2, 4, "tiny_qk"),
      dense(2, 0, 1, 2),
  };
}

/// Pools: beside the cases of every step kernel, indices of all kinds.
std::vector<CaseSpec> poolCases(int64_t tokens) {
  CaseSpec each = packed({5, 1, 8, 2, 0, 3, 7, 4, 6}, 1, 2);
  each.hasSources = true;
  CaseSpec beside = dense(6, tokens, 2, 4);
  beside.inPlace = false;
  CaseSpec apart = dense(7, tokens, 2, 2);
  apart.hasSources = true;
  apart.headGap = 32;
  apart.slotGap = 2;
  CaseSpec order = dense(4, tokens, 1, 2);
  order.hasSlots = order.checked = order.hasSnapshots = false;
  CaseSpec wild = dense(4, tokens, 1, 2);
  wild.slots = {2, 1000000000, -9, 0};
  wild.checked = false;
  CaseSpec outside = dense(4, tokens, 1, 2);
  outside.slots = {2, 1, 1000000000, 0};
  CaseSpec twice = dense(40, tokens, 1, 1);
  for (int64_t n = 0; n < 40; ++n)
    twice.slots.push_back(n == 37 ? 5 : n);
  CaseSpec lost = dense(4, tokens, 1, 2);
  lost.slots = {3, 1, 0, 2};
  lost.hasSources = true;
  lost.sources = {5, -1, 1000000000, 4};
  CaseSpec changing = lost;
  changing.sources = {5, 0, 6, 4};
  return {each, beside, apart, order, wild, outside, twice, lost, changing};
}

/// The first index that is no slot, as a slot and as a source; unchecked, and
/// checked. One slot for neighbours. Snapshots in the slots that sequences
/// start from.
std::vector<CaseSpec> poolEdges(const Variant &variant, int64_t tokens) {
  CaseSpec slot = dense(4, tokens, 1, 2);
  slot.variant = variant;
  slot.checked = false;
  CaseSpec source = slot;
  source.hasSources = true;
  slot.slots = {2, reference::makeCase(slot).poolSlots(), -1, 0};
  source.slots = {3, 1, 0, 2};
  source.sources = {5, reference::makeCase(source).poolSlots(), -1, 4};
  CaseSpec checked = slot;
  checked.checked = true;
  CaseSpec neighbours = checked;
  neighbours.slots = {3, 1, 1, 0};
  std::vector<CaseSpec> edges = {slot, source, checked, neighbours};
  if (variant.snapshots) {
    CaseSpec over = dense(2, 3, 1, 2);
    over.hasSources = true;
    over.slots = {6, 7};
    over.sources = {1, 2};
    over.snapshots = {1, 3, 4, 5, 0, 2};
    edges.push_back(over);
  }
  return edges;
}

/// Rows of the longest length, of one access, and of lengths between; no row at
/// all; absent operands; indices in and outside of what there is.
std::vector<CaseSpec> rowCases(const Variant &v) {
  int64_t access = 16 / dtypeSize(v.dtype);
  int64_t longest =
      (v.width ? reference::longestRow(v) : 2304) / access * access;
  auto of = [&](int64_t rows, int64_t columns, const char *recipe = "random") {
    CaseSpec spec = dense(1, rows, 1, 1, recipe);
    spec.columns = std::max(access, columns / access * access);
    return spec;
  };
  CaseSpec spaced = of(6, longest / 3);
  spaced.tokenGap = 16;
  CaseSpec alone = of(3, longest);
  alone.hasInitial = alone.hasFinal = alone.hasSlots = false;
  return {of(7, longest),
          spaced,
          alone,
          of(1, access),
          of(130, longest / 9),
          of(2, longest - access, "gate_extreme"),
          of(2, longest / 2, "large_v"),
          of(0, longest)};
}

/// Lengths around pages and none; more heads than a program has, and one;
/// narrow rows; bad indices; lengths for one split of a sequence, and for all.
std::vector<CaseSpec> attentionCases(const Variant &v) {
  auto of = [](std::vector<int64_t> lengths, int64_t heads,
               const char *recipe = "random") {
    return packed(std::move(lengths), heads, heads, recipe);
  };
  CaseSpec bad = of({130, 70, 192, 10}, 7);
  bad.hasBadIndices = true;
  CaseSpec order = of({33, 65}, 12);
  order.hasSlots = false;
  CaseSpec narrow = of({100, 64}, 4);
  narrow.columns = v.keyDim / 3 / 8 * 8;
  std::vector<CaseSpec> all = {of({0, 1, 63, 64, 65, 200}, 5),
                               of({129}, 33),
                               bad,
                               of({300, 0, 129}, 16),
                               order,
                               narrow,
                               of({90}, 1, "correlated"),
                               of({1}, 64, "large_v"),
                               of({0, 0}, 3)};
  // A share for every multiprocessor: a program has all of its sequence.
  std::vector<int64_t> lengths(34, 1);
  lengths[3] = 330;
  lengths[20] = 65;
  all.push_back(of(lengths, 64));
  return all;
}

/// Rows around tiles and none, pasts of whole turns and of parts of one, keys
/// that other calls have, fewer keys than rows; narrow rows; hard values.
std::vector<CaseSpec> promptCases(const Variant &v) {
  auto of = [](std::vector<int64_t> rows, std::vector<int64_t> pasts,
               int64_t heads, const char *recipe = "random") {
    CaseSpec spec = packed(std::move(rows), heads, heads, recipe);
    spec.pasts = std::move(pasts);
    spec.hasInitial = spec.hasFinal = false;
    return spec;
  };
  CaseSpec first = of({150}, {130}, 2); // of three blocks of keys
  first.later = 200;
  first.hasFinal = true;
  CaseSpec middle = of({300}, {-44}, 2); // where the rows' own keys begin
  middle.later = 90;
  middle.hasInitial = middle.hasFinal = true;
  CaseSpec last = of({300}, {-210}, 3); // behind most rows
  last.hasInitial = true;
  CaseSpec gaps = of({70, 1, 129}, {0, 40, 3}, 2);
  gaps.trailing = 3;
  gaps.tokenGap = 16;
  CaseSpec narrow = of({100, 64}, {30, 0}, 3);
  narrow.columns = v.keyDim / 3 / 8 * 8;
  CaseSpec large = of({140}, {60}, 2);
  large.scale = 12.0;
  return {of({0, 1, 63, 64, 65, 130, 0}, {5, 0, 1, 64, 63, 0, 0}, 3),
          of({257}, {0}, 2),
          of({2, 3}, {384, 511}, 5),
          first,
          middle,
          last,
          gaps,
          narrow,
          large,
          of({70}, {20}, 2, "correlated"),
          of({33, 90}, {0, 0}, 1, "large_v"),
          of({140}, {0}, 1, "tiny_qk"),
          of({0, 0}, {0, 9}, 2)};
}

/// Groups around tiles and none, one group without a list, rows by an order
/// and as they are; columns of one access, of several programs, of parts of a
/// turn; numbers that name nothing; no entries, no columns in common.
std::vector<CaseSpec> matmulCases(const Variant &v) {
  int64_t access = 16 / dtypeSize(v.dtype);
  auto of = [&](std::vector<int64_t> lengths, int64_t each, int64_t columns,
                int64_t outputs, const char *recipe = "random") {
    CaseSpec spec = packed(std::move(lengths), each, each, recipe);
    spec.columns = columns / access * access;
    spec.outputs = outputs;
    return spec;
  };
  auto one = [&](int64_t entries, int64_t columns, int64_t outputs) {
    CaseSpec spec = of({}, 1, columns, outputs);
    spec.tokens = entries;
    spec.hasSlots = false;
    return spec;
  };
  CaseSpec sorted = of({130, 0, 7, 256}, 1, 136, 74);
  sorted.hasSlots = sorted.hasFinal = false;
  CaseSpec gaps = of({64, 65}, 2, 64, 264);
  gaps.trailing = 3;
  gaps.tokenGap = 16;
  CaseSpec bad = of({100, 140, 0, 9}, 3, 200, 136);
  bad.hasBadIndices = true;
  CaseSpec picked = one(150, 328, 40);
  picked.hasSlots = true;
  picked.heads = picked.valueHeads = 4;
  std::vector<CaseSpec> all = {of({0, 1, 127, 0, 128, 129, 0}, 8, 192, 128),
                               sorted,
                               gaps,
                               bad,
                               picked,
                               one(300, 256, 520),
                               one(1, access, access),
                               one(129, 72, 278),
                               of({0, 0}, 2, 64, 64),
                               one(3, 0, 64)};
  // Near the top of the range products of two of which do not fit f16.
  if (v.rows == RowOp::None)
    all.push_back(of({33, 90}, 2, 100, 64, "large_v"));
  return all;
}

bool parseCount(const std::string &text, int64_t &value) {
  char *end = nullptr;
  errno = 0;
  value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0 && value >= 0 &&
         value <= (int64_t(1) << 40);
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

bool parseTokens(const std::string &text, BenchShape &shape) {
  std::vector<std::string> parts = split(text, '+');
  if (parts.size() == 1)
    return parseCount(text, shape.tokens);
  shape.lengths.resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parseCount(parts[i], shape.lengths[i]))
      return false;
  shape.sequences = static_cast<int64_t>(parts.size());
  return true;
}

bool parseShape(const std::string &text, BenchShape &shape) {
  std::vector<std::string> parts = split(text, ':');
  if (parts.size() != 4 && parts.size() != 5)
    return false;
  std::optional<Form> form = parseForm(parts[0]);
  if (!form || !parseCount(parts[1], shape.sequences) ||
      !parseTokens(parts[2], shape) || !parseCount(parts[3], shape.heads))
    return false;
  shape.form = *form;
  shape.valueHeads = shape.heads;
  if (parts.size() == 5 && !parseCount(parts[4], shape.valueHeads))
    return false;
  bool isRows = shape.form == Form::Rows;
  if (isRows && (shape.sequences != 1 || !shape.lengths.empty()))
    return false;
  bool isMatmul = shape.form == Form::Matmul;
  return shape.sequences > 0 && shape.heads > 0 && shape.valueHeads > 0 &&
         (isMatmul || shape.valueHeads % shape.heads == 0);
}

} // namespace

/// True where the products of a row that outweighs all others are f32: of
/// queries with their own keys, and beside an erase of all keys, which decays
/// of channels would round. Else one cosine would decide the error.
static bool keepsOwnProducts(const Variant &variant) {
  const Recurrence &row = variant.row();
  bool roundsKeys = row.erase != Erase::None && row.decay == Decay::Channel;
  bool isRefined = reference::hasRefinedSchedule(variant) && !roundsKeys &&
                   variant.precision != Precision::Fast;
  return isRefined ||
         reference::productsOf(variant) == reference::Products::F32;
}

std::vector<CaseSpec> casesOf(const Variant &variant, uint64_t seed,
                              bool many) {
  auto cases = [&] {
    switch (variant.form) {
    case Form::Chunk:
      return chunkCases();
    case Form::Step:
      return stepCases();
    case Form::Rows:
      return rowCases(variant);
    case Form::Attention:
      return attentionCases(variant);
    case Form::Prompt:
      return promptCases(variant);
    case Form::Matmul:
      return matmulCases(variant);
    }
    return std::vector<CaseSpec>();
  };
  std::vector<CaseSpec> specs = cases();
  if (isRecurrent(variant.form) && !*variant.l2norm &&
      keepsOwnProducts(variant))
    specs.push_back(dense(1, 70, 1, 2, "long_qk"));
  if (variant.slots)
    for (CaseSpec &spec : poolCases(variant.form == Form::Chunk ? 70 : 4))
      specs.push_back(std::move(spec));
  if (many && isRecurrent(variant.form) &&
      variant.keyDim * variant.valueDim <= smallState) {
    CaseSpec most = stateless(dense(65537, 1, 1, 1));
    most.checked = false; // every index with every other takes half a minute
    specs.push_back(most);
  }
  if (many && variant.form == Form::Chunk) {
    // More programs a head than small grids have: the other way to join
    // segments.
    specs.push_back(dense(1, 70, 18, 18));
    // More programs of whole heads than any GPU has multiprocessors.
    specs.push_back(packed({0, 70, 33, 400, 5, 96, 0, 200, 1}, 24, 24));
    specs.push_back(dense(5, 97, 17, 34));
  }
  if (isRecurrent(variant.form)) // no sequence at all
    specs.push_back(dense(0, 5, 1, 2));
  if (variant.slots)
    for (CaseSpec &spec :
         poolEdges(variant, variant.form == Form::Chunk ? 70 : 4))
      specs.push_back(std::move(spec));
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].variant = variant;
    specs[i].seed = seed + i;
  }
  return specs;
}

bool suits(const Variant &variant, const BenchShape &shape) {
  return shape.form == variant.form &&
         (variant.width == 0 || shape.heads <= reference::longestRow(variant));
}

std::vector<int64_t> BenchShape::allLengths() const {
  return lengths.empty()
             ? std::vector<int64_t>(static_cast<size_t>(sequences), tokens)
             : lengths;
}

std::vector<int64_t> BenchShape::bounds() const {
  std::vector<int64_t> bounds = {0};
  for (int64_t length : allLengths())
    bounds.push_back(bounds.back() + length);
  return bounds;
}

int64_t BenchShape::allTokens() const {
  int64_t sum = lengths.empty() ? sequences * tokens : 0;
  for (int64_t length : lengths)
    sum += length;
  return sum;
}

int64_t BenchShape::longest() const {
  return lengths.empty() ? tokens
                         : *std::max_element(lengths.begin(), lengths.end());
}

std::string BenchShape::spelled() const {
  std::string list = lengths.empty() ? std::to_string(tokens) : "";
  for (int64_t length : lengths)
    list += (list.empty() ? "" : "+") + std::to_string(length);
  return std::string(spell(form)) + ":" + std::to_string(sequences) + ":" +
         list + ":" + std::to_string(heads) +
         (valueHeads == heads ? "" : ":" + std::to_string(valueHeads));
}

StatusOr<std::vector<BenchShape>> parseShapes(const std::string &text) {
  std::vector<BenchShape> shapes;
  if (text.empty())
    return shapes;
  for (const std::string &part : split(text, ',')) {
    BenchShape shape;
    if (!parseShape(part, shape))
      return Status(ErrorCode::InvalidArgument,
                    "shape '" + part +
                        "' is not FORM:N:T:H[:HV], such as chunk:1:8192:96, "
                        "step:64:1:96 or chunk:1:1300+547+0:12:24");
    shapes.push_back(shape);
  }
  return shapes;
}

} // namespace kdac::selftest
