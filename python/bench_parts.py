#!/usr/bin/env python3
"""Times what a serving engine launches for one KDA layer of a decode step when
nothing is fused: flash-linear-attention's kernels, each alone and one behind
the other, against kdac's one kernel (kdac-pack bench, the same run).

  bench_parts.py --shapes step:1:1:96,step:1:1:12 --output parts.jsonl

Parts: short convolution with SiLU and its cache (q, k, v), l2norm (q, k), gate,
recurrence (beta's sigmoid inside, state in place), gated RMS norm. bf16 with f32
states, K = V = 128, four taps, bounded gate. A number is the median over replays
of a graph that holds every call once, over the calls; inputs and states rotate
over more than the L2. `sum` adds the parts' numbers, `chain` is a graph of all
parts in order.

Needs torch, triton, einops and fla-core; --dry-run only prints the plan.
"""

import argparse
import json
import os
import statistics
import sys

from bench_fla import LOWER_BOUND, parse_shape

os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")

PARTS = ("conv q", "conv k", "conv v", "l2norm q", "l2norm k", "gate",
         "recurrence", "norm")
DIM, TAPS = 128, 4
SAMPLES = 30
MIN_CALLS, MAX_CALLS = 24, 192


def make_set(torch, shape, seed):
    """The tensors of one layer's step."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*sizes, dtype=torch.bfloat16):
        return torch.randn(*sizes, generator=generator,
                           device="cuda").to(dtype)

    n, h = shape["N"], shape["H"]
    width = h * DIM
    tensors = {name: normal(n, 1, width) for name in ("q", "k", "v")}
    for name in ("q", "k", "v"):
        tensors["cache " + name] = normal(n, width, TAPS)
        tensors["taps " + name] = normal(width, TAPS)
    tensors.update(
        g=normal(n, 1, h, DIM), beta=normal(n, 1, h),
        A_log=torch.rand(h, generator=generator, device="cuda"),
        dt_bias=torch.rand(width, generator=generator, device="cuda"),
        state=0.3 * normal(n, h, DIM, DIM, dtype=torch.float32),
        out=torch.empty(n, 1, h, DIM, device="cuda", dtype=torch.bfloat16),
        z=normal(n, 1, h, DIM), weight=normal(DIM, dtype=torch.float32))
    return tensors


def calls_of(torch, t):
    """What each part does with a set; a part takes what those before it left."""
    from fla.modules.conv.triton.ops import causal_conv1d_update
    from fla.modules.fused_norm_gate import rms_norm_gated
    from fla.modules.l2norm import l2norm_fwd
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd
    from fla.ops.kda.gate import kda_gate_fwd
    made = {}

    def convolve(name):
        result = causal_conv1d_update(t[name], t["cache " + name],
                                      weight=t["taps " + name],
                                      activation="silu")
        result = result[0] if isinstance(result, tuple) else result
        made[name] = result.view(t["g"].shape)

    def normalise(name):
        result = l2norm_fwd(made[name])
        made[name + "n"] = result[0] if isinstance(result, tuple) else result

    def gate():
        made["g"] = kda_gate_fwd(t["g"], t["A_log"], t["dt_bias"],
                                 lower_bound=LOWER_BOUND)

    def recur():
        fused_recurrent_kda_fwd(
            q=made["qn"], k=made["kn"], v=made["v"], g=made["g"],
            beta=t["beta"], initial_state=t["state"], out=t["out"],
            inplace_final_state=True, state_v_first=True,
            use_beta_sigmoid_in_kernel=True)

    def norm():
        made["result"] = rms_norm_gated(t["out"], t["z"], t["weight"], None,
                                        activation="sigmoid")

    functions = [lambda: convolve("q"), lambda: convolve("k"),
                 lambda: convolve("v"), lambda: normalise("q"),
                 lambda: normalise("k"), gate, recur, norm]
    return dict(zip(PARTS, functions)), made


def graph_us(torch, calls):
    """Microseconds a call inside one graph of all of them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(SAMPLES + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(1e3 * a.elapsed_time(b) / len(calls)
                             for a, b in zip(events, events[1:]))


def measure(torch, shape, seed):
    first = make_set(torch, shape, seed)
    size = sum(x.numel() * x.element_size() for x in first.values())
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(MAX_CALLS, max(MIN_CALLS, 2 * l2 // size + 1))
    sets = [first] + [make_set(torch, shape, seed + i) for i in range(1, count)]
    parts = [calls_of(torch, tensors) for tensors in sets]
    for functions, made in parts:
        for part in PARTS:
            functions[part]()
        if not bool(torch.isfinite(made["result"]).all()):
            raise SystemExit("bench_parts.py: values that are not finite")
    torch.cuda.synchronize()
    times = {part: round(graph_us(torch, [functions[part]
                                          for functions, _ in parts]), 2)
             for part in PARTS}

    def chain(functions):
        for part in PARTS:
            functions[part]()

    together = graph_us(torch, [lambda f=functions: chain(f)
                                for functions, _ in parts])
    return {"parts_us": times, "sum_us": round(sum(times.values()), 2),
            "chain_us": round(together, 2), "sets": count}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="step:1:1:96,step:1:1:12")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="append lines to this file")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    shapes = [parse_shape(text) for text in options.shapes.split(",")]
    for shape in shapes:
        if shape["form"] != "step" or shape["T"] != 1 or shape["H"] != shape["HV"]:
            raise SystemExit("bench_parts.py: a shape here is step:N:1:H")
    if options.dry_run:
        for shape in shapes:
            print(json.dumps({"N": shape["N"], "H": shape["H"], "parts": PARTS}))
        return 0
    import torch
    from importlib.metadata import version
    for shape in shapes:
        with torch.inference_mode():
            line = {"N": shape["N"], "H": shape["H"],
                    "gpu": torch.cuda.get_device_name(0),
                    "torch": torch.__version__, "fla": version("fla-core"),
                    **measure(torch, shape, options.seed)}
        text = json.dumps(line)
        print(text, flush=True)
        if options.output:
            with open(options.output, "a", encoding="utf-8") as file:
                file.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
