#!/usr/bin/env python3
"""Triton's own launcher, compiled and run without a GPU, on a kernel of kdac.

usage: triton_launcher_test.py KDAC LIBKDAC FAKELAUNCH SOURCE [unittest options]

Its C is compiled as for a GPU and calls a fake driver (FakeLaunch.c), whose
function is the variant's host code: same arguments, same order. The outputs must
be, bit by bit, those of kdac's runtime. Exit code 77, with the reason, where
Triton, a C compiler or Python's headers are missing.
"""

import ctypes
import json
import math
import os
import platform
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaLauncher
except ImportError as error:
    skip(f"no Triton for {sys.executable} ({error}); set KDAC_TRITON_PYTHON")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    skip("Python's headers, which Triton's launcher needs, are not installed")
if not (shutil.which("gcc") or shutil.which("clang")):
    skip("no C compiler for Triton's launcher")

KDAC, LIBRARY, FAKE, SOURCE = sys.argv[1:5]
sys.path.insert(0, os.path.join(SOURCE, "python"))

import kdac_triton  # noqa: E402
from kdac_fla import abi  # noqa: E402
from kdac_fla.host_ops import HostTensor  # noqa: E402

H, HV, K, V = 2, 4, 32, 64
CPU = "aarch64" if platform.machine() == "aarch64" else "x86-64-v3"
SPEC = ["--form=step", f"--key-dim={K}", f"--value-dim={V}",
        "--gate=softplus", "--beta=2sigmoid"]


class Tensor(HostTensor):
    """As the launcher knows tensors."""

    def data_ptr(self):
        return self.address


class Driver:
    """Triton's driver.active: real launchers, functions of a shared object."""

    launcher_cls = CudaLauncher

    def __init__(self):
        self.utils, self.loaded = self, []

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, device):
        return {"max_shared_mem": 1 << 20}

    def load_binary(self, name, code, shared, device):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(code)
            file.flush()
            self.loaded.append(ctypes.CDLL(file.name))
        function = getattr(self.loaded[-1], name)
        return 1, ctypes.cast(function, ctypes.c_void_p).value, 0, 0, 1024


def host_kernel(folder):
    """A folder of Triton's cache whose cubin is host code, and the pack."""
    pack = os.path.join(folder, "host.kdac")
    subprocess.run([KDAC, "compile", *SPEC, "--targets=host", "-o", pack,
                    "--loose=" + folder], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    with open(pack, "rb") as file:
        data = file.read()
    manifest = json.loads(data[128:128 + int.from_bytes(data[16:24], "little")])
    variant, = manifest["variants"]
    launch = variant["launches"][0]
    # The metadata that a GPU kernel of the variant has, by the exporter's rules.
    types = {"bf16": "bf16", "f16": "fp16", "f32": "fp32", "i32": "i32",
             "i64": "i64"}
    args = [{"name": a["name"], "optional": a["optional"], "shape": a["shape"],
             "type": ("" if a["kind"] in ("size", "scale") else "*")
             + types[a["dtype"]]} for a in launch["args"]]
    metadata = {
        "name": launch["entry"], "hash": "0" * 64, "shared": 0, "num_warps": 3,
        "num_ctas": 1, "cluster_dims": [1, 1, 1], "num_stages": 1,
        "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
        "tensordesc_meta": [], "tmem_size": None, "global_scratch_size": 0,
        "global_scratch_align": 1, "profile_scratch_size": 0,
        "profile_scratch_align": 1, "launch_cooperative_grid": False,
        "launch_pdl": False, "kdac": {
            "variant": variant["name"], "abi": "triton-2scratch", "args": args,
            "grid": launch["grid"], "K": K, "V": V, "workspace_bytes": ""}}
    cache = os.path.join(folder, "cache", "A")
    os.makedirs(cache)
    with open(os.path.join(cache, launch["entry"] + ".json"), "w",
              encoding="utf-8") as file:
        json.dump(metadata, file)
    shutil.copy(os.path.join(folder, f"{variant['name']}.{CPU}.so"),
                os.path.join(cache, launch["entry"] + ".cubin"))
    return pack, os.path.dirname(cache)


class LauncherTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pack, cache = host_kernel(cls.folder.name)
        cls.driver = Driver()
        triton.runtime.driver.set_active(cls.driver)
        cls.kernel, = kdac_triton.load_all(cache)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def tensors(self, tokens, N):
        draw = random.Random(tokens)

        def tensor(dtype, *shape):
            t = HostTensor.of([draw.gauss(0, 1) for _ in range(math.prod(shape))],
                              shape, dtype)
            t.__class__ = Tensor
            return t

        return {"q": tensor("bf16", tokens, H, K), "k": tensor("bf16", tokens, H, K),
                "v": tensor("bf16", tokens, HV, V),
                "g": tensor("bf16", tokens, HV, K),
                "beta": tensor("bf16", tokens, HV), "A_log": tensor("f32", HV),
                "dt_bias": tensor("f32", HV, K),
                "h0": tensor("f32", N, HV, V, K)}

    def run_both(self, N, T, offsets=None, without=()):
        """(out, ht) of Triton's launcher and of kdac's runtime, as bytes."""
        tokens = T if offsets else N * T
        x = self.tensors(tokens, N)
        for name in without:
            del x[name]
        if offsets:
            x["offsets"] = HostTensor.of(offsets, (N + 1,), "i32")
            x["offsets"].__class__ = Tensor
        results = []
        for run in (self.by_triton, self.by_kdac):
            out = HostTensor.empty((tokens, HV, V), "bf16")
            ht = HostTensor.empty((N, HV, V, K), "f32")
            out.__class__ = ht.__class__ = Tensor
            run(dict(x, out=out, ht=ht), N, T, bool(offsets))
            results.append([ctypes.string_at(t.address, math.prod(t.shape) * size)
                            for t, size in ((out, 2), (ht, 4))])
        return results

    def by_triton(self, x, N, T, packed):
        strides = {"q": H * K, "k": H * K, "v": HV * V, "g": HV * K, "beta": HV,
                   "out": HV * V}
        grid = self.kernel.grid(N=N, T=T, H=H, HV=HV, packed=packed)
        self.kernel.compiled[grid](*self.kernel.arguments(
            N=N, T=T, H=H, HV=HV, scale=0.25, **x,
            **{name + "_stride": size for name, size in strides.items()}))

    def by_kdac(self, x, N, T, packed):
        library = abi.Library(LIBRARY)
        kernel = abi.Kernel(
            library.device("host"), library.pack(self.pack),
            {"recurrence": "kda", "form": "step", "key_dim": K, "value_dim": V,
             "dtype": "bf16", "gate": "softplus", "beta": "2sigmoid"})
        kernel.launch(None, abi.Call(
            N=N, T=T, H=H, HV=HV, scale=0.25,
            **{name: t.address for name, t in x.items()}))

    def test_same_bits(self):
        for N, T, offsets, without in (
                (2, 3, None, ()), (3, 5, [0, 2, 2, 5], ()),
                (1, 2, None, ("h0", "dt_bias"))):
            got, expected = self.run_both(N, T, offsets, without)
            self.assertNotEqual(set(expected[0]), {0xff})
            self.assertEqual(got, expected)


if __name__ == "__main__":
    if "KDAC_BLOCK" not in os.environ:
        # dlopen looks where the environment of a process said at its start.
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(FAKE), os.path.join(folder, "libcuda.so.1"))
            environment = dict(
                os.environ, KDAC_BLOCK="96", LD_LIBRARY_PATH=folder,
                TRITON_LIBCUDA_PATH=folder,
                TRITON_CACHE_DIR=os.path.join(folder, "cache"))
            sys.exit(subprocess.run([sys.executable, *sys.argv],
                                    env=environment).returncode)
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
