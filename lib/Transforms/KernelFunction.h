// Promises: the function of one tile kernel: its arguments by name, in the
// order of the ABI, its schedule, and a builder inside its body.
// Does not: fill the body, or say what the grid is.
#ifndef KDAC_LIB_TRANSFORMS_KERNELFUNCTION_H
#define KDAC_LIB_TRANSFORMS_KERNELFUNCTION_H

#include "TileBuilder.h"
#include "kdac/Variant/Variant.h"

#include "llvm/ADT/StringMap.h"

namespace kdac {

/// An argument of a kernel: a reference to memory, an index or a number.
struct KernelArgument {
  std::string name;
  mlir::Type type;
};

/// dplr-to-tile makes one of each kernel; its forms fill the body.
class KernelFunction {
public:
  using Value = mlir::Value;

  /// The function stands before `source` and is called as it is, with `suffix`.
  KernelFunction(mlir::func::FuncOp source, const llvm::Twine &suffix,
                 llvm::ArrayRef<KernelArgument> arguments,
                 tile::ScheduleAttr schedule);
  /// With what the ABI passes to kernels of `abi`, of which its form, types and
  /// operation count (kernelArgs).
  KernelFunction(mlir::func::FuncOp source, const llvm::Twine &suffix,
                 const Variant &abi, tile::ScheduleAttr schedule);

  /// Null of an argument that the kernel does not have.
  Value arg(llvm::StringRef name) const { return args.lookup(name); }
  /// What kernels of other calls wrote is needed from here on; only parameters
  /// are read before (Kernel.h). Where the target overlaps them the kernel
  /// waits here, and lets the next one begin.
  void awaitOtherCalls();
  void setGrid(const std::string &expression) {
    function->setAttr("kdac.grid", b.getStringAttr(expression));
  }

  tile::ScheduleAttr schedule;
  TileBuilder b;
  mlir::func::FuncOp function;

protected:
  llvm::StringMap<Value> args;
};

/// The argument of a kernel that is called `name`; null if it has none.
mlir::BlockArgument argumentOf(mlir::func::FuncOp kernel, llvm::StringRef name);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_KERNELFUNCTION_H
