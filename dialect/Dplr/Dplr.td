// The meaning: diagonal-plus-rank-one recurrences and the maps around them.
// Every constraint has a label (C1, C2, ...) that SPEC.md, the verifier in
// lib/Dialect/DplrOps.cpp and test/Dialect/dplr-errors.mlir share.
#ifndef KDAC_DPLR_TD
#define KDAC_DPLR_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def DplrDialect : Dialect {
  let name = "dplr";
  let cppNamespace = "::kdac::dplr";
  let summary = "Diagonal-plus-rank-one recurrences";
  let description = [{
    Sequences are tensors `[tokens, heads, channels]`, states `[N, HV, V, K]` or
    `[N, HV, K, V]`. Nothing here knows about chunks or hardware. The reference
    interpreter (lib/Reference) executes this level in f64, token by token.
  }];
  let useDefaultAttributePrinterParser = 1;
}

class Dplr_Op<string mnemonic, list<Trait> traits = []>
    : Op<DplrDialect, mnemonic, !listconcat([Pure], traits)>;

def Dplr_Seq3 : TensorRankOf<[BF16, F16, F32], [3]>;
def Dplr_Seq2 : TensorRankOf<[BF16, F16, F32], [2]>;
def Dplr_Gate : TensorRankOf<[BF16, F16, F32], [1, 2, 3]>;
def Dplr_HeadVector : TensorRankOf<[F32], [1, 2]>;
def Dplr_State : TensorRankOf<[F32, BF16], [4]>;
def Dplr_Cache : TensorRankOf<[BF16, F16, F32], [4]>;
def Dplr_Offsets : TensorRankOf<[I32, I64], [1]>;

//===-- Enumerations -------------------------------------------------------===//

def Dplr_GateMap : I32EnumAttr<"GateMap", "how logits become a log-decay", [
    I32EnumAttrCase<"Identity", 0, "identity">,
    I32EnumAttrCase<"Softplus", 1, "softplus">,
    I32EnumAttrCase<"Bounded", 2, "bounded">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_GateMapAttr : EnumAttr<DplrDialect, Dplr_GateMap, "gate"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_BetaMap : I32EnumAttr<"BetaMap", "how logits become a write strength", [
    I32EnumAttrCase<"Identity", 0, "identity">,
    I32EnumAttrCase<"Sigmoid", 1, "sigmoid">,
    I32EnumAttrCase<"TwoSigmoid", 2, "two_sigmoid">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_BetaMapAttr : EnumAttr<DplrDialect, Dplr_BetaMap, "beta"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_Layout : I32EnumAttr<"Layout", "state layout", [
    I32EnumAttrCase<"VK", 0, "vk">, I32EnumAttrCase<"KV", 1, "kv">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_LayoutAttr : EnumAttr<DplrDialect, Dplr_Layout, "layout"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_CacheLayout : I32EnumAttr<"CacheLayout", "what a convolution keeps", [
    I32EnumAttrCase<"Full", 0, "full">, I32EnumAttrCase<"History", 1, "history">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_CacheLayoutAttr : EnumAttr<DplrDialect, Dplr_CacheLayout, "cache"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_Activation : I32EnumAttr<"Activation", "the gate of an output norm", [
    I32EnumAttrCase<"Sigmoid", 0, "sigmoid">, I32EnumAttrCase<"Silu", 1, "silu">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_ActivationAttr : EnumAttr<DplrDialect, Dplr_Activation, "activation"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_Product : I32EnumAttr<"Product", "how a gate opens what it multiplies", [
    I32EnumAttrCase<"Silu", 0, "silu">, I32EnumAttrCase<"Situ", 1, "situ">,
    I32EnumAttrCase<"Sigmoid", 2, "sigmoid">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_ProductAttr : EnumAttr<DplrDialect, Dplr_Product, "product"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_Precision : I32EnumAttr<"Precision", "precision of products", [
    I32EnumAttrCase<"Fast", 0, "fast">, I32EnumAttrCase<"Default", 1, "default">,
    I32EnumAttrCase<"High", 2, "high">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_PrecisionAttr : EnumAttr<DplrDialect, Dplr_Precision, "precision"> {
  let assemblyFormat = "`<` $value `>`";
}

def Dplr_Form : I32EnumAttr<"Form", "evaluation order", [
    I32EnumAttrCase<"Chunk", 0, "chunk">, I32EnumAttrCase<"Step", 1, "step">,
    I32EnumAttrCase<"Rows", 2, "rows">, I32EnumAttrCase<"Attention", 3, "attention">,
    I32EnumAttrCase<"Prompt", 4, "prompt">, I32EnumAttrCase<"Matmul", 5, "matmul">]> {
  let cppNamespace = "::kdac::dplr";
  let genSpecializedAttr = 0;
}
def Dplr_FormAttr : EnumAttr<DplrDialect, Dplr_Form, "form"> {
  let assemblyFormat = "`<` $value `>`";
}

//===-- Neighbours of the recurrence ---------------------------------------===//

def Dplr_L2NormOp : Dplr_Op<"l2norm", [AllTypesMatch<["input", "result"]>]> {
  let summary = "normalise every head's vector to unit length";
  let description = [{
    `y = x / sqrt(sum_c x_c^2 + eps)` over the last dimension, in f32 or better;
    the epsilon is inside the root, on the sum. A zero vector gives zeros.
    The result is not rounded to the element type: consumers read it exactly.

    ```mlir
    %kn = dplr.l2norm %k eps 1.0e-06 : tensor<?x?x128xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq3:$input, F64Attr:$eps);
  let results = (outs Dplr_Seq3:$result);
  let assemblyFormat = "$input `eps` $eps attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Dplr_LogDecayOp : Dplr_Op<"log_decay", [AttrSizedOperandSegments]> {
  let summary = "map gate logits to a natural-log decay";
  let description = [{
    With `x = g + dt_bias` and `a = exp(A_log)` per value head (1 when absent):

    | map      | log-decay                              | range          |
    |----------|----------------------------------------|----------------|
    | identity | g                                      | g <= 0 assumed |
    | softplus | -a * log(1 + exp(x))                   | (-inf, 0]      |
    | bounded  | bound * sigmoid(a * x), bound < 0      | [bound, 0]     |

    A_log and dt_bias belong to softplus and bounded. `dt_bias` is `[HV, K]` for
    a per-channel gate and `[HV]` for a per-head gate. All math in f32 or better;
    the result is not rounded.

    ```mlir
    %ld = dplr.log_decay <bounded> %g a_log(%a : tensor<?xf32>)
        dt_bias(%b : tensor<?x128xf32>) bound -5.0
        : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
    ```
  }];
  let arguments = (ins Dplr_GateMapAttr:$map, Dplr_Gate:$logits,
                       Optional<Dplr_HeadVector>:$a_log,
                       Optional<Dplr_HeadVector>:$dt_bias,
                       OptionalAttr<F64Attr>:$bound);
  let results = (outs Dplr_Gate:$result);
  let assemblyFormat = [{
    $map $logits (`a_log` `(` $a_log^ `:` type($a_log) `)`)?
    (`dt_bias` `(` $dt_bias^ `:` type($dt_bias) `)`)? (`bound` $bound^)?
    attr-dict `:` type($logits) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Dplr_WriteStrengthOp : Dplr_Op<"write_strength", [AllTypesMatch<["input", "result"]>]> {
  let summary = "map logits to the write strength beta";
  let description = [{
    identity: x; sigmoid: 1 / (1 + exp(-x)); two_sigmoid: 2 / (1 + exp(-x)), which
    allows negative eigenvalues. In f32 or better; the result is not rounded.

    ```mlir
    %w = dplr.write_strength <sigmoid> %beta : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_BetaMapAttr:$map, Dplr_Seq2:$input);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = "$map $input attr-dict `:` type($result)";
}

def Dplr_ShortConvOp : Dplr_Op<"short_conv", [AttrSizedOperandSegments,
    AllTypesMatch<["input", "result"]>, AllTypesMatch<["cache", "after"]>]> {
  let summary = "convolve every channel causally, then SiLU";
  let description = [{
    `y_t = silu(sum_i w_i x_{t - W + 1 + i})` per channel, i = 0 .. W - 1, within
    each sequence; `w_{W-1}` multiplies the present token. Before a sequence's
    first token stand the inputs kept in its slot of the cache, zeros where
    `sources[n]` is no slot. Afterwards slot `slots[n]` holds the newest inputs, or
    with snapshots slot `snapshots[t]` those after token t, or with `accepted` those
    of the first `accepted[n]` tokens.

    | layout  | cache                      | entries, oldest first |
    |---------|----------------------------|-----------------------|
    | full    | `[slots, heads, width, W]`   | W, of which W - 1 are used |
    | history | `[slots, W - 1, heads, width]` | W - 1 |

    Indices as in dplr.recurrence; without slots sequence n has slot n. In f32 or
    better; the result is not rounded, kept inputs are copies.

    ```mlir
    %y, %after = dplr.short_conv <full> %x weight(%w : tensor<?x128x4xbf16>)
        cache(%c : tensor<?x?x128x4xbf16>) slots(%s : tensor<?xi32>)
        : tensor<?x?x128xbf16>
    ```
  }];
  let arguments = (ins Dplr_CacheLayoutAttr:$layout, Dplr_Seq3:$input,
    Dplr_Seq3:$weight, Dplr_Cache:$cache, Optional<Dplr_Offsets>:$slots,
    Optional<Dplr_Offsets>:$sources, Optional<Dplr_Offsets>:$snapshots,
    Optional<Dplr_Offsets>:$accepted, Optional<Dplr_Offsets>:$offsets);
  let results = (outs Dplr_Seq3:$result, Dplr_Cache:$after);
  let assemblyFormat = [{
    $layout $input `weight` `(` $weight `:` type($weight) `)`
    `cache` `(` $cache `:` type($cache) `)`
    (`slots` `(` $slots^ `:` type($slots) `)`)?
    (`sources` `(` $sources^ `:` type($sources) `)`)?
    (`snapshots` `(` $snapshots^ `:` type($snapshots) `)`)?
    (`accepted` `(` $accepted^ `:` type($accepted) `)`)?
    (`offsets` `(` $offsets^ `:` type($offsets) `)`)?
    attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Dplr_GatedRmsNormOp : Dplr_Op<"gated_rmsnorm", [AllTypesMatch<["input", "result"]>]> {
  let summary = "normalise every head's output and gate it";
  let description = [{
    `y_c = x_c / sqrt(mean_d x_d^2 + eps) * w_c * act(z_c)` over the last
    dimension, act a sigmoid or SiLU. Norm first, then gate. In f32 or better; the
    result is rounded once, when it is written.

    ```mlir
    %y = dplr.gated_rmsnorm <sigmoid> %o gate(%z) weight(%w : tensor<128xf32>)
        eps 1.0e-05 : tensor<?x?x128xbf16>, tensor<?x?x128xbf16>
    ```
  }];
  let arguments = (ins Dplr_ActivationAttr:$activation, Dplr_Seq3:$input,
    Dplr_Seq3:$gate, TensorRankOf<[F32], [1]>:$weight, F64Attr:$eps);
  let results = (outs Dplr_Seq3:$result);
  let assemblyFormat = [{
    $activation $input `gate` `(` $gate `)` `weight` `(` $weight `:` type($weight) `)`
    `eps` $eps attr-dict `:` type($input) `,` type($gate)
  }];
  let hasVerifier = 1;
}

//===-- Rows of other layers ------------------------------------------------===//

def Dplr_RmsNormOp : Dplr_Op<"rmsnorm", [
    AllTypesMatch<["input", "sum", "result"]>]> {
  let summary = "add a branch to every row and normalise the sum";
  let description = [{
    `s = x + branch`, then `y_c = s_c / sqrt(mean_d s_d^2 + eps) * w_c`. Without a
    branch, or where its argument is absent, s is x. Kernels keep the sum in the
    element type and normalise what they kept. In f32 or better; y is
    rounded once, when it is written.

    ```mlir
    %s, %y = dplr.rmsnorm %x branch(%b) weight(%w : tensor<?xf32>) eps(%e)
        up_to 2304 : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, Optional<Dplr_Seq2>:$branch,
    TensorRankOf<[F32], [1]>:$weight, F32:$eps, I64Attr:$width);
  let results = (outs Dplr_Seq2:$sum, Dplr_Seq2:$result);
  let assemblyFormat = [{
    $input (`branch` `(` $branch^ `:` type($branch) `)`)?
    `weight` `(` $weight `:` type($weight) `)` `eps` `(` $eps `)`
    `up_to` $width attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Dplr_GatedProductOp : Dplr_Op<"gated_product", [AttrSizedOperandSegments,
    AllTypesMatch<["gate", "up", "result"]>]> {
  let summary = "multiply rows by what their gates let through";
  let description = [{
    | kind    | result                                                          |
    |---------|-----------------------------------------------------------------|
    | silu    | g sigmoid(g) u                                                  |
    | situ    | beta tanh(g / beta) sigmoid(g) * linear tanh(u / linear)        |
    | sigmoid | sigmoid(g) u                                                    |

    Element by element, in f32 or better; rounded once, when it is written.

    ```mlir
    %y = dplr.gated_product <silu> %g, %u : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_ProductAttr:$kind, Dplr_Seq2:$gate, Dplr_Seq2:$up,
                       Optional<F32>:$beta, Optional<F32>:$linear);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = [{
    $kind $gate `,` $up (`beta` `(` $beta^ `)`)? (`linear` `(` $linear^ `)`)?
    attr-dict `:` type($result)
  }];
  let hasVerifier = 1;
}

def Dplr_AddOp : Dplr_Op<"add", [AllTypesMatch<["input", "branch", "result"]>]> {
  let summary = "add rows";
  let description = [{
    Element by element, in f32 or better; rounded once, when it is written.

    ```mlir
    %y = dplr.add %x, %b : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, Dplr_Seq2:$branch);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = "$input `,` $branch attr-dict `:` type($result)";
}

def Dplr_GatherOp : Dplr_Op<"gather", [AllTypesMatch<["input", "result"]>]> {
  let summary = "pick rows by number";
  let description = [{
    `y_t = x_{index[t]}`; an index outside of x counts as the nearest row of it.
    Where the argument of the indices is absent, index[t] is t. A copy.

    ```mlir
    %y = dplr.gather %x rows(%i : tensor<?xi32>) : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, TensorRankOf<[I32], [1]>:$index);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = [{
    $input `rows` `(` $index `:` type($index) `)` attr-dict `:` type($input)
  }];
}

def Dplr_CombineOp : Dplr_Op<"combine", [AllTypesMatch<["input", "result"]>]> {
  let summary = "add weighted rows";
  let description = [{
    `y_t = sum_j scale[t, j] * x_{index[t, j]}`, j in order; an index outside of x
    counts as the nearest row of it. In f32 or better; rounded once, when it is
    written.

    ```mlir
    %y = dplr.combine %x rows(%i : tensor<?x?xi32>) scales(%s : tensor<?x?xf32>)
        : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, TensorRankOf<[I32], [2]>:$index,
                       TensorRankOf<[F32], [2]>:$scales);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = [{
    $input `rows` `(` $index `:` type($index) `)`
    `scales` `(` $scales `:` type($scales) `)` attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Dplr_LatentOp : Dplr_Op<"latent", [
    AllTypesMatch<["input", "pages", "result"]>,
    AllTypesMatch<["slots", "positions"]>]> {
  let summary = "normalise the front of rows and store them behind a page table";
  let description = [{
    Row `place` of the result is row t of the input, its first `rank` columns c
    (the weight's width) as `c / sqrt(mean_d c_d^2 + eps) * w`, the others as they
    are; with `page` tokens of a page,
    `place = table[slot[t], position[t] / page] * page + position[t] mod page`.
    Where a slot, a position, a page or the place is outside of what there is, row
    t goes nowhere. Every other row of the result is that of `pages`. In f32 or
    better; rounded once, when it is written.

    ```mlir
    %y = dplr.latent %x weight(%w : tensor<?xf32>) eps(%e)
        at(%slots, %positions : tensor<?xi32>) table(%table : tensor<?x?xi32>)
        of(%page) into(%pages) up_to 512 : tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, TensorRankOf<[F32], [1]>:$weight, F32:$eps,
    TensorRankOf<[I32], [1]>:$slots, TensorRankOf<[I32], [1]>:$positions,
    TensorRankOf<[I32], [2]>:$table, I64:$page, Dplr_Seq2:$pages,
    I64Attr:$width);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = [{
    $input `weight` `(` $weight `:` type($weight) `)` `eps` `(` $eps `)`
    `at` `(` $slots `,` $positions `:` type($positions) `)`
    `table` `(` $table `:` type($table) `)` `of` `(` $page `)`
    `into` `(` $pages `)` `up_to` $width attr-dict `:` type($input)
  }];
  let hasVerifier = 1;
}

def Dplr_MixOp : Dplr_Op<"mix"> {
  let summary = "average rows of several tensors by a softmax of their scores";
  let description = [{
    Of E tensors x_j: `s_j = sum_c x_jc q_c / sqrt(mean_c x_jc^2 + eps)`,
    `y = sum_j softmax_j(s) x_j`, row by row: attention residuals, where the
    query is a norm's weight times a projection. In f32 or better; rounded
    once, when it is written.

    ```mlir
    %y = dplr.mix %x query(%q : tensor<?xf32>) eps(%e) up_to 7168
        : tensor<?x?x?xbf16> -> tensor<?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq3:$input, TensorRankOf<[F32], [1]>:$query, F32:$eps,
                       I64Attr:$width);
  let results = (outs Dplr_Seq2:$result);
  let assemblyFormat = [{
    $input `query` `(` $query `:` type($query) `)` `eps` `(` $eps `)`
    `up_to` $width attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

//===-- Attention over a latent cache ---------------------------------------===//

def Dplr_LatentAttentionOp : Dplr_Op<"latent_attention", [
    AllTypesMatch<["query", "pages", "result"]>]> {
  let summary = "attend to a paged cache of latent rows, one token a sequence";
  let description = [{
    Multi-head latent attention with absorbed queries: every head of a sequence
    meets the same cached rows c_j, whose first R elements are also the values.

    ```
    p_j = exp(scale * sum_d query[n, h, d] c_j[d])     j = 0 .. lengths[n] - 1
    result[n, h] = sum_j p_j c_j[0 .. R) / sum_j p_j
    ```

    Row j of sequence n is row `j mod 64` of page `table[slots[n], j / 64]`.
    Without keys the result is zero. Keys on a page that is not one of the pool's,
    of a slot that is no row of the table, or beyond the table's row do not exist.
    Rows have `D <= key_width` elements, of which `R <= value_width`; the two are
    sizes of the call. In f32 or better, weights rounded to the element type;
    the result is rounded once, when it is written.

    ```mlir
    %o = dplr.latent_attention %q pages(%c) table(%t : tensor<?x?xi32>)
        slots(%s : tensor<?xi32>) lengths(%l : tensor<?xi32>) scale(%x)
        up_to 576 values 512 : tensor<?x?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq3:$query, Dplr_Seq3:$pages,
    TensorRankOf<[I32], [2]>:$table, TensorRankOf<[I32], [1]>:$slots,
    TensorRankOf<[I32], [1]>:$lengths, F32:$scale,
    I64Attr:$key_width, I64Attr:$value_width);
  let results = (outs Dplr_Seq3:$result);
  let assemblyFormat = [{
    $query `pages` `(` $pages `)` `table` `(` $table `:` type($table) `)`
    `slots` `(` $slots `:` type($slots) `)`
    `lengths` `(` $lengths `:` type($lengths) `)` `scale` `(` $scale `)`
    `up_to` $key_width `values` $value_width attr-dict `:` type($query)
  }];
  let hasVerifier = 1;
}

//===-- Attention of prompts ------------------------------------------------===//

def Dplr_PromptAttentionOp : Dplr_Op<"prompt_attention", [
    AllTypesMatch<["query", "expanded", "result"]>,
    AllTypesMatch<["offsets", "key_offsets"]>, AllTypesMatch<["before", "after"]>,
    AllTypesMatch<["before_logs", "after_logs"]>]> {
  let summary = "attend to expanded keys and values, causally, from many rows a sequence";
  let description = [{
    Multi-head attention of packed rows to packed keys. A key has a part for
    every head, which stands in front of the head's value in `expanded`, and a
    part that all heads share.

    ```
    w_ij = exp(scale * (query[i, h] . [expanded[j, h, 0 .. D - R) | shared[j]]))
    result[i, h] = sum_j w_ij value_j / sum_j w_ij,  value_j = expanded[j, h, D - R ..)
    ```

    Sequence n has rows `offsets[n] .. offsets[n + 1]` and keys
    `key_offsets[n] .. key_offsets[n + 1]`, the last of which, or of the `later`
    keys that follow them in other calls, is the last row's own; a row sees no
    keys behind its own. Keys of other calls are in `before`: averages of values,
    and logarithms to base 2 of the weights' sums that they were divided by;
    absent, there are none. `after` and `after_logs` are the same with this
    call's keys. A row without keys has the result 0 and the least finite f32 as
    logarithm. Rows of queries have `D <= key_width` elements, `R <= key_width -
    value_width` of them shared, own parts and values at most `value_width`; the
    three are sizes of the call. `scale` is positive. In f32 or better, weights
    rounded to the element type; results are rounded once, when they are written.

    ```mlir
    %o, %a, %l = dplr.prompt_attention %q expanded(%kv) shared(%r : tensor<?x?xbf16>)
        offsets(%t, %k : tensor<?xi32>) before(%b, %m : tensor<?x?x?xf32>, tensor<?x?xf32>)
        later(%n) scale(%x) up_to 192 values 128 : tensor<?x?x?xbf16>
    ```
  }];
  let arguments = (ins Dplr_Seq3:$query, Dplr_Seq3:$expanded,
    TensorRankOf<[F32, BF16, F16], [2]>:$shared,
    TensorRankOf<[I32], [1]>:$offsets, TensorRankOf<[I32], [1]>:$key_offsets,
    TensorRankOf<[F32], [3]>:$before, TensorRankOf<[F32], [2]>:$before_logs,
    I64:$later, F32:$scale, I64Attr:$key_width, I64Attr:$value_width);
  let results = (outs Dplr_Seq3:$result, TensorRankOf<[F32], [3]>:$after,
    TensorRankOf<[F32], [2]>:$after_logs);
  let assemblyFormat = [{
    $query `expanded` `(` $expanded `)` `shared` `(` $shared `:` type($shared) `)`
    `offsets` `(` $offsets `,` $key_offsets `:` type($offsets) `)`
    `before` `(` $before `,` $before_logs `:` type($before) `,` type($before_logs) `)`
    `later` `(` $later `)` `scale` `(` $scale `)`
    `up_to` $key_width `values` $value_width attr-dict `:` type($query)
  }];
  let hasVerifier = 1;
}

//===-- Products with weights ----------------------------------------------===//

def Dplr_GroupedMatmulOp : Dplr_Op<"grouped_matmul", [AttrSizedOperandSegments,
    AllTypesMatch<["input", "result"]>]> {
  let summary = "multiply rows by the transposed weights of their groups";
  let description = [{
    Rows of the result, the entries, are sorted by group: those of group g are
    `starts[g] .. starts[g + 1]`. Experts are groups, and a row of the input has
    an entry for every expert that it chose.

    ```
    p_e = input[order[e] / each] weights[g]^T      u_e the same with up
    result_e = p_e, or gated(p_e, u_e)             (dplr.gated_product)
    ```

    A tile is `[group, first entry]`, and has the group's entries from there on,
    128 at most. Entries without a tile are not written. Tiles of no group or
    with a first entry that does not exist have none, and `order` outside of the
    input counts as the nearest row of it: indices live in device memory. Absent
    tiles and starts: all entries have one group. Absent order: entry e has row
    e. Sums in f32 or better; `sums` are the results before they are rounded to
    the element type.

    ```mlir
    %y, %s = dplr.grouped_matmul %x by(%w : tensor<?x?x?xbf16>)
        tiles(%t : tensor<?xi32>) starts(%o : tensor<?xi32>) order(%i : tensor<?xi32>)
        each(%n) : tensor<?x?xbf16>, tensor<?x?xf32>
    ```
  }];
  let arguments = (ins Dplr_Seq2:$input, Dplr_Seq3:$weights, Optional<Dplr_Seq3>:$up,
    TensorRankOf<[I32], [1]>:$tiles, TensorRankOf<[I32], [1]>:$starts,
    TensorRankOf<[I32], [1]>:$order, I64:$each,
    OptionalAttr<Dplr_ProductAttr>:$kind, Optional<F32>:$beta, Optional<F32>:$linear);
  let results = (outs Dplr_Seq2:$result, TensorRankOf<[F32], [2]>:$sums);
  let assemblyFormat = [{
    $input `by` `(` $weights `:` type($weights) `)`
    (`gated` $kind^)? (`up` `(` $up^ `:` type($up) `)`)?
    (`beta` `(` $beta^ `)`)? (`linear` `(` $linear^ `)`)?
    `tiles` `(` $tiles `:` type($tiles) `)` `starts` `(` $starts `:` type($starts) `)`
    `order` `(` $order `:` type($order) `)` `each` `(` $each `)`
    attr-dict `:` type($input) `,` type($sums)
  }];
  let hasVerifier = 1;
}

//===-- The recurrence -----------------------------------------------------===//

def Dplr_RecurrenceOp : Dplr_Op<"recurrence", [AttrSizedOperandSegments]> {
  let summary = "run a diagonal-plus-rank-one recurrence over packed sequences";
  let description = [{
    For every sequence n and value head hv (key head h = hv / (HV / H)), with
    alpha = exp(decay) (1 when absent) and S_0 = initial (0 when absent):

    ```
    S   = Diag(alpha_t) S_{t-1}
    no erase      S_t = S + k_t (beta_t v_t)^T
    delta         S_t = S + k_t (beta_t (v_t - S^T k_t))^T
    erase(a, b)   S_t = S + a_t (S_{t-1}^T b_t)^T + k_t (beta_t v_t)^T
    o_t = scale * S_t^T q_t
    ```

    The delta erase reads the decayed state, the general erase the undecayed one,
    the output the state after the write. `beta` is 1 when absent. Parts exist
    exactly when their operands do; `delta` is an attribute. A log-decay of rank 3
    is per channel, of rank 2 per head, of rank 1 constant per head.

    Without `offsets` the sequences are `tokens / N` tokens each, N taken from the
    initial state, else one sequence; with them sequence n is tokens
    `offsets[n] .. offsets[n+1]`. An empty sequence passes its state through
    bitwise. Results: out `[tokens, HV, V]` and the final state.

    With `slots` the initial state is a pool `[slots, HV, ...]`: sequence n starts
    from slot `sources[n]` (default `slots[n]`; zero when that is no slot) and the
    final state is the pool with slot `slots[n]` replaced. A sequence whose
    `slots[n]` is no slot (-1 by convention) is skipped: its output is zero. With
    `snapshots` the state after token t replaces slot `snapshots[t]` instead, and
    nothing where that is no slot. With `accepted` the state of sequence n is kept
    as it is after its first `accepted[n]` tokens.

    Numerics: f32 state; `precision` bounds the rounding of products
    (docs/NUMERICS.md). C1 to C12 in SPEC.md constrain shapes.

    ```mlir
    %o, %ht = dplr.recurrence q(%q : tensor<?x?x128xbf16>)
        k(%k : tensor<?x?x128xbf16>) v(%v : tensor<?x?x128xbf16>)
        decay(%ld : tensor<?x?x128xf32>) beta(%w : tensor<?x?xbf16>)
        initial(%h0 : tensor<?x?x128x128xf32>) scale(%s)
        {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
        -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
    ```
  }];
  let arguments = (ins
    Dplr_Seq3:$q, Dplr_Seq3:$k, Dplr_Seq3:$v,
    Optional<Dplr_Gate>:$decay,
    Optional<Dplr_Seq2>:$beta,
    Optional<Dplr_Seq3>:$erase_a, Optional<Dplr_Seq3>:$erase_b,
    Optional<Dplr_State>:$initial,
    Optional<Dplr_Offsets>:$slots, Optional<Dplr_Offsets>:$sources,
    Optional<Dplr_Offsets>:$snapshots,
    Optional<Dplr_Offsets>:$accepted,
    Optional<Dplr_Offsets>:$offsets,
    F32:$scale,
    UnitAttr:$delta,
    Dplr_LayoutAttr:$layout,
    Dplr_PrecisionAttr:$precision);
  let results = (outs Dplr_Seq3:$out, Dplr_State:$final_state);
  let assemblyFormat = [{
    `q` `(` $q `:` type($q) `)` `k` `(` $k `:` type($k) `)`
    `v` `(` $v `:` type($v) `)`
    (`decay` `(` $decay^ `:` type($decay) `)`)?
    (`beta` `(` $beta^ `:` type($beta) `)`)?
    (`erase` `(` $erase_a^ `:` type($erase_a) `,` $erase_b `:` type($erase_b) `)`)?
    (`initial` `(` $initial^ `:` type($initial) `)`)?
    (`slots` `(` $slots^ `:` type($slots) `)`)?
    (`sources` `(` $sources^ `:` type($sources) `)`)?
    (`snapshots` `(` $snapshots^ `:` type($snapshots) `)`)?
    (`accepted` `(` $accepted^ `:` type($accepted) `)`)?
    (`offsets` `(` $offsets^ `:` type($offsets) `)`)?
    `scale` `(` $scale `)` attr-dict `->` type($out) `,` type($final_state)
  }];
  let hasVerifier = 1;
}

#endif // KDAC_DPLR_TD
