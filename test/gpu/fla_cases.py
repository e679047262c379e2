#!/usr/bin/env python3
"""The forward cases of FLA 0.5.2's KDA tests, as data.

shared/reference/kda-operator.md 5.3 has the tests; a row here is a row there. A
case makes one call, or two that FLA compares with each other.

  fla_cases.py --spec    packs/fla.yaml: the variants that these calls need on a GPU

Standard library only.
"""

import os
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                "..", "python"))

from kdac_fla.calls import chunk_problem, recurrent_problem  # noqa: E402
from kdac_fla.operators import Operators, Shapes  # noqa: E402


@dataclass
class Case:
    test: str
    function: str  # chunk_kda, fused_recurrent_kda, or decode: its low level
    B: int
    T: int
    H: int
    HV: int
    D: int
    dtype: str
    scale: object = None   # None: the default
    gln: float = 1.0       # gate logit normalizer
    mask_p: float = 0.0
    l2: bool = False       # l2norm in the kernel; else q, k are normalised before
    gate: bool = False     # gate in the kernel
    bounded: bool = False  # lower_bound -5
    safe: bool = False
    chunk: int = 64
    A_log: bool = True
    dt_bias: bool = True
    cu: list = None
    recipe: str = "chunk"  # how inputs are drawn
    neg: bool = False
    pair: str = ""         # state, beta or gate: what the second call does otherwise
    tolerance: float = 5e-3
    pair_tolerance: float = 0.0
    final: bool = True

    def __str__(self):
        size = "+".join(map(str, self.cu)) if self.cu else f"{self.B}x{self.T}"
        words = [word for word, said in
                 (("l2", self.l2), ("gate", self.gate), ("bounded", self.bounded),
                  ("safe", self.safe), ("neg", self.neg)) if said]
        return (f"{self.test} {size} H{self.H} HV{self.HV} D{self.D} "
                f"{self.dtype} {' '.join(words)}").strip()


def rows(text):
    return [line.split() for line in text.strip().splitlines()]


def flag(text):
    return text == "T"


def chunk_cases():
    for B, T, H, HV, D, scale, gln, mask, l2, gate, dtype, safe, _, chunk in rows("""
1  63    1  1  64   1     1   0      F  F    f16   T    F   64
2  500   3  3  60   1     1   0      F  F    f16   T    T   64
2  1000  3  3  64   0.1   1   0.5    F  F    f16   F    T   64
3  1024  4  4  100  1     0.1 0      F  F    f16   F    F   64
4  1024  4  4  128  0.1   1   0      F  F    f16   T    T   64
4  1024  4  4  128  0.1   1   0      T  F    f16   T    F   64
2  1500  4  4  128  0.1   10  0      F  T    f16   F    T   64
4  2048  8  8  64   0.1   1   0      F  T    f16   T    T   64
2  1024  2  4  64   0.1   1   0      F  F    f16   F    F   64
2  1024  2  8  64   0.1   1   0      F  T    f16   F    F   64
2  1024  4  8  128  0.1   1   0      T  T    f16   F    F   64
2  160   2  4  64   0.1   1   0      F  T    f16   T    T   32
2  1024  2  4  64   0.1   1   0      T  T    bf16  T    F   64
2  1024  2  4  64   0.1   1   0      F  T    bf16  F    F   64
2  160   2  4  64   0.1   1   0      F  T    bf16  T    T   32
2  1024  2  8  128  0.1   1   0      T  T    bf16  F    F   64"""):
        yield Case("test_chunk", "chunk_kda", int(B), int(T), int(H), int(HV),
                   int(D), dtype, float(scale), float(gln), float(mask),
                   flag(l2), flag(gate), flag(safe), flag(safe), int(chunk))
    for B, T, H, D, scale, gln in rows("""
1  63    1  64   1     1
2  500   3  60   1     1
3  1024  4  128  0.1   1
4  2048  8  64   0.1   1"""):
        yield Case("test_chunk_state_v_first", "chunk_kda", int(B), int(T),
                   int(H), int(H), int(D), "f16", float(scale), float(gln),
                   pair="state", pair_tolerance=1e-4)
    for B, T, H, D, neg, dtype in rows("""
1  8192  96  128  F   bf16
1  8192  96  128  T   bf16
2  96    2   64   T   f16"""):
        # Rows of bf16 whose beta is f32 outside go to a kernel of f32 rows, which
        # rounds other operands than that of bf16 rows.
        yield Case("test_chunk_use_beta_sigmoid_in_kernel", "chunk_kda", int(B),
                   int(T), int(H), int(H), int(D), dtype, recipe="beta",
                   neg=flag(neg), pair="beta",
                   pair_tolerance=5e-3 if dtype == "bf16" else 1e-4)


def varlen_cases():
    for name, text in (("test_chunk_varlen", """
4  60   0.1    0,15                          f16   T    F    64
4  64   0.9    0,256,500,1000                f16   T    F    64
4  128  0.5    0,256,500,1000                f16   F    F    64
4  100  0      0,15,100,300,1200,2000        f16   T    F    64
4  256  0      0,100,300,1200,3000,4096      f16   F    T    64
4  60   0.1    0,31,96,160                   f16   T    F    32"""),
                       ("test_chunk_varlen_prefill", """
4  60   0.1    0,8192                        f16   T    F    64
4  64   0.9    0,256,500,1000                f16   T    F    64
4  128  0.5    0,256,500,1000                f16   F    F    64
4  100  0      0,15,100,300,1200,2000        f16   T    F    64
4  256  0      0,100,300,1200,3000,4096      f16   F    T    64""")):
        for H, D, mask, cu, dtype, gate, safe, chunk in rows(text):
            cu = [int(x) for x in cu.split(",")]
            yield Case(name, "chunk_kda", 1, cu[-1], int(H), int(H), int(D),
                       dtype, None, 1.0, float(mask), gate=flag(gate),
                       bounded=flag(safe), safe=flag(safe), chunk=int(chunk),
                       cu=cu, recipe="varlen")


def recurrent_cases():
    name = "fused_recurrent_kda"
    for B, T, H, HV, D, scale, gln, l2 in rows("""
1  64    1  1  64   1     1   F
2  512   3  3  60   1     1   F
3  1000  4  4  100  0.1   1   T
4  1024  4  4  128  0.1   1   F
2  512   2  4  60   1     1   F
2  1024  2  8  128  0.1   1   T"""):
        yield Case("test_fused_recurrent", name, int(B), int(T), int(H), int(HV),
                   int(D), "f32", float(scale), float(gln), l2=flag(l2))
    for B, T, H, D, neg in rows("""
2  256  4  64  F
2  256  4  64  T
1  512  3  60  T"""):
        yield Case("test_fused_recurrent_use_beta_sigmoid_in_kernel", name,
                   int(B), int(T), int(H), int(H), int(D), "f32", recipe="beta",
                   neg=flag(neg), pair="beta", pair_tolerance=5e-3)
    for B, T, H, D, scale, gln in rows("""
1  64    1  64   1     1
2  512   3  60   1     1
3  1000  4  100  0.1   1
4  1024  4  128  0.1   1"""):
        yield Case("test_fused_recurrent_state_v_first", name, int(B), int(T),
                   int(H), int(H), int(D), "f32", float(scale), float(gln),
                   pair="state", pair_tolerance=1e-4)
    for B, T, H, HV, D, scale, a_log, bias, bounded, dtype in rows("""
1  64    1  1  64   1     T     F       F       f32
2  256   2  2  64   1     T     T       F       f32
2  512   2  4  64   0.1   T     T       T       f16
3  1000  2  8  128  1     T     F       F       f16
4  1024  4  4  128  0.1   T     T       T       f16
1  64    1  1  64   1     F     F       T       f32
2  256   2  4  64   1     F     T       T       f32"""):
        yield Case("test_fused_recurrent_gate_in_kernel", name, int(B), int(T),
                   int(H), int(HV), int(D), dtype, float(scale), l2=True,
                   gate=True, bounded=flag(bounded), A_log=flag(a_log),
                   dt_bias=flag(bias), recipe="gate", pair="gate",
                   pair_tolerance=2e-3)


def decode_cases():
    for B, H, D, scale, gln, l2, gate, bounded, dtype in rows("""
16  16  128  0.1   1.0  T  F    F       bf16
32  8   64   1.0   1.0  F  F    F       f16
7   32  128  0.5   0.5  T  F    F       bf16
16  16  128  0.1   1.0  T  T    F       bf16
32  8   64   1.0   1.0  F  T    F       f16
7   32  128  0.5   0.5  T  T    T       bf16"""):
        yield Case("test_fused_recurrent_vllm_decode", "decode", 1, int(B),
                   int(H), int(H), int(D), dtype, float(scale), float(gln),
                   l2=flag(l2), gate=flag(gate), bounded=flag(bounded),
                   cu=list(range(int(B) + 1)), recipe="decode")


def cases():
    return [*chunk_cases(), *varlen_cases(), *recurrent_cases(),
            *decode_cases()]


@dataclass
class Flags:
    """What a call says beside its tensors, and their types."""
    g_dtype: str = "f32"
    beta_dtype: str = ""
    beta_raw: bool = False
    gate: bool = False
    v_first: bool = False
    extra: dict = field(default_factory=dict)


def calls(case):
    """The flags of the case's calls: one, or two."""
    c = case
    raw = c.dtype if c.recipe != "gate" and c.gate else "f32"
    first = Flags(g_dtype=raw, beta_dtype=c.dtype, gate=c.gate)
    if c.pair == "state":
        return [first, Flags(v_first=True, beta_dtype=c.dtype)]
    if c.pair == "beta":
        # The second gets the strengths themselves, in f32 (recurrent: their type).
        post = "f32" if c.function == "chunk_kda" else c.dtype
        return [Flags(beta_dtype=c.dtype, beta_raw=True),
                Flags(beta_dtype=post)]
    if c.pair == "gate":
        return [first, Flags(beta_dtype=c.dtype)]
    return [first]


def keywords(case, flags):
    """The arguments of a call that are no tensors."""
    c = case
    result = {"scale": c.scale, "use_qk_l2norm_in_kernel": c.l2,
              "use_gate_in_kernel": flags.gate,
              "use_beta_sigmoid_in_kernel": flags.beta_raw,
              "allow_neg_eigval": flags.beta_raw and c.neg}
    if c.bounded and (flags.gate or c.function == "chunk_kda"):
        result["lower_bound"] = -5.0
    if c.function == "decode":
        return result
    result.update(output_final_state=True, state_v_first=flags.v_first)
    if c.function == "chunk_kda":
        result.update(safe_gate=c.safe, chunk_size=c.chunk)
    return result


# ---- The variants that the calls need

class SpecOps:
    """Tensors that only have a shape and a type."""

    def shape(self, t):
        return t.shape

    def dtype(self, t):
        return t.dtype


def problem_of(case, flags):
    c = case

    def tensor(dtype, *shape):
        return SimpleNamespace(shape=shape, dtype=dtype)

    N = len(c.cu) - 1 if c.cu else c.B
    tensors = {"q": tensor(c.dtype, c.B, c.T, c.H, c.D),
               "k": tensor(c.dtype, c.B, c.T, c.H, c.D),
               "v": tensor(c.dtype, c.B, c.T, c.HV, c.D),
               "g": tensor(flags.g_dtype, c.B, c.T, c.HV, c.D),
               "beta": tensor(flags.beta_dtype, c.B, c.T, c.HV),
               "initial_state": tensor("f32", N, c.HV, c.D, c.D)}
    if flags.gate:
        tensors["A_log"] = tensor("f32", c.HV) if c.A_log else None
        tensors["dt_bias"] = (tensor("f32", c.HV * c.D) if c.dt_bias else None)
    if c.cu:
        tensors["cu_seqlens"] = tensor("i64" if c.function == "chunk_kda"
                                       else "i32", N + 1)
    if c.function == "chunk_kda":
        return chunk_problem(SpecOps().dtype, **tensors, **keywords(c, flags))
    if c.function == "decode":
        tensors["ssm_state_indices"] = tensor("i32", N)
        tensors["initial_state"] = tensor("f32", 3 * N, c.HV, c.D, c.D)
    else:
        tensors["inplace_final_state"] = False
    return recurrent_problem(SpecOps().dtype, **tensors, **keywords(c, flags))


def entry_of(case, flags):
    """The variant for a call, as a line of a pack spec."""
    operators = Operators.__new__(Operators)
    operators.ops = SpecOps()
    problem = problem_of(case, flags)
    shapes = Shapes(problem, operators.ops)
    # GPUs have kernels for multiples of 32; offsets become i32.
    plan = next(plan for plan in operators._plans(problem, shapes)
                if plan.key_dim % 32 == 0 and plan.value_dim % 32 == 0
                and plan.offset_dtype in (None, "i32"))
    r = operators.request(problem, plan)
    items = [("form", r["form"]), ("key-dim", r["key_dim"]),
             ("value-dim", r["value_dim"]), ("dtype", r["dtype"]),
             ("state-layout", r["state_layout"]), ("gate", r["gate"]),
             ("gate-dtype", r["gate_dtype"]), ("beta", r["beta"]),
             ("l2norm", "true" if r["l2norm"] == 2 else "false"),
             ("precision", r.get("precision", "default"))]
    if "slots" in r:
        items.append(("slots", r["slots"]))
    return "  - {" + ", ".join(f"{k}: {v}" for k, v in items) + "}"


def spec():
    lines = {entry_of(case, flags) for case in cases() for flags in calls(case)}
    # What FLA's KimiDeltaAttention layer calls, both forms and both gates.
    for form in ("chunk", "step"):
        for gate in ("bounded", "softplus"):
            lines.add(f"  - {{form: {form}, key-dim: 128, value-dim: 128, "
                      f"dtype: bf16, state-layout: vk, gate: {gate}, gate-dtype: "
                      "bf16, beta: sigmoid, l2norm: true, precision: default}")
    return ("# Written by test/gpu/fla_cases.py --spec: what FLA's own KDA tests and "
            "its layer\n# call, forward (docs/TRITON.md, C1).\n"
            "targets: [sm_90a]\n"
            "defaults: {recurrence: kda, state-dtype: f32, lower-bound: -5, "
            "offsets: i32}\nvariants:\n" + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--spec"]:
        raise SystemExit(__doc__)
    sys.stdout.write(spec())
