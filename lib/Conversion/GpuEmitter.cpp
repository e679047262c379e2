#include "GpuEmitter.h"

using namespace mlir;

namespace kdac {

Value GpuEmitter::i32(int64_t value) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(value));
}
Value GpuEmitter::i64(int64_t value) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(value));
}
Value GpuEmitter::add(Value a, Value b) {
  return createOrFold<arith::AddIOp>(a, b);
}
Value GpuEmitter::add(Value a, int64_t b) {
  return b == 0 ? a : add(a, i32(b));
}
Value GpuEmitter::mul(Value a, int64_t b) {
  return b == 1 ? a : createOrFold<arith::MulIOp>(a, i32(b));
}
Value GpuEmitter::div(Value a, int64_t b) {
  return b == 1 ? a : createOrFold<arith::DivUIOp>(a, i32(b));
}
Value GpuEmitter::rem(Value a, int64_t b) {
  return b == 1 ? i32(0) : createOrFold<arith::RemUIOp>(a, i32(b));
}
Value GpuEmitter::mul64(Value a, Value b) {
  return createOrFold<arith::MulIOp>(a, b);
}
Value GpuEmitter::add64(Value a, int64_t b) {
  return b == 0 ? a : createOrFold<arith::AddIOp>(a, i64(b));
}
Value GpuEmitter::less(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::slt, a, b);
}

Value GpuEmitter::equal(Value a, Value b) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, a, b);
}
Value GpuEmitter::isPresent(Value pointer, bool isHidden) {
  Value address = LLVM::PtrToIntOp::create(*this, getI64Type(), pointer);
  if (isHidden)
    address = opaqueSize(address);
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ne, address,
                               i64(0));
}

Value GpuEmitter::toI64(Value a) {
  if (a.getType().isIndex())
    return arith::IndexCastOp::create(*this, getI64Type(), a);
  if (a.getType().isInteger(64))
    return a;
  return arith::ExtSIOp::create(*this, getI64Type(), a);
}

Value GpuEmitter::toI32(Value a) {
  if (a.getType().isInteger(32))
    return a;
  return arith::TruncIOp::create(*this, getI32Type(), toI64(a));
}

Value GpuEmitter::at(Coord coord) {
  if (!coord.base)
    return i32(coord.offset);
  return add(coord.base, coord.offset);
}

Value GpuEmitter::f32(double value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(value));
}

Value GpuEmitter::intrinsic(StringRef name, Type type, ValueRange args) {
  return LLVM::CallIntrinsicOp::create(*this, type, getStringAttr(name), args)
      .getResult(0);
}

Value GpuEmitter::exp2(Value x) {
  return intrinsic("llvm.nvvm.ex2.approx.ftz.f32", getF32Type(), x);
}
Value GpuEmitter::log2(Value x) {
  return intrinsic("llvm.nvvm.lg2.approx.ftz.f", getF32Type(), x);
}
Value GpuEmitter::rsqrt(Value x) {
  return intrinsic("llvm.nvvm.rsqrt.approx.ftz.f", getF32Type(), x);
}
Value GpuEmitter::reciprocal(Value x) {
  return intrinsic("llvm.nvvm.rcp.approx.ftz.f", getF32Type(), x);
}
Value GpuEmitter::addF(Value a, Value b) {
  return arith::AddFOp::create(*this, a, b, arith::FastMathFlags::contract);
}
Value GpuEmitter::mulF(Value a, Value b) {
  return arith::MulFOp::create(*this, a, b, mathFlags);
}
Value GpuEmitter::negF(Value a) { return arith::NegFOp::create(*this, a); }
Value GpuEmitter::fma(Value a, Value b, Value c) {
  return LLVM::FMAOp::create(*this, a, b, c);
}

Value GpuEmitter::pointer(Value base, Value index64, Type element) {
  Type stored = isa<FloatTF32Type>(element) ? getF32Type() : element;
  return LLVM::GEPOp::create(*this, base.getType(), stored, base,
                             ArrayRef<LLVM::GEPArg>{index64});
}

Value GpuEmitter::bytes(Value base, Value offset32, int64_t constant) {
  Value pointer = base;
  if (offset32)
    pointer = LLVM::GEPOp::create(*this, base.getType(), getI8Type(), pointer,
                                  ArrayRef<LLVM::GEPArg>{offset32});
  if (constant)
    pointer = LLVM::GEPOp::create(
        *this, base.getType(), getI8Type(), pointer,
        ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(constant)});
  return pointer;
}

/// One half of a 32-bit word as f32. bf16 is f32's upper half.
Value GpuEmitter::unpack16(Value word, bool high, Type element) {
  if (element.isBF16()) {
    Value bits = high ? createOrFold<arith::AndIOp>(word, i32(0xffff0000))
                      : createOrFold<arith::ShLIOp>(word, i32(16));
    return arith::BitcastOp::create(*this, getF32Type(), bits);
  }
  if (high)
    word = createOrFold<arith::ShRUIOp>(word, i32(16));
  Value half = arith::TruncIOp::create(*this, getI16Type(), word);
  Value narrow = arith::BitcastOp::create(*this, element, half);
  return arith::ExtFOp::create(*this, getF32Type(), narrow);
}

Value GpuEmitter::pack16(Value low, Value high, Type element) {
  auto pairType = VectorType::get({2}, getF32Type());
  Value pair = LLVM::PoisonOp::create(*this, pairType);
  pair = LLVM::InsertElementOp::create(*this, pair, low, i32(0));
  pair = LLVM::InsertElementOp::create(*this, pair, high, i32(1));
  Value halves =
      LLVM::FPTruncOp::create(*this, VectorType::get({2}, element), pair);
  return LLVM::BitcastOp::create(*this, getI32Type(), halves);
}

GpuEmitter::Values GpuEmitter::unpack(ValueRange words, Type element) {
  if (bytesOf(element) != 2)
    return Values(words);
  Values result;
  for (Value word : words)
    for (bool high : {false, true})
      result.push_back(unpack16(word, high, element));
  return result;
}

GpuEmitter::Values GpuEmitter::load(Value pointer, Type element, int64_t count,
                                    int64_t align, bool invariant) {
  auto loadAs = [&](Type type) {
    auto op = LLVM::LoadOp::create(*this, type, pointer, align);
    op.setInvariant(invariant);
    return op.getResult();
  };
  bool narrow = bytesOf(element) == 2;
  if (narrow && count == 1) {
    Value bits = loadAs(getI16Type());
    Value word = arith::ExtUIOp::create(*this, getI32Type(), bits);
    return {unpack16(word, false, element)};
  }
  int64_t words = narrow ? count / 2 : count;
  Type word = narrow ? Type(getI32Type()) : Type(getF32Type());
  if (words == 1)
    return unpack(Values{loadAs(word)}, element);
  Value vector = loadAs(VectorType::get({words}, word));
  Values result;
  for (int64_t i = 0; i < words; ++i)
    result.append(
        unpack(Values{LLVM::ExtractElementOp::create(*this, vector, i32(i))},
               element));
  return result;
}

GpuEmitter::Values GpuEmitter::loadIf(Value condition, Value pointer,
                                      Type element, int64_t count,
                                      int64_t align, bool invariant) {
  int64_t size = bytesOf(element);
  std::string space = invariant ? "ld.global.nc" : "ld.global";
  if (size == 2 && count == 1) {
    Values bits = assembly("mov.b16 $0, 0; @$2 " + space + ".b16 $0, [$1];",
                           "=&h,l,b", getI16Type(), {pointer, condition});
    Value word = arith::ExtUIOp::create(*this, getI32Type(), bits[0]);
    return {unpack16(word, false, element)};
  }
  if (size == 2 && align < 4) {
    Values result;
    for (int64_t i = 0; i < count; ++i)
      result.append(loadIf(condition, bytes(pointer, {}, i * size), element, 1,
                           size, invariant));
    return result;
  }
  bool isPair = size == 2;
  return unpack(loadWordsIf(condition, pointer, isPair, count * size / 4, align,
                            invariant),
                element);
}

GpuEmitter::Values GpuEmitter::loadWordsIf(Value condition, Value pointer,
                                           bool isPair, int64_t count,
                                           int64_t align, bool invariant) {
  std::string space = invariant ? "ld.global.nc" : "ld.global";
  int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(16, align) / 4);
  Type word = isPair ? Type(getI32Type()) : Type(getF32Type());
  Values result;
  for (int64_t first = 0; first < count; first += pieces) {
    int64_t n = std::min(pieces, count - first);
    std::string text, list, constraints;
    for (int64_t i = 0; i < n; ++i) {
      std::string name = "$" + std::to_string(i);
      text += "mov.b32 " + name + ", 0; ";
      list += (i ? ", " : "") + name;
      constraints += isPair ? "=&r," : "=&f,";
    }
    text += "@$" + std::to_string(n + 1) + " " + space;
    if (n > 1)
      list = "{" + list + "}";
    text += (n > 1 ? ".v" + std::to_string(n) : std::string()) +
            (isPair ? ".b32 " : ".f32 ") + list + ", [$" + std::to_string(n);
    text += first ? " + " + std::to_string(first * 4) + "];" : "];";
    result.append(assembly(text, constraints + "l,b",
                           SmallVector<Type>(static_cast<size_t>(n), word),
                           {pointer, condition}));
  }
  return result;
}

Value GpuEmitter::loadScalarIf(Value condition, Value pointer, Type element,
                               Value otherwise) {
  // Not said to be invariant: ptxas would move it to where it is needed.
  if (!isa<IntegerType>(element)) {
    Value loaded = loadIf(condition, pointer, element, 1, bytesOf(element))[0];
    return arith::SelectOp::create(*this, condition, loaded, otherwise);
  }
  // Into a wider register a load extends the sign.
  std::string type = element.isInteger(64) ? "s64" : "s32";
  return assembly("mov.b64 $0, $2; @$3 ld.global." + type + " $0, [$1];",
                  "=&l,l,l,b", getI64Type(),
                  {pointer, toI64(otherwise), condition})[0];
}

Value GpuEmitter::toTF32(Value x) {
  return NVVM::ConvertFloatToTF32Op::create(*this, getI32Type(), x,
                                            NVVM::FPRoundingMode::RNA);
}

void GpuEmitter::store(ValueRange elements, Value pointer, Type element,
                       int64_t align) {
  if (bytesOf(element) == 2 && elements.size() == 1) {
    Value value = arith::TruncFOp::create(*this, element, elements[0]);
    LLVM::StoreOp::create(*this, value, pointer, align);
    return;
  }
  Values words;
  if (bytesOf(element) == 2)
    for (size_t i = 0; i < elements.size(); i += 2)
      words.push_back(pack16(elements[i], elements[i + 1], element));
  else
    words.assign(elements.begin(), elements.end());
  if (isa<FloatTF32Type>(element))
    for (Value &word : words)
      word = LLVM::BitcastOp::create(*this, getF32Type(), toTF32(word));
  if (words.size() == 1) {
    LLVM::StoreOp::create(*this, words[0], pointer, align);
    return;
  }
  auto type =
      VectorType::get({static_cast<int64_t>(words.size())}, words[0].getType());
  Value vector = LLVM::PoisonOp::create(*this, type);
  for (auto [i, word] : llvm::enumerate(words))
    vector = LLVM::InsertElementOp::create(*this, vector, word, i32(i));
  LLVM::StoreOp::create(*this, vector, pointer, align);
}

LLVM::LoopAnnotationAttr GpuEmitter::rolled() {
  auto unroll = LLVM::LoopUnrollAttr::get(getContext(), getBoolAttr(true), {},
                                          {}, {}, {}, {}, {});
  return LLVM::LoopAnnotationAttr::get(getContext(), {}, {}, {}, unroll, {}, {},
                                       {}, {}, {}, {}, {}, {}, {}, {}, {});
}

void GpuEmitter::barrier() { NVVM::BarrierOp::create(*this); }
void GpuEmitter::barrierIf(Value condition) {
  assembly("@$0 bar.sync 0;", "b,~{memory}", {}, condition);
}

Value GpuEmitter::shuffleXor(Value x, int64_t mask) {
  return NVVM::ShflOp::create(*this, x.getType(), i32(-1), x, i32(mask),
                              i32(31), NVVM::ShflKind::bfly, UnitAttr());
}

Value GpuEmitter::sumLanes(Value x, ArrayRef<int64_t> laneMasks) {
  for (int64_t mask : laneMasks)
    x = addF(x, shuffleXor(x, mask));
  return x;
}

void GpuEmitter::memoryFence() {
  LLVM::InlineAsmOp::create(*this, TypeRange(), ValueRange(), "", "~{memory}",
                            /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(), ArrayAttr());
}

Value GpuEmitter::opaqueThread(Value thread) {
  return NVVM::ShflOp::create(*this, getI32Type(), i32(-1), thread,
                              rem(thread, 32), i32(31), NVVM::ShflKind::idx,
                              UnitAttr());
}

/// `value` through an empty piece of assembly.
static Value hidden(GpuEmitter &b, Value value, StringRef constraint) {
  auto op = LLVM::InlineAsmOp::create(
      b, TypeRange{value.getType()}, ValueRange{value}, "",
      ("=" + constraint + ",0").str(),
      /*has_side_effects=*/true, /*is_align_stack=*/false,
      LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  return op.getResult(0);
}

Value GpuEmitter::opaqueSize(Value size64) {
  return hidden(*this, size64, "l");
}

Value GpuEmitter::opaqueWord(Value word) { return hidden(*this, word, "r"); }

GpuEmitter::Values GpuEmitter::ldmatrix(Value pointer, int64_t count,
                                        bool transposed) {
  SmallVector<Type> types(count, getI32Type());
  Type result =
      count == 1 ? Type(getI32Type())
                 : Type(LLVM::LLVMStructType::getLiteral(getContext(), types));
  auto shape = NVVM::LdStMatrixShapeAttr::get(getContext(), 8, 8);
  Value loaded = NVVM::LdMatrixOp::create(
      *this, result, pointer, static_cast<uint32_t>(count),
      transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row, shape,
      NVVM::LdStMatrixEltType::B16);
  Values registers;
  for (int64_t i = 0; i < count; ++i)
    registers.push_back(
        count == 1 ? loaded : LLVM::ExtractValueOp::create(*this, loaded, i));
  return registers;
}

void GpuEmitter::mma(MutableArrayRef<Value> accumulators, ValueRange a,
                     ValueRange b, Type element) {
  bool isTF32 = isa<FloatTF32Type>(element);
  auto kind = isTF32             ? NVVM::MMATypes::tf32
              : element.isBF16() ? NVVM::MMATypes::bf16
                                 : NVVM::MMATypes::f16;
  Values aWords(a.begin(), a.end()), bWords(b.begin(), b.end());
  if (element.isF16()) {
    // The f16 form takes its registers as pairs of halves.
    auto pair = VectorType::get({2}, element);
    for (Values *words : {&aWords, &bWords})
      for (Value &word : *words)
        word = LLVM::BitcastOp::create(*this, pair, word);
  }
  int64_t depth = static_cast<int64_t>(aWords.size()) * (isTF32 ? 2 : 4);
  SmallVector<Type> types(4, getF32Type());
  auto result = LLVM::LLVMStructType::getLiteral(getContext(), types);
  Value sum = NVVM::MmaOp::create(
      *this, result, aWords, bWords, ValueRange(accumulators),
      ArrayRef<int64_t>{16, 8, depth}, std::nullopt, std::nullopt,
      std::array<NVVM::MMATypes, 2>{kind, kind},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  for (int i = 0; i < 4; ++i)
    accumulators[i] = LLVM::ExtractValueOp::create(*this, sum, i);
}

} // namespace kdac
