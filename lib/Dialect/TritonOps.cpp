// Verifiers of the Triton IR subset. Labels are those of
// dialect/Triton/SPEC.md.
#include "kdac/Dialect/Triton.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::tt;

#include "kdac/Dialect/TritonDialect.cpp.inc"
#include "kdac/Dialect/TritonEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "kdac/Dialect/TritonTypes.cpp.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/TritonOps.cpp.inc"

void TritonDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "kdac/Dialect/TritonTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "kdac/Dialect/TritonOps.cpp.inc"
      >();
}

static RankedTensorType tensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

Type kdac::tt::pointeeOf(Type pointer) {
  auto pointee = cast<PointerType>(getElementTypeOrSelf(pointer)).getPointee();
  if (auto tensor = dyn_cast<RankedTensorType>(pointer))
    return tensor.clone(pointee);
  return pointee;
}

Type kdac::tt::maskOf(Type pointer) {
  Type bit = IntegerType::get(pointer.getContext(), 1);
  if (auto tensor = dyn_cast<RankedTensorType>(pointer))
    return tensor.clone(bit);
  return bit;
}

LogicalResult kdac::tt::verifyTensorSize(Operation *op) {
  // tensor C1
  auto isFine = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape())
      return true;
    int64_t elements = tensor.getNumElements();
    return elements > 0 && (elements & (elements - 1)) == 0 &&
           elements <= kMaxElements;
  };
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (!isFine(type))
      return op->emitOpError() << "expected tensors of a power of two of "
                                  "elements, at most "
                               << kMaxElements << ", but got " << type;
  return success();
}

//===-- Functions
//----------------------------------------------------------===//

void FuncOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                   FunctionType type) {
  state.addAttribute(SymbolTable::getSymbolAttrName(),
                     builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  state.addAttribute(getSymVisibilityAttrName(state.name),
                     builder.getStringAttr("public"));
  state.addRegion();
}

ParseResult FuncOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> arguments,
                      ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag, std::string &) {
    return builder.getFunctionType(arguments, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false,
      getFunctionTypeAttrName(result.name), buildType,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void FuncOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(
      printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
      getArgAttrsAttrName(), getResAttrsAttrName());
}

//===-- Shape
//--------------------------------------------------------------===//

LogicalResult MakeRangeOp::verify() {
  // make_range C1
  RankedTensorType type = tensorType(getResult());
  auto start = static_cast<int32_t>(getStart());
  auto end = static_cast<int32_t>(getEnd());
  if (type.getRank() != 1 || !type.getElementType().isInteger(32) ||
      type.getDimSize(0) != static_cast<int64_t>(end) - start)
    return emitOpError() << "expected a vector of i32 of the range's length, "
                            "but got "
                         << type << " for " << start << " to " << end;
  return success();
}

LogicalResult SplatOp::verify() {
  // splat C1
  RankedTensorType type = tensorType(getResult());
  if (type.getElementType() != getSrc().getType())
    return emitOpError() << "expected a tensor of " << getSrc().getType()
                         << ", but got " << type;
  return success();
}

LogicalResult ExpandDimsOp::verify() {
  // expand_dims C1
  RankedTensorType in = tensorType(getSrc()), out = tensorType(getResult());
  auto axis = static_cast<int32_t>(getAxis());
  SmallVector<int64_t> expected(in.getShape());
  bool inside = axis >= 0 && axis <= in.getRank();
  if (inside)
    expected.insert(expected.begin() + axis, 1);
  if (!inside || out != in.clone(expected))
    return emitOpError() << "expected a dimension of 1 to be inserted at "
                         << axis << ", but got " << in << " and " << out;
  return success();
}

LogicalResult BroadcastOp::verify() {
  // broadcast C1
  RankedTensorType in = tensorType(getSrc()), out = tensorType(getResult());
  bool fits = in.getRank() == out.getRank() &&
              in.getElementType() == out.getElementType();
  for (int64_t d = 0; fits && d < in.getRank(); ++d)
    fits = in.getDimSize(d) == 1 || in.getDimSize(d) == out.getDimSize(d);
  if (!fits)
    return emitOpError() << "expected dimensions of 1 to grow, but got " << in
                         << " and " << out;
  return success();
}

LogicalResult ReshapeOp::verify() {
  // reshape C1
  RankedTensorType in = tensorType(getSrc()), out = tensorType(getResult());
  if (in.getElementType() != out.getElementType() ||
      in.getNumElements() != out.getNumElements())
    return emitOpError() << "expected the same elements in another shape, but "
                            "got "
                         << in << " and " << out;
  return success();
}

LogicalResult TransOp::verify() {
  // trans C1
  RankedTensorType in = tensorType(getSrc()), out = tensorType(getResult());
  ArrayRef<int32_t> order = getOrder();
  SmallVector<int64_t> expected;
  llvm::SmallDenseSet<int32_t> seen;
  for (int32_t d : order)
    if (d >= 0 && d < in.getRank() && seen.insert(d).second)
      expected.push_back(in.getDimSize(d));
  if (static_cast<int64_t>(expected.size()) != in.getRank() ||
      static_cast<int64_t>(order.size()) != in.getRank() ||
      out != in.clone(expected))
    return emitOpError() << "expected dimensions in the order given, but got "
                         << in << " and " << out;
  return success();
}

LogicalResult AddPtrOp::verify() {
  // addptr C1
  auto shapeOf = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor ? tensor.getShape() : ArrayRef<int64_t>();
  };
  if (shapeOf(getPtr().getType()) != shapeOf(getOffset().getType()))
    return emitOpError() << "expected an offset per pointer, but got "
                         << getPtr().getType() << " and "
                         << getOffset().getType();
  return success();
}

//===-- Arithmetic across elements
//-----------------------------------------===//

LogicalResult DotOp::verify() {
  RankedTensorType a = tensorType(getA()), b = tensorType(getB());
  RankedTensorType c = tensorType(getC());
  // dot C1
  if (a.getRank() != 2 || b.getRank() != 2 || c.getRank() != 2 ||
      a.getDimSize(1) != b.getDimSize(0) ||
      c.getDimSize(0) != a.getDimSize(0) || c.getDimSize(1) != b.getDimSize(1))
    return emitOpError() << "expected (m x k) (k x n) -> (m x n), but got " << a
                         << ", " << b << " and " << c;
  // dot C2
  Type element = a.getElementType();
  if (b.getElementType() != element || !c.getElementType().isF32() ||
      !(element.isBF16() || element.isF16() || element.isF32()))
    return emitOpError()
           << "expected operands of one type out of bf16, f16 and "
              "f32 and sums of f32, but got "
           << a << ", " << b << " and " << c;
  return success();
}

/// The region takes two elements and gives one.
static LogicalResult verifyCombine(Operation *op, Region &region, Value src) {
  // combine C1
  Type element = tensorType(src).getElementType();
  Block &block = region.front();
  Operation *end = block.empty() ? nullptr : &block.back();
  bool fits = end && end->getNumOperands() == 1 &&
              end->getOperand(0).getType() == element &&
              block.getNumArguments() == 2;
  for (Type type : block.getArgumentTypes())
    fits &= type == element;
  if (!fits)
    return op->emitOpError() << "expected a region of two elements of type "
                             << element << " that gives one";
  return success();
}

LogicalResult ReduceOp::verify() {
  // reduce C1
  RankedTensorType in = tensorType(getSrc());
  auto axis = static_cast<int32_t>(getAxis());
  bool inside = axis >= 0 && axis < in.getRank();
  SmallVector<int64_t> rest(in.getShape());
  if (inside)
    rest.erase(rest.begin() + axis);
  Type expected = rest.empty() ? in.getElementType() : Type(in.clone(rest));
  if (!inside || getResult().getType() != expected)
    return emitOpError() << "expected the shape without dimension " << axis
                         << ", but got " << in << " and "
                         << getResult().getType();
  return verifyCombine(*this, getCombine(), getSrc());
}

LogicalResult ScanOp::verify() {
  // scan C1
  auto axis = static_cast<int32_t>(getAxis());
  if (axis < 0 || axis >= tensorType(getSrc()).getRank())
    return emitOpError() << "expected a dimension of " << getSrc().getType()
                         << ", but got " << axis;
  return verifyCombine(*this, getCombine(), getSrc());
}
