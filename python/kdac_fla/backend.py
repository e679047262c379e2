"""The backend that FLA's registry dispatches to.

Promises: FLA calls that kdac takes run on kdac's kernels on PyTorch's current
stream, and the others run as without it; `stats` counts both, with reasons.
Does not: take part in training: no gradient passes through kdac.
"""

import collections
import importlib.metadata
import os

import torch

from fla.ops.backends import BackendRegistry, BaseBackend, dispatch
from fla.ops.kda import fused_recurrent as fla_recurrent

from .abi import Library
from .calls import chunk_problem, recurrent_problem
from .operators import Operators, Refused, require
from .torch_ops import TorchOps

FLA_VERSION = "0.5.2"


class KdacBackend(BaseBackend):
    backend_type = "kdac"
    package_name = None
    env_var = "KDAC_FLA"  # 0 switches it off
    default_enable = True
    priority = 2  # before FlashKDA's 3

    def __init__(self, library, pack):
        self.operators = Operators(library, pack, TorchOps())
        self.dispatched = collections.Counter()
        self.refused = collections.Counter()  # (function, reason)

    def stats(self):
        return {"dispatched": dict(self.dispatched),
                "refused": dict(self.refused)}

    def _verify(self, function, make, args, kwargs):
        try:
            problem = make(TorchOps().dtype, *args, **kwargs)
            require(problem.q.device.type == "cuda",
                    f"tensors are on {problem.q.device}, not on a GPU")
            if function == "chunk_kda":
                require(not needs_gradient(problem),
                        "kdac has no backward pass; use torch.inference_mode() "
                        "or torch.no_grad()")
            self.operators.choose(problem)
        except Refused as refusal:
            self.refused[function, str(refusal)] += 1
            return False, str(refusal)
        return True, None

    def chunk_kda_verifier(self, *args, **kwargs):
        return self._verify("chunk_kda", chunk_problem, args, kwargs)

    def chunk_kda(self, *args, **kwargs):
        self.dispatched["chunk_kda"] += 1
        return self.operators.run(chunk_problem(TorchOps().dtype, *args,
                                                **kwargs))

    def fused_recurrent_kda_fwd_verifier(self, *args, **kwargs):
        return self._verify("fused_recurrent_kda", recurrent_problem, args,
                            kwargs)

    def fused_recurrent_kda_fwd(self, *args, **kwargs):
        self.dispatched["fused_recurrent_kda"] += 1
        problem = recurrent_problem(TorchOps().dtype, *args, **kwargs)
        out, final = self.operators.run(problem)
        if kwargs.get("inplace_final_state", True) and problem.slots is None:
            final = problem.initial.copy_(final)
        return out, final


def needs_gradient(problem):
    tensors = (problem.q, problem.k, problem.v, problem.g, problem.beta,
               problem.A_log, problem.dt_bias, problem.initial)
    return torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in tensors)


def register(pack=None, library=None):
    """Puts kdac before FLA's own kernels; returns the backend.

    `pack`: a .kdac file, else $KDAC_FLA_PACK. `library`: libkdac.so, else
    $KDAC_LIBRARY, else the one that the loader finds.
    """
    found = importlib.metadata.version("fla-core")
    if found != FLA_VERSION:
        raise RuntimeError(f"kdac_fla knows fla-core {FLA_VERSION}, not {found}")
    pack = pack or os.environ.get("KDAC_FLA_PACK")
    if not pack:
        raise RuntimeError("no pack; give register() a .kdac file, or set "
                           "KDAC_FLA_PACK")
    backend = KdacBackend(Library(library), pack)
    BackendRegistry.ensure_initialized("kda")
    BackendRegistry._registries["kda"].register(backend)
    # FLA 0.5.2 dispatches chunk_kda only; its own decorator does the other.
    if not hasattr(fla_recurrent.fused_recurrent_kda_fwd, "kdac_dispatches"):
        wrapper = dispatch("kda")(fla_recurrent.fused_recurrent_kda_fwd)
        wrapper.kdac_dispatches = True
        fla_recurrent.fused_recurrent_kda_fwd = wrapper
    return backend
