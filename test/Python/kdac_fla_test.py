#!/usr/bin/env python3
"""python/kdac_fla on the host device: arguments, refusals, and results in f64.

usage: kdac_fla_test.py KDAC LIBKDAC SOURCE [unittest options]

Standard library only: the code that runs here runs with torch's tensors on a GPU
(test/gpu/fla_dispatch.py), but for python/kdac_fla/torch_ops.py and backend.py.
"""

import ctypes
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

KDAC, LIBRARY, SOURCE = sys.argv[1:4]
sys.path[:0] = [os.path.join(SOURCE, "python"),
                os.path.join(SOURCE, "test", "gpu")]

import fla_cases  # noqa: E402
from kdac_fla import abi  # noqa: E402
from kdac_fla.calls import chunk_problem, recurrent_problem  # noqa: E402
from kdac_fla.host_ops import HostOps, HostTensor  # noqa: E402
from kdac_fla.operators import Operators, Refused  # noqa: E402

SPEC = """
targets: [host]
defaults: {recurrence: kda, key-dim: 32, value-dim: 64}
variants:
  - {form: [chunk, step], dtype: f32, gate: identity, beta: identity, l2norm: false, state-layout: [vk, kv]}
  - {form: [chunk, step], dtype: bf16, gate: bounded, gate-dtype: [bf16, f32]}
  - {form: [chunk, step], dtype: bf16, gate: softplus, beta: 2sigmoid, state-layout: kv}
  - {form: step, dtype: bf16, gate: identity, beta: identity, slots: i32}
"""

H, HV, K, V = 2, 4, 32, 64


class HeaderTest(unittest.TestCase):
    """The structs of abi.py are those of the C header."""

    TYPES = {"int64_t": ctypes.c_int64, "double": ctypes.c_double,
             "float": ctypes.c_float}

    def setUp(self):
        path = os.path.join(SOURCE, "include", "kdac-c", "kdac.h")
        with open(path, encoding="utf-8") as file:
            self.text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)

    def fields(self, name):
        body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name),
                         self.text, re.S).group(1)
        for declaration in body.split(";"):
            match = re.match(r"\s*(const )?(\w+) (.*)", declaration, re.S)
            if not match:
                continue
            for field in match.group(3).split(","):
                pointer, word = "*" in field, field.replace("*", "").strip()
                kind = match.group(2)
                yield word, ((ctypes.c_char_p if kind == "char" else "pointer")
                             if pointer else self.TYPES[kind])

    def test_structs(self):
        for name, struct in (("kdac_device_options", abi.DeviceOptions),
                             ("kdac_device_info", abi.DeviceInfo),
                             ("kdac_stride", abi.Stride),
                             ("kdac_request", abi.Request),
                             ("kdac_kernel_info", abi.KernelInfo),
                             ("kdac_call", abi.Call)):
            expected = list(self.fields(name))
            self.assertGreater(len(expected), 1, name)
            actual = [(field, kind if kind in (ctypes.c_int64, ctypes.c_double,
                                               ctypes.c_float, ctypes.c_char_p)
                       else "pointer") for field, kind in struct._fields_]
            self.assertEqual(actual, expected, name)

    def test_version(self):
        version = re.search(r"KDAC_ABI_VERSION (\d+)", self.text).group(1)
        self.assertGreaterEqual(int(version), abi.ABI_VERSION)


# ---- An oracle, token by token

def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def softplus(x):
    return x if x > 30 else math.log1p(math.exp(x))


def gate_of(problem, raw, bias, a_log):
    if problem.gate == "identity":
        return raw
    x, rate = raw + bias, math.exp(a_log)
    if problem.gate == "softplus":
        return -rate * softplus(x)
    return problem.lower_bound * sigmoid(rate * x)


def head_outputs(p, tensors, hv, tokens, state):
    """Outputs of a value head over tokens; changes state[K][V]."""
    q, k, v, g, beta, a_log, bias = tensors
    heads, key_heads, (K, V) = p.v.shape[2], p.q.shape[2], (p.q.shape[3],
                                                            p.v.shape[3])
    h, result = hv // (heads // key_heads), []
    scale = K ** -0.5 if p.scale is None else p.scale
    for t in tokens:
        qt, kt = (x[(t * key_heads + h) * K:][:K] for x in (q, k))
        if p.l2norm:
            qt, kt = ([e / math.sqrt(sum(f * f for f in x) + 1e-6) for e in x]
                      for x in (qt, kt))
        vt = v[(t * heads + hv) * V:][:V]
        gt = g[(t * heads + hv) * K:][:K]
        b = beta[t * heads + hv]
        if p.beta_map != "identity":
            b = (2 if p.beta_map == "2sigmoid" else 1) * sigmoid(b)
        for i in range(K):
            factor = math.exp(gate_of(p, gt[i], bias[hv * K + i], a_log[hv]))
            state[i] = [x * factor for x in state[i]]
        u = [b * (vt[j] - sum(kt[i] * state[i][j] for i in range(K)))
             for j in range(V)]
        for i in range(K):
            state[i] = [x + kt[i] * y for x, y in zip(state[i], u)]
        result.append([scale * sum(qt[i] * state[i][j] for i in range(K))
                       for j in range(V)])
    return result


def oracle(p):
    """(out, final states), flat, of a problem on HostTensors."""
    B, T, heads, V = p.v.shape
    K = p.q.shape[3]
    ones = [0.0] * (heads * K)
    tensors = [t.values() if t is not None else ones
               for t in (p.q, p.k, p.v, p.g, p.beta, p.A_log, p.dt_bias)]
    bounds = (p.offsets.values() if p.offsets is not None
              else [n * T for n in range(B + 1)])
    count = len(bounds) - 1
    out, finals = [0.0] * (B * T * heads * V), []
    initial = p.initial.values() if p.initial is not None else None
    for n in range(count):
        for hv in range(heads):
            base = (n * heads + hv) * K * V
            if p.slots is not None:
                base = (int(p.slots.values()[n]) * heads + hv) * K * V
            state = [[0.0 if initial is None else initial[
                base + (j * K + i if p.v_first else i * V + j)]
                for j in range(V)] for i in range(K)]
            rows = head_outputs(p, tensors, hv, range(bounds[n], bounds[n + 1]),
                                state)
            for t, row in zip(range(bounds[n], bounds[n + 1]), rows):
                out[(t * heads + hv) * V:][:0] = []
                out[(t * heads + hv) * V:(t * heads + hv + 1) * V] = row
            if p.v_first:
                finals += [state[i][j] for j in range(V) for i in range(K)]
            else:
                finals += [x for row in state for x in row]
    return out, finals


def relative(got, expected):
    norm = math.sqrt(sum(x * x for x in expected))
    error = math.sqrt(sum((x - y) ** 2 for x, y in zip(got, expected)))
    return error / norm if len(got) == len(expected) else math.inf


def setUpModule():
    """One pack for all tests; compiling it is most of their time."""
    global FOLDER, OPERATORS
    FOLDER = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(FOLDER.cleanup)
    spec = os.path.join(FOLDER.name, "spec.yaml")
    with open(spec, "w", encoding="utf-8") as file:
        file.write(SPEC)
    pack = os.path.join(FOLDER.name, "test.kdac")
    compiled = subprocess.run([KDAC, "compile", spec, "-o", pack], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if compiled.returncode != 0:
        raise AssertionError(compiled.stdout)
    OPERATORS = Operators(abi.Library(LIBRARY), pack, HostOps())


class HostCase(unittest.TestCase):
    @property
    def operators(self):
        return OPERATORS

    def normal(self, shape, dtype, scale=1.0):
        count = math.prod(shape)
        return HostTensor.of([self.random.gauss(0, scale) for _ in range(count)],
                             shape, dtype)

    def inputs(self, dtype, B=2, T=5, K=K, V=V, H=H, HV=HV, g_dtype=None,
               N=None, v_first=False):
        """Keyword arguments of either function, with a precomputed decay."""
        self.random = random.Random(7)
        g = HostTensor.of([-0.3 * abs(self.random.gauss(0, 1))
                           for _ in range(B * T * HV * K)], (B, T, HV, K),
                          g_dtype or "f32")
        beta = HostTensor.of([self.random.random() for _ in range(B * T * HV)],
                             (B, T, HV), dtype)
        matrix = (V, K) if v_first else (K, V)
        return {"q": self.normal((B, T, H, K), dtype, K ** -0.5),
                "k": self.normal((B, T, H, K), dtype, K ** -0.5),
                "v": self.normal((B, T, HV, V), dtype), "g": g, "beta": beta,
                "initial_state": self.normal((N or B, HV, *matrix), "f32"),
                "state_v_first": v_first, "output_final_state": True}

    def gated(self, a, dtype, **options):
        """The same with everything in the kernel."""
        HV, K = a["g"].shape[2:]
        a.update(g=self.normal(a["g"].shape, dtype), A_log=self.normal(
            (HV,), "f32", 0.5), dt_bias=self.normal((HV * K,), "f32"),
            use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, **options)
        return a

    def check(self, problem, tolerance, name=None):
        expected = oracle(problem)
        out, final = self.operators.run(problem)
        self.assertEqual(out.shape, problem.v.shape)
        self.assertEqual(out.dtype, problem.out_dtype)
        self.assertLess(relative(out.values(), expected[0]), tolerance)
        if problem.wants_final and problem.slots is None:
            self.assertLess(relative(final.values(), expected[1]), tolerance)
        if name:
            self.assertIn(name, self.operators.last.name)
        return out, final

    def both(self, arguments, tolerance, name=None):
        """Through chunk_kda and through fused_recurrent_kda."""
        dtype = HostOps().dtype
        chunk = chunk_problem(dtype, **arguments)
        self.check(chunk, tolerance, name)
        arguments = dict(arguments, inplace_final_state=False)
        arguments.pop("safe_gate", None)
        self.check(recurrent_problem(dtype, **arguments), tolerance, name)


class ResultTest(HostCase):
    def test_precomputed_decay_in_both_layouts(self):
        for v_first in (False, True):
            self.both(self.inputs("f32", v_first=v_first), 2e-6,
                      "f32vk" if v_first else "f32kv")

    def test_gates(self):
        a = self.gated(self.inputs("bf16", v_first=True), "bf16",
                       lower_bound=-5.0, safe_gate=True)
        self.both(a, 4e-3, "bounded")
        a = self.gated(self.inputs("bf16"), "bf16", allow_neg_eigval=True)
        self.both(a, 4e-3, "softplus")

    def test_gate_without_its_vectors(self):
        a = self.gated(self.inputs("bf16", v_first=True), "bf16",
                       lower_bound=-5.0)
        a["dt_bias"] = a["A_log"] = None
        self.both(a, 4e-3)

    def test_widths_are_padded(self):
        a = self.inputs("f32", K=20, V=40)
        self.both(a, 2e-6, "k32v64")
        a = self.gated(self.inputs("bf16", K=20, V=40, v_first=True), "bf16",
                       lower_bound=-5.0)
        self.both(a, 4e-3, "k32v64")

    def test_narrow_types_become_f32_where_there_is_no_kernel(self):
        self.both(self.inputs("f16"), 1e-3, ".f32.")
        a = self.inputs("bf16")
        a["beta"] = HostOps().cast(a["beta"], "f32")  # a type of its own
        self.both(a, 4e-3, ".f32.")

    def test_logits_in_f32(self):
        a = self.gated(self.inputs("bf16", v_first=True), "f32",
                       lower_bound=-5.0)
        self.both(a, 4e-3, ".bf16.")
        self.assertIn("gf32", self.operators.last.name)

    def test_packed_sequences(self):
        for dtype in ("i32", "i64"):
            a = self.inputs("f32", B=1, T=9, N=4)
            a["cu_seqlens"] = HostTensor.of([0, 4, 4, 5, 9], (5,), dtype)
            self.both(a, 2e-6)

    def test_no_state_in_or_out(self):
        a = self.inputs("f32")
        a.update(initial_state=None, output_final_state=False)
        out, final = self.operators.run(chunk_problem(HostOps().dtype, **a))
        self.assertIsNone(final)
        self.both(a, 2e-6)

    def test_scale(self):
        self.both(dict(self.inputs("f32"), scale=0.1), 2e-6)

    def test_slices_of_one_projection(self):
        row = 2 * H * K + HV * V + 8
        for B, T in ((2, 3), (3, 1)):
            a = self.inputs("f32", B=B, T=T)
            fused = self.normal((B, T, row), "f32", K ** -0.5)
            for name, heads, width, offset in (
                    ("q", H, K, 0), ("k", H, K, H * K),
                    ("v", HV, V, 2 * H * K)):
                a[name] = fused.view((B, T, heads, width),
                                     (T * row, row, width, 1), offset)
            self.both(a, 2e-6)

    def test_tensors_that_must_be_copied(self):
        a = self.inputs("f32", B=2, T=3)
        # One element off; and heads outside of tokens.
        a["q"] = self.normal((1 + a["q"].shape[0] * 3 * H * K,), "f32").view(
            a["q"].shape, a["q"].strides, 1)
        a["v"] = self.normal((2, HV, 3, V), "f32").view(
            (2, 3, HV, V), (HV * 3 * V, V, 3 * V, 1))
        self.both(a, 2e-6)

    def test_pool_of_states(self):
        a = self.inputs("bf16", B=1, T=3, N=7, v_first=True)
        a.pop("output_final_state")
        a["use_qk_l2norm_in_kernel"] = True
        a["ssm_state_indices"] = HostTensor.of([5, 0, 3], (3,), "i32")
        a["cu_seqlens"] = HostTensor.of([0, 1, 2, 3], (4,), "i32")
        problem = recurrent_problem(HostOps().dtype, **a)
        before = a["initial_state"].values()
        expected = oracle(problem)
        out, pool = self.operators.run(problem)
        self.assertIs(pool, a["initial_state"])
        self.assertLess(relative(out.values(), expected[0]), 4e-3)
        after, size = pool.values(), HV * K * V
        used = [x for slot in (5, 0, 3) for x in after[slot * size:][:size]]
        self.assertLess(relative(used, expected[1]), 1e-5)
        for slot in (1, 2, 4, 6):
            self.assertEqual(after[slot * size:][:size],
                             before[slot * size:][:size])

    def test_given_output(self):
        a = self.inputs("f32")
        a["out"] = HostTensor.empty(a["v"].shape, "f32")
        a["inplace_final_state"] = False
        problem = recurrent_problem(HostOps().dtype, **a)
        out, _ = self.check(problem, 2e-6)
        self.assertIs(out, a["out"])

    def test_no_tokens(self):
        a = self.inputs("f32", B=1, T=0, N=2)
        a["cu_seqlens"] = HostTensor.of([0, 0, 0], (3,), "i32")
        for problem in (chunk_problem(HostOps().dtype, **a),
                        recurrent_problem(HostOps().dtype, **dict(
                            a, inplace_final_state=False))):
            out, final = self.operators.run(problem)
            self.assertEqual(out.values(), [])
            self.assertEqual(final.values(), a["initial_state"].values())


class RefusalTest(HostCase):
    def refusal(self, make=chunk_problem, **changes):
        arguments = dict(self.inputs("f32"), **changes)
        arguments = {n: v for n, v in arguments.items() if v is not Ellipsis}
        with self.assertRaises(Refused) as caught:
            self.operators.choose(make(HostOps().dtype, **arguments))
        return str(caught.exception)

    def test_what_chunk_kda_is_not(self):
        for part, changes in (
                ("intermediate states", {"return_intermediate_states": True}),
                ("context parallelism", {"cp_context": object()}),
                ("chunk_size = 16", {"chunk_size": 16}),
                ("unknown arguments later, newer", {"newer": 1, "later": 2}),
                ("transpose_state_layout", {"transpose_state_layout": True}),
                ("needs use_beta_sigmoid", {"allow_neg_eigval": True}),
                ("needs A_log", {"use_gate_in_kernel": True}),
                ("scale = 0", {"scale": 0.0}),
                ("safe_gate with lower_bound = None",
                 {"use_gate_in_kernel": True, "safe_gate": True,
                  "A_log": self.normal_state()}),
                ("safe_gate with lower_bound = -6",
                 {"use_gate_in_kernel": True, "safe_gate": True,
                  "lower_bound": -6, "A_log": self.normal_state()})):
            self.assertIn(part, self.refusal(**changes))

    def normal_state(self):
        return HostTensor.of([0.0] * HV, (HV,), "f32")

    def test_what_fused_recurrent_kda_is_not(self):
        indices = HostTensor.of([0, 1], (2,), "i32")
        for part, changes in (
                ("speculative", {"num_accepted_tokens": indices}),
                ("needs an initial state", {"initial_state": None}),
                ("without inplace_final_state",
                 {"ssm_state_indices": indices, "inplace_final_state": False}),
                ("10 tokens for 2 slots", {"ssm_state_indices": indices}),
                ("a softplus gate needs A_log", {"use_gate_in_kernel": True}),
                ("lower_bound = 1 ", {"use_gate_in_kernel": True,
                                      "lower_bound": 1})):
            self.assertIn(part, self.refusal(recurrent_problem, **changes))

    def test_shapes_and_types(self):
        def tensor(*shape, dtype="f32"):
            return HostTensor.of([0] * math.prod(shape), shape, dtype)

        for part, changes in (
                ("k (2, 5, 2, 64) differs", {"k": tensor(2, 5, 2, 64)}),
                ("v (2, 6, 4, 64) and q", {"v": tensor(2, 6, 4, 64)}),
                ("3 value heads are no multiple", {"v": tensor(2, 5, 3, 64)}),
                ("one decay per head", {"g": tensor(2, 5, 4)}),
                ("per channel is not", {"beta": tensor(2, 5, 4, 64)}),
                ("the initial state (2, 4, 64, 32)",
                 {"initial_state": tensor(2, 4, 64, 32)}),
                ("the initial state is not f32",
                 {"initial_state": tensor(2, 4, 32, 64, dtype="bf16")}),
                ("q has type i32", {"q": tensor(2, 5, 2, 32, dtype="i32")}),
                ("cu_seqlens needs B = 1",
                 {"cu_seqlens": tensor(3, dtype="i64")}),
                ("offsets have type f32", {"cu_seqlens": tensor(2), **{
                    n: tensor(1, 5, h, w) for n, h, w in
                    (("q", 2, 32), ("k", 2, 32), ("v", 4, 64), ("g", 4, 32))},
                    "beta": tensor(1, 5, 4),
                    "initial_state": tensor(1, 4, 32, 64)})):
            self.assertIn(part, self.refusal(**changes))

    def test_reasons_of_every_variant(self):
        reason = self.refusal(use_qk_l2norm_in_kernel=True)
        self.assertIn("no variant of the pack fits kda.chunk.k32v64.f32", reason)
        self.assertIn("has l2norm false, not true", reason)


class LibraryTest(unittest.TestCase):
    def test_a_missing_library_has_a_sentence(self):
        with self.assertRaisesRegex(abi.KdacError, "does not load.*KDAC_LIBRARY"):
            abi.Library("/no/such/libkdac.so")

    def test_device_info(self):
        self.assertEqual(abi.Library(LIBRARY).device("host").info(), ("host", ""))

    def test_a_missing_pack_has_a_sentence(self):
        with self.assertRaisesRegex(abi.KdacError, "pack '/no/pack' cannot be"):
            abi.Library(LIBRARY).pack("/no/pack")


class CasesTest(unittest.TestCase):
    """FLA's own tests, as test/gpu/fla_dispatch.py runs them."""

    def test_the_pack_spec_is_what_the_cases_need(self):
        path = os.path.join(SOURCE, "packs", "fla.yaml")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), fla_cases.spec(),
                             "run test/gpu/fla_cases.py --spec > packs/fla.yaml")

    def test_every_case_is_a_problem(self):
        self.assertEqual(len(fla_cases.cases()), 60)
        for case in fla_cases.cases():
            for flags in fla_cases.calls(case):
                fla_cases.problem_of(case, flags)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
