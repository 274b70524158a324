"""Expressions of the interpreter: each becomes a function of what is known.

An integer is a Python int in the range of its dtype, a float a numpy scalar, a vector an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.errors import RunError, UnsupportedError
from relax2xla.tir import binary as x
from relax2xla.tir.buffer import Buffer, BufferLoad, Let
from relax2xla.tir.call import Call
from relax2xla.tir.convert import Cast
from relax2xla.tir.expr import Not, Select
from relax2xla.tir.functor import post_order
from relax2xla.tir.node import (
    FloatImm,
    IntImm,
    PrimExpr,
    StringImm,
    Var,
    element_of,
    int_range,
    lanes_of,
)
from relax2xla.tir.vector import Broadcast, Ramp

Scalar: TypeAlias = Any
Evaluate: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class View:
    """``memory`` as a buffer shows it: element ``i`` is at ``offset`` and ``steps`` times ``i``."""

    name: str
    pointer: Var
    memory: Any
    offset: int
    shape: list[int]
    steps: list[int]

    @staticmethod
    def of(buffer: Buffer, memory: Any, offset: int, shape: list[int], steps: list[int]) -> View:
        """A view of memory; of another dtype it reads the same bytes."""
        dtype = numpy_dtype(element_of(buffer.dtype))
        if lanes_of(buffer.dtype) != 1:
            raise UnsupportedError(f"the buffer {buffer.name} of vectors does not run")
        held = memory if memory.dtype == dtype else memory.view(dtype)
        return View(buffer.name, buffer.data, held, offset, shape, steps)

    def place(self, indices: Sequence[Any]) -> Any:
        """Where an element is in memory."""
        at: Any = self.offset
        for i, n, step in zip(indices, self.shape, self.steps, strict=True):
            if isinstance(i, np.ndarray):
                bad = bool(((i < 0) | (i >= n)).any())
            else:
                bad = not 0 <= i < n
            if bad:
                shown = ", ".join(map(str, indices))
                raise RunError(f"{self.name}[{shown}] is outside of the shape {self.shape}")
            at = at + i * step
        if not isinstance(at, np.ndarray) and not 0 <= at < len(self.memory):
            raise RunError(f"{self.name} reaches outside of its memory of {len(self.memory)}")
        return at

    def load(self, indices: Sequence[Any], dtype: str) -> Any:
        """The element there."""
        value = self.memory[self.place(indices)]
        if isinstance(value, np.ndarray) or is_float(dtype):
            return value
        return int(value)

    def store(self, indices: Sequence[Any], value: Any) -> None:
        """Write the element there."""
        self.memory[self.place(indices)] = value


def evaluator(root: PrimExpr, owner: Any) -> Evaluate:
    """A function that computes ``root``."""
    done: dict[int, Evaluate] = {}
    for node in post_order(root):
        done[id(node)] = _compile(node, [done[id(c)] for c in node.children()], owner)
    return done[id(root)]


def _compile(node: PrimExpr, kids: list[Evaluate], owner: Any) -> Evaluate:
    match node:
        case IntImm():
            value = node.value
            return lambda _: value
        case FloatImm():
            number = numpy_dtype(node.dtype).type(node.value)
            return lambda _: number
        case StringImm():
            text = node.value
            return lambda _: text
        case Var():
            return lambda state: _variable(node, state)
        case BufferLoad():
            buffer, dtype = node.buffer, node.dtype
            if node.predicate is not None:
                raise UnsupportedError(f"a load with a predicate does not run: `{node}`")
            return lambda state: owner.view(buffer, state).load([k(state) for k in kids], dtype)
        case Let():
            value_of, body = kids
            return lambda state: _let(node.var, value_of, body, state)
        case x.And():
            a, b = kids
            if lanes_of(node.dtype) > 1:
                return lambda state: a(state) & b(state)
            return lambda state: bool(a(state) and b(state))
        case x.Or():
            a, b = kids
            if lanes_of(node.dtype) > 1:
                return lambda state: a(state) | b(state)
            return lambda state: bool(a(state) or b(state))
        case Not():
            (a,) = kids
            return lambda state: (
                np.logical_not(a(state)) if lanes_of(node.dtype) > 1 else not a(state)
            )
        case Select():
            return lambda state: _select(*[k(state) for k in kids])
        case Cast():
            (a,) = kids
            return lambda state: converted(a(state), node.dtype)
        case Ramp():
            a, b = kids
            count = _known_lanes(node)
            return lambda state: a(state) + np.arange(count) * b(state)
        case Broadcast():
            (a,) = kids
            kind = numpy_dtype(element_of(node.dtype))
            count = _known_lanes(node)
            return lambda state: np.full(count, a(state), kind)
        case x.BinaryExpr():
            a, b = kids
            compute = _BINARY[type(node)]
            wrap = _wrapping(node.dtype) if not isinstance(node, x.CmpExpr) else bool
            if lanes_of(node.a.dtype) > 1:
                vector = _VECTOR[type(node)]
                return lambda state: vector(a(state), b(state))
            return lambda state: wrap(compute(a(state), b(state)))
        case Call():
            return _call(node, kids, owner)
        case _:
            raise UnsupportedError(f"`{node}` does not run")


def _variable(var: Var, state: Any) -> Any:
    if var in state.values:
        return state.values[var]
    if var in state.memory:
        return state.memory[var]
    raise RunError(f"the variable {var.name} is not defined")


def _let(var: Var, value: Evaluate, body: Evaluate, state: Any) -> Any:
    state.values[var] = value(state)
    return body(state)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    return (
        np.where(condition, yes, no)
        if isinstance(condition, np.ndarray)
        else yes
        if condition
        else no
    )


def _wrapping(dtype: str) -> Callable[[Any], Any]:
    if is_float(dtype) or lanes_of(dtype) != 1 or dtype == "handle":
        return lambda value: value
    if dtype == "bool":
        return bool
    low, high = int_range(dtype)
    span = high - low + 1

    def wrap(value: Any) -> int:
        return value if low <= value <= high else (int(value) - low) % span + low

    return wrap


def converted(value: Any, dtype: str) -> Any:
    """``value`` in ``dtype``: floats lose their fraction, integers wrap."""
    element = element_of(dtype)
    if isinstance(value, np.ndarray):
        return value.astype(numpy_dtype(element))
    if is_float(element):
        return numpy_dtype(element).type(value)
    if element == "bool":
        return bool(value != 0)
    if isinstance(value, int | bool):
        return _wrapping(element)(int(value))
    if not math.isfinite(value):
        return int(np.asarray(value).astype(numpy_dtype(element)))
    return _wrapping(element)(int(value))


# -- operations ----------------------------------------------------------------------------------
def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return x.truncdiv_int(a, _nonzero(b))
    return a / b


def _nonzero(b: int) -> int:
    if b == 0:
        raise RunError("an integer is divided by zero")
    return b


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a - b * x.truncdiv_int(a, _nonzero(b))
    return np.fmod(a, b)


_BINARY: dict[type[x.BinaryExpr], Callable[[Any, Any], Any]] = {
    x.Add: lambda a, b: a + b,
    x.Sub: lambda a, b: a - b,
    x.Mul: lambda a, b: a * b,
    x.Div: _divided,
    x.Mod: _remainder,
    x.FloorDiv: lambda a, b: a // _nonzero(b),
    x.FloorMod: lambda a, b: a % _nonzero(b),
    # Of a comparison with a NaN the second is taken.
    x.Min: lambda a, b: a if a < b else b,
    x.Max: lambda a, b: a if a > b else b,
    x.EQ: lambda a, b: a == b,
    x.NE: lambda a, b: a != b,
    x.LT: lambda a, b: a < b,
    x.LE: lambda a, b: a <= b,
    x.GT: lambda a, b: a > b,
    x.GE: lambda a, b: a >= b,
}
_VECTOR: dict[type[x.BinaryExpr], Callable[[Any, Any], Any]] = {
    **_BINARY,
    x.Div: lambda a, b: a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype),
    x.Mod: np.fmod,
    x.FloorDiv: np.floor_divide,
    x.FloorMod: np.mod,
    x.Min: lambda a, b: np.where(a < b, a, b),
    x.Max: lambda a, b: np.where(a > b, a, b),
}


def _erf(a: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(a)


_MATH: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "fabs", "hypot", "copysign")},
    **{name: getattr(np, name) for name in ("nextafter", "fmod")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "exp10": lambda a: np.power(a.dtype.type(10), a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": _erf,
    "round": np.rint,  # halves to even, as the compiled kernel
    "nearbyint": np.rint,
    "ldexp": np.ldexp,
}
_FLAGS: dict[str, Callable[[Any], Any]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
_IGNORED = (
    "tvm_storage_sync",
    "assume",
    "start_profile_intrinsic",
    "end_profile_intrinsic",
    "undef",
)


def _call(node: Call, kids: list[Evaluate], owner: Any) -> Evaluate:
    name = node.op.removeprefix("tir.")
    dtype = node.dtype
    if name == "if_then_else":
        condition, yes, no = kids
        return lambda state: yes(state) if condition(state) else no(state)
    if name in ("likely", "tvm_thread_invariant", "ret", "ignore_loop_partition"):
        return kids[0]
    if name in _MATH:
        compute = _MATH[name]
        return lambda state: converted(compute(*_floats(node, kids, state)), dtype)
    if name in _FLAGS:
        flag = _FLAGS[name]
        return lambda state: bool(flag(kids[0](state)))
    if name in ("shift_left", "shift_right"):
        return _shift(node, kids)
    if name in _INTEGERS:
        integer, wrap = _INTEGERS[name], _wrapping(dtype)
        return lambda state: wrap(integer(*[k(state) for k in kids]))
    if name == "clz":
        bits = numpy_dtype(node.args[0].dtype).itemsize * 8
        return lambda state: bits - (kids[0](state) % (1 << bits)).bit_length()
    if name == "popcount":
        bits = numpy_dtype(node.args[0].dtype).itemsize * 8
        return lambda state: (kids[0](state) % (1 << bits)).bit_count()
    if name == "reinterpret":
        source, target = (numpy_dtype(element_of(d)) for d in (node.args[0].dtype, dtype))
        return lambda state: _bits(kids[0](state), source, target)
    if name in _IGNORED:
        return lambda _: 0
    if node.op.startswith("@"):
        return lambda state: owner.call(node.op[1:], [k(state) for k in kids])
    if name in ("call_extern", "call_pure_extern", "tvm_call_packed"):
        return lambda state: _packed(owner, [k(state) for k in kids])
    raise UnsupportedError(f"`T.{name}` does not run: `{node}`")


def _shift(node: Call, kids: list[Evaluate]) -> Evaluate:
    """A shift; by less than nothing or by all bits it has no value, as a division by 0."""
    left, wrap = node.op == "tir.shift_left", _wrapping(node.dtype)
    bits = numpy_dtype(element_of(node.dtype)).itemsize * 8

    def shift(state: Any) -> Any:
        value, count = kids[0](state), kids[1](state)
        if np.any(np.less(count, 0) | np.greater_equal(count, bits)):
            raise RunError(f"an integer of {bits} bits is shifted by {count}")
        return wrap(value << count if left else value >> count)

    return shift


def _floats(node: Call, kids: list[Evaluate], state: Any) -> list[Any]:
    values = [k(state) for k in kids]
    kinds = [numpy_dtype(element_of(a.dtype)) for a in node.args]
    return [
        v if isinstance(v, np.ndarray) else kind.type(v) if kind.kind != "i" else v
        for v, kind in zip(values, kinds, strict=True)
    ]


def _bits(value: Any, source: Any, target: Any) -> Any:
    made = np.asarray(value, source).view(target)
    if made.ndim:
        return made
    return made[()] if made.dtype.kind not in "iub" else int(made)


def _packed(owner: Any, args: list[Any]) -> Any:
    name, *rest = args
    func = owner.packed.get(name)
    if func is None:
        raise RunError(f"the kernel calls {name!r}, which is not among the functions given")
    result = func(*rest)
    return 0 if result is None else result


def _multiply_shift(a: int, b: int, q: int, shift: int) -> int:
    """A product of fixed-point numbers with ``q`` bits behind the point, rounded."""
    left, right = max(shift, 0), max(-shift, 0)
    total = q + right
    return ((a << left) * b + (1 << (total - 1))) >> total


_INTEGERS: dict[str, Callable[..., int]] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a,
    "q_multiply_shift": _multiply_shift,
}


def _known_lanes(node: Ramp | Broadcast) -> int:
    if not isinstance(node.lanes, int):
        raise UnsupportedError(f"a vector of a length that the processor decides: `{node}`")
    return node.lanes
