#include "KernelFunction.h"
#include "kdac/Dialect/ElementType.h"
#include "kdac/Target/Targets.h"

using namespace mlir;

namespace kdac {

/// Of an argument: its name in the ABI.
static constexpr llvm::StringLiteral kNameAttr = "kdac.name";

static Type typeOf(MLIRContext *context, const Arg &arg) {
  switch (arg.kind) {
  case ArgKind::Input:
  case ArgKind::Output:
  case ArgKind::Workspace:
    return tile::RefType::get(context, elementType(context, arg.dtype));
  case ArgKind::Size:
    return IndexType::get(context);
  case ArgKind::Scale:
    return Float32Type::get(context);
  }
  llvm_unreachable("covered switch");
}

static SmallVector<KernelArgument> argumentsOf(MLIRContext *context,
                                               const Variant &abi) {
  return llvm::map_to_vector(kernelArgs(abi), [&](const Arg &arg) {
    return KernelArgument{arg.name, typeOf(context, arg)};
  });
}

KernelFunction::KernelFunction(func::FuncOp source, const Twine &suffix,
                               const Variant &abi, tile::ScheduleAttr schedule)
    : KernelFunction(source, suffix, argumentsOf(source.getContext(), abi),
                     schedule) {}

KernelFunction::KernelFunction(func::FuncOp source, const Twine &suffix,
                               ArrayRef<KernelArgument> arguments,
                               tile::ScheduleAttr schedule)
    : schedule(schedule), b(source) {
  auto types = llvm::map_to_vector(
      arguments, [](const KernelArgument &argument) { return argument.type; });
  function = func::FuncOp::create(b, (source.getName() + suffix).str(),
                                  b.getFunctionType(types, {}));
  function->setAttr(tile::kKernelAttr, b.getUnitAttr());
  function->setAttr(tile::kScheduleAttr, schedule);
  function->setAttr("kdac.v_tile", b.getI64IntegerAttr(schedule.getVTile()));
  b.setInsertionPointToStart(function.addEntryBlock());
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    args[argument.name] = function.getArgument(i);
    function.setArgAttr(i, kNameAttr, b.getStringAttr(argument.name));
  }
}

BlockArgument argumentOf(func::FuncOp kernel, StringRef name) {
  for (BlockArgument argument : kernel.getArguments())
    if (auto attr = kernel.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                        kNameAttr);
        attr && attr.getValue() == name)
      return argument;
  return {};
}

void KernelFunction::awaitOtherCalls() {
  const Target *target = findTarget(schedule.getTarget());
  if (!target || !target->hasDependentLaunch)
    return;
  tile::AwaitLaunchOp::create(b);
  tile::StartNextOp::create(b);
  function->setAttr(tile::kWaitsAttr, b.getUnitAttr());
}

} // namespace kdac
