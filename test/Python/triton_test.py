#!/usr/bin/env python3
"""kdac's kernels in the hands of the real Triton, as far as that needs no GPU.

usage: triton_test.py KDAC PTXAS SOURCE [unittest options]

Its loader takes the files of `kdac compile --triton`, its launcher's source has
the kernel's parameters, and its linker takes the headers of `kdac embed
--triton-aot` beside one of Triton's own form. Launching is test/gpu/triton_launch.py.
Exit code 77, with the reason, where Triton is not installed.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import triton
except ImportError as error:
    print(f"skipped: no Triton for {sys.executable} ({error}); set "
          "KDAC_TRITON_PYTHON to a Python that has triton 3.6 to 3.8")
    sys.exit(77)

KDAC, PTXAS, SOURCE = sys.argv[1:4]
sys.path.insert(0, os.path.join(SOURCE, "python"))

import kdac_triton  # noqa: E402

# A header of triton.tools.compile's form, of another kernel for the same call.
FOREIGN = """
// tt-linker: {name}_0123abcd_{suffix}:{signature}:_warps8xstages2
CUresult {name}_0123abcd_{suffix}(CUstream stream, {signature});
"""


def compile_kernel(folder, abi, *flags):
    cache = os.path.join(folder, "cache-" + abi + "-".join(flags))
    pack = cache + ".kdac"
    subprocess.run([KDAC, "compile", *flags, "--key-dim=32", "--value-dim=32",
                    "--targets=sm_90a,sm_80", "--ptxas=" + PTXAS,
                    "--abi=" + abi, "--triton=" + cache, "-o", pack], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cache, pack


def entry_parameters(ptx):
    """Widths of the parameters of the one entry, in bits."""
    entries = re.findall(r"\.visible \.entry \w+\((.*?)\)\n", ptx, re.S)
    assert len(entries) == 1, f"{len(entries)} entries"
    return [int(bits) for bits in
            re.findall(r"\.param \.[a-z]+(\d+) ", entries[0])]


class LoaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cache, cls.pack = compile_kernel(cls.folder.name, "triton",
                                             "--form=step")
        cls.chunk, _ = compile_kernel(cls.folder.name, "triton", "--form=chunk")
        cls.bare, _ = compile_kernel(cls.folder.name, "bare", "--form=step")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def all(self):
        kernels = [k for cache in (self.cache, self.chunk, self.bare)
                   for k in kdac_triton.load_all(cache)]
        self.assertEqual(len(kernels), 6)
        return kernels

    def test_compiled_kernel_takes_the_files(self):
        for kernel in self.all():
            compiled = kernel.compiled
            self.assertIn(compiled.metadata.target.arch, (80, 90))
            self.assertEqual(compiled.metadata.target.backend, "cuda")
            self.assertEqual(compiled.kernel[:4], b"\x7fELF")
            self.assertIn(f".entry {compiled.name}(", compiled.asm["ptx"])
            self.assertEqual(compiled.packed_metadata,
                             (compiled.metadata.num_warps, 1,
                              compiled.metadata.shared))
            threads = re.search(r"\.reqntid (\d+), 1, 1", compiled.asm["ptx"])
            self.assertEqual(int(threads.group(1)),
                             32 * compiled.metadata.num_warps)

    def test_metadata_has_all_that_this_triton_writes_and_reads(self):
        source = os.path.join(os.path.dirname(triton.__file__))
        read = set()
        for path in ("compiler/compiler.py", "backends/nvidia/compiler.py",
                     "backends/nvidia/driver.py"):
            with open(os.path.join(source, path), encoding="utf-8") as file:
                text = file.read()
            # What the loader and the launcher read of finished metadata.
            for part in re.findall(r"class CompiledKernel:.*?(?=\nclass |\Z)"
                                   r"|def pack_metadata.*?(?=\n    def )"
                                   r"|class CudaLauncher.*?(?=\nclass |\Z)",
                                   text, re.S):
                read |= set(re.findall(r"metadata\.([a-z_]+)\b(?!\()", part))
        read -= {"items", "pop", "read_text"}
        self.assertLessEqual({"num_warps", "shared", "launch_pdl"}, read)
        for kernel in self.all():
            self.assertLessEqual(read, set(kernel.compiled.metadata._fields))

    def test_launcher_passes_what_the_kernel_takes(self):
        from triton.backends.nvidia.driver import make_launcher, ty_to_cpp
        for kernel in self.all():
            compiled = kernel.compiled
            text = make_launcher({}, compiled.src.signature,
                                 compiled.metadata.tensordesc_meta)
            passed = re.search(r"void \*params\[\] = \{ (.*?) \};", text).group(1)
            passed = passed.split(", ")
            self.assertEqual(passed[-2:], ["&global_scratch", "&profile_scratch"])
            widths = entry_parameters(compiled.asm["ptx"])
            hidden = 2 if kernel.own["abi"] == "triton-2scratch" else 0
            self.assertEqual(len(widths), len(passed) - 2 + hidden)
            self.assertEqual(widths[len(passed) - 2:], [64] * hidden)
            for width, kind in zip(widths, compiled.src.signature.values()):
                self.assertTrue(kind[0] == "*" or ty_to_cpp(kind))
                self.assertEqual(width, 32 if kind in ("fp32", "i32") else 64)

    def test_grid_and_arguments(self):
        kernel = kdac_triton.load_all(self.cache)[0]
        self.assertEqual(kernel.grid(N=2, T=3, H=2, HV=4)[1:], (1, 1))
        self.assertEqual(kernel.grid(N=2, T=3, H=2, HV=4)[0] % 8, 0)
        names = [arg["name"] for arg in kernel.own["args"]]
        values = {n: i for i, n in enumerate(names) if n != "h0"}
        arguments = kernel.arguments(**values)
        self.assertIsNone(arguments[names.index("h0")])
        self.assertEqual(arguments[names.index("scale")], names.index("scale"))
        with self.assertRaisesRegex(ValueError, "argument q .bf16"):
            kernel.arguments(**{n: 0 for n in names if n != "q"})
        with self.assertRaisesRegex(ValueError, "has no argument later"):
            kernel.arguments(later=1)

    def test_size_expressions(self):
        sizes = {"N": 3, "T": 65, "V": 100}
        for text, value in (("N * ceildiv(T, 64) + max(V, 7)", 106),
                            ("min(N, T) * (V + 1)", 303),
                            ("less(N, 3) + less(2, N)", 1),
                            ("minus(N, 1) + minus(1, N + 9)", 1)):
            self.assertEqual(kdac_triton.evaluate(text, sizes), value)
        for text in ("N - 1", "K", "N.real", "open(N, T)", "N ** 2", "'N'"):
            with self.assertRaisesRegex(ValueError, "no size expression"):
                kdac_triton.evaluate(text, sizes)

    def test_group_file(self):
        for path in glob.glob(os.path.join(self.cache, "*", "__grp__*.json")):
            with open(path, encoding="utf-8") as file:
                children = json.load(file)["child_paths"]
            self.assertEqual(len(children), 3)
            for child in children.values():
                self.assertTrue(os.path.exists(child), child)

    def test_linker_takes_the_headers(self):
        from triton.tools.link import HeaderParser
        out = os.path.join(self.folder.name, "aot")
        os.makedirs(out)
        subprocess.run([KDAC, "embed", self.pack, "--triton-aot",
                        "--name=mine", "-o", out], check=True)
        header, = glob.glob(os.path.join(out, "mine_kda*.h"))  # of both targets
        with open(header, encoding="utf-8") as file:
            text = file.read()
        parser = HeaderParser()
        parser.extract_linker_meta(text)
        (kernel, metas), = parser.kernels.items()
        self.assertRegex(kernel, r"^mine_kda_step_.*__warps\dxstages\d$")
        names = [arg["name"] for arg in
                 kdac_triton.load_all(self.cache)[0].own["args"]]
        self.assertEqual(metas[0].arg_names, names)
        self.assertEqual(metas[0].arg_ctypes[-1], "float")
        hinted = {n for n, hint in zip(names, metas[0].sizes) if hint == 16}
        self.assertEqual(hinted, {"q", "k", "v", "g", "beta", "A_log", "dt_bias",
                                  "h0", "out", "ht"})
        name, suffix, signature = re.search(
            r"tt-linker: (\w+)_\w{8}_(\w+):(.+):", text).groups()
        foreign = os.path.join(out, "foreign.h")
        with open(foreign, "w", encoding="utf-8") as file:
            file.write(FOREIGN.format(name=name, suffix=suffix,
                                      signature=signature))
        linked = os.path.join(out, "linked")
        subprocess.run([sys.executable, "-m", "triton.tools.link", header,
                        foreign, "-o", linked], check=True)
        with open(linked + ".c", encoding="utf-8") as file:
            table = re.search(r"_kernels\[\] = \{(.*?)\}", file.read(), re.S)
        self.assertEqual(re.findall(r"\w+", table.group(1)),
                         [kernel, name + "__warps8xstages2"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
