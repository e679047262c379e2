"""PyTorch tensors for operators.py.

Promises: everything on the tensors' own device and PyTorch's current stream.
Does not: synchronise, or convert in a way that loses anything.
"""

import torch

_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32",
          torch.int32: "i32", torch.int64: "i64", torch.int8: "i8"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


class TorchOps:
    def shape(self, t):
        return tuple(t.shape)

    def strides(self, t):
        return t.stride()

    def dtype(self, t):
        return _NAMES.get(t.dtype, str(t.dtype))

    def size_of(self, t):
        return t.element_size()

    def address(self, t):
        return t.data_ptr()

    def place(self, t):
        if t.device.type != "cuda":
            return "host" if t.device.type == "cpu" else str(t.device)
        return f"cuda:{t.device.index}"

    def stream(self, t):
        if t.device.type != "cuda":
            return None
        return torch.cuda.current_stream(t.device).cuda_stream

    def empty(self, shape, dtype, like):
        return torch.empty(shape, dtype=_TYPES[dtype], device=like.device)

    def cast(self, t, dtype):
        return t.to(_TYPES[dtype])

    def contiguous(self, t, alignment):
        t = t.contiguous()
        return t if t.data_ptr() % alignment == 0 else t.clone()

    def reshape(self, t, shape):
        return t.reshape(shape)

    def pad(self, t, sizes):
        shape = [sizes.get(i, n) for i, n in enumerate(t.shape)]
        if shape == list(t.shape):
            return t
        result = t.new_zeros(shape)
        result[tuple(slice(n) for n in t.shape)] = t
        return result

    def narrow(self, t, sizes):
        return t[tuple(slice(sizes.get(i)) for i in range(t.ndim))].contiguous()

    def copy(self, to, source):
        to.copy_(source)
