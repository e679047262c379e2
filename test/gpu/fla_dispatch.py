#!/usr/bin/env python3
"""FLA's KDA operators on kdac: the forward cases of FLA's own tests, on this GPU.

  fla_dispatch.py --library libkdac.so --pack fla.kdac [--output lines.jsonl]

Every case of fla_cases.py goes through FLA's public function under
torch.inference_mode(), with outputs poisoned before kernels write them, and is
compared with f64 by FLA's criterion and tolerance; where FLA compares two calls,
so does this. A call that kdac refuses is skipped with its reason and not run by
FLA, whose first call takes minutes. Closing line: "N passed, N failed, N
skipped". Exit code 0 if nothing failed and something passed.

Needs torch, triton, einops and fla-core 0.5.2; nothing of kdac but the files named.
"""

import argparse
import collections
import datetime
import json
import os
import statistics
import struct
import sys
import time

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import fla_cases  # noqa: E402
import torch_oracle  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
LOWER_BOUND = -5.0


def poison():
    """Kernels must write all that they promise."""
    from kdac_fla.torch_ops import TorchOps
    empty = TorchOps.empty

    def poisoned(self, shape, dtype, like):
        tensor = empty(self, shape, dtype, like)
        return tensor.fill_(float("nan") if dtype in TYPES else 113)

    TorchOps.empty = poisoned


# ---- Inputs, drawn as FLA's tests draw them (kda-operator.md 5.2, 5.3)

def uniform_log(*shape):
    return torch.log(1 + 15 * torch.rand(*shape))


def draw(c):
    """Tensors on the CPU. g and beta are what the first call takes."""
    torch.manual_seed(42)
    dtype = TYPES[c.dtype]
    qk, hv = (c.B, c.T, c.H, c.D), (c.B, c.T, c.HV, c.D)
    N = len(c.cu) - 1 if c.cu else c.B
    x = {"A_log": None, "dt_bias": None}
    if c.recipe == "varlen":
        draw_varlen(c, x, qk, hv, dtype)
    else:
        for name, shape in (("q", qk), ("k", qk), ("v", hv)):
            x[name] = torch.rand(shape, dtype=dtype)
        draw_gate(c, x, hv, dtype)
    if c.recipe == "decode":
        x["h0"] = torch.randn(3 * N, c.HV, c.D, c.D)
        x["slots"] = torch.randperm(3 * N)[:N].to(torch.int32)
        unused = torch.ones(3 * N, dtype=torch.bool)
        unused[x["slots"].long()] = False
        x["h0"][unused] = 1e30
    else:
        x["h0"] = torch.randn(N, c.HV, c.D, c.D)
    if not c.l2:
        # Of packed inputs k is normalised already, before it was rounded.
        for name in "q" if c.recipe == "varlen" else "qk":
            x[name] = F.normalize(x[name], p=2, dim=-1)
    return x


def draw_gate(c, x, hv, dtype):
    if c.recipe == "gate":
        x["beta"] = torch.rand(hv[:3], dtype=dtype).sigmoid()
        x["g"] = torch.randn(hv)
        x["A_log"] = uniform_log(c.HV) if c.A_log else None
        x["dt_bias"] = torch.randn(c.HV * c.D) if c.dt_bias else None
        return
    if c.gate:
        x["g"] = torch.randn(hv, dtype=dtype)
        x["A_log"] = uniform_log(c.HV) if c.recipe == "decode" else torch.randn(
            c.HV)
        x["dt_bias"] = torch.randn(c.HV * c.D)
    else:
        x["g"] = F.logsigmoid(torch.randn(hv)) / c.gln
        if c.mask_p:
            x["g"] = x["g"] * (torch.rand(hv) > c.mask_p)
        if c.safe:
            x["g"] = x["g"].clamp(-5, 0)
    logits = torch.randn(hv[:3], dtype=dtype)
    x["beta"] = logits if c.recipe == "beta" else logits.sigmoid()


def draw_varlen(c, x, qk, hv, dtype):
    x["q"] = torch.randn(qk, dtype=dtype)
    x["k"] = F.normalize(torch.randn(qk), p=2, dim=-1).to(dtype)
    x["v"] = torch.randn(hv, dtype=dtype)
    if c.gate:
        x["g"] = torch.randn(hv, dtype=dtype)
        x["A_log"], x["dt_bias"] = uniform_log(1, 1, c.HV, 1), torch.randn(
            c.HV * c.D)
    else:
        x["g"] = F.logsigmoid(torch.randn(hv))
        x["g"] = x["g"] * (torch.rand(hv) > c.mask_p)
    x["g"] = torch.where(torch.rand(hv) < c.mask_p, torch.tensor(
        -1000.0, dtype=x["g"].dtype), x["g"])
    if c.safe:
        x["g"] = x["g"].clamp(-5, 0)
    x["beta"] = torch.rand(hv[:3], dtype=dtype).sigmoid()


# ---- Calls

class Runner:
    def __init__(self, options):
        import kdac_fla
        poison()
        self.backend = kdac_fla.register(options.pack, options.library)
        import fla.ops.kda
        import fla.ops.kda.fused_recurrent as recurrent
        self.chunk, self.recurrent = (fla.ops.kda.chunk_kda,
                                      fla.ops.kda.fused_recurrent_kda)
        self.low_level = recurrent  # its function is looked up at each call
        self.launches = read_manifest(options.pack)
        name, driver = self.backend.operators.library.device("cuda:0").info()
        self.machine = {"gpu": name, "driver": driver}
        self.options = options
        self.compared = collections.Counter()  # calls, by function

    def arguments(self, c, flags, x):
        """Of the case's call, on the GPU."""
        device = {n: t.cuda() if t is not None else None for n, t in x.items()}
        a = {n: device[n] for n in ("q", "k", "v", "g", "beta")}
        a.update(fla_cases.keywords(c, flags))
        a["initial_state"] = device["h0"]
        if flags.v_first:
            a["initial_state"] = device["h0"].transpose(-1, -2).contiguous()
        if flags.gate:
            a["A_log"], a["dt_bias"] = device["A_log"], device["dt_bias"]
        elif c.gate:  # the second of a pair: the gate's values
            a["g"] = self.gate_values(c, device)
        if c.recipe == "beta" and not flags.beta_raw:
            a["beta"] = (device["beta"].float().sigmoid()
                         * (2 if c.neg else 1)).to(TYPES[flags.beta_dtype])
        if c.cu:
            dtype = torch.int64 if c.function == "chunk_kda" else torch.int32
            a["cu_seqlens"] = torch.tensor(c.cu, dtype=dtype, device="cuda")
            if c.function == "chunk_kda":
                a["cu_seqlens_cpu"] = torch.tensor(c.cu)
        if c.function == "decode":
            a["ssm_state_indices"] = device["slots"]
        return a

    def gate_values(self, c, device):
        _, _, g, _ = torch_oracle.maps(
            *(device[n] for n in ("q", "k", "g", "beta")), device["A_log"],
            device["dt_bias"], gate="bounded" if c.bounded else "softplus",
            lower_bound=LOWER_BOUND)
        return g.float()

    def refusal(self, c, a):
        """Why kdac would not take the call, or None."""
        if c.function == "chunk_kda":
            good, reason = self.backend.chunk_kda_verifier(**a)
        else:
            low = dict(a)
            if c.function != "decode":
                low["inplace_final_state"] = False
            good, reason = self.backend.fused_recurrent_kda_fwd_verifier(**low)
        return None if good else reason

    def call(self, c, a):
        """The public function; raises if kdac did not run it."""
        before = sum(self.backend.dispatched.values())
        if c.function == "chunk_kda":
            result = self.chunk(**a)
        elif c.function == "decode":
            result = self.low_level.fused_recurrent_kda_fwd(**a)
        else:
            result = self.recurrent(**a)
        if sum(self.backend.dispatched.values()) != before + 1:
            raise AssertionError("accepted by the verifier, not dispatched")
        return result

    def oracle(self, c, flags, a):
        options = dict(A_log=a.get("A_log"), dt_bias=a.get("dt_bias"),
                       l2norm=c.l2, scale=c.scale, cu=c.cu,
                       lower_bound=LOWER_BOUND)
        options["gate"] = ("identity" if not flags.gate else
                           "bounded" if c.bounded else "softplus")
        options["beta_map"] = ("identity" if not flags.beta_raw else
                               "2sigmoid" if c.neg else "sigmoid")
        initial = a["initial_state"]
        if c.function == "decode":
            initial = initial[a["ssm_state_indices"].long()]
        return torch_oracle.kda(*(a[n] for n in ("q", "k", "v", "g", "beta")),
                                initial=initial, v_first=flags.v_first,
                                **options)

    def one(self, c, flags, x):
        """(out, state K-first, errors, microseconds) of one call."""
        a = self.arguments(c, flags, x)
        reason = self.refusal(c, a)
        if reason:
            raise Skipped(reason)
        out_ref, state_ref = self.oracle(c, flags, a)
        pool = a["initial_state"].clone() if c.function == "decode" else None
        out, state = self.call(c, a)
        self.compared[c.function] += 1
        kernel = self.backend.operators.last.name
        if c.function == "decode":
            state = self.check_pool(a, pool, state)
        errors = [torch_oracle.fla_error(out, out_ref),
                  torch_oracle.fla_error(state, state_ref)]
        us = None if c.function == "decode" else self.time(c, a)
        self.record(c, flags, kernel, [torch_oracle.relative(out, out_ref),
                                       torch_oracle.relative(state, state_ref)],
                    us)
        if flags.v_first:
            state = state.transpose(-1, -2)
        return out, state, errors

    def check_pool(self, a, before, after):
        """The used slots' states; the others must be as they were."""
        slots = a["ssm_state_indices"].long()
        others = torch.ones(len(before), dtype=torch.bool, device="cuda")
        others[slots] = False
        if after.data_ptr() != a["initial_state"].data_ptr():
            raise AssertionError("the pool was not changed in place")
        if not torch.equal(after[others], before[others]):
            raise AssertionError("unused slots changed")
        return after[slots]

    def time(self, c, a, samples=5):
        times = []
        for _ in range(samples):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            start.record()
            self.call(c, a)
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end))
        return round(statistics.median(times), 2)

    def record(self, c, flags, kernel, errors, us):
        if not self.options.output:
            return
        from importlib.metadata import version
        variant, launch = self.launches[kernel]
        case = {"recurrence": "kda", "form": variant["variant"]["form"],
                "B": c.B, "T": c.T, "N": len(c.cu) - 1 if c.cu else c.B,
                "lengths": ([b - a for a, b in zip(c.cu, c.cu[1:])]
                            if c.cu else None),
                "H": c.H, "HV": c.HV, "K": c.D, "V": c.D,
                "gate": variant["variant"]["gate"],
                "dtype": variant["variant"]["dtype"], "state_dtype": "f32",
                "precision": variant["variant"]["precision"],
                "schedule": variant["schedule"],
                "inputs": f"{c} through fla-core {version('fla-core')}"}
        line = {"variant": kernel, "case": case, **self.machine,
                "llvm": variant["llvm"], "ptxas": variant["ptxas"],
                "ptx_sha256": launch["ptx_sha256"],
                "commit": self.options.commit,
                "date": datetime.datetime.now(datetime.timezone.utc)
                        .strftime("%Y-%m-%dT%H:%M:%SZ"),
                "err": {"out": float(f"{errors[0]:.4g}"),
                        "state": float(f"{errors[1]:.4g}")},
                "us": us or 0, "floor_us": 0,
                "torch": torch.__version__, "triton": version("triton")}
        with open(self.options.output, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def run(self, c):
        """A sentence about the case; raises Skipped."""
        x = draw(c)
        results = [self.one(c, flags, x) for flags in fla_cases.calls(c)]
        faults = []
        for number, (_, _, errors) in enumerate(results, 1):
            for name, error in zip(("o", "ht"), errors):
                if not error < c.tolerance:
                    faults.append(f"call {number} {name} {error:.2e} of "
                                  f"{c.tolerance:g}")
        worst = max(max(errors) for _, _, errors in results)
        text = f"error {worst:.2e}"
        if c.pair_tolerance:
            pair = [torch_oracle.fla_error(results[0][i], results[1][i])
                    for i in range(2)]
            text += f", pair {max(pair):.2e}"
            if not max(pair) < c.pair_tolerance:
                faults.append(f"the two calls differ by {max(pair):.2e} of "
                              f"{c.pair_tolerance:g}")
        return text, faults


class Skipped(Exception):
    """Why kdac did not take the case."""


def read_manifest(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[16:24])[0]
    manifest = json.loads(data[128:128 + size])
    return {v["name"]: (v, v["launches"][0]) for v in manifest["variants"]}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libkdac.so")
    parser.add_argument("--pack", required=True, help="from packs/fla.yaml")
    parser.add_argument("--output", help="append ledger lines to this file")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--filter", default="", help="part of a case's text")
    options = parser.parse_args(arguments)
    runner, counts = Runner(options), {"passed": 0, "failed": 0, "skipped": 0}
    with torch.inference_mode():
        for case in fla_cases.cases():
            if options.filter not in str(case):
                continue
            start = time.monotonic()
            try:
                text, faults = runner.run(case)
                verdict = "failed" if faults else "passed"
                text += "; " + "; ".join(faults) if faults else ""
            except Skipped as reason:
                verdict, text = "skipped", str(reason)
            except Exception as error:  # one case must not hide the others
                verdict, text = "failed", f"{type(error).__name__}: {error}"
            counts[verdict] += 1
            print(f"{verdict}: {case}: {text} "
                  f"({time.monotonic() - start:.1f} s)", flush=True)
    print("calls dispatched to kdac and compared: " + ", ".join(
        f"{name} {count}" for name, count in runner.compared.items()))
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
