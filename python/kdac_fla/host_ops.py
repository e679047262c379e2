"""Tensors in host memory, with nothing but the standard library.

Promises: what operators.py needs of tensors, slowly; for tests, and as the
shortest description of that interface. Does not: share memory between tensors
but by `narrow` of a view.
"""

import ctypes
import itertools
import math
import struct

_CODES = {"f32": "f", "f16": "e", "i32": "i", "i64": "q", "i8": "b"}
_SIZES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "i8": 1}


def pack(values, dtype):
    """Numbers as bytes, rounded to nearest even."""
    if dtype != "bf16":
        return struct.pack(f"<{len(values)}{_CODES[dtype]}", *values)
    words = struct.unpack(f"<{len(values)}I",
                          struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *(
        (w + 0x7fff + (w >> 16 & 1)) >> 16 for w in words))


def unpack(data, dtype):
    count = len(data) // _SIZES[dtype]
    if dtype != "bf16":
        return list(struct.unpack(f"<{count}{_CODES[dtype]}", data))
    words = struct.unpack(f"<{count}H", data)
    return list(struct.unpack(f"<{count}f", struct.pack(
        f"<{count}I", *(w << 16 for w in words))))


def contiguous_strides(shape):
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


class HostTensor:
    """Numbers at an address; strides in elements."""

    def __init__(self, buffer, address, shape, strides, dtype):
        self.buffer, self.address = buffer, address
        self.shape, self.strides, self.dtype = tuple(shape), tuple(strides), dtype

    @staticmethod
    def empty(shape, dtype):
        size = max(1, math.prod(shape)) * _SIZES[dtype]
        # NaN in every float type, and wild as an integer.
        buffer = (ctypes.c_ubyte * (size + 64))(*b"\xff" * (size + 64))
        address = (ctypes.addressof(buffer) + 63) // 64 * 64
        return HostTensor(buffer, address, shape, contiguous_strides(shape),
                          dtype)

    @staticmethod
    def of(values, shape, dtype):
        tensor = HostTensor.empty(shape, dtype)
        data = pack(values, dtype)
        ctypes.memmove(tensor.address, data, len(data))
        return tensor

    def values(self):
        """All numbers, in order of their indices."""
        size = _SIZES[self.dtype]
        if self.strides == contiguous_strides(self.shape):
            count = math.prod(self.shape)
            return unpack(ctypes.string_at(self.address, count * size),
                          self.dtype)
        return [unpack(ctypes.string_at(self.address + size * sum(
            i * s for i, s in zip(index, self.strides)), size), self.dtype)[0]
            for index in itertools.product(*map(range, self.shape))]

    def view(self, shape, strides, offset=0):
        return HostTensor(self.buffer,
                          self.address + offset * _SIZES[self.dtype], shape,
                          strides, self.dtype)


class HostOps:
    """The interface of operators.py over HostTensor."""

    def shape(self, t):
        return t.shape

    def strides(self, t):
        return t.strides

    def dtype(self, t):
        return t.dtype

    def size_of(self, t):
        return _SIZES[t.dtype]

    def address(self, t):
        return t.address

    def place(self, t):
        return "host"

    def stream(self, t):
        return None

    def empty(self, shape, dtype, like):
        return HostTensor.empty(shape, dtype)

    def cast(self, t, dtype):
        if t.dtype == dtype:
            return t
        return HostTensor.of(t.values(), t.shape, dtype)

    def contiguous(self, t, alignment):
        if (t.strides == contiguous_strides(t.shape)
                and t.address % alignment == 0):
            return t
        return HostTensor.of(t.values(), t.shape, t.dtype)

    def reshape(self, t, shape):
        return HostTensor.of(t.values(), shape, t.dtype)

    def pad(self, t, sizes):
        """Zeros behind axes up to new sizes."""
        shape = tuple(sizes.get(i, n) for i, n in enumerate(t.shape))
        if shape == t.shape:
            return t
        values = dict(zip(itertools.product(*map(range, t.shape)), t.values()))
        return HostTensor.of([values.get(index, 0) for index in
                              itertools.product(*map(range, shape))],
                             shape, t.dtype)

    def narrow(self, t, sizes):
        """The first so many along axes."""
        shape = tuple(sizes.get(i, n) for i, n in enumerate(t.shape))
        return self.contiguous(t.view(shape, t.strides), 1)

    def copy(self, to, source):
        data = pack(source.values(), to.dtype)
        ctypes.memmove(to.address, data, len(data))
