#!/usr/bin/env python3
"""Runs kernels that kdac emitted as Triton IR on this machine's GPU.

  ttir.py DIR OUT [--commit TEXT] [--only NAME] [--arch N]

DIR is what `kdac-ttir-cases prepare DIR` wrote; OUT gets every buffer that a
kernel may write (NAME.out) and results.json: digests, times, registers, and the
error of a case that did not run. `kdac-ttir-cases judge OUT LEDGER` compares
them with the f64 oracle, on any machine. Needs torch and Triton 3.5 or later.

Times are those of one launch out of a CUDA graph of many, so that Python's
launch costs nothing; memory is warm.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

LAUNCHES = 20  # of one graph
REPLAYS = 5
GRAPH_SECONDS = 2.0  # no more launches than take this long


def options_of(text):
    """What the kernel was made for, as options of triton.compile."""
    names = ("num_warps", "num_stages")
    return {name: int(re.search(rf"kdac\.{name} = (\d+)", text).group(1))
            for name in names}


def slices_of(text):
    return int(re.search(r"kdac\.slices = (\d+)", text).group(1))


def compile_file(path, backend, arch, warp):
    """The CompiledKernel of a .ttir file; needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    with open(path, encoding="utf-8") as file:
        options = options_of(file.read())
    return triton.compile(path, target=GPUTarget(backend, arch, warp),
                          options=options)


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Memory:
    """Copies of a case's buffers on the GPU, guards included."""

    def __init__(self, case, path):
        import torch
        with open(path, "rb") as file:
            raw = bytearray(file.read())
        self.buffers = case["buffers"]
        self.host, self.device, at = [], [], 0
        for buffer in self.buffers:
            size = buffer["bytes"] + 2 * buffer["guard"]
            part = torch.frombuffer(raw, dtype=torch.uint8, offset=at,
                                    count=size).clone()
            self.host.append(part)
            self.device.append(part.cuda())
            at += size
        if at != len(raw):
            raise ValueError(f"{path} has {len(raw)} bytes, expected {at}")

    def address(self, index):
        return self.device[index].data_ptr() + self.buffers[index]["guard"]

    def changed_inputs(self):
        import torch
        return [buffer["name"] for buffer, host, device
                in zip(self.buffers, self.host, self.device)
                if not buffer["written"] and not torch.equal(host, device.cpu())]

    def write(self, path):
        with open(path, "wb") as file:
            for buffer, device in zip(self.buffers, self.device):
                if buffer["written"]:
                    file.write(device.cpu().numpy().tobytes())

    def plain(self, index):
        """A buffer without guards as [tokens, heads, width], dense cases."""
        import torch
        buffer = self.buffers[index]
        types = {"bf16": torch.bfloat16, "f16": torch.float16,
                 "f32": torch.float32, "i32": torch.int32, "i64": torch.int64}
        guard = buffer["guard"]
        data = self.device[index][guard:guard + buffer["bytes"]].clone()
        return data.view(types[buffer["dtype"]]).view(
            buffer["tokens"], buffer["heads"], buffer["width"])


def arguments_of(case, address, scale_sizes=lambda name, value: value):
    """Values for the launcher; a null pointer for what is absent."""
    values = []
    for arg in case["args"]:
        if "i64" in arg:
            values.append(scale_sizes(arg["name"], arg["i64"]))
        elif "f32" in arg:
            values.append(arg["f32"])
        else:
            values.append(address(arg["buffer"]) if "buffer" in arg else None)
    return values


def microseconds(launch):
    """Of one launch, by events around replays of a graph."""
    import torch
    def timed(run):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3
    one = timed(launch)
    count = max(1, min(LAUNCHES, int(GRAPH_SECONDS * 1e6 / REPLAYS / one)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            launch()
    graph.replay()
    return min(timed(graph.replay) for _ in range(REPLAYS)) / count


def launcher(kernel, programs, values):
    import torch
    def launch():
        kernel[(programs, 1, 1)](
            *values, stream=torch.cuda.current_stream().cuda_stream)
    return launch


def repeated_heads(case, memory, kernel, programs):
    """The same heads `repeat` times side by side: a launch, and its check."""
    import torch
    repeat = case["repeat"]
    tensors = []
    for index, buffer in enumerate(case["buffers"]):
        plain = memory.plain(index)
        tensors.append(plain.repeat(1, repeat, 1).contiguous())
        if buffer["written"]:
            tensors[-1].view(torch.uint8).fill_(255)
    def size(name, value):
        grows = name in ("H", "HV") or name.endswith("_stride")
        return value * repeat if grows else value
    values = arguments_of(case, lambda i: tensors[i].data_ptr(), size)
    launch = launcher(kernel, programs * repeat, values)
    launch()
    torch.cuda.synchronize()
    for index, buffer in enumerate(case["buffers"]):
        if not buffer["written"]:
            continue
        expected = memory.plain(index).repeat(1, repeat, 1).contiguous()
        if not torch.equal(tensors[index].view(torch.uint8),
                           expected.view(torch.uint8)):
            raise ValueError(f"{buffer['name']}: repeated heads differ")
    return launch, tensors


def run_case(case, directory, out, arch):
    import torch
    name = case["name"]
    path = os.path.join(directory, name + ".ttir")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    kernel = compile_file(path, "cuda", arch, 32)
    programs = case["programs_per_slice"] * slices_of(text)
    memory = Memory(case, os.path.join(directory, name + ".bin"))
    launch = launcher(kernel, programs, arguments_of(case, memory.address))
    launch()
    torch.cuda.synchronize()
    changed = memory.changed_inputs()
    if changed:
        raise ValueError("inputs were written to: " + " ".join(changed))
    memory.write(os.path.join(out, name + ".out"))
    tensors = None
    if case["repeat"] > 1:
        launch, tensors = repeated_heads(case, memory, kernel, programs)
    time = microseconds(launch)
    del tensors
    options = ", ".join(f"{key} = {value}"
                        for key, value in options_of(text).items())
    return {"us": time, "ttir_sha256": digest(text),
            "ptx_sha256": digest(kernel.asm["ptx"]), "options": options,
            "registers": kernel.n_regs, "spills": kernel.n_spills,
            "shared": kernel.metadata.shared}


def version_of(command, pattern):
    """What a tool says about itself, or "unknown"."""
    try:
        text = subprocess.run(command, capture_output=True, text=True,
                              check=True).stdout
        return re.search(pattern, text).group(1)
    except (OSError, subprocess.CalledProcessError, AttributeError):
        return "unknown"


def ptxas_version():
    """Of the assembler inside Triton's wheel."""
    import triton
    tool = os.environ.get("TRITON_PTXAS_PATH") or os.path.join(
        os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "ptxas")
    return version_of([tool, "--version"], r"V(\d+\.\d+\.\d+)")


def driver_version():
    return version_of(["nvidia-smi", "--query-gpu=driver_version",
                       "--format=csv,noheader"], r"([\d.]+)")


def is_alive():
    """False once a fault has ended this process's use of the GPU."""
    import torch
    try:
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False


def describe_machine(commit):
    import torch
    import triton
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"gpu": torch.cuda.get_device_name(), "driver": driver_version(),
            "triton": triton.__version__, "torch": torch.__version__,
            "ptxas": ptxas_version(), "commit": commit,
            "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "cases": []}


def attempt(case, directory, out, arch):
    """The entry of a case in results.json; an error is part of it."""
    entry = {"name": case["name"]}
    try:
        entry.update(run_case(case, directory, out, arch))
        print(f"{case['name']}: {entry['us']:.1f} us, {entry['registers']} "
              f"registers, {entry['spills']} spills, {entry['shared']} bytes "
              "shared", flush=True)
    except Exception as error:  # the next case may still run
        entry["error"] = f"{type(error).__name__}: {error}"[:400]
        print(f"{case['name']}: {entry['error']}", flush=True)
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("out")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--arch", type=int, default=0,
                        help="default: of this GPU")
    parser.add_argument("--resume", action="store_true",
                        help="leave out what OUT/results.json already has")
    options = parser.parse_args()
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        print(f"ttir.py: {error}; install torch and triton", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("ttir.py: torch sees no GPU", file=sys.stderr)
        return 2
    major, minor = torch.cuda.get_device_capability()
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.directory, "cases.json"),
              encoding="utf-8") as file:
        cases = [c for c in json.load(file) if options.only in c["name"]]
    path = os.path.join(options.out, "results.json")
    results = describe_machine(options.commit)
    if options.resume:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    done = {entry["name"] for entry in results["cases"]}
    for case in cases:
        if case["name"] in done:
            continue
        arch = options.arch or major * 10 + minor
        results["cases"].append(
            attempt(case, options.directory, options.out, arch))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
        if not is_alive():  # a new process for the rest
            arguments = [a for a in sys.argv if a != "--resume"]
            os.execv(sys.executable, [sys.executable, *arguments, "--resume"])
    failed = sum("error" in entry for entry in results["cases"])
    count = len(results["cases"])
    print(f"{count - failed} of {count} ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
