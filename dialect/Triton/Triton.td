// The ops of Triton IR that kdac prints, spelled as Triton spells them. Written
// from Triton's documented syntax, so that the text can be parsed, verified and
// compared without Triton. Constraints have labels shared by SPEC.md,
// lib/Dialect/TritonOps.cpp and test/Dialect/triton-errors.mlir.
#ifndef KDAC_TRITON_TD
#define KDAC_TRITON_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

def TritonDialect : Dialect {
  let name = "tt";
  let cppNamespace = "::kdac::tt";
  let summary = "the subset of Triton IR that kdac prints";
  let description = [{
    A print target: `tile-to-ttir` creates it, canonicalize and cse clean it,
    nothing else reads it. Addresses are pointers and tensors of pointers, no
    block pointers and no descriptors: this text is the same for Triton 3.2 to
    3.8 (docs/TRITON.md).
  }];
  let useDefaultTypePrinterParser = 1;
}

def TT_TensorSize : NativeOpTrait<"TensorSize"> {
  let cppNamespace = "::kdac::tt";
}
class TT_Op<string mnemonic, list<Trait> traits = []>
    : Op<TritonDialect, mnemonic, !listconcat(traits, [TT_TensorSize])>;

//===-- Types and enumerations ---------------------------------------------===//

def TT_PtrType : TypeDef<TritonDialect, "Pointer"> {
  let mnemonic = "ptr";
  let summary = "the address of an element in global memory";
  let parameters = (ins "::mlir::Type":$pointee);
  let assemblyFormat = "`<` $pointee `>`";
}

def TT_Scalar : AnyTypeOf<[AnyFloat, AnySignlessInteger, TT_PtrType]>;
def TT_Tensor : StaticShapeTensorOf<[AnyFloat, AnySignlessInteger, TT_PtrType]>;
def TT_IntTensor : StaticShapeTensorOf<[AnySignlessInteger]>;
def TT_FloatTensor : StaticShapeTensorOf<[AnyFloat]>;
def TT_Any : AnyTypeOf<[TT_Scalar, TT_Tensor]>;
def TT_PtrLike : AnyTypeOf<[TT_PtrType, StaticShapeTensorOf<[TT_PtrType]>]>;
def TT_IntLike : AnyTypeOf<[AnySignlessInteger, TT_IntTensor]>;
def TT_BoolLike : AnyTypeOf<[I1, StaticShapeTensorOf<[I1]>]>;

def TT_ProgramDim : I32EnumAttr<"ProgramDim", "a dimension of the grid", [
    I32EnumAttrCase<"X", 0, "x">, I32EnumAttrCase<"Y", 1, "y">,
    I32EnumAttrCase<"Z", 2, "z">]> {
  let cppNamespace = "::kdac::tt";
}

def TT_InputPrecision : I32EnumAttr<"InputPrecision",
    "how a product reads f32 operands", [
    I32EnumAttrCase<"TF32", 0, "tf32">, I32EnumAttrCase<"TF32x3", 1, "tf32x3">,
    I32EnumAttrCase<"IEEE", 2, "ieee">]> {
  let cppNamespace = "::kdac::tt";
}

//===-- Functions ----------------------------------------------------------===//

def TT_FuncOp : TT_Op<"func", [AffineScope, AutomaticAllocationScope,
    FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "define a kernel";
  let description = [{
    The one public function of a module is its kernel. Facts about arguments are
    attributes of theirs, `tt.divisibility = 16 : i32` for a multiple of 16 (of
    bytes, for a pointer).

    ```mlir
    tt.func public @copy(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32})
        attributes {noinline = false} { tt.return }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
    TypeAttrOf<FunctionType>:$function_type, OptionalAttr<StrAttr>:$sym_visibility,
    OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region AnyRegion:$body);
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name,
                                 "::mlir::FunctionType":$type)>];
  let skipDefaultBuilders = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() {
      return getFunctionType().getInputs();
    }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() {
      return getFunctionType().getResults();
    }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
  }];
}

def TT_ReturnOp : TT_Op<"return", [Pure, HasParent<"FuncOp">, ReturnLike,
    Terminator]> {
  let summary = "end a kernel";
  let assemblyFormat = "attr-dict";
}

//===-- Programs -----------------------------------------------------------===//

def TT_GetProgramIdOp : TT_Op<"get_program_id", [Pure]> {
  let summary = "read the index of this program instance";
  let arguments = (ins TT_ProgramDim:$axis);
  let results = (outs I32:$result);
  let assemblyFormat = "$axis attr-dict `:` type($result)";
}

def TT_GetNumProgramsOp : TT_Op<"get_num_programs", [Pure]> {
  let summary = "read how many program instances the launch has";
  let arguments = (ins TT_ProgramDim:$axis);
  let results = (outs I32:$result);
  let assemblyFormat = "$axis attr-dict `:` type($result)";
}

//===-- Shape --------------------------------------------------------------===//

def TT_MakeRangeOp : TT_Op<"make_range", [Pure]> {
  let summary = "number the elements of a vector";
  let arguments = (ins I32Attr:$start, I32Attr:$end);
  let results = (outs TT_IntTensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def TT_SplatOp : TT_Op<"splat", [Pure]> {
  let summary = "fill a tensor with a scalar";
  let arguments = (ins TT_Scalar:$src);
  let results = (outs TT_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}

def TT_ExpandDimsOp : TT_Op<"expand_dims", [Pure]> {
  let summary = "insert a dimension of 1";
  let arguments = (ins TT_Tensor:$src, I32Attr:$axis);
  let results = (outs TT_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}

def TT_BroadcastOp : TT_Op<"broadcast", [Pure]> {
  let summary = "repeat a tensor along dimensions of 1";
  let arguments = (ins TT_Tensor:$src);
  let results = (outs TT_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}

def TT_ReshapeOp : TT_Op<"reshape", [Pure]> {
  let summary = "give the elements, in row-major order, another shape";
  let arguments = (ins TT_Tensor:$src);
  let results = (outs TT_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}

def TT_TransOp : TT_Op<"trans", [Pure]> {
  let summary = "permute dimensions";
  let arguments = (ins TT_Tensor:$src, DenseI32ArrayAttr:$order);
  let results = (outs TT_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}

def TT_BitcastOp : TT_Op<"bitcast", [Pure]> {
  let summary = "read the same bits as another type";
  let arguments = (ins TT_Any:$src);
  let results = (outs TT_Any:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
}

//===-- Memory -------------------------------------------------------------===//

def TT_PtrToIntOp : TT_Op<"ptr_to_int", [Pure]> {
  let summary = "read a pointer as an integer";
  let arguments = (ins TT_PtrLike:$src);
  let results = (outs TT_IntLike:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
}

def TT_AddPtrOp : TT_Op<"addptr", [Pure, AllTypesMatch<["ptr", "result"]>]> {
  let summary = "move a pointer by a number of elements";
  let arguments = (ins TT_PtrLike:$ptr, TT_IntLike:$offset);
  let results = (outs TT_PtrLike:$result);
  let assemblyFormat = [{
    $ptr `,` $offset attr-dict `:` type($result) `,` type($offset)
  }];
  let hasVerifier = 1;
}

def TT_LoadOp : TT_Op<"load", [MemoryEffects<[MemRead]>,
    TypesMatchWith<"the pointee", "ptr", "result", "pointeeOf($_self)">,
    TypesMatchWith<"a bit per pointer", "ptr", "mask", "maskOf($_self)",
                   "$_op.getNumOperands() < 2 || std::equal_to<>()">,
    TypesMatchWith<"the pointee", "ptr", "other", "pointeeOf($_self)",
                   "$_op.getNumOperands() < 3 || std::equal_to<>()">,
    AttrSizedOperandSegments]> {
  let summary = "read elements where the mask is set, others elsewhere";
  let arguments = (ins TT_PtrLike:$ptr, Optional<TT_BoolLike>:$mask,
                       Optional<TT_Any>:$other);
  let results = (outs TT_Any:$result);
  let assemblyFormat = [{
    $ptr (`,` $mask^)? (`,` $other^)? attr-dict `:` type($ptr)
  }];
}

def TT_StoreOp : TT_Op<"store", [MemoryEffects<[MemWrite]>,
    TypesMatchWith<"the pointee", "ptr", "value", "pointeeOf($_self)">,
    TypesMatchWith<"a bit per pointer", "ptr", "mask", "maskOf($_self)",
                   "$_op.getNumOperands() < 3 || std::equal_to<>()">]> {
  let summary = "write elements where the mask is set";
  let arguments = (ins TT_PtrLike:$ptr, TT_Any:$value, Optional<TT_BoolLike>:$mask);
  let assemblyFormat = [{
    $ptr `,` $value (`,` $mask^)? attr-dict `:` type($ptr)
  }];
}

//===-- Arithmetic across elements -----------------------------------------===//

def TT_DotOp : TT_Op<"dot", [Pure, AllTypesMatch<["c", "result"]>]> {
  let summary = "add a matrix product";
  let description = [{
    `c + a b`. `inputPrecision` says how f32 operands are read; Triton takes its
    absence for ieee.

    ```mlir
    %d = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<16x32xf32> * tensor<32x64xf32> -> tensor<16x64xf32>
    ```
  }];
  let arguments = (ins TT_FloatTensor:$a, TT_FloatTensor:$b, TT_FloatTensor:$c,
                       OptionalAttr<TT_InputPrecision>:$inputPrecision);
  let results = (outs TT_FloatTensor:$result);
  let assemblyFormat = [{
    $a `,` $b `,` $c (`,` `inputPrecision` `=` $inputPrecision^)? attr-dict
    `:` type($a) `*` type($b) `->` type($result)
  }];
  let hasVerifier = 1;
}

def TT_ReduceOp : TT_Op<"reduce", [Pure, SingleBlock]> {
  let summary = "combine the elements along a dimension";
  let description = [{
    The region combines two elements. Printed in the generic form, as Triton
    prints it. A vector becomes a scalar.
  }];
  let arguments = (ins TT_Tensor:$src, I32Attr:$axis);
  let results = (outs TT_Any:$result);
  let regions = (region SizedRegion<1>:$combine);
  let hasVerifier = 1;
}

def TT_ReduceReturnOp : TT_Op<"reduce.return", [Pure, HasParent<"ReduceOp">,
    ReturnLike, Terminator]> {
  let summary = "give the combination of two elements";
  let arguments = (ins TT_Scalar:$result);
  let assemblyFormat = "$result attr-dict `:` type($result)";
}

def TT_ScanOp : TT_Op<"scan", [Pure, SingleBlock, AllTypesMatch<["src", "result"]>]> {
  let summary = "combine the elements up to each one along a dimension";
  let arguments = (ins TT_Tensor:$src, I32Attr:$axis, BoolAttr:$reverse);
  let results = (outs TT_Tensor:$result);
  let regions = (region SizedRegion<1>:$combine);
  let hasVerifier = 1;
}

def TT_ScanReturnOp : TT_Op<"scan.return", [Pure, HasParent<"ScanOp">,
    ReturnLike, Terminator]> {
  let summary = "give the combination of two elements";
  let arguments = (ins TT_Scalar:$result);
  let assemblyFormat = "$result attr-dict `:` type($result)";
}

#endif // KDAC_TRITON_TD
