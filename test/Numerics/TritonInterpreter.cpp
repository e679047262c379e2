#include "TritonInterpreter.h"

#include "kdac/Reference/Float.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <functional>

using namespace mlir;

namespace kdac::reference {

namespace {

/// A scalar (no shape) or a tensor, row-major: floats as f32, integers
/// sign-extended, pointers as addresses.
struct Data {
  SmallVector<int64_t> shape;
  std::vector<float> f;
  std::vector<int64_t> i;

  size_t size() const { return std::max(f.size(), i.size()); }
};

int64_t wrapped(int64_t x, Type type) {
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  return width == 64  ? x
         : width == 1 ? x & 1
                      : static_cast<int64_t>(static_cast<int32_t>(x));
}

float rounded(float x, Type type) {
  if (type.isBF16())
    return floatOfBF16(bf16Of(x));
  return type.isF16() ? floatOfHalf(halfOf(x)) : x;
}

/// Elements before, along and after a dimension.
struct Lines {
  int64_t outer = 1, size, inner = 1;
  Lines(ArrayRef<int64_t> shape, int64_t axis) : size(shape[axis]) {
    for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
      (d < axis ? outer : inner) *= d == axis ? 1 : shape[d];
  }
  int64_t at(int64_t o, int64_t k, int64_t i) const {
    return (o * size + k) * inner + i;
  }
};

class Interpreter {
public:
  Interpreter(int64_t program, int64_t programs,
              const std::vector<Extent> &extents)
      : program(program), programs(programs), extents(extents) {}

  std::optional<std::string> run(tt::FuncOp kernel, void **argv);

private:
  void runBlock(Block &block);
  void run(Operation *op);
  void runLoop(scf::ForOp loop);
  void runConstant(arith::ConstantOp op);
  void runCompare(arith::CmpIOp op);
  void runLoad(tt::LoadOp op);
  void runStore(tt::StoreOp op);
  void runDot(tt::DotOp op);
  void runSum(Value src, Value result, int64_t axis, bool isScan);
  void runShape(Operation *op);
  void *address(int64_t pointer, int64_t bytes);

  /// Valid until the next value is made.
  const Data &get(Value value) { return values.find(value)->second; }
  Data empty(Value result) {
    Data data;
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      data.shape.assign(type.getShape().begin(), type.getShape().end());
    int64_t size = 1;
    for (int64_t d : data.shape)
      size *= d;
    if (isa<FloatType>(getElementTypeOrSelf(result.getType())))
      data.f.resize(size);
    else
      data.i.resize(size);
    return data;
  }
  void floats(Operation *op, const std::function<float(float, float)> &f);
  void ints(Operation *op, const std::function<int64_t(int64_t, int64_t)> &f);
  void fail(const Twine &text) {
    if (!failure)
      failure = text.str();
  }

  int64_t program, programs;
  const std::vector<Extent> &extents;
  llvm::DenseMap<Value, Data> values;
  std::optional<std::string> failure;
};

} // namespace

//===-- Elementwise
//--------------------------------------------------------===//

void Interpreter::floats(Operation *op,
                         const std::function<float(float, float)> &f) {
  Data out = empty(op->getResult(0));
  const Data &a = get(op->getOperand(0));
  const Data &b = get(op->getOperand(op->getNumOperands() - 1));
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  for (size_t n = 0; n < out.f.size(); ++n)
    out.f[n] = rounded(f(a.f[n], b.f[n]), type);
  values[op->getResult(0)] = std::move(out);
}

void Interpreter::ints(Operation *op,
                       const std::function<int64_t(int64_t, int64_t)> &f) {
  Data out = empty(op->getResult(0));
  const Data &a = get(op->getOperand(0));
  const Data &b = get(op->getOperand(op->getNumOperands() - 1));
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  bool isPointer = isa<tt::PointerType>(type);
  for (size_t n = 0; n < out.i.size(); ++n) {
    int64_t x = f(a.i[n], b.i[n]);
    out.i[n] = isPointer ? x : wrapped(x, type);
  }
  values[op->getResult(0)] = std::move(out);
}

void Interpreter::runCompare(arith::CmpIOp op) {
  using P = arith::CmpIPredicate;
  P p = op.getPredicate();
  ints(op, [&](int64_t a, int64_t b) -> int64_t {
    switch (p) {
    case P::eq:
      return a == b;
    case P::ne:
      return a != b;
    case P::slt:
      return a < b;
    case P::sle:
      return a <= b;
    case P::sgt:
      return a > b;
    case P::sge:
      return a >= b;
    case P::ult:
      return uint64_t(a) < uint64_t(b);
    case P::ule:
      return uint64_t(a) <= uint64_t(b);
    case P::ugt:
      return uint64_t(a) > uint64_t(b);
    case P::uge:
      return uint64_t(a) >= uint64_t(b);
    }
    return 0;
  });
}

void Interpreter::runConstant(arith::ConstantOp op) {
  Data out = empty(op);
  Attribute value = op.getValue();
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    value = dense.getSplatValue<Attribute>();
  if (auto number = dyn_cast<FloatAttr>(value))
    std::fill(out.f.begin(), out.f.end(),
              static_cast<float>(number.getValueAsDouble()));
  else
    std::fill(out.i.begin(), out.i.end(),
              wrapped(cast<IntegerAttr>(value).getValue().getSExtValue(),
                      getElementTypeOrSelf(op.getType())));
  values[op] = std::move(out);
}

//===-- Memory
//-------------------------------------------------------------===//

void *Interpreter::address(int64_t pointer, int64_t bytes) {
  for (const Extent &extent : extents) {
    auto first = reinterpret_cast<int64_t>(extent.first);
    if (pointer >= first && pointer + bytes <= first + extent.second)
      return reinterpret_cast<void *>(pointer);
  }
  fail("an access of " + Twine(bytes) + " bytes lies outside every buffer");
  return nullptr;
}

static int64_t bytesOf(Type type) { return type.getIntOrFloatBitWidth() / 8; }

static DType dtypeOf(Type type) {
  if (type.isBF16())
    return DType::BF16;
  if (type.isF16())
    return DType::F16;
  return type.isF32()         ? DType::F32
         : type.isInteger(64) ? DType::I64
                              : DType::I32;
}

void Interpreter::runLoad(tt::LoadOp op) {
  Data out = empty(op.getResult());
  const Data &pointers = get(op.getPtr());
  Type type = getElementTypeOrSelf(op.getType());
  for (size_t n = 0; n < out.size() && !failure; ++n) {
    if (op.getMask() && !get(op.getMask()).i[n]) {
      if (out.f.empty())
        out.i[n] = get(op.getOther()).i[n];
      else
        out.f[n] = get(op.getOther()).f[n];
      continue;
    }
    void *from = address(pointers.i[n], bytesOf(type));
    if (!from)
      return;
    if (type.isInteger(64)) // not through f64
      out.i[n] = *static_cast<const int64_t *>(from);
    else if (out.f.empty())
      out.i[n] = *static_cast<const int32_t *>(from);
    else
      out.f[n] = static_cast<float>(load(from, dtypeOf(type), 0));
  }
  values[op.getResult()] = std::move(out);
}

void Interpreter::runStore(tt::StoreOp op) {
  const Data &pointers = get(op.getPtr()), &value = get(op.getValue());
  Type type = getElementTypeOrSelf(op.getValue().getType());
  for (size_t n = 0; n < value.f.size(); ++n) {
    if (op.getMask() && !get(op.getMask()).i[n])
      continue;
    void *to = address(pointers.i[n], bytesOf(type));
    if (!to)
      return;
    store(to, dtypeOf(type), 0, value.f[n]);
  }
}

//===-- Across elements
//----------------------------------------------------===//

/// What a tf32 product reads of an f32.
static float truncated(float x) { return floatOf(bitsOf(x) & ~0x1fffu); }

void Interpreter::runDot(tt::DotOp op) {
  Data out = empty(op.getResult());
  Data a = get(op.getA()), b = get(op.getB());
  const Data &c = get(op.getC());
  if (op.getInputPrecision() == tt::InputPrecision::TF32)
    for (Data *x : {&a, &b})
      llvm::transform(x->f, x->f.begin(), truncated);
  int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  out.f = c.f;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        out.f[i * n + j] += a.f[i * k + l] * b.f[l * n + j];
  values[op.getResult()] = std::move(out);
}

void Interpreter::runSum(Value src, Value result, int64_t axis, bool isScan) {
  const Data &in = get(src);
  Data out = empty(result);
  Lines lines(in.shape, axis);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < lines.size; ++k) {
        sum += in.f[lines.at(o, k, i)];
        if (isScan)
          out.f[lines.at(o, k, i)] = sum;
      }
      if (!isScan)
        out.f[o * lines.inner + i] = sum;
    }
  values[result] = std::move(out);
}

/// Ops that move elements: result element n is source element index(n).
void Interpreter::runShape(Operation *op) {
  const Data in = get(op->getOperand(0));
  Data out = empty(op->getResult(0));
  auto source = [&](int64_t n) -> int64_t {
    if (isa<tt::SplatOp>(op))
      return 0;
    if (isa<tt::ExpandDimsOp, tt::ReshapeOp>(op))
      return n;
    if (isa<tt::TransOp>(op))
      return (n % out.shape[1]) * in.shape[1] + n / out.shape[1];
    int64_t index = 0, scale = 1; // broadcast
    for (int64_t d = out.shape.size() - 1; d >= 0; --d) {
      index += in.shape[d] == 1 ? 0 : n % out.shape[d] * scale;
      n /= out.shape[d];
      scale *= in.shape[d];
    }
    return index;
  };
  for (size_t n = 0; n < out.size(); ++n)
    if (out.f.empty())
      out.i[n] = in.i[source(n)];
    else
      out.f[n] = in.f[source(n)];
  values[op->getResult(0)] = std::move(out);
}

/// True if a combine region adds its two elements.
static bool adds(Region &region) {
  Block &block = region.front();
  auto add = dyn_cast<arith::AddFOp>(block.front());
  return add && block.getOperations().size() == 2 &&
         add.getLhs() == block.getArgument(0) &&
         add.getRhs() == block.getArgument(1) &&
         block.back().getOperand(0) == add;
}

//===-- Control
//------------------------------------------------------------===//

void Interpreter::runLoop(scf::ForOp loop) {
  int64_t lower = get(loop.getLowerBound()).i[0];
  int64_t upper = get(loop.getUpperBound()).i[0];
  int64_t step = get(loop.getStep()).i[0];
  SmallVector<Data> carried;
  for (Value value : loop.getInitArgs())
    carried.push_back(get(value));
  for (int64_t number = lower; number < upper && !failure; number += step) {
    values[loop.getInductionVar()] = Data{{}, {}, {number}};
    for (auto [argument, data] : llvm::zip(loop.getRegionIterArgs(), carried))
      values[argument] = std::move(data);
    runBlock(*loop.getBody());
    for (auto [data, value] :
         llvm::zip(carried, loop.getBody()->getTerminator()->getOperands()))
      data = get(value);
  }
  for (auto [result, data] : llvm::zip(loop.getResults(), carried))
    values[result] = std::move(data);
}

void Interpreter::runBlock(Block &block) {
  for (Operation &op : block) {
    if (failure)
      return;
    run(&op);
  }
}

void Interpreter::run(Operation *op) {
  using I = int64_t;
  auto real = [&](auto f) { floats(op, f); };
  auto whole = [&](auto f) { ints(op, f); };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](scf::ForOp o) { runLoop(o); })
      .Case([&](arith::ConstantOp o) { runConstant(o); })
      .Case([&](arith::CmpIOp o) { runCompare(o); })
      .Case([&](tt::LoadOp o) { runLoad(o); })
      .Case([&](tt::StoreOp o) { runStore(o); })
      .Case([&](tt::DotOp o) { runDot(o); })
      .Case<tt::SplatOp, tt::ExpandDimsOp, tt::ReshapeOp, tt::TransOp,
            tt::BroadcastOp>([&](Operation *o) { runShape(o); })
      .Case([&](tt::ReduceOp o) {
        if (!adds(o.getCombine()))
          fail("tt.reduce does not add");
        runSum(o.getSrc(), o.getResult(), o.getAxis(), false);
      })
      .Case([&](tt::ScanOp o) {
        if (!adds(o.getCombine()) || o.getReverse())
          fail("tt.scan does not add up");
        runSum(o.getSrc(), o.getResult(), o.getAxis(), true);
      })
      .Case([&](tt::MakeRangeOp o) {
        Data out = empty(o);
        for (size_t n = 0; n < out.i.size(); ++n)
          out.i[n] = I(o.getStart()) + I(n);
        values[o] = std::move(out);
      })
      .Case([&](tt::GetProgramIdOp o) { values[o] = Data{{}, {}, {program}}; })
      .Case(
          [&](tt::GetNumProgramsOp o) { values[o] = Data{{}, {}, {programs}}; })
      .Case([&](tt::PtrToIntOp o) {
        Data address = get(o.getSrc());
        values[o] = std::move(address);
      })
      .Case([&](tt::AddPtrOp o) {
        auto pointer =
            cast<tt::PointerType>(getElementTypeOrSelf(o.getPtr().getType()));
        I bytes = bytesOf(pointer.getPointee());
        whole([&](I p, I n) { return p + n * bytes; });
      })
      .Case([&](tt::BitcastOp o) {
        const Data in = get(o.getSrc());
        Data out = empty(o);
        for (size_t n = 0; n < in.size(); ++n)
          if (out.f.empty())
            out.i[n] = static_cast<int32_t>(bitsOf(in.f[n]));
          else
            out.f[n] = floatOf(static_cast<uint32_t>(in.i[n]));
        values[o] = std::move(out);
      })
      .Case([&](arith::SelectOp o) {
        Data out = empty(o);
        const Data &mask = get(o.getCondition());
        for (size_t n = 0; n < out.size(); ++n) {
          bool yes = mask.i[mask.size() == 1 ? 0 : n] != 0;
          const Data &from = get(yes ? o.getTrueValue() : o.getFalseValue());
          if (out.f.empty())
            out.i[n] = from.i[n];
          else
            out.f[n] = from.f[n];
        }
        values[o] = std::move(out);
      })
      .Case([&](arith::CmpFOp o) {
        if (o.getPredicate() != arith::CmpFPredicate::UNO)
          fail("arith.cmpf other than uno");
        Data out = empty(o);
        for (size_t n = 0; n < out.i.size(); ++n)
          out.i[n] = std::isnan(get(o.getLhs()).f[n]);
        values[o] = std::move(out);
      })
      .Case<arith::ExtSIOp, arith::TruncIOp>(
          [&](auto) { whole([](I a, I) { return a; }); })
      .Case([&](arith::AddIOp) { whole([](I a, I b) { return a + b; }); })
      .Case([&](arith::SubIOp) { whole([](I a, I b) { return a - b; }); })
      .Case([&](arith::MulIOp) { whole([](I a, I b) { return a * b; }); })
      .Case([&](arith::DivSIOp) { whole([](I a, I b) { return a / b; }); })
      .Case([&](arith::DivUIOp) {
        whole([](I a, I b) { return I(uint64_t(a) / uint64_t(b)); });
      })
      .Case([&](arith::RemUIOp) {
        whole([](I a, I b) { return I(uint64_t(a) % uint64_t(b)); });
      })
      .Case([&](arith::MinSIOp) {
        whole([](I a, I b) { return std::min(a, b); });
      })
      .Case([&](arith::MaxSIOp) {
        whole([](I a, I b) { return std::max(a, b); });
      })
      .Case([&](arith::AndIOp) { whole([](I a, I b) { return a & b; }); })
      .Case([&](arith::OrIOp) { whole([](I a, I b) { return a | b; }); })
      .Case([&](arith::XOrIOp) { whole([](I a, I b) { return a ^ b; }); })
      .Case([&](arith::ShRUIOp) {
        whole([](I a, I b) { return I(uint32_t(a) >> b); });
      })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](auto) { real([](float a, float) { return a; }); })
      .Case(
          [&](arith::AddFOp) { real([](float a, float b) { return a + b; }); })
      .Case(
          [&](arith::SubFOp) { real([](float a, float b) { return a - b; }); })
      .Case(
          [&](arith::MulFOp) { real([](float a, float b) { return a * b; }); })
      .Case(
          [&](arith::DivFOp) { real([](float a, float b) { return a / b; }); })
      .Case([&](arith::MaximumFOp) {
        real([](float a, float b) { return a > b || a != a ? a : b; });
      })
      .Case([&](arith::MinimumFOp) {
        real([](float a, float b) { return a < b || a != a ? a : b; });
      })
      .Case([&](math::Exp2Op) {
        real([](float a, float) { return std::exp2(a); });
      })
      .Case([&](math::RsqrtOp) {
        real([](float a, float) { return 1 / std::sqrt(a); });
      })
      .Case([&](math::AbsFOp) {
        real([](float a, float) { return std::fabs(a); });
      })
      .Case<scf::YieldOp, tt::ReturnOp, gpu::BarrierOp>([](auto) {})
      .Default([&](Operation *o) {
        fail("no meaning for " + o->getName().getStringRef());
      });
}

std::optional<std::string> Interpreter::run(tt::FuncOp kernel, void **argv) {
  for (auto [i, argument] : llvm::enumerate(kernel.getArguments())) {
    Data data = empty(argument);
    if (argument.getType().isF32())
      data.f[0] = *static_cast<const float *>(argv[i]);
    else
      data.i[0] = *static_cast<const int64_t *>(argv[i]);
    values[argument] = std::move(data);
  }
  runBlock(kernel.getBody().front());
  return failure;
}

std::optional<std::string> interpretTriton(tt::FuncOp kernel, void **argv,
                                           int64_t programs,
                                           const std::vector<Extent> &extents) {
  for (int64_t program = 0; program < programs; ++program)
    if (auto failure =
            Interpreter(program, programs, extents).run(kernel, argv))
      return failure;
  return std::nullopt;
}

} // namespace kdac::reference
