"""kdac's kernels through Triton's own loader (docs/TRITON.md, "C2 and C3").

    kernel = kdac_triton.load("cache/FOLDER/kdac_kda_step_....json")
    kernel.compiled[kernel.grid(N=64, T=1, H=96)](*kernel.arguments(q=q, ...))

Promises: Triton's CompiledKernel, made from the files that `kdac compile --triton`
writes, and a call's grid and arguments from what the metadata says. Does not:
need a GPU to load, or check a call as kdac's own runtime does.
"""

import ast
import json
import os


class Source:
    """What CompiledKernel wants to know of a kernel's source."""

    def __init__(self, args):
        self.signature = {arg["name"]: arg["type"] for arg in args}
        self.constants = {}


def evaluate(expression, sizes):
    """A size expression (include/kdac/Pack/SizeExpr.h) over named sizes."""
    functions = {"ceildiv": lambda a, b: -(-a // b), "max": max, "min": min,
                 "less": lambda a, b: int(a < b),
                 "minus": lambda a, b: max(0, a - b)}

    def value(node):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return value(node.left) + value(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return value(node.left) * value(node.right)
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                and node.func.id in functions and len(node.args) == 2
                and not node.keywords):
            return functions[node.func.id](*map(value, node.args))
        raise ValueError(f"'{expression}' is no size expression over "
                         + ", ".join(sizes))

    return value(ast.parse(expression, mode="eval").body)


class Kernel:
    """One kernel: `compiled` is Triton's object, `own` what kdac says of it."""

    def __init__(self, compiled, own):
        self.compiled, self.own = compiled, own

    def sizes(self, N, T, H, HV=None, packed=False, sms=1):
        """Names of size expressions. T: tokens of a sequence, or of all when
        the call is packed. sms: multiprocessors of the GPU."""
        return {"N": N, "T": T, "tokens": T if packed else N * T, "H": H,
                "HV": HV or H, "K": self.own["K"], "V": self.own["V"],
                "checked": 0, "sms": sms, "clusters": 0}

    def grid(self, **sizes):
        return (evaluate(self.own["grid"], self.sizes(**sizes)), 1, 1)

    def arguments(self, **values):
        """In order. Pointers that are not given are null, if they may be."""
        known = {arg["name"] for arg in self.own["args"]}
        for name in values:
            if name not in known:
                raise ValueError(f"{self.own['variant']} has no argument {name}")
        for arg in self.own["args"]:
            if arg["name"] not in values and not arg["optional"]:
                raise ValueError(f"argument {arg['name']} {arg['type']} "
                                 f"{arg['shape']} is missing")
        return [values.get(arg["name"]) for arg in self.own["args"]]


def load(path):
    """The kernel whose metadata is the JSON file at `path`."""
    from triton.compiler import CompiledKernel
    folder, name = os.path.split(os.path.abspath(path))
    stem = name[:-len(".json")]
    with open(path, encoding="utf-8") as file:
        metadata = json.load(file)
    group = {entry: os.path.join(folder, entry) for entry in os.listdir(folder)
             if os.path.splitext(entry)[0] == stem}
    compiled = CompiledKernel(Source(metadata["kdac"]["args"]), group,
                              metadata["hash"])
    return Kernel(compiled, metadata["kdac"])


def load_all(root):
    """Every kernel below the folder given to `kdac compile --triton`."""
    kernels = []
    for folder in sorted(os.listdir(root)):
        for entry in sorted(os.listdir(os.path.join(root, folder))):
            if entry.endswith(".json") and not entry.startswith("__grp__"):
                kernels.append(load(os.path.join(root, folder, entry)))
    return kernels
