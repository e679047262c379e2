"""kdac's kernels behind flash-linear-attention's KDA operators, forward only.

    import kdac_fla
    backend = kdac_fla.register("fla.kdac")   # then use FLA as before
    print(backend.stats())                    # what ran on kdac, and why not

docs/TRITON.md, "C1". Needs fla-core 0.5.2, PyTorch and libkdac.so at run time;
importing this package needs none of them.
"""


def register(pack=None, library=None):
    """See backend.register."""
    from .backend import register as implementation
    return implementation(pack, library)
