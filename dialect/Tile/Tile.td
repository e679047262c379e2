// The block program: what one program instance does to tiles. Values are builtin
// tensors of static shape, elementwise work is arith and math, scalars are builtin.
// Constraints have labels shared by SPEC.md, lib/Dialect/TileOps.cpp and
// test/Dialect/tile-errors.mlir.
#ifndef KDAC_TILE_TD
#define KDAC_TILE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def TileDialect : Dialect {
  let name = "tile";
  let cppNamespace = "::kdac::tile";
  let summary = "Block programs over tiles";
  let description = [{
    A kernel is a `func.func` with the attributes `tile.kernel` and
    `tile.schedule`. One program instance works on one (sequence, value head,
    slice of V). The same program leaves through the host exit and the NVVM exit.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<TileDialect, mnemonic, traits>;

//===-- Types and attributes -----------------------------------------------===//

def Tile_RefType : TypeDef<TileDialect, "Ref"> {
  let mnemonic = "ref";
  let summary = "a kernel argument in global memory";
  let description = [{
    A pointer to elements of one type; null means that an optional argument is
    absent. Addressed by element offsets, which are 64-bit.
  }];
  let parameters = (ins "::mlir::Type":$elementType);
  let assemblyFormat = "`<` $elementType `>`";
}

def Tile_ScheduleAttr : AttrDef<TileDialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "every decision of dplr-select-schedule";
  let description = [{
    Chosen once and only read afterwards.
    - `target`: a row of lib/Target/Targets.cpp.
    - `form`: "chunk" or "step"; "rows" of a kernel beside the chunk form's that
      treats every token alike; "attention": a loop over a sequence's keys;
      "matmul": a loop over the columns that two matrices have in common.
    - `chunk`: tokens of one loop iteration of the chunk form, keys of one in
      attention, columns of one in a matmul, rows of a tile of a rows kernel, 1 in
      the step form.
    - `leaf`: rows of the diagonal blocks of a decayed Gram product that share one
      anchor, proven in range from the bound on the decay; 1 needs no bound.
    - `v_tile`: columns of V that one program instance carries, columns of a tile
      of a rows kernel, heads or rows of a program in attention, columns of the
      result in a matmul.
    - `warps`: warps of a thread block; 1 on the host.
    - `stages`: buffers of every tile that a chunk loop loads; with 2 the next
      chunk's loads run behind the present chunk's work.
    - `operand`: element type of product operands: bf16, f16 or tf32 on tensor
      cores, f32 on the host.
    - `gram`: element type of a decayed Gram product's scaled factors.
    - `roles`: "fused"; "split" into a kernel that prepares chunks in any order
      and one that runs along the state, with a workspace between them; or
      "warps", the same two roles and the transfers as warps of one kernel;
      "cluster", the same where two neighbouring slices of V share their images;
      "assisted", the same where a block beside three programs prepares for them;
      "prepare" or "chain", the warps of one of the two, with a workspace between;
      of attention and matmul "warpgroups", four warps multiply 64 rows by wgmma.
    - `refined`: rounding to `operand` keeps away from what weighs most in a chunk.
      The diagonals of its triangular products are applied in f32 instead of as
      operands, and the last chunk adds to the state what rounding leaves out of W
      (docs/decisions/0021-refined-products.md).
  }];
  let parameters = (ins StringRefParameter<>:$target, StringRefParameter<>:$form,
    "int64_t":$chunk, "int64_t":$leaf, "int64_t":$v_tile, "int64_t":$warps,
    "int64_t":$stages, "::mlir::Type":$operand, "::mlir::Type":$gram,
    StringRefParameter<"", "\"fused\"">:$roles,
    DefaultValuedParameter<"bool", "false">:$refined);
  let assemblyFormat = [{
    `<` `target` `=` $target `,` `form` `=` $form `,` `chunk` `=` $chunk `,`
        `leaf` `=` $leaf `,` `v_tile` `=` $v_tile `,` `warps` `=` $warps `,`
        `stages` `=` $stages `,` `operand` `=` $operand `,` `gram` `=` $gram
        (`,` `roles` `=` $roles^)? (`,` `refined` `=` $refined^)? `>`
  }];
  let genVerifyDecl = 1;
}

def Tile_Home : I32EnumAttr<"Home", "where a tile value lives", [
    I32EnumAttrCase<"Inline", 0, "inline">,
    I32EnumAttrCase<"Registers", 1, "registers">,
    I32EnumAttrCase<"Shared", 2, "shared">,
    I32EnumAttrCase<"Panels", 3, "panels">,
    I32EnumAttrCase<"Staged", 4, "staged">]> {
  let cppNamespace = "::kdac::tile";
  let genSpecializedAttr = 0;
}

def Tile_PlaceAttr : AttrDef<TileDialect, "Place"> {
  let mnemonic = "place";
  let summary = "the placement of one value, written by tile-place";
  let description = [{
    `inline`: recomputed where it is consumed. `registers`: distributed over the
    threads of the block. `shared`: in shared memory at byte `offset`, rows
    `pitch` elements apart, in `stages` buffers one after the other that the
    iterations of a loop take in turn. `panels`: in shared memory as wgmma reads
    it, panels of 64 columns of a 16-bit type `pitch` bytes apart, each with rows
    of 128 bytes whose 16-byte unit u of row r stands at u xor (r mod 8). `staged`:
    distributed, but loaded as late as can be; between the iterations of a loop
    that carries it each thread's elements wait in pieces of 16 bytes from byte
    `offset` on, a piece of every thread in turn; where roles are warps, in lines
    `pitch` bytes apart until the chain takes it. Buffers
    of a ring are `stride` bytes apart where that is not 0.
  }];
  let parameters = (ins EnumParameter<Tile_Home>:$home,
    DefaultValuedParameter<"int64_t", "0">:$offset,
    DefaultValuedParameter<"int64_t", "0">:$pitch,
    DefaultValuedParameter<"int64_t", "1">:$stages,
    DefaultValuedParameter<"int64_t", "0">:$stride);
  let assemblyFormat = [{
    `<` $home (`,` struct($offset, $pitch, $stages, $stride)^)? `>`
  }];
}

def Tile_F32Tile : StaticShapeTensorOf<[F32]>;
def Tile_Tile : StaticShapeTensorOf<[AnyType]>;

//===-- Scalars ------------------------------------------------------------===//

def Tile_ProgramIdOp : Tile_Op<"program_id", [Pure]> {
  let summary = "read the index of this program instance";
  let description = [{
    Instances are numbered flat from 0: `(n * HV + hv) * slices + slice` for
    sequence n, value head hv and slice of V. No grid dimension has a limit below
    2^31 - 1.
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Tile_NumProgramsOp : Tile_Op<"num_programs", [Pure]> {
  let summary = "read how many program instances the launch has";
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Tile_LongestOp : Tile_Op<"longest", [Pure]> {
  let summary = "the sequence whose length has a given rank";
  let description = [{
    Of the N sequences that `offsets` packs, the one before which exactly `rank`
    others stand when long ones come first and equal ones in their order: programs
    that start late should be short. `rank` itself where `offsets` are absent or N
    is above 128, where ranking costs more than it saves.

    ```mlir
    %n = tile.longest %offsets[%rank] of %N : !tile.ref<i32>
    ```
  }];
  let arguments = (ins Tile_RefType:$offsets, Index:$rank, Index:$count);
  let results = (outs Index:$result);
  let assemblyFormat = [{
    $offsets `[` $rank `]` `of` $count attr-dict `:` type($offsets)
  }];
  let hasVerifier = 1;
}

def Tile_ViewOp : Tile_Op<"view", [Pure]> {
  let summary = "see part of a workspace as elements of a type";
  let description = [{
    `offset` is in bytes, a multiple of 16; `after` adds bytes that depend on the
    sizes of the call.

    ```mlir
    %keys = tile.view %workspace[2048] : !tile.ref<i8> -> !tile.ref<bf16>
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, I64Attr:$offset, Optional<Index>:$after);
  let results = (outs Tile_RefType:$result);
  let assemblyFormat = [{
    $ref `[` $offset `]` (`after` $after^)? attr-dict `:` qualified(type($ref)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Tile_CutOp : Tile_Op<"cut", [MemoryEffects<[MemWrite]>]> {
  let summary = "say which image of the workspace belongs to this iteration";
  let description = [{
    Stands in the chunk loop of a kernel that leaves images to another or finds
    them. Where the schedule splits roles, tile-split-roles cuts the loop where values pass from work that does not
    depend on the carried state to work that does; `image` is where those of this
    iteration are kept in between, and the op is gone. Roles as warps of two
    kernels, "prepare" and "chain", pass on whole images. The images start `after`
    so many bytes of the workspace, at once if it is not given.
  }];
  let arguments = (ins Index:$image, Optional<Index>:$after);
  let assemblyFormat = "$image (`after` $after^)? attr-dict `:` type($image)";
}

def Tile_PresentOp : Tile_Op<"present", [Pure]> {
  let summary = "true if an optional argument was given";
  let arguments = (ins Tile_RefType:$ref);
  let results = (outs I1:$result);
  let assemblyFormat = "$ref attr-dict `:` qualified(type($ref))";
}

def Tile_GuardOp : Tile_Op<"guard", [Pure, AllTypesMatch<["ref", "result"]>]> {
  let summary = "make an argument absent unless a condition holds";
  let description = [{
    What is loaded through an absent ref is zero, what is stored is dropped: a
    guard around a bad index costs no branch.

    ```mlir
    %state = tile.guard %h0 if %live : !tile.ref<f32>
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, I1:$condition);
  let results = (outs Tile_RefType:$result);
  let assemblyFormat = "$ref `if` $condition attr-dict `:` qualified(type($ref))";
}

def Tile_ChooseOp : Tile_Op<"choose", [Pure,
    AllTypesMatch<["ref", "otherwise", "result"]>]> {
  let summary = "take one of two arguments";
  let description = [{
    ```mlir
    %from = tile.choose %tokens if %inside else %cache : !tile.ref<bf16>
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, I1:$condition, Tile_RefType:$otherwise);
  let results = (outs Tile_RefType:$result);
  let assemblyFormat = [{
    $ref `if` $condition `else` $otherwise attr-dict `:` qualified(type($ref))
  }];
}

def Tile_PrefetchOp : Tile_Op<"prefetch", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "ask for memory that another program instance will read";
  let description = [{
    `count` elements from `ref[base]` on come closer, to a cache that all
    instances share. Of an absent ref nothing does. Changes no value. An exit may
    ask later, behind loads that something waits for, unless it is to be `now`.

    ```mlir
    tile.prefetch %next[%base] count 2048 : !tile.ref<bf16>
    tile.prefetch now %own[%base] count 4096 : !tile.ref<f32>
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, Index:$base, I64Attr:$count,
                       UnitAttr:$now);
  let assemblyFormat = [{
    (`now` $now^)? $ref `[` $base `]` `count` $count attr-dict `:`
    qualified(type($ref))
  }];
}

def Tile_AwaitLaunchOp : Tile_Op<"await_launch", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "wait until the launch before this one is done";
  let description = [{
    The kernel may have been started while the one before it in its call still
    runs (`kdac.overlaps`); from here on it sees everything that one wrote. Every
    program instance waits once. Nothing where launches do not overlap.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_StartNextOp : Tile_Op<"start_next", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "let the next launch start as soon as there is room for it";
  let description = [{
    It still waits, in its `tile.await_launch`, for all that this kernel writes.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_CheckSlotsOp : Tile_Op<"check_slots", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "check the slot indices of a call";
  let description = [{
    Writes `status[0]`: -1 if all is well, else `8 * i + kind` for the first bad
    entry, smallest word first, where i is the sequence (the token of a snapshot)
    and kind says what is wrong:

    | kind | entry |
    |---|---|
    | 0 | `slots[i]` is neither -1 nor a slot |
    | 1 | `slots[i]` occurs before i |
    | 2 | `sources[i]` is neither -1 nor a slot |
    | 3 | `sources[i]` is written by another sequence |
    | 4 | `snapshots[i]` is neither -1 nor a slot |
    | 5 | `snapshots[i]` occurs before i, or is another sequence's slot or source |

    Absent refs have nothing to check. `begin` of sequence n is `offsets[n]`, or
    `n * tokens` without offsets; `count` sequences, `pool` slots. One program
    instance does it all. An absent status ends the op at once.
  }];
  let arguments = (ins Tile_RefType:$status, Tile_RefType:$slots,
    Tile_RefType:$sources, Optional<Tile_RefType>:$snapshots,
    Tile_RefType:$offsets, Index:$count, Index:$tokens, Index:$pool);
  let assemblyFormat = [{
    $status `,` `slots` `(` $slots `)` `sources` `(` $sources `)`
    (`snapshots` `(` $snapshots^ `:` qualified(type($snapshots)) `)`)?
    `offsets` `(` $offsets `)` `count` `(` $count `)` `tokens` `(` $tokens `)`
    `pool` `(` $pool `)` attr-dict `:` qualified(type($status)) `,`
    qualified(type($slots)) `,` qualified(type($sources)) `,` qualified(type($offsets))
  }];
  let hasVerifier = 1;
}

def Tile_LoadScalarOp : Tile_Op<"load_scalar", [MemoryEffects<[MemRead]>,
    AllTypesMatch<["otherwise", "result"]>]> {
  let summary = "read one element of an argument, or a default if it is absent";
  let description = [{
    Integer elements are sign-extended to index, float elements extended to f32.

    ```mlir
    %begin = tile.load_scalar %offsets[%n] else %dense : !tile.ref<i32> -> index
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, Index:$offset, AnyTypeOf<[Index, F32]>:$otherwise);
  let results = (outs AnyTypeOf<[Index, F32]>:$result);
  let assemblyFormat = [{
    $ref `[` $offset `]` `else` $otherwise attr-dict `:` qualified(type($ref)) `->` type($result)
  }];
  let hasVerifier = 1;
}

//===-- Memory -------------------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>,
    AttrSizedOperandSegments]> {
  let summary = "read a tile, with zeros outside its valid part";
  let description = [{
    Rank 2: element (r, c) is `ref[base + r * stride + c]`, or with `transposed`
    `ref[base + c * stride + r]`, for r < valid[0] and c < valid[1]. Rank 1:
    element i is `ref[base + i * stride]` for i < valid[0]. All else is zero, and
    memory outside the valid part is never touched. An absent `ref` gives zeros.
    With `rows` row r of the tile is row `order[first + r] / each` of the ref,
    or the nearest of its `count` rows, instead of row r; without an `order` row
    `first + r`.
    `align` promises that every contiguous line starts at a multiple of that many
    bytes. No conversion: the result has the element type of the ref.
    With `entry` a vector is an entry of each of many channels: where `stride` is
    not 1, it promises that the `stride` elements from `base - entry +
    i * stride` on all are memory of the ref and start at a multiple of their
    bytes, so that entries of a channel may be read together.

    ```mlir
    %k = tile.load %ref[%base] stride %s valid [%rows, %cols] align 16
        : !tile.ref<bf16> -> tensor<64x128xbf16>
    %x = tile.load %ref[%base] stride %s valid [%rows, %cols]
        rows(%order[%first] each %each of %count : !tile.ref<i32>) align 16
        : !tile.ref<bf16> -> tensor<64x128xbf16>
    %y = tile.load %ref[%base] stride %taps entry %tap valid [%count] align 2
        : !tile.ref<bf16> -> tensor<128xbf16>
    ```
  }];
  let arguments = (ins Tile_RefType:$ref, Index:$base, Index:$stride,
                       Optional<Index>:$entry,
                       Variadic<Index>:$valid, Optional<Tile_RefType>:$order,
                       Optional<Index>:$first, Optional<Index>:$each,
                       Optional<Index>:$count, I64Attr:$align, UnitAttr:$transposed);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = [{
    $ref `[` $base `]` `stride` $stride (`entry` $entry^)? `valid` `[` $valid `]`
    (`transposed` $transposed^)?
    (`rows` `(` $order^ `[` $first `]` `each` $each `of` $count `:` qualified(type($order)) `)`)?
    `align` $align attr-dict `:` qualified(type($ref)) `->` type($result)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$ref,
      "::mlir::Value":$base, "::mlir::Value":$stride, "::mlir::ValueRange":$valid,
      "int64_t":$align, "bool":$transposed, CArg<"::mlir::Value", "{}">:$entry), [{
    build($_builder, $_state, result, ref, base, stride, entry, valid, {}, {}, {},
          {}, align, transposed);
  }]>];
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [MemoryEffects<[MemWrite]>]> {
  let summary = "write the valid part of a tile";
  let description = [{
    Addresses as in tile.load. An absent `ref` makes the store do nothing. The
    element type must be that of the ref: rounding is an arith.truncf before it.
  }];
  let arguments = (ins Tile_Tile:$value, Tile_RefType:$ref, Index:$base, Index:$stride,
                       Variadic<Index>:$valid, I64Attr:$align, UnitAttr:$transposed);
  let assemblyFormat = [{
    $value `,` $ref `[` $base `]` `stride` $stride `valid` `[` $valid `]` (`transposed` $transposed^)?
    `align` $align attr-dict `:` type($value) `,` qualified(type($ref))
  }];
  let hasVerifier = 1;
}

//===-- Shape --------------------------------------------------------------===//

def Tile_SplatOp : Tile_Op<"splat", [Pure]> {
  let summary = "fill a tile with a scalar";
  let arguments = (ins AnyTypeOf<[AnyFloat, AnySignlessInteger, Index]>:$scalar);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$scalar attr-dict `:` type($scalar) `->` type($result)";
}

def Tile_IotaOp : Tile_Op<"iota", [Pure]> {
  let summary = "number the elements of a tile along one dimension";
  let description = [{ Element (i_0, i_1) is i_dim; the element type is index. }];
  let arguments = (ins I64Attr:$dim);
  let results = (outs StaticShapeTensorOf<[Index]>:$result);
  let assemblyFormat = "$dim attr-dict `:` type($result)";
}

def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure]> {
  let summary = "repeat a vector as the rows or columns of a tile";
  let description = [{
    `along 0`: element (r, c) is x[r], a row factor. `along 1`: x[c], a column factor.

    ```mlir
    %b = tile.broadcast %x along 0 : tensor<64xf32> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Tile_Tile:$input, I64Attr:$along);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$input `along` $along attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_OnceOp : Tile_Op<"once", [Pure, SameOperandsAndResultType]> {
  let summary = "make a vector once, for all its uses";
  let description = [{
    The identity. Without it a vector of the step form is made again by every
    thread that needs an element; its input is made once by the program instance
    and kept where all its threads can read it. In rows kernels with chunk 1 it
    stays with the threads that made it.
  }];
  let arguments = (ins Tile_F32Tile:$input);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def Tile_RowOp : Tile_Op<"row", [Pure]> {
  let summary = "take one row of a tile, or one element of a vector";
  let description = [{
    Rank 2 gives row `index` as a vector, rank 1 element `index` as a scalar f32.
  }];
  let arguments = (ins Tile_F32Tile:$input, I64Attr:$index);
  let results = (outs AnyTypeOf<[F32, Tile_F32Tile]>:$result);
  let assemblyFormat = "$input `[` $index `]` attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_WindowOp : Tile_Op<"window", [Pure]> {
  let summary = "take consecutive rows of a tile";
  let description = [{
    Row r of the result is row `first + r` of the input: several windows of one tile
    are its rows at several distances.

    ```mlir
    %before = tile.window %x[1] : tensor<67x128xf32> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Tile_F32Tile:$input, I64Attr:$first);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = "$input `[` $first `]` attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

//===-- Arithmetic across elements -----------------------------------------===//

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "add the elements of a tile along one dimension, or find the greatest";
  let description = [{
    Rank 2 gives a vector, rank 1 a scalar f32. The order of addition is the
    exit's choice, fixed per kernel: results are reproducible bitwise. With
    `greatest` the result is the largest element, whatever the order; NaN only
    where all are.

    ```mlir
    %s = tile.reduce %x along 1 : tensor<64x128xf32> -> tensor<64xf32>
    %m = tile.reduce %x along 1 greatest : tensor<64x128xf32> -> tensor<64xf32>
    ```
  }];
  let arguments = (ins Tile_F32Tile:$input, I64Attr:$along, UnitAttr:$greatest);
  let results = (outs AnyTypeOf<[F32, Tile_F32Tile]>:$result);
  let assemblyFormat = "$input `along` $along (`greatest` $greatest^)? attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_CumsumOp : Tile_Op<"cumsum", [Pure, SameOperandsAndResultType]> {
  let summary = "add up rows inclusively";
  let description = [{
    Row r of the result is the f32 sum of rows 0..r, added so that a row never
    depends on a later one.
  }];
  let arguments = (ins Tile_F32Tile:$input);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def Tile_DotOp : Tile_Op<"dot", [Pure]> {
  let summary = "multiply two tiles, accumulating in f32";
  let description = [{
    `acc + op(a) op(b)`, where op transposes if `trans_a`, `trans_b` are set; acc
    is zero when absent. The element type of the operands (bf16, f16, tf32, f32)
    is the precision of the product; rounding to it is an arith.truncf before.
    Accumulation is in f32.

    ```mlir
    %p = tile.dot %a, %b acc(%c) {trans_b} : tensor<64x128xbf16>, tensor<32x128xbf16> -> tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Tile_Tile:$a, Tile_Tile:$b, Optional<Tile_F32Tile>:$acc,
                       UnitAttr:$trans_a, UnitAttr:$trans_b);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = [{
    $a `,` $b (`acc` `(` $acc^ `:` type($acc) `)`)? attr-dict `:` type($a) `,` type($b) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_DecayedGramOp : Tile_Op<"decayed_gram", [Pure,
    AllTypesMatch<["rhs", "decay"]>]> {
  let summary = "products of rows weighted by the decay between them";
  let description = [{
    For every left side x_s, with G the cumulative base-2 log-decay (rows only
    decrease), result s is

    ```
    A_s[i, j] = sum_c x_s[i, c] y[j, c] exp2(G[i, c] - G[j, c])   for j <= i, or j < i if strict[s]
    ```

    and zero elsewhere. Never overflows where the exact value fits: with halving
    anchors every exponent is <= 0, down to diagonal blocks of `leaf` rows, whose
    anchor is their first row; there the exponents stay within
    `(leaf - 1) * bound * log2(e)`, which dplr-select-schedule has proven to fit.
    `leaf = 1` needs no bound. A row's result never depends on a later row, not
    even through rounding. Scaled factors are rounded once to `operand`, and
    products accumulate in f32.

    ```mlir
    %akk, %aqk = tile.decayed_gram lhs(%k, %q : tensor<64x128xf32>, tensor<64x128xf32>) rhs(%k) decay(%g) leaf 16 operand bf16
        strict [true, false] : tensor<64x128xf32> -> tensor<64x64xf32>, tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Tile_F32Tile:$rhs, Tile_F32Tile:$decay, Variadic<Tile_F32Tile>:$lhs,
                       I64Attr:$leaf, TypeAttr:$operand, DenseBoolArrayAttr:$strict);
  let results = (outs Variadic<Tile_F32Tile>:$results);
  let assemblyFormat = [{
    `lhs` `(` $lhs `:` type($lhs) `)` `rhs` `(` $rhs `)` `decay` `(` $decay `)` `leaf` $leaf
    `operand` $operand `strict` $strict attr-dict `:` type($rhs) `->` type($results)
  }];
  let hasVerifier = 1;
}

def Tile_UnitTrilInverseOp : Tile_Op<"unit_tril_inverse", [Pure, SameOperandsAndResultType]> {
  let summary = "invert I + L for a strictly lower triangular L";
  let description = [{
    Forward substitution in f32, never powers of L. The diagonal and the upper
    triangle of the input are ignored; the result is unit lower triangular.
  }];
  let arguments = (ins Tile_F32Tile:$input);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

#endif // KDAC_TILE_TD
