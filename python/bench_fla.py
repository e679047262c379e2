#!/usr/bin/env python3
"""Times other people's KDA kernels on this GPU, as peers for the ledger.

  bench_fla.py --shapes chunk:1:8192:96,step:64:1:96 --output peers.jsonl

Shapes are those of kdac-gpu-test: FORM:N:T:H[:HV], T a number or packed lengths
a+b+c; chunk runs flash-linear-attention's chunk_kda, step its
fused_recurrent_kda, and where FlashKDA is installed it runs too, on what it has
(bounded gate, K = V = 128, as many value heads as heads). Inputs as in
shared/reference/peers.md 1.2: q, k, v, g and beta logits ~ N(0, 1) in bf16,
A_log = log U(1, 16), dt_bias ~ U(0, 1), fp32 state in and out, value-first; gate,
l2norm and sigmoid in the kernel. Autotuning and compilation happen before
timing (the first chunk call of a head count takes about 100 s). A line holds
the median of single calls timed by events, inputs rotating where one set would
fit the L2, and, where CUDA can capture the call, of a graph of it.

Needs torch, triton, einops and fla-core; --dry-run only prints the plan.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time

# FLA must time its own Triton kernels, not another backend it finds.
os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")

LOWER_BOUND = -5.0
WARM_UPS = 3
SAMPLES = 30
MAX_SETS = 16


def parse_shape(text):
    """FORM:N:T:H[:HV] as a ledger case's sizes."""
    parts = text.split(":")
    try:
        if len(parts) not in (4, 5) or parts[0] not in ("chunk", "step"):
            raise ValueError
        lengths = [int(x) for x in parts[2].split("+")]
        heads = int(parts[3])
        value_heads = int(parts[4]) if len(parts) == 5 else heads
        sequences = int(parts[1]) if len(lengths) == 1 else len(lengths)
        if min(lengths) < 0 or min(sequences, heads, value_heads) < 1:
            raise ValueError
    except ValueError:
        raise SystemExit(f"bench_fla.py: shape '{text}' is not FORM:N:T:H[:HV], "
                         "such as chunk:1:8192:96 or step:64:1:96") from None
    packed = len(lengths) > 1
    return {"form": parts[0], "B": 1 if packed else sequences,
            "T": sum(lengths), "N": sequences,
            "lengths": lengths if packed else None, "H": heads,
            "HV": value_heads}


def make_case(shape, gate, dim):
    return {"recurrence": "kda", **shape, "K": dim, "V": dim, "gate": gate,
            "dtype": "bf16", "state_dtype": "f32"}


def make_inputs(torch, case, seed):
    """Keyword arguments of one call."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device="cuda",
                           dtype=torch.float32).to(torch.bfloat16)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, device="cuda")

    b, t, h, hv = case["B"], case["T"], case["H"], case["HV"]
    k, v, n = case["K"], case["V"], case["N"]
    inputs = {
        "q": normal(b, t, h, k), "k": normal(b, t, h, k),
        "v": normal(b, t, hv, v), "g": normal(b, t, hv, k),
        "beta": normal(b, t, hv), "A_log": torch.log(1 + 15 * uniform(hv)),
        "dt_bias": uniform(hv * k), "scale": k ** -0.5,
        "initial_state": 0.3 * torch.randn(n, hv, v, k, generator=generator,
                                           device="cuda"),
        "output_final_state": True, "use_qk_l2norm_in_kernel": True,
        "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
        "state_v_first": True}
    if case["gate"] == "bounded":
        inputs["lower_bound"] = LOWER_BOUND
        if case["form"] == "chunk":
            inputs["safe_gate"] = True
    if case["lengths"]:
        offsets = [0]
        for length in case["lengths"]:
            offsets.append(offsets[-1] + length)
        inputs["cu_seqlens"] = torch.tensor(offsets, device="cuda",
                                            dtype=torch.int64)
    return inputs


def flash_kda_peer(module, version):
    """FlashKDA's prefill, called as this script calls FLA's."""
    import torch

    def call(q, k, v, g, beta, A_log, dt_bias, scale, initial_state,
             lower_bound, cu_seqlens=None, **_):
        out, state = torch.empty_like(v), torch.empty_like(initial_state)
        module.fwd(q, k, v, g, beta, scale, out, A_log,
                   dt_bias.view(A_log.numel(), -1), lower_bound,
                   initial_state=initial_state, final_state=state,
                   cu_seqlens=cu_seqlens)
        return out, state
    return call, f"FlashKDA {version}"


def flash_kda_has(case):
    return (case["form"] == "chunk" and case["gate"] == "bounded"
            and case["K"] == case["V"] == 128 and case["H"] == case["HV"])


def bytes_of(torch, inputs):
    return sum(value.numel() * value.element_size()
               for value in inputs.values() if torch.is_tensor(value))


def median_us(torch, calls, samples=SAMPLES):
    """Median microseconds between events around single calls."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    events[0].record()
    for i in range(samples):
        calls[i % len(calls)]()
        events[i + 1].record()
    torch.cuda.synchronize()
    return statistics.median(1e3 * events[i].elapsed_time(events[i + 1])
                             for i in range(samples))


def graph_us(torch, calls):
    """The same for a captured graph of every call; None if capture fails."""
    try:
        graphs = []
        for call in calls:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            graphs.append(graph)
        return median_us(torch, [graph.replay for graph in graphs])
    except Exception as error:  # any failure only costs this number
        print(f"no graph: {error}", file=sys.stderr)
        return None


def measure(torch, function, name, case, seed):
    first = make_inputs(torch, case, seed)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(MAX_SETS, 2 * l2 // max(1, bytes_of(torch, first)) + 1)
    sets = [first] + [make_inputs(torch, case, seed + i)
                      for i in range(1, count)]
    calls = [lambda inputs=inputs: function(**inputs) for inputs in sets]
    start = time.monotonic()
    out = calls[0]()[0]
    torch.cuda.synchronize()
    first_call = time.monotonic() - start
    if not bool(torch.isfinite(out).all()):
        raise SystemExit(f"bench_fla.py: {name} gave values that are not finite")
    for call in calls * WARM_UPS:
        call()
    us = median_us(torch, calls)
    # Packed calls read their offsets on the host, which no graph can hold.
    graph = None if case["lengths"] else graph_us(torch, calls)
    return {"peer": {"name": name, "us": round(us, 2)}, "graph_us": graph,
            "first_call_s": round(first_call, 2), "sets": count}


def run(options, cases):
    import torch
    from importlib.metadata import version
    from fla.ops.kda import chunk_kda, fused_recurrent_kda
    release = version("fla-core")
    fla = {"chunk": (chunk_kda, f"fla {release} chunk_kda"),
           "step": (fused_recurrent_kda, f"fla {release} fused_recurrent_kda")}
    try:
        import flash_kda
        flash = flash_kda_peer(flash_kda,
                               getattr(flash_kda, "__version__", "unknown"))
    except ImportError as error:
        print(f"FlashKDA is not timed: {error}", file=sys.stderr)
        flash = None
    machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__,
               "triton": version("triton"),
               "date": datetime.datetime.now(datetime.timezone.utc)
                       .strftime("%Y-%m-%dT%H:%M:%SZ")}
    start = time.monotonic()
    with torch.inference_mode():
        for case in cases:
            if time.monotonic() - start > options.time_limit:
                print(f"not run, the time is up: {json.dumps(case)}",
                      file=sys.stderr)
                continue
            peers = [fla[case["form"]]]
            if flash and flash_kda_has(case):
                peers.append(flash)
            for function, name in peers:
                line = {"case": case, **machine,
                        **measure(torch, function, name, case, options.seed)}
                text = json.dumps(line, separators=(",", ":"))
                print(text, flush=True)
                if options.output:
                    with open(options.output, "a", encoding="utf-8") as file:
                        file.write(text + "\n")
                torch.cuda.empty_cache()


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="step:64:1:96,chunk:1:8192:96")
    parser.add_argument("--gates", default="bounded",
                        help="comma separated: bounded, softplus")
    parser.add_argument("--dim", type=int, default=128, help="K = V")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="append lines to this file")
    parser.add_argument("--time-limit", type=float, default=300,
                        help="start no further case after so many seconds")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    gates = options.gates.split(",")
    for gate in gates:
        if gate not in ("bounded", "softplus"):
            raise SystemExit(f"bench_fla.py: unknown gate '{gate}'; use bounded "
                             "or softplus")
    cases = [make_case(parse_shape(shape), gate, options.dim)
             for shape in options.shapes.split(",") for gate in gates]
    if options.dry_run:
        for case in cases:
            print(json.dumps(case, separators=(",", ":")))
        return 0
    run(options, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
