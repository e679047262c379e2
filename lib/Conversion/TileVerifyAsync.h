// Promises: what tile-verify-async reads of a thread's program, one check each.
// Does not: change it, or know how any kernel was made.
#ifndef KDAC_LIB_CONVERSION_TILEVERIFYASYNC_H
#define KDAC_LIB_CONVERSION_TILEVERIFYASYNC_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace kdac {

/// What an operation has to do with asynchronous work.
enum class AsyncKind {
  None,
  Product,       ///< wgmma
  RegisterFence, ///< wgmma.fence
  Commit,        ///< of products
  Wait,          ///< for products
  Store,         ///< of threads, to shared memory
  ClusterStore,  ///< of threads, to another block's
  Copy,          ///< cp.async, not in bulk
  CopyWait,
  BulkRead,      ///< a bulk copy out of shared memory
  ProxyFence,    ///< fence.proxy.async
  Sync,          ///< a barrier of a warp, a block or what is between or above
  Init,          ///< of an mbarrier
  Arrive,        ///< at an mbarrier
  ClusterArrive, ///< at another block's
  CopyArrive,    ///< once this thread's copies have arrived
  WaitBarrier,   ///< for an mbarrier
};
AsyncKind asyncKindOf(mlir::Operation *op);

/// What is constant of the byte of shared memory that `op` is about; the rest,
/// such as a row or the buffer of a ring, is not negative.
int64_t constantAddress(mlir::Operation *op);

/// On a kernel: byte ranges of shared memory, begin and end in turn, that
/// wgmma or bulk copies read.
inline constexpr llvm::StringLiteral kAsyncBytesAttr = "kdac.async_bytes";

/// V1 to V3 of tile-verify-async.
llvm::LogicalResult verifyAccumulators(mlir::LLVM::LLVMFuncOp kernel);
/// V4 to V6.
llvm::LogicalResult verifyProxies(mlir::LLVM::LLVMFuncOp kernel);
/// V7 to V9.
llvm::LogicalResult verifyRings(mlir::LLVM::LLVMFuncOp kernel);

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_TILEVERIFYASYNC_H
