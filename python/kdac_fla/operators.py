"""FLA's chunk_kda and fused_recurrent_kda on kdac's kernels.

Promises: what FLA 0.5.2 would compute (shared/reference/kda-operator.md 2), or a
Refused that says why not, before anything has run. Does not: know torch, FLA's
registry or a GPU; tensors are handled by an `ops` object (torch_ops, host_ops).

A call is a Problem. A kernel that takes it as it is comes first; where the pack
has none, inputs are converted in ways that lose nothing: narrower floats to f32,
widths padded with zeros, offsets to i32.
"""

import math
from dataclasses import dataclass
from typing import Any, Optional

from .abi import NO, YES, Call, Kernel, KdacError

FLOATS = ("bf16", "f16", "f32")
INDICES = ("i32", "i64")
WIDTH_STEP, MAX_WIDTH = 32, 256  # of K and V on GPUs
ALIGNMENT = 16                   # bytes, of every pointer


class Refused(Exception):
    """Why kdac does not take a call; FLA does it then."""


def require(condition, reason):
    if not condition:
        raise Refused(reason)


@dataclass
class Problem:
    """One call. Tensors are those of FLA; None is absent."""
    form: str  # chunk or step
    q: Any     # [B, T, H, K]
    k: Any     # [B, T, H, K]
    v: Any     # [B, T, HV, V]
    g: Any     # [B, T, HV, K]: log-decay, or its logits with a gate
    beta: Any  # [B, T, HV]: write strength, or its logits
    out_dtype: str
    A_log: Any = None    # [HV] in any shape
    dt_bias: Any = None  # [HV * K] in any shape
    scale: Optional[float] = None         # None: K^-0.5
    initial: Any = None  # [N, HV, K, V], or [N, HV, V, K]
    wants_final: bool = False
    l2norm: bool = False
    gate: str = "identity"  # or softplus, bounded
    lower_bound: Optional[float] = None
    beta_map: str = "identity"  # or sigmoid, 2sigmoid
    v_first: bool = False
    offsets: Any = None  # [N + 1]
    slots: Any = None    # [N]: `initial` is a pool, changed in place
    out: Any = None      # where to write [B, T, HV, V]


@dataclass(frozen=True)
class Plan:
    """How a problem is put to a kernel; part of what chooses the kernel."""
    key_dim: int
    value_dim: int
    dtype: str       # of q, k, v, beta and out
    gate_dtype: str
    offset_dtype: Optional[str]  # None: there are none
    precision: Optional[str]


def padded(width):
    return (width + WIDTH_STEP - 1) // WIDTH_STEP * WIDTH_STEP


class Shapes:
    """The sizes of a problem, checked against one another."""

    def __init__(self, problem, ops):
        p = problem
        q, v = ops.shape(p.q), ops.shape(p.v)
        require(len(q) == 4 and len(v) == 4,
                f"q and v must be [B, T, heads, width], got {q} and {v}")
        self.B, self.T, self.H, self.K = q
        self.HV, self.V = v[2:]
        require(ops.shape(p.k) == q, f"k {ops.shape(p.k)} differs from q {q}")
        require(v[:2] == q[:2], f"v {v} and q {q} differ in B or T")
        require(self.H > 0 and self.HV % self.H == 0,
                f"{self.HV} value heads are no multiple of {self.H} key heads")
        require(ops.shape(p.g) == (self.B, self.T, self.HV, self.K),
                f"g {ops.shape(p.g)} is not [B, T, HV, K]; one decay per head "
                "is another recurrence")
        require(ops.shape(p.beta) == (self.B, self.T, self.HV),
                f"beta {ops.shape(p.beta)} is not [B, T, HV]; a write strength "
                "per channel is not supported")
        for name, width in (("K", self.K), ("V", self.V)):
            require(1 <= width <= MAX_WIDTH,
                    f"{name} = {width} is not from 1 to {MAX_WIDTH}")
        self.N = self.B
        if p.offsets is not None:
            shape = ops.shape(p.offsets)
            require(len(shape) == 1 and shape[0] >= 1,
                    f"cu_seqlens {shape} is not [N + 1]")
            require(self.B == 1, f"cu_seqlens needs B = 1, got {self.B}")
            self.N = shape[0] - 1
        self.state = ((self.HV, self.V, self.K) if p.v_first
                      else (self.HV, self.K, self.V))
        if p.initial is not None and p.slots is None:
            require(ops.shape(p.initial) == (self.N, *self.state),
                    f"the initial state {ops.shape(p.initial)} is not "
                    f"{(self.N, *self.state)}")
        for name, tensor, count in (("A_log", p.A_log, self.HV),
                                    ("dt_bias", p.dt_bias, self.HV * self.K)):
            require(tensor is None
                    or math.prod(ops.shape(tensor)) == count,
                    f"{name} does not have {count} elements")


class Operators:
    """The kernels of one pack for problems on `ops`' devices."""

    def __init__(self, library, pack_path, ops):
        self.library, self.ops = library, ops
        self.pack = library.pack(pack_path)
        self.devices = {}  # by name
        self.chosen = {}   # (device, options) -> (Plan, Kernel) or a reason
        self.last = None   # the kernel of the last run, for records

    # ---- Choosing

    def choose(self, problem):
        """The plan and the kernel for a problem, or Refused."""
        p, ops = problem, self.ops
        shapes = Shapes(p, ops)
        self._check_types(p)
        self._check_pool(p, shapes)
        require(p.scale != 0, "scale = 0 means the default scale to kdac")
        place = self._place(p)
        key = (place, p.form, shapes.K, shapes.V, p.gate, p.lower_bound,
               p.beta_map, p.l2norm, p.v_first, p.slots is None,
               *(None if t is None else ops.dtype(t)
                 for t in (p.q, p.k, p.v, p.g, p.beta, p.offsets, p.slots)),
               p.slots is not None and ops.dtype(p.initial))
        if key not in self.chosen:
            self.chosen[key] = self._find(p, shapes, place)
        found = self.chosen[key]
        if isinstance(found, str):
            raise Refused(found)
        return shapes, *found

    def _check_types(self, p):
        for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial"):
            tensor = getattr(p, name)
            if tensor is not None:
                dtype = self.ops.dtype(tensor)
                require(dtype in FLOATS, f"{name} has type {dtype}; kdac takes "
                        + ", ".join(FLOATS))
        for name in ("offsets", "slots"):
            tensor = getattr(p, name)
            if tensor is not None:
                dtype = self.ops.dtype(tensor)
                require(dtype in INDICES, f"{name} have type {dtype}; kdac "
                        "takes i32 and i64")
        if p.gate == "bounded":
            require(p.lower_bound is not None and -1e4 <= p.lower_bound < 0,
                    f"lower_bound = {p.lower_bound} is not from -10000 to 0")
        if p.gate == "softplus":
            require(p.A_log is not None, "a softplus gate needs A_log")

    def _check_pool(self, p, shapes):
        """A pool is used as it is: its strides must be a kernel's."""
        if p.slots is None:
            return
        ops = self.ops
        shape, strides = ops.shape(p.initial), ops.strides(p.initial)
        require(shape[1:] == shapes.state,
                f"the pool {shape} is not [slots, {shapes.state}]")
        require(strides[2:] == (shape[3], 1),
                f"the pool's matrices are not contiguous (strides {strides})")
        require(ops.shape(p.slots) in ((shapes.N,), (shapes.N, 1)),
                f"ssm_state_indices {ops.shape(p.slots)} is not [N]; several "
                "tokens a sequence are not supported here")
        size = ops.size_of(p.initial)
        require(ops.dtype(p.initial) in ("f32", "bf16"),
                f"the pool has type {ops.dtype(p.initial)}, not f32 or bf16")
        require(ops.address(p.initial) % ALIGNMENT == 0
                and all(s * size % ALIGNMENT == 0 for s in strides[:2]),
                "the pool's matrices do not start at multiples of 16 bytes")
        require(shapes.B * shapes.T == shapes.N,
                f"{shapes.B * shapes.T} tokens for {shapes.N} slots; several "
                "tokens a sequence are not supported here")

    def _place(self, p):
        places = {self.ops.place(t) for t in (p.q, p.k, p.v, p.g, p.beta,
                                              p.A_log, p.dt_bias, p.initial,
                                              p.offsets, p.slots, p.out)
                  if t is not None}
        require(len(places) == 1, "tensors are on several devices: "
                + ", ".join(sorted(places)))
        return places.pop()

    def _plans(self, p, shapes):
        """All ways to put a problem, cheapest first."""
        dtype = self.ops.dtype
        types = {dtype(t) for t in (p.q, p.k, p.v, p.beta)}
        widths = [(shapes.K, shapes.V)]
        if p.slots is None and (shapes.K % WIDTH_STEP or shapes.V % WIDTH_STEP):
            widths.append((padded(shapes.K), padded(shapes.V)))
        kinds = [(types.copy().pop(), None)] if len(types) == 1 else []
        if types != {"f32"}:
            # The products that the narrow types would have had.
            if p.form == "chunk" and dtype(p.q) == "bf16":
                kinds.append(("f32", "fast"))
            kinds.append(("f32", None))
        gates = list(dict.fromkeys([dtype(p.g), "f32"]))
        offsets = ([None] if p.offsets is None else
                   list(dict.fromkeys([dtype(p.offsets), "i32"])))
        return [Plan(*width, *kind[:1], gate, offset, kind[1])
                for kind in kinds for width in widths for gate in gates
                for offset in offsets]

    def request(self, p, plan):
        """The fields of kdac_request for a problem under a plan."""
        request = {
            "recurrence": "kda", "form": p.form, "key_dim": plan.key_dim,
            "value_dim": plan.value_dim, "dtype": plan.dtype,
            "state_dtype": "f32", "state_layout": "vk" if p.v_first else "kv",
            "gate": p.gate, "gate_dtype": plan.gate_dtype, "beta": p.beta_map,
            "l2norm": YES if p.l2norm else NO}
        if p.gate == "bounded":
            request["lower_bound"] = p.lower_bound
        if plan.offset_dtype:
            request["offset_dtype"] = plan.offset_dtype
        if plan.precision:
            request["precision"] = plan.precision
        if p.slots is not None:
            request["slots"] = self.ops.dtype(p.slots)
            request["state_dtype"] = self.ops.dtype(p.initial)
        return request

    def _find(self, p, shapes, place):
        """A plan and its kernel; or why the pack has none, a sentence."""
        if place not in self.devices:
            try:
                self.devices[place] = self.library.device(place)
            except KdacError as error:
                return str(error)
        first = None
        for plan in self._plans(p, shapes):
            try:
                return plan, Kernel(self.devices[place], self.pack,
                                    self.request(p, plan))
            except KdacError as error:
                first = first or str(error)
        return first

    # ---- Running

    def run(self, problem):
        """(out [B, T, HV, V], final state or None). Raises Refused before, and
        KdacError if a launch that should have worked did not."""
        shapes, plan, kernel = self.choose(problem)
        self.last = kernel
        return Run(self.ops, problem, shapes, plan, kernel).run()


def token_stride(shape, strides):
    """Between two tokens of [B, T, ...], in elements."""
    if shape[1] > 1:
        return strides[1]
    return strides[0] if shape[0] > 1 else math.prod(shape[2:])


def is_regular(ops, tensor):
    """True if a kernel can read [B, T, ...] where it lies: heads and channels
    contiguous, tokens evenly apart, lines and pointer aligned."""
    shape, strides = ops.shape(tensor), ops.strides(tensor)
    width = 1
    for extent, stride in zip(reversed(shape[2:]), reversed(strides[2:])):
        if extent != 1 and stride != width:
            return False
        width *= extent
    step, size = token_stride(shape, strides), ops.size_of(tensor)
    # What every kernel may rely on: launchArgs of include/kdac/Pack/Manifest.h.
    line = shape[3] * size if len(shape) == 4 else 1
    multiple = max(1, math.gcd(ALIGNMENT, line) // size)
    return (step >= width and step % multiple == 0
            and (shape[0] <= 1 or shape[1] <= 1 or strides[0] == shape[1] * step)
            and ops.address(tensor) % ALIGNMENT == 0)


class Run:
    """One call on its way through a kernel."""

    def __init__(self, ops, problem, shapes, plan, kernel):
        self.ops, self.p, self.s = ops, problem, shapes
        self.plan, self.kernel = plan, kernel
        self.call = Call(N=shapes.N, H=shapes.H, HV=shapes.HV)
        self.kept = []  # tensors that the call points to

    def run(self):
        p, s, plan, ops = self.p, self.s, self.plan, self.ops
        self.call.T = s.T
        self.call.scale = s.K ** -0.5 if p.scale is None else p.scale
        for name, dtype, width in (("q", plan.dtype, plan.key_dim),
                                   ("k", plan.dtype, plan.key_dim),
                                   ("v", plan.dtype, plan.value_dim),
                                   ("g", plan.gate_dtype, plan.key_dim),
                                   ("beta", plan.dtype, None)):
            self._sequence(name, getattr(p, name), dtype, width)
        if p.gate != "identity":
            self._vectors()
        if p.offsets is not None:
            self._point("offsets", ops.cast(p.offsets, plan.offset_dtype))
        final = self._pool() if p.slots is not None else self._states()
        out = self._point("out", ops.empty((s.B, s.T, s.HV, plan.value_dim),
                                           plan.dtype, p.q))
        self._launch()
        out = ops.cast(self._cut(out, {3: s.V}), p.out_dtype)
        if p.out is not None:
            ops.copy(p.out, out)
            out = p.out
        if final is not None and p.slots is None:
            final = self._cut(final, {2: s.state[1], 3: s.state[2]})
        return out, final

    def _point(self, name, tensor):
        """A contiguous tensor as an argument."""
        tensor = self.ops.contiguous(tensor, ALIGNMENT)
        self.kept.append(tensor)
        setattr(self.call, name, self.ops.address(tensor))
        return tensor

    def _sequence(self, name, tensor, dtype, width):
        """A tensor by tokens, as it lies where a kernel can read it so."""
        ops = self.ops
        tensor = ops.cast(tensor, dtype)
        if width is not None:
            tensor = ops.pad(tensor, {3: width})
        if not is_regular(ops, tensor):
            tensor = ops.contiguous(tensor, ALIGNMENT)
        self.kept.append(tensor)
        setattr(self.call, name, ops.address(tensor))
        setattr(self.call, name + "_stride",
                token_stride(ops.shape(tensor), ops.strides(tensor)))

    def _vectors(self):
        """What a gate has per head and channel, in f32."""
        p, s, ops = self.p, self.s, self.ops
        if p.A_log is not None:
            self._point("A_log", ops.cast(ops.reshape(p.A_log, (s.HV,)), "f32"))
        if p.dt_bias is not None:
            bias = ops.cast(ops.reshape(p.dt_bias, (s.HV, s.K)), "f32")
            self._point("dt_bias", ops.pad(bias, {1: self.plan.key_dim}))

    def _states(self):
        """Points to the states; the final one, or None."""
        p, s, ops = self.p, self.s, self.ops
        widths = ((self.plan.value_dim, self.plan.key_dim) if p.v_first
                  else (self.plan.key_dim, self.plan.value_dim))
        if p.initial is not None:
            self._point("h0", ops.pad(ops.cast(p.initial, "f32"),
                                      {2: widths[0], 3: widths[1]}))
        if not p.wants_final:
            return None
        return self._point("ht", ops.empty((s.N, s.HV, *widths), "f32", p.q))

    def _pool(self):
        p, ops = self.p, self.ops
        strides = ops.strides(p.initial)
        self.kept.append(p.initial)
        self.call.h0 = self.call.ht = ops.address(p.initial)
        self.call.pool = ops.shape(p.initial)[0]
        self.call.slot_pitch, self.call.head_pitch = strides[:2]
        self._point("slots", ops.reshape(p.slots, (self.s.N,)))
        return p.initial

    def _cut(self, tensor, sizes):
        """Without what padding added."""
        shape = self.ops.shape(tensor)
        if all(shape[axis] == size for axis, size in sizes.items()):
            return tensor
        return self.ops.narrow(tensor, sizes)

    def _launch(self):
        ops = self.ops
        size = self.kernel.workspace_bytes(self.call)
        if size:
            self._point("workspace", ops.empty((size,), "i8", self.p.q))
            self.call.workspace_bytes = size
        self.kernel.launch(ops.stream(self.p.q), self.call)
