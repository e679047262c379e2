// Promises: the tile dialect as C++ classes (dialect/Tile/SPEC.md is its
// meaning). Does not: lower anything.
#ifndef KDAC_DIALECT_TILE_H
#define KDAC_DIALECT_TILE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "kdac/Dialect/TileDialect.h.inc"
#include "kdac/Dialect/TileEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "kdac/Dialect/TileAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "kdac/Dialect/TileTypes.h.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/TileOps.h.inc"

namespace kdac::tile {
/// Attribute names on a kernel function and on placed ops.
inline constexpr llvm::StringLiteral kKernelAttr = "tile.kernel";
inline constexpr llvm::StringLiteral kScheduleAttr = "tile.schedule";
/// A second schedule of a function, for calls of few programs.
inline constexpr llvm::StringLiteral kFewProgramsAttr = "tile.few_programs";
/// A third one, for calls whose programs leave a quarter of a GPU idle.
inline constexpr llvm::StringLiteral kAssistedAttr = "tile.assisted";
/// i64: how many segments a sequence of few programs is cut into, 0: by the
/// sizes of the call. Absent: it is not cut.
inline constexpr llvm::StringLiteral kSegmentsAttr = "tile.segments";
/// Unit: packed sequences come in their order, not the longest first.
inline constexpr llvm::StringLiteral kInOrderAttr = "tile.in_order";
/// Schedules of the kernels before and after a chunk form's: the convolution of
/// its inputs and the norm of its output.
inline constexpr llvm::StringLiteral kConvolutionAttr = "tile.convolution";
inline constexpr llvm::StringLiteral kKeyCachesAttr = "tile.key_caches";
inline constexpr llvm::StringLiteral kOutputNormAttr = "tile.output_norm";
/// On a kernel: its launch stands beside the recurrence's own.
inline constexpr llvm::StringLiteral kBesideAttr = "kdac.beside";
/// On a kernel: it waits for kernels of other calls (Manifest.h: waits).
inline constexpr llvm::StringLiteral kWaitsAttr = "kdac.waits";
inline constexpr llvm::StringLiteral kPlaceAttr = "tile.place";
inline constexpr llvm::StringLiteral kRoleAttr = "tile.role";
/// Values of kRoleAttr.
inline constexpr llvm::StringLiteral kPrepareRole = "prepare";
inline constexpr llvm::StringLiteral kChainRole = "chain";

/// Under `roles = "warps"` two warps prepare a chunk, one block of kRoleBlock
/// rows each; a warpgroup of the chain carries kChainColumns columns of V; one
/// warpgroup transfers, and all others prepare.
inline constexpr int64_t kRoleBlock = 16;
inline constexpr int64_t kChainColumns = 64;

/// Under `roles = "cluster"` so many neighbouring slices of V share the images
/// of their head.
inline constexpr int64_t kClusterBlocks = 2;

/// Under `roles = "assisted"` a cluster has so many programs, and a block more,
/// the assistant, that prepares the last one of so many chunks for each. What
/// it made lies in the last buffer of a program's ring.
inline constexpr int64_t kAssistedPrograms = 3, kAssistedPeriod = 3;

/// True if a block's warps have roles: all of them, alone or in a cluster, or
/// those that prepare images for the workspace, or those that carry the chain
/// on such images.
bool hasWarpRoles(ScheduleAttr schedule);
/// True if the warpgroups of a block multiply turns of its loops.
bool multipliesByWarpgroups(ScheduleAttr schedule);
/// True if clusters of programs have an assistant.
bool isAssisted(ScheduleAttr schedule);
/// Blocks of a cluster; 1 if there are none.
int64_t clusterBlocks(ScheduleAttr schedule);
/// Copies of what differs between programs that a block keeps: with roles as
/// warps its own and the follower's, which it asks for in the L2.
int64_t programCopies(ScheduleAttr schedule);
/// True if programs have one row each, or a stretch of one: vectors, spread
/// over a block's threads.
bool isOneRow(ScheduleAttr schedule);
/// True if a program's loop takes tiles of tokens, which pass through shared
/// memory to products, and carries their results: chunks, or keys of attention.
bool loopsOverTiles(ScheduleAttr schedule);
/// Warpgroups that carry the chain under a schedule of roles as warps.
int64_t chainWarpgroups(ScheduleAttr schedule);
/// Pairs of warps that prepare.
int64_t preparePairs(ScheduleAttr schedule);
/// True of a vector that the chunk loop loads for a head's channels, such as
/// the gate's bias, and not for the chunk's tokens.
bool isOfChannels(LoadOp load, ScheduleAttr schedule);
/// Of an assistant, one for every buffer of the ring of images.
int64_t assistantPairs(ScheduleAttr schedule);
/// Chunks from one of a pair to its next.
int64_t prepareTurn(ScheduleAttr schedule);
/// Bytes of the image of one chunk: keys and queries times their decay, the
/// remaining keys; system and attention side by side; the total decay; the
/// diagonals of the two where the schedule is refined.
int64_t imageBytes(int64_t keyDim, ScheduleAttr schedule);

/// Bytes of one element in memory. tf32 is kept in 32 bits.
int64_t bytesOf(mlir::Type element);
/// True if threads multiply and add operands of this type themselves: tensor
/// cores would round them.
bool multipliesByThreads(mlir::Type operand);
} // namespace kdac::tile

#endif // KDAC_DIALECT_TILE_H
