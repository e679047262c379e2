// The passes in pipeline order: the compiler's table of contents.
#ifndef KDAC_PASSES_TD
#define KDAC_PASSES_TD

include "mlir/Pass/PassBase.td"

def DplrSelectSchedulePass : Pass<"dplr-select-schedule", "::mlir::ModuleOp"> {
  let summary = "choose chunk, anchors, tiles, warps and operand precision";
  let description = [{
    Runs first and is the only place that chooses. Writes `tile.schedule` on every
    function with a `dplr.form`; everything later reads it.

    Numerics: `leaf` is the largest power of two for which the proven bound on the
    log-decay keeps `exp2` of a leaf's exponents, times the largest key, inside f32
    (docs/NUMERICS.md); 1 without a bound. 16 under `roles = "warps"`, whose blocks
    are anchored before their first row, where the bound allows it. These also refine
    their products unless precision is fast (docs/NUMERICS.md, 2.1).

    Where a warps kernel can also be made half as wide, that schedule is written as
    `tile.few_programs`: dplr-to-tile makes both kernels, and the sizes of a call
    pick one. `tile.assisted` is a third one for calls between the two, whose whole
    programs leave a quarter of the GPU idle: clusters of three with a block that
    prepares for them, and what is left over half as wide beside them. A matmul by
    wgmma has narrow parts of its result as `tile.few_programs`.
    `tile.segments` asks for another, for few programs of many chunks: the sequence is cut into segments that are joined by their exact affine
    transfer (docs/ARCHITECTURE.md, "Segments").

    ```mlir
    func.func @bounded_unit_keys(...) attributes {dplr.form = #dplr.form<chunk>} {
      %k = dplr.l2norm %q eps 1.0e-06 : tensor<?x?x128xbf16>
      %d = dplr.log_decay <bounded> %g bound -5.0 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
    ```
    gets (test/Transforms/dplr-select-schedule.mlir)
    ```mlir
    tile.schedule = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 128,
      warps = 8, stages = 2, operand = bf16, gram = bf16, roles = "split">
    ```
  }];
  let options = [
    Option<"target", "target", "std::string", "\"host\"",
           "a row of the target table (kdac list --targets)">,
    Option<"chunk", "chunk", "int64_t", "0", "override the chunk length; 0 chooses">,
    Option<"vTile", "v-tile", "int64_t", "0", "override the columns of V per program; 0 chooses">,
    Option<"roles", "roles", "std::string", "\"\"",
           "override: fused, split, warps or cluster; empty chooses">,
    Option<"order", "order", "std::string", "\"\"",
           "override the order of packed sequences where warps have roles: longest "
           "first, or as given; empty: longest">,
    Option<"segments", "segments", "int64_t", "0",
           "override the number of segments that the sequences of few programs are "
           "cut into; 1: never; 0 chooses per call">,
    Option<"warps", "warps", "int64_t", "0", "override the warps per block; 0 chooses">,
  ];
  let dependentDialects = ["::kdac::tile::TileDialect"];
}

def DplrToTilePass : Pass<"dplr-to-tile", "::mlir::ModuleOp"> {
  let summary = "write a recurrence as a block program";
  let description = [{
    Replaces every dplr function by a tile kernel of the same name in its chunk
    form (WY) or step form, as its schedule says (docs/ARCHITECTURE.md has the
    equations). Log-decays become base-2 here.

    Numerics: everything stays f32 but product operands, which are rounded once to
    the schedule's operand type by explicit arith.truncf.

    ```mlir
    %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%k : ...) v(%v : ...) scale(%s) {...}
    ```
    without decay and erase becomes a loop over chunks (test/Transforms/dplr-to-tile.test, LINEAR)
    ```mlir
    %final = scf.for %chunk = %c0 to %chunks step %c1 iter_args(%state = %h0) -> (tensor<64x64xf32>) {
      %scores = tile.dot %q, %k {trans_b} : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<32x32xf32>
      ...                                                      // zero above the diagonal
      %old = arith.truncf %state : tensor<64x64xf32> to tensor<64x64xbf16>
      %before = tile.dot %q, %old : tensor<32x64xbf16>, tensor<64x64xbf16> -> tensor<32x64xf32>
      %out = tile.dot %lower, %v acc(%before : tensor<32x64xf32>) : ...
      %next = tile.dot %k, %v acc(%state : tensor<64x64xf32>) {trans_a} : ...
      tile.store ...
      scf.yield %next : tensor<64x64xf32>
    }
    ```
  }];
  let dependentDialects = [
    "::kdac::tile::TileDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::func::FuncDialect"];
}

def TileSplitRolesPass : Pass<"tile-split-roles", "::mlir::ModuleOp"> {
  let summary = "cut a chunk loop into what prepares and what chains";
  let description = [{
    For kernels whose schedule says `roles = split`. One forward slice from the
    carried state decides: what depends on it is the chain, all else prepares.
    Values that pass from one to the other go through a workspace, one image per
    chunk and head; loads, conversions and broadcasts are cheaper done twice than
    stored. `@name` becomes `@name_prepare`, whose programs take the chunks of a
    sequence in turn, and `@name_chain`.

    For kernels whose schedule says `roles = warps` the same slice decides, but the
    kernel stays one: every op with a tile in the loop gets `tile.role`, "prepare"
    or "chain", and warps of its block do one or the other.

    Numerics: none; the same roundings in the same order.

    ```mlir
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
      tile.cut %i : index
      %a = tile.load %x[%i] ... : !tile.ref<f32> -> tensor<32x32xf32>
      %g = tile.cumsum %a : tensor<32x32xf32>
      %t = arith.addf %s, %g : tensor<32x32xf32>
      scf.yield %t : tensor<32x32xf32>
    }
    ```
    becomes (test/Transforms/tile-split-roles.mlir)
    ```mlir
    func.func @total_prepare(...) {
      %images = tile.view %w[0] : !tile.ref<i8> -> !tile.ref<f32>
      scf.for %turn = ... {                                    // every turns-th chunk
        %a = tile.load %x[...] ...
        %g = tile.cumsum %a : tensor<32x32xf32>
        tile.store %g, %images[...] ...
      }
    }
    func.func @total_chain(...) {
      %images = tile.view %w[0] : !tile.ref<i8> -> !tile.ref<f32>
      %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
        %g = tile.load %images[...] ...
        %t = arith.addf %s, %g : tensor<32x32xf32>
        scf.yield %t : tensor<32x32xf32>
      }
    }
    ```
    What a kernel lacks for that is said: tile-split-roles-errors.mlir.
  }];
  let dependentDialects = ["::kdac::tile::TileDialect", "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

def TilePlacePass : Pass<"tile-place", "::mlir::ModuleOp"> {
  let summary = "decide where every tile value of a GPU kernel lives";
  let description = [{
    Writes `tile.place` on every op with tile results: inline (recomputed at its
    consumers), registers (distributed over threads) or shared memory with offset
    and pitch. Buffers whose lives do not overlap share bytes. Fails with the size
    and the limit when a kernel needs more shared memory than its target has.

    Under `roles = warps`, rings: what prepare passes to the chain is one image per
    chunk in panels that wgmma reads, and raw rows land in the bytes of the products
    that replace them; v comes and the output goes through a second ring. An initial
    state of f32 is staged in bytes that the rings fill last. Also on the
    kernel: `tile.scratch` (offset and size for a pair of preparing warps),
    `tile.barriers` (offset of the mbarriers), `tile.registers` (of a thread of the
    chain, of prepare, of transfer, and at launch), and `tile.scalar` on scalars that
    roles read from shared memory.

    Under `roles = warpgroups` what products read lies in panels, tiles of the loops in
    rings that all loops share, whichever loops these are in.

    In the step form a store of a staged f32 state has a place as well, where its
    target has bulk copies: the state's own, from where those take it to memory.

    Numerics: none; no value changes.

    ```mlir
    %x = tile.load %a[%i] ... : !tile.ref<bf16> -> tensor<32x32xbf16>
    %y = arith.extf %x : tensor<32x32xbf16> to tensor<32x32xf32>
    %z = arith.mulf %y, %y : tensor<32x32xf32>
    %b = arith.truncf %z : tensor<32x32xf32> to tensor<32x32xbf16>
    %p = tile.dot %x, %b acc(%acc : tensor<32x32xf32>) {trans_b} : ...
    ```
    in a loop becomes (test/Transforms/tile-place.mlir, @homes)
    ```mlir
    %x = tile.load ... {tile.place = [#tile.place<shared, pitch = 40>]}
    %y = arith.extf ... {tile.place = [#tile.place<inline>]}
    %z = arith.mulf ... {tile.place = [#tile.place<inline>]}
    %b = arith.truncf ... {tile.place = [#tile.place<shared, offset = 2560, pitch = 40>]}
    %p = tile.dot ... {tile.place = [#tile.place<registers>], trans_b}
    ```
  }];
}

def TileToNVVMPass : Pass<"tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "lower placed tile kernels to per-thread NVVM code";
  let description = [{
    One thread's program: products by mma.sync (of f32 by multiply-adds, which do
    not round operands), elementwise work fused into the
    loops of the value that is stored, barriers where a shared buffer changes
    hands. Kernels become `llvm.func` with `nvvm.kernel`.

    Under `roles = warps`, one block of three programs (docs/ARCHITECTURE.md): the
    chain on wgmma with the transposed state in accumulators, prepare on mma.sync in
    pairs of warps, transfer by cp.async, joined by mbarriers. Under `roles = cluster`
    a chunk is prepared by one of two blocks and copied to the other's ring. Under
    `roles = assisted` the last of four blocks has no program and prepares every third
    chunk of the others'. Under `roles = warps` a program near its end asks for the first
    bytes of one that is to follow in the L2 (lib/Conversion/GpuFollower.cpp).

    Under `roles = warpgroups` the turns of a matmul add to accumulators, products of
    one running when those of the next start, and in a loop around them the first
    copies of a part come before the part before it is stored
    (lib/Conversion/GpuMatmul.cpp). In attention the loops of a kernel, one going on where the other
    ends, are one sequence of turns by wgmma, and what makes weights of a turn's scores
    runs beside the product of the weights of the turn before (lib/Conversion/GpuTurns.cpp).

    Numerics: exp2, log2 and rsqrt are the approximate instructions (2^-22 relative);
    f32 subnormals flush to zero. Under `roles = warps` products of constants may
    merge; log-decays are summed as f16 scaled by 2^12 (2^7 where leaf is 1) with f32
    sums, 2^-12 relative of each token's; what a slice of 16 channels decays by
    decides at run time which anchors it has where leaf is 1; keys and queries of a chunk's second half, and the remaining keys
    of its first, are rounded a second time with their bf16 factor; the inverse's
    block below the diagonal is a product of f16 (docs/NUMERICS.md).

    The kernel of tile-place's example becomes (test/Conversion/tile-to-nvvm.mlir, @product)
    ```mlir
    llvm.func @product(%a: !llvm.ptr<1>, %out: !llvm.ptr<1>, %n: i64) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>} {
      %sums:8 = scf.for ... -> (f32, f32, f32, f32, f32, f32, f32, f32) {  // 32 x 32 over 128 threads
        nvvm.barrier                                             // the last turn's readers are done
        %words = llvm.load ... : !llvm.ptr<1> -> vector<4xi32>   // %x, unless absent
        llvm.store %words, ... : vector<4xi32>, !llvm.ptr<3>
        nvvm.barrier
        ... arith.mulf, llvm.fptrunc, llvm.store                 // %z in the loop that stores %b
        nvvm.barrier
        nvvm.ldmatrix ...
        nvvm.mma.sync ...
        scf.yield ...
      }
    ```
  }];
  let options = [
    Option<"minBlocks", "min-blocks", "int64_t", "0",
           "blocks of the kernel that an SM must hold; 0: as its kdac.min_blocks "
           "says, if any; -1: ptxas decides">,
    ListOption<"minBlocksOf", "min-blocks-of", "std::string",
               "KERNEL=N: the same for one kernel">,
  ];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def TileVerifyAsyncPass : Pass<"tile-verify-async", "::mlir::ModuleOp"> {
  let summary = "refuse GPU kernels whose asynchronous work is not synchronised";
  let description = [{
    Reads one thread's program as tile-to-nvvm leaves it and changes nothing. Ways
    through branches and loops are all followed; addresses are compared by what is
    constant of them. An error is a bug of a pass before.

    | label | what is refused |
    |---|---|
    | V1 | an accumulator of a running product (wgmma) that has not exactly one use |
    | V2 | a product whose accumulators or register operands no wgmma.fence has passed |
    | V3 | an accumulator that is read, or a kernel that ends, before the wait; a wait that does not take all accumulators and register operands of what it waits for |
    | V4 | bytes of `kdac.async_bytes` that threads wrote, or copied by cp.async, and wgmma or a bulk copy may read without a fence.proxy.async of those threads and a barrier behind it |
    | V5 | the same where an arrival at an mbarrier says that they are there |
    | V6 | the same of another block's shared memory and the arrival there |
    | V7 | an mbarrier that is used and not initialised |
    | V8 | an mbarrier that is waited for and where nobody arrives |
    | V9 | a way through a loop's turn that arrives twice at a buffer's mbarrier |

    What it cannot see: how many threads arrive, that a wait is for the right turn,
    and accesses of other warps. `test/PtxEmulator` runs kernels for these.

    Numerics: none.

    ```mlir
    llvm.store %x, %tile : f32, !llvm.ptr<3>
    llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
    llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
    ```
    is refused (test/Conversion/tile-verify-async-errors.mlir): the copy reads what
    the store wrote.
  }];
}

def TileTritonAbiPass : Pass<"tile-triton-abi", "::mlir::ModuleOp"> {
  let summary = "append Triton's two scratch pointers to every GPU kernel";
  let description = [{
    Kernels of Triton 3.5 and newer end with two 64-bit pointers, global_scratch
    and profile_scratch. A kernel with them can be launched by whatever launches
    Triton's kernels; it never reads them, and `kdac.abi` says that they are there.
    Runs last, on `llvm.func`; asked for by `kdac compile --abi=triton`.

    Numerics: none.

    ```mlir
    llvm.func @kernel(%q: !llvm.ptr<1> {llvm.noalias}, %n: i64) attributes {nvvm.kernel}
    ```
    becomes (test/Conversion/tile-triton-abi.mlir)
    ```mlir
    llvm.func @kernel(%q: !llvm.ptr<1> {llvm.noalias}, %n: i64, %global: !llvm.ptr<1>, %profile: !llvm.ptr<1>)
        attributes {kdac.abi = "triton-2scratch", nvvm.kernel}
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def TileToHostPass : Pass<"tile-to-host", "::mlir::ModuleOp"> {
  let summary = "lower tile kernels to vector code for a CPU";
  let description = [{
    Every kernel becomes `llvm.func @name(%args: !llvm.ptr, %begin: i64, %end: i64,
    %scratch: !llvm.ptr)`, which runs the program instances [begin, end). `args`
    points to an array of pointers to the arguments, `scratch` to
    `kdac.scratch_bytes` bytes, aligned to 64, for one thread.

    Elementwise values are recomputed in the loops of their consumers or kept in
    scratch, products run in a register microkernel, loop-carried tiles are
    updated in place (docs/decisions/0010-host-values-are-pulled.md). Only tile
    ops, elementwise arith, scf.for, scf.if of scalars and a few functions of math
    are lowered; the diagnostic on any other op lists them.

    Numerics: everything in f32, rounded to bf16, f16 and tf32 to nearest even
    only by arith.truncf. Products may fuse with sums; nothing else is reordered.
    exp2 within 1.2 ulp, exact at integers, over the whole range of f32; rsqrt is
    1/sqrt. A row of a result never depends on a later row.

    ```mlir
    func.func @entry(%p: !tile.ref<f32>, %n: index, %s: f32) attributes {tile.kernel} {
      %id = tile.program_id : index
      %at = arith.muli %id, %n : index
      %v = tile.load %p[%at] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
    ```
    becomes (test/Conversion/tile-to-host.mlir)
    ```mlir
    llvm.func @entry(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr {llvm.noalias})
        attributes {kdac.scratch_bytes = 64 : i64} {
      ...                                                        // the arguments, through %args
      scf.for %id = %begin to %end step %c1 {
        %at = arith.muli %id, %size : i64
        ...                                                      // a whole vector, or a masked tail
    ```
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "int64_t", "16", "f32 lanes of one vector: 16 with AVX-512, 8 with AVX2, 4 with NEON">,
  ];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def TileToTTIRPass : Pass<"tile-to-ttir", "::mlir::ModuleOp"> {
  let summary = "lower a tile kernel to Triton IR that Triton compiles";
  let description = [{
    The one kernel of the module becomes `tt.func public @name` with the same
    arguments in the same order (pointers, i64 sizes, f32 scale) for a grid of the
    same program instances on x (docs/TRITON.md). Pointers and masks only, no block
    pointers and no descriptors. What the kernel was made for is attributes of the
    function: `kdac.v_tile`, `kdac.slices`, `kdac.num_warps`, `kdac.num_stages`.

    Tensors have powers of two of elements: dimensions are rounded up, and padding
    is masked wherever elements are added or stored. Triton takes no rows or blocks
    out of a tensor, so structured ops work on whole tiles and mask: one product
    for each halving of a decayed Gram product and one for the leaves. Products of
    fewer than 16 rows or columns are refused, and kernels of several launches. A
    kernel that checks slot indices is dropped.

    Numerics: as the tile program says; f32 sums in Triton's order. tf32 operands
    are rounded to nearest even here. exp2, rsqrt and division are Triton's
    (2 ulp). The inverse is forward substitution in f32 on diagonal blocks of 16
    rows, then f32 products of blocks.

    ```mlir
    func.func @scale(%x: !tile.ref<f32>) attributes {tile.kernel} {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %n = arith.constant 64 : index
      %two = arith.constant dense<2.0> : tensor<64xf32>
      %0 = tile.load %x[%zero] stride %one valid [%n] align 16
          : !tile.ref<f32> -> tensor<64xf32>
      %1 = arith.mulf %0, %two : tensor<64xf32>
      tile.store %1, %x[%zero] stride %one valid [%n] align 16
          : tensor<64xf32>, !tile.ref<f32>
      return
    }
    ```
    becomes (test/Conversion/tile-to-ttir.mlir)
    ```mlir
    tt.func public @scale(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
      %address = tt.ptr_to_int %x : !tt.ptr<f32> -> i64
      %present = arith.cmpi ne, %address, %c0_i64 : i64
      …
      %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
      %pointers = tt.addptr %splat, %range : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
      %0 = tt.load %pointers, %mask, %zeros : tensor<64x!tt.ptr<f32>>
    ```
  }];
  let dependentDialects = [
    "::kdac::tt::TritonDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect"];
}

#endif // KDAC_PASSES_TD
