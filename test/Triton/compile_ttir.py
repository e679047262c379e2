#!/usr/bin/env python3
"""Real Triton compiles what `kdac emit --stage=ttir` prints. No GPU is needed.

  compile_ttir.py KDAC [--targets cuda:80,...] [--only TEXT]

Every kernel for every target must give machine code with one entry of the
kernel's name, the arguments of the ABI before Triton's own, and no more shared
memory than the target has. Exit code 77, with the reason, where Triton is not
installed; the version is printed. Triton is used as it is on PyPI.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "gpu"))
from ttir import compile_file  # noqa: E402

SKIPPED = 77
TARGETS = {"cuda:80": (166912, 32), "cuda:89": (101376, 32),
           "cuda:90": (232448, 32), "cuda:100": (232448, 32),
           "hip:gfx942": (65536, 64)}
DEFAULT_TARGETS = "cuda:80,cuda:90,cuda:100,hip:gfx942"

# Every structured op, operand type, layout and form; options of kdac emit.
KERNELS = {
    "chunk": [],
    "softplus-high": ["--gate=softplus", "--precision=high", "--key-dim=64",
                      "--value-dim=96", "--state-layout=kv"],
    "f16-sm80": ["--dtype=f16", "--target=sm_80", "--key-dim=64",
                 "--value-dim=64", "--offsets=i64"],
    "f32-identity": ["--dtype=f32", "--gate=identity", "--key-dim=32",
                     "--value-dim=32"],
    "gated-delta": ["--recurrence=gated_delta", "--key-dim=64"],
    "linear": ["--recurrence=linear", "--key-dim=64", "--value-dim=64"],
    "step": ["--form=step"],
    "dplr-step": ["--recurrence=dplr", "--form=step", "--key-dim=64"],
    "pool-step": ["--form=step", "--slots=i32", "--snapshots=true",
                  "--state-dtype=bf16"],
    "layer-step": ["--form=step", "--slots=i64", "--conv=4", "--norm=sigmoid",
                   "--key-dim=64", "--value-dim=64"],
}


def skip(reason):
    print(f"skipped: {reason}")
    return SKIPPED


def emit(kdac, options, path):
    subprocess.run([kdac, "emit", "--stage=ttir", "-o", path, *options],
                   check=True)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    entry = re.search(r"tt\.func public @(\w+)\((.*)\) attributes", text)
    return entry.group(1), entry.group(2).count("kdac.name")


def hidden_parameters(version):
    """Scratch pointers that Triton appends to a kernel's own parameters."""
    return 2 if version >= (3, 5) else 1


def problems(kernel, target, entry, parameters):
    """What is wrong with a compiled kernel, sentence by sentence."""
    limit, _ = TARGETS[target]
    if kernel.metadata.shared > limit:
        yield f"{kernel.metadata.shared} bytes of shared memory, limit {limit}"
    if target.startswith("hip"):
        text = kernel.asm["amdgcn"]
        if f".amdhsa_kernel {entry}" not in text:
            yield f"no kernel {entry} in the assembly"
        if not kernel.asm["hsaco"].startswith(b"\x7fELF"):
            yield "the code object is no ELF file"
        return
    ptx = kernel.asm["ptx"]
    entries = re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)", ptx)
    if [name for name, _ in entries] != [entry]:
        yield f"entries {[name for name, _ in entries]}, expected {entry}"
    elif (count := entries[0][1].count(".param")) != parameters:
        yield f"{count} parameters, expected {parameters}"
    if not kernel.asm["cubin"].startswith(b"\x7fELF"):
        yield "the cubin is no ELF file"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kdac")
    parser.add_argument("--targets", default=DEFAULT_TARGETS)
    parser.add_argument("--only", default="", help="kernels whose name has this")
    options = parser.parse_args()
    try:
        import triton
    except ImportError:
        return skip(f"{sys.executable} has no triton; install it from PyPI and "
                    "configure with -DKDAC_TRITON_PYTHON=PATH")
    version = tuple(map(int, triton.__version__.split(".")[:2]))
    if version < (3, 4):
        return skip(f"triton {triton.__version__} is older than 3.4")
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
        for name, flags in KERNELS.items():
            if options.only not in name:
                continue
            path = os.path.join(folder, name + ".ttir")
            entry, arguments = emit(options.kdac, flags, path)
            parameters = arguments + hidden_parameters(version)
            for target in options.targets.split(","):
                backend, arch = target.split(":")
                arch = int(arch) if arch.isdigit() else arch
                try:
                    kernel = compile_file(path, backend, arch,
                                          TARGETS[target][1])
                    found = list(problems(kernel, target, entry, parameters))
                except Exception as error:  # Triton's own
                    found = [f"{type(error).__name__}: {error}"[:400]]
                count += 1
                failed += bool(found)
                for problem in found:
                    print(f"{name} for {target}: {problem}")
    if not count:
        print("no kernel has that name")
        return 1
    print(f"triton {triton.__version__}: {count - failed} of {count} compiled")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
