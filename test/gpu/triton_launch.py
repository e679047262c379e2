#!/usr/bin/env python3
"""kdac's kernels launched by Triton's own CompiledKernel, against f64, on this GPU.

  triton_launch.py CACHE --pack PACK --kdac-pack BINARY [--output lines.jsonl]

CACHE and PACK are of one `kdac compile --triton=CACHE -o PACK`. Bounds come from
kdac's tolerance table, through `kdac-pack explain --json`. Each kernel runs on
sequences of equal length and on packed ones, with outputs poisoned. Closing line:
"N passed, N failed". Exit code 0 if nothing failed and something passed.

Needs torch and triton; nothing of kdac but the files named.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import kdac_triton  # noqa: E402
import torch_oracle  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
         "i32": torch.int32, "i64": torch.int64}
# N, T, H, HV; or packed lengths instead of T.
SHAPES = [(2, 150, 2, 4), (3, [70, 1, 129], 3, 3), (1, 1, 8, 8),
          (1, 1024, 16, 16)]


def draw(kernel, variant, shape, seed):
    """Inputs as kdac's recipe "random" has them: normal q, k, v and logits."""
    N, T, H, HV = shape
    tokens = sum(T) if isinstance(T, list) else N * T
    K, V = kernel.own["K"], kernel.own["V"]
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(name, *size):
        dtype = next(a["type"] for a in kernel.own["args"] if a["name"] == name)
        return torch.randn(*size, generator=generator,
                           device="cuda").to(TYPES[dtype[1:]])

    x = {"q": normal("q", tokens, H, K), "k": normal("k", tokens, H, K),
         "v": normal("v", tokens, HV, V), "g": normal("g", tokens, HV, K),
         "beta": normal("beta", tokens, HV)}
    if variant["gate"] == "identity":
        x["g"] = -torch.nn.functional.softplus(x["g"].float()).to(x["g"].dtype)
    else:
        x["A_log"] = 0.5 * normal("A_log", HV)
        x["dt_bias"] = normal("dt_bias", HV, K)
    if variant["beta"] == "identity":
        x["beta"] = torch.sigmoid(x["beta"].float()).to(x["beta"].dtype)
    if not variant["l2norm"]:
        x["k"] = torch.nn.functional.normalize(x["k"].float(), dim=-1).to(
            x["k"].dtype)
    matrix = (V, K) if variant["state_layout"] == "vk" else (K, V)
    x["h0"] = normal("h0", N, HV, *matrix)
    x["out"] = torch.full_like(x["v"], float("nan"))
    x["ht"] = torch.full_like(x["h0"], float("nan"))
    if isinstance(T, list):
        name = "offsets"
        dtype = next(a["type"] for a in kernel.own["args"] if a["name"] == name)
        x[name] = torch.tensor([sum(T[:i]) for i in range(N + 1)],
                               device="cuda", dtype=TYPES[dtype[1:]])
    return x


def oracle(variant, shape, x):
    N, T, H, HV = shape
    cu = [sum(T[:i]) for i in range(N + 1)] if isinstance(T, list) else None
    batch = (1, sum(T)) if cu else (N, T)
    split = {n: x[n].reshape(*batch, *x[n].shape[1:])
             for n in ("q", "k", "v", "g", "beta")}
    out, state = torch_oracle.kda(
        **split, initial=x["h0"], v_first=variant["state_layout"] == "vk",
        cu=cu, A_log=x.get("A_log"), dt_bias=x.get("dt_bias"),
        l2norm=variant["l2norm"], gate=variant["gate"],
        lower_bound=variant["lower_bound"], beta_map=variant["beta"])
    return out.reshape(x["out"].shape), state


def launch(kernel, shape, x):
    """Through CompiledKernel.__getitem__, on PyTorch's current stream."""
    N, T, H, HV = shape
    packed = isinstance(T, list)
    T = sum(T) if packed else T
    K, V = kernel.own["K"], kernel.own["V"]
    sizes = {"N": N, "T": T, "H": H, "HV": HV, "scale": K ** -0.5}
    for name, width in (("q", H * K), ("k", H * K), ("v", HV * V),
                        ("g", HV * K), ("beta", HV), ("out", HV * V)):
        sizes[name + "_stride"] = width
    grid = kernel.grid(N=N, T=T, H=H, HV=HV, packed=packed)
    kernel.compiled[grid](*kernel.arguments(**x, **sizes))
    torch.cuda.synchronize()
    return grid


def sample_factor(tensor, rows):
    """smallSampleFactor of lib/Reference/Tolerance.cpp, for small tensors."""
    return 1 + 6 / max(1.0, tensor.numel() * rows) ** 0.25


def explained(options):
    text = subprocess.run([options.kdac_pack, "explain", options.pack, "--json",
                           "--shape=chunk:1:1024:16,step:1:1:16"], check=True,
                          stdout=subprocess.PIPE).stdout
    return {v["name"]: v for v in json.loads(text)}


def variants_of(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[16:24], "little")
    return {v["name"]: v["variant"] for v in
            json.loads(data[128:128 + size])["variants"]}


def run(options):
    known, variants = explained(options), variants_of(options.pack)
    counts = {"passed": 0, "failed": 0}
    for kernel in kdac_triton.load_all(options.cache):
        name = kernel.own["variant"]
        bound, variant = known[name]["tolerance"], variants[name]
        for seed, shape in enumerate(SHAPES):
            x = draw(kernel, variant, shape, seed)
            out, state = oracle(variant, shape, x)
            grid = launch(kernel, shape, x)
            rows = x["out"].shape[0] * x["out"].shape[1]
            pairs = (("out", x["out"], out, rows),
                     ("state", x["ht"], state, shape[0] * shape[3]))
            errors = {n: torch_oracle.relative(got, want)
                      for n, got, want, _ in pairs}
            good = all(errors[n] <= bound[n] * sample_factor(got, count)
                       for n, got, _, count in pairs)
            verdict = "passed" if good else "failed"
            counts[verdict] += 1
            print(f"{verdict}: {name} ABI {kernel.own['abi']} shape {shape} grid "
                  f"{grid[0]}: out {errors['out']:.2e} of {bound['out']:.2e}, "
                  f"state {errors['state']:.2e} of {bound['state']:.2e}",
                  flush=True)
            if good and options.output:
                record(options, kernel, variant, shape, errors, known[name])
    print("{passed} passed, {failed} failed".format(**counts))
    return 0 if counts["passed"] and not counts["failed"] else 1


def record(options, kernel, variant, shape, errors, known):
    import triton
    N, T, H, HV = shape
    packed = isinstance(T, list)
    case = {"recurrence": variant["recurrence"], "form": variant["form"],
            "B": 1 if packed else N, "T": sum(T) if packed else T, "N": N,
            "lengths": T if packed else None, "H": H, "HV": HV,
            "K": kernel.own["K"], "V": kernel.own["V"], "gate": variant["gate"],
            "dtype": variant["dtype"], "state_dtype": variant["state_dtype"],
            "precision": variant["precision"],
            "schedule": kernel.own["schedule"],
            "inputs": f"random through Triton {triton.__version__}, ABI "
                      f"{kernel.own['abi']}"}
    line = {"variant": kernel.own["variant"], "case": case,
            "gpu": torch.cuda.get_device_name(0), "driver": options.driver,
            "llvm": kernel.own["llvm"], "ptxas": kernel.own["ptxas"],
            "ptx_sha256": kernel.own["ptx_sha256"], "commit": options.commit,
            "date": datetime.datetime.now(datetime.timezone.utc)
                    .strftime("%Y-%m-%dT%H:%M:%SZ"),
            "err": {n: float(f"{e:.4g}") for n, e in errors.items()},
            "us": 0, "floor_us": 0, "torch": torch.__version__}
    with open(options.output, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def driver_version():
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", help="folder of kdac compile --triton")
    parser.add_argument("--pack", required=True)
    parser.add_argument("--kdac-pack", required=True)
    parser.add_argument("--output", help="append ledger lines to this file")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args(arguments)
    options.driver = driver_version()
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
