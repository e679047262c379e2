// From a variant to its dplr function.
#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/ElementType.h"
#include "kdac/Pipeline/Pipeline.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace kdac {

namespace {

class Frontend {
public:
  Frontend(MLIRContext &context, const Variant &variant)
      : variant(variant), row(variant.row()),
        module(ModuleOp::create(UnknownLoc::get(&context))),
        b(UnknownLoc::get(&context), module->getBodyRegion()) {}

  OwningOpRef<ModuleOp> build();

private:
  OwningOpRef<ModuleOp> buildRows();
  OwningOpRef<ModuleOp> buildAttention();
  OwningOpRef<ModuleOp> buildPrompt();
  OwningOpRef<ModuleOp> buildMatmul();
  RankedTensorType tensor(ArrayRef<int64_t> shape, DType dtype) {
    return RankedTensorType::get(shape, elementType(b.getContext(), dtype));
  }
  void createFunction();
  SmallVector<Type>
  resultTypes(ArrayRef<std::pair<StringRef, Type>> arguments) const;
  using Arguments = SmallVector<std::pair<StringRef, Type>>;
  void addLayer(Arguments &list);
  Value convolved(StringRef name);
  Value normalised(StringRef name);
  Value gated(Value out);
  Value logDecay();
  Value writeStrength();

  static constexpr int64_t dyn = ShapedType::kDynamic;
  const Variant &variant;
  const Recurrence &row;
  OwningOpRef<ModuleOp> module;
  ImplicitLocOpBuilder b;
  llvm::StringMap<Value> args;
  RankedTensorType outType, stateType;
  SmallVector<Value> caches; ///< after the convolutions
};

} // namespace

void Frontend::createFunction() {
  int64_t key = variant.keyDim, value = variant.valueDim;
  bool vFirst = variant.stateLayout == StateLayout::VK;
  auto keys = tensor({dyn, dyn, key}, variant.dtype);
  outType = tensor({dyn, dyn, value}, variant.dtype);
  stateType = tensor({dyn, dyn, vFirst ? value : key, vFirst ? key : value},
                     variant.stateDtype);
  SmallVector<std::pair<StringRef, Type>> list = {
      {"q", keys}, {"k", keys}, {"v", outType}};
  SmallVector<int64_t> gateShape;
  if (row.decay == Decay::Channel)
    gateShape = {dyn, dyn, key};
  else if (row.decay == Decay::Head)
    gateShape = {dyn, dyn};
  else if (row.decay == Decay::HeadConstant)
    gateShape = {dyn};
  if (!gateShape.empty())
    list.push_back({"g", tensor(gateShape, *variant.gateDtype)});
  if (*variant.beta != Beta::None)
    list.push_back({"beta", tensor({dyn, dyn}, variant.dtype)});
  if (*variant.gate == Gate::Softplus || *variant.gate == Gate::Bounded) {
    list.push_back({"A_log", tensor({dyn}, DType::F32)});
    list.push_back(
        {"dt_bias", tensor(ArrayRef(gateShape).drop_front(), DType::F32)});
  }
  if (row.erase == Erase::Pair) {
    list.push_back({"a", keys});
    list.push_back({"b", keys});
  }
  addLayer(list);
  list.push_back({"h0", stateType});
  if (variant.slots) {
    list.push_back({"slots", tensor({dyn}, *variant.slots)});
    list.push_back({"sources", tensor({dyn}, *variant.slots)});
  }
  if (variant.snapshots)
    list.push_back({"snapshots", tensor({dyn}, *variant.slots)});
  if (variant.log)
    list.push_back({"accepted", tensor({dyn}, *variant.slots)});
  list.push_back({"offsets", tensor({dyn}, variant.offsetDtype)});
  list.push_back({"scale", b.getF32Type()});
  auto types =
      llvm::map_to_vector(list, [](auto &entry) { return entry.second; });
  auto function = func::FuncOp::create(
      b, entryName(variant), b.getFunctionType(types, resultTypes(list)));
  auto form =
      variant.form == Form::Chunk ? dplr::Form::Chunk : dplr::Form::Step;
  function->setAttr("dplr.form", dplr::FormAttr::get(b.getContext(), form));
  b.setInsertionPointToStart(function.addEntryBlock());
  for (auto [entry, argument] : llvm::zip(list, function.getArguments()))
    args[entry.first] = argument;
}

/// Arguments of the parts around the recurrence.
void Frontend::addLayer(Arguments &list) {
  if (variant.conv) {
    int64_t taps = variant.conv, key = variant.keyDim;
    for (StringRef name : {"q_conv", "k_conv", "v_conv"})
      list.push_back(
          {name, tensor({dyn, name[0] == 'v' ? variant.valueDim : key, taps},
                        variant.dtype)});
    bool full = variant.cacheLayout == CacheLayout::Full;
    for (StringRef name : {"q_cache", "k_cache", "v_cache"}) {
      int64_t width = name[0] == 'v' ? variant.valueDim : key;
      list.push_back(
          {name, full ? tensor({dyn, dyn, width, taps}, variant.dtype)
                      : tensor({dyn, taps - 1, dyn, width}, variant.dtype)});
    }
  }
  if (variant.norm != OutputNorm::None) {
    list.push_back({"z", outType});
    list.push_back({"norm_weight", tensor({variant.valueDim}, DType::F32)});
  }
}

/// Output, state, and what the convolutions keep.
SmallVector<Type>
Frontend::resultTypes(ArrayRef<std::pair<StringRef, Type>> arguments) const {
  SmallVector<Type> types = {outType, stateType};
  for (auto [name, type] : arguments)
    if (name.ends_with("_cache"))
      types.push_back(type);
  return types;
}

Value Frontend::convolved(StringRef name) {
  Value x = args.lookup(name);
  if (!variant.conv)
    return x;
  Value cache = args.lookup((name + "_cache").str());
  auto layout = variant.cacheLayout == CacheLayout::Full
                    ? dplr::CacheLayout::Full
                    : dplr::CacheLayout::History;
  auto conv = dplr::ShortConvOp::create(
      b, x.getType(), cache.getType(), layout, x,
      args.lookup((name + "_conv").str()), cache, args.lookup("slots"),
      args.lookup("sources"), args.lookup("snapshots"), args.lookup("accepted"),
      args.lookup("offsets"));
  caches.push_back(conv.getAfter());
  return conv.getResult();
}

Value Frontend::gated(Value out) {
  if (variant.norm == OutputNorm::None)
    return out;
  auto activation = variant.norm == OutputNorm::Sigmoid
                        ? dplr::Activation::Sigmoid
                        : dplr::Activation::Silu;
  return dplr::GatedRmsNormOp::create(
      b, out.getType(), activation, out, args.lookup("z"),
      args.lookup("norm_weight"), llvm::APFloat(variant.normEps));
}

Value Frontend::normalised(StringRef name) {
  Value x = convolved(name);
  if (!*variant.l2norm)
    return x;
  return dplr::L2NormOp::create(b, x.getType(), x, llvm::APFloat(1e-6));
}

Value Frontend::logDecay() {
  Value logits = args.lookup("g");
  if (!logits)
    return {};
  auto result =
      tensor(cast<RankedTensorType>(logits.getType()).getShape(), DType::F32);
  dplr::GateMap map = dplr::GateMap::Identity;
  FloatAttr bound;
  if (*variant.gate == Gate::Softplus)
    map = dplr::GateMap::Softplus;
  if (*variant.gate == Gate::Bounded) {
    map = dplr::GateMap::Bounded;
    bound = b.getF64FloatAttr(variant.lowerBound);
  }
  return dplr::LogDecayOp::create(b, result, map, logits, args.lookup("A_log"),
                                  args.lookup("dt_bias"), bound);
}

Value Frontend::writeStrength() {
  Value x = args.lookup("beta");
  if (!x)
    return {};
  dplr::BetaMap map = *variant.beta == Beta::Sigmoid ? dplr::BetaMap::Sigmoid
                      : *variant.beta == Beta::TwoSigmoid
                          ? dplr::BetaMap::TwoSigmoid
                          : dplr::BetaMap::Identity;
  return dplr::WriteStrengthOp::create(b, x.getType(), map, x);
}

/// One op on the function's arguments; D is known when the kernel is called.
OwningOpRef<ModuleOp> Frontend::buildRows() {
  auto rows = tensor({dyn, dyn}, variant.dtype);
  Type f32 = b.getF32Type();
  Type weight = tensor({dyn}, DType::F32), indices = tensor({dyn}, DType::I32);
  SmallVector<Type> types = {rows};
  bool isSitu = variant.rows == RowOp::Situ;
  if (variant.rows == RowOp::Gather)
    types.push_back(indices);
  else if (variant.rows == RowOp::Combine)
    types.append(
        {tensor({dyn, dyn}, DType::I32), tensor({dyn, dyn}, DType::F32)});
  else if (variant.rows == RowOp::Mix)
    types = {tensor({dyn, dyn, dyn}, variant.dtype), weight, f32};
  else if (variant.rows == RowOp::Latent)
    types.append({weight, indices, indices, tensor({dyn, dyn}, DType::I32),
                  rows, b.getI64Type(), f32});
  else
    types.push_back(rows);
  if (variant.rows == RowOp::Norm)
    types.append({weight, f32});
  if (isSitu)
    types.append({f32, f32});
  SmallVector<Type> results(variant.rows == RowOp::Norm ? 2 : 1, rows);
  auto function = func::FuncOp::create(b, entryName(variant),
                                       b.getFunctionType(types, results));
  function->setAttr("dplr.form",
                    dplr::FormAttr::get(b.getContext(), dplr::Form::Rows));
  b.setInsertionPointToStart(function.addEntryBlock());
  ValueRange x = function.getArguments();
  auto width = static_cast<uint64_t>(variant.width);
  Operation *op = nullptr;
  if (variant.rows == RowOp::Norm)
    op = dplr::RmsNormOp::create(b, rows, rows, x[0], x[1], x[2], x[3], width);
  else if (variant.rows == RowOp::Latent)
    op = dplr::LatentOp::create(b, rows, x[0], x[1], x[7], x[2], x[3], x[4],
                                x[6], x[5], width);
  else if (variant.rows == RowOp::Mix)
    op = dplr::MixOp::create(b, rows, x[0], x[1], x[2], width);
  else if (variant.rows == RowOp::Add)
    op = dplr::AddOp::create(b, rows, x[0], x[1]);
  else if (variant.rows == RowOp::Gather)
    op = dplr::GatherOp::create(b, rows, x[0], x[1]);
  else if (variant.rows == RowOp::Combine)
    op = dplr::CombineOp::create(b, rows, x[0], x[1], x[2]);
  else
    op = dplr::GatedProductOp::create(
        b, rows,
        isSitu                        ? dplr::Product::Situ
        : variant.rows == RowOp::Silu ? dplr::Product::Silu
                                      : dplr::Product::Sigmoid,
        x[0], x[1], isSitu ? x[2] : Value(), isSitu ? x[3] : Value());
  func::ReturnOp::create(b, op->getResults());
  return std::move(module);
}

/// One op on the function's arguments, sizes as of rows.
OwningOpRef<ModuleOp> Frontend::buildAttention() {
  auto rows = tensor({dyn, dyn, dyn}, variant.dtype);
  auto numbers = tensor({dyn}, DType::I32);
  SmallVector<Type> types = {rows,    rows,    tensor({dyn, dyn}, DType::I32),
                             numbers, numbers, b.getF32Type()};
  auto function = func::FuncOp::create(b, entryName(variant),
                                       b.getFunctionType(types, rows));
  function->setAttr("dplr.form",
                    dplr::FormAttr::get(b.getContext(), dplr::Form::Attention));
  b.setInsertionPointToStart(function.addEntryBlock());
  ValueRange x = function.getArguments();
  auto op = dplr::LatentAttentionOp::create(
      b, rows, x[0], x[1], x[2], x[3], x[4], x[5],
      static_cast<uint64_t>(variant.keyDim),
      static_cast<uint64_t>(variant.valueDim));
  func::ReturnOp::create(b, op.getResult());
  return std::move(module);
}

/// The same of form prompt.
OwningOpRef<ModuleOp> Frontend::buildPrompt() {
  auto rows = tensor({dyn, dyn, dyn}, variant.dtype);
  auto shared = tensor({dyn, dyn}, variant.dtype);
  auto numbers = tensor({dyn}, DType::I32);
  auto averages = tensor({dyn, dyn, dyn}, DType::F32);
  auto logs = tensor({dyn, dyn}, DType::F32);
  SmallVector<Type> types = {rows,    rows,           shared,
                             numbers, numbers,        averages,
                             logs,    b.getI64Type(), b.getF32Type()};
  auto function = func::FuncOp::create(
      b, entryName(variant), b.getFunctionType(types, {rows, averages, logs}));
  function->setAttr("dplr.form",
                    dplr::FormAttr::get(b.getContext(), dplr::Form::Prompt));
  b.setInsertionPointToStart(function.addEntryBlock());
  ValueRange x = function.getArguments();
  auto op = dplr::PromptAttentionOp::create(
      b, rows, averages, logs, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7],
      x[8], static_cast<uint64_t>(variant.keyDim),
      static_cast<uint64_t>(variant.valueDim));
  func::ReturnOp::create(b, op.getResults());
  return std::move(module);
}

/// The same of form matmul.
OwningOpRef<ModuleOp> Frontend::buildMatmul() {
  auto rows = tensor({dyn, dyn}, variant.dtype);
  auto sums = tensor({dyn, dyn}, DType::F32);
  auto weights = tensor({dyn, dyn, dyn}, variant.dtype);
  auto numbers = tensor({dyn}, DType::I32);
  bool isGated = variant.rows != RowOp::None;
  bool isSitu = variant.rows == RowOp::Situ;
  SmallVector<Type> types = {rows, weights};
  if (isGated)
    types.push_back(weights);
  types.append({numbers, numbers, numbers, b.getI64Type()});
  if (isSitu)
    types.append(2, b.getF32Type());
  auto function = func::FuncOp::create(b, entryName(variant),
                                       b.getFunctionType(types, {rows, sums}));
  function->setAttr("dplr.form",
                    dplr::FormAttr::get(b.getContext(), dplr::Form::Matmul));
  b.setInsertionPointToStart(function.addEntryBlock());
  ValueRange x = function.getArguments(), rest = x.drop_front(isGated ? 3 : 2);
  dplr::ProductAttr kind;
  if (isGated)
    kind = dplr::ProductAttr::get(b.getContext(), isSitu ? dplr::Product::Situ
                                                         : dplr::Product::Silu);
  auto op = dplr::GroupedMatmulOp::create(
      b, rows, sums, x[0], x[1], isGated ? x[2] : Value(), rest[0], rest[1],
      rest[2], rest[3], kind, isSitu ? rest[4] : Value(),
      isSitu ? rest[5] : Value());
  func::ReturnOp::create(b, op.getResults());
  return std::move(module);
}

OwningOpRef<ModuleOp> Frontend::build() {
  if (variant.form == Form::Matmul)
    return buildMatmul();
  if (variant.form == Form::Prompt)
    return buildPrompt();
  if (variant.form == Form::Attention)
    return buildAttention();
  if (variant.form == Form::Rows)
    return buildRows();
  createFunction();
  Value q = normalised("q"), k = normalised("k");
  auto precision = static_cast<dplr::Precision>(variant.precision);
  auto layout = variant.stateLayout == StateLayout::VK ? dplr::Layout::VK
                                                       : dplr::Layout::KV;
  auto recurrence = dplr::RecurrenceOp::create(
      b, outType, stateType, q, k, convolved("v"), logDecay(), writeStrength(),
      args.lookup("a"), args.lookup("b"), args.lookup("h0"),
      args.lookup("slots"), args.lookup("sources"), args.lookup("snapshots"),
      args.lookup("accepted"), args.lookup("offsets"), args.lookup("scale"),
      row.erase == Erase::Delta, layout, precision);
  SmallVector<Value> results = {gated(recurrence.getOut()),
                                recurrence.getFinalState()};
  results.append(caches);
  func::ReturnOp::create(b, results);
  return std::move(module);
}

OwningOpRef<ModuleOp> buildDplrModule(MLIRContext &context,
                                      const Variant &variant) {
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  return Frontend(context, variant).build();
}

} // namespace kdac
