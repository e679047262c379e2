"""kdac's C ABI (include/kdac-c/kdac.h) by ctypes.

Promises: devices, packs and kernels as objects; every failure is a KdacError with
the library's code and sentence. Does not: know tensors, or load anything before
it is asked to. test/Python/kdac_fla_test.py compares the structs with the header.
"""

import ctypes
import os
import weakref
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_float,
                    c_int64, c_void_p, sizeof)

ABI_VERSION = 1
UNSET, NO, YES = 0, 1, 2


class KdacError(Exception):
    """What the library refused: a code of kdac_code, and a sentence."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _Struct(Structure):
    """A struct of the ABI; made with its size, everything else unsaid."""

    def __init__(self, **values):
        super().__init__(struct_size=sizeof(type(self)), **values)


class DeviceOptions(_Struct):
    _fields_ = [("struct_size", c_int64), ("threads", c_int64),
                ("cuda_context", c_void_p), ("library", c_char_p)]


class DeviceInfo(_Struct):
    _fields_ = [("struct_size", c_int64), ("name", c_char_p),
                ("driver", c_char_p), ("is_host", c_int64),
                ("compute_major", c_int64), ("compute_minor", c_int64),
                ("multiprocessors", c_int64),
                ("shared_bytes_per_block", c_int64), ("threads", c_int64)]


class Stride(Structure):
    _fields_ = [("tensor", c_char_p), ("elements", c_int64)]


class Request(_Struct):
    _fields_ = [("struct_size", c_int64), ("recurrence", c_char_p),
                ("form", c_char_p), ("key_dim", c_int64),
                ("value_dim", c_int64), ("dtype", c_char_p),
                ("state_dtype", c_char_p), ("state_layout", c_char_p),
                ("gate", c_char_p), ("lower_bound", c_double),
                ("gate_dtype", c_char_p), ("beta", c_char_p),
                ("l2norm", c_int64), ("offset_dtype", c_char_p),
                ("precision", c_char_p), ("slots", c_char_p),
                ("snapshots", c_int64), ("conv", c_int64),
                ("cache_layout", c_char_p), ("norm", c_char_p),
                ("norm_eps", c_double), ("strides", POINTER(Stride)),
                ("stride_count", c_int64), ("log", c_int64)]


class KernelInfo(_Struct):
    _fields_ = [("struct_size", c_int64), ("name", c_char_p),
                ("origin", c_char_p), ("key_dim", c_int64),
                ("value_dim", c_int64), ("is_verified", c_int64),
                ("why", c_char_p)]


def _pointers(names):
    return [(name, c_void_p) for name in names.split()]


def _sizes(names):
    return [(name, c_int64) for name in names.split()]


class Call(_Struct):
    _fields_ = (
        _sizes("struct_size")
        + _pointers("q k v g beta A_log dt_bias a b q_conv k_conv v_conv "
                    "q_cache k_cache v_cache z norm_weight h0 slots sources "
                    "snapshots offsets out ht workspace")
        + _sizes("workspace_bytes") + _pointers("status")
        + _sizes("N T H HV pool slot_pitch head_pitch q_cache_pitch "
                 "k_cache_pitch v_cache_pitch q_stride k_stride v_stride "
                 "g_stride beta_stride a_stride b_stride z_stride out_stride")
        + [("scale", c_float)] + _sizes("overlap") + _pointers("accepted"))


_SIGNATURES = {
    "kdac_abi_version": (c_int64, []),
    "kdac_status_code": (ctypes.c_int, [c_void_p]),
    "kdac_status_message": (c_char_p, [c_void_p]),
    "kdac_status_free": (None, [c_void_p]),
    "kdac_device_open": (c_void_p, [c_char_p, POINTER(DeviceOptions),
                                    POINTER(c_void_p)]),
    "kdac_device_close": (None, [c_void_p]),
    "kdac_device_get_info": (c_void_p, [c_void_p, POINTER(DeviceInfo)]),
    "kdac_pack_open_file": (c_void_p, [c_char_p, POINTER(c_void_p)]),
    "kdac_pack_close": (None, [c_void_p]),
    "kdac_pack_count": (c_int64, [c_void_p]),
    "kdac_pack_name": (c_char_p, [c_void_p, c_int64]),
    "kdac_kernel_load": (c_void_p, [c_void_p, c_void_p, POINTER(Request),
                                    POINTER(c_void_p)]),
    "kdac_kernel_close": (None, [c_void_p]),
    "kdac_kernel_get_info": (c_void_p, [c_void_p, POINTER(KernelInfo)]),
    "kdac_kernel_workspace_bytes": (c_void_p, [c_void_p, POINTER(Call),
                                               POINTER(c_int64)]),
    "kdac_kernel_launch": (c_void_p, [c_void_p, c_void_p, POINTER(Call)]),
}


class Library:
    """libkdac.so: `path`, else $KDAC_LIBRARY, else what the loader finds."""

    def __init__(self, path=None):
        path = path or os.environ.get("KDAC_LIBRARY") or "libkdac.so.0"
        try:
            self.c = ctypes.CDLL(path)
        except OSError as error:
            raise KdacError(5, f"the kdac runtime does not load: {error}; give "
                            "the path of libkdac.so, or set KDAC_LIBRARY"
                            ) from None
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        version = self.c.kdac_abi_version()
        if version < ABI_VERSION:
            raise KdacError(4, f"'{path}' has C ABI version {version}, but this "
                            f"package needs {ABI_VERSION}")

    def check(self, status):
        """Raises what a function returned, unless it is NULL."""
        if not status:
            return
        code = self.c.kdac_status_code(status)
        message = self.c.kdac_status_message(status).decode()
        self.c.kdac_status_free(status)
        raise KdacError(code, message)

    def device(self, name, threads=0):
        return Device(self, name, threads)

    def pack(self, path):
        return Pack(self, path)


class _Handle:
    """An object of the library, closed with its last reference."""

    def __init__(self, library, close, handle):
        self.library, self.handle = library, handle
        self._finalizer = weakref.finalize(self, close, handle)


class Device(_Handle):
    def __init__(self, library, name, threads):
        handle = c_void_p()
        options = DeviceOptions(threads=threads)
        library.check(library.c.kdac_device_open(name.encode(), byref(options),
                                                 byref(handle)))
        super().__init__(library, library.c.kdac_device_close, handle)

    def info(self):
        """(name, driver's version), both texts."""
        info = DeviceInfo()
        self.library.check(self.library.c.kdac_device_get_info(self.handle,
                                                               byref(info)))
        return info.name.decode(), info.driver.decode()


class Pack(_Handle):
    def __init__(self, library, path):
        handle = c_void_p()
        library.check(library.c.kdac_pack_open_file(os.fsencode(path),
                                                    byref(handle)))
        super().__init__(library, library.c.kdac_pack_close, handle)

    def names(self):
        c = self.library.c
        return [c.kdac_pack_name(self.handle, i).decode()
                for i in range(c.kdac_pack_count(self.handle))]


class Kernel(_Handle):
    """The variant of `pack` that fits `request` (fields of Request) on `device`."""

    def __init__(self, device, pack, request):
        library, handle = device.library, c_void_p()
        values = {name: value.encode() if isinstance(value, str) else value
                  for name, value in request.items()}
        library.check(library.c.kdac_kernel_load(
            device.handle, pack.handle, byref(Request(**values)),
            byref(handle)))
        super().__init__(library, library.c.kdac_kernel_close, handle)
        info = KernelInfo()
        library.check(library.c.kdac_kernel_get_info(handle, byref(info)))
        self.name, self.origin = info.name.decode(), info.origin.decode()

    def workspace_bytes(self, call):
        size = c_int64()
        self.library.check(self.library.c.kdac_kernel_workspace_bytes(
            self.handle, byref(call), byref(size)))
        return size.value

    def launch(self, stream, call):
        self.library.check(self.library.c.kdac_kernel_launch(
            self.handle, stream, byref(call)))
