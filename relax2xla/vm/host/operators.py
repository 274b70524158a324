"""Operators that run on the host, with numpy: those whose result's shape depends on data, and more.

``@host("relax.nonzero")`` registers an implementation. It is called with the operands by the names
of the operator's signature (variadic ones by position), then the attributes by name. Tensors come
as numpy arrays (read-only), shapes as tuples of integers, scalars and strings as Python's, tuples
as tuples, anything else as it is. What it returns goes back the same way; numpy arrays of numbers
become arrays on the device, with the dtype that they have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import DTYPES
from relax2xla.errors import AssertError, CallError
from relax2xla.ir import Call, Constant, Op, TensorStructInfo
from relax2xla.op.inspect import type_code
from relax2xla.op.shape import bits_of
from relax2xla.vm.host.layout import layout_of

Array = npt.NDArray[Any]
Implementation = Callable[..., Any]
Applies = Callable[[Call], bool]


@dataclass(frozen=True, slots=True)
class HostOp:
    """How the host runs an operator.

    ``applies``: whether a call has to (False: XLA can hold it). ``light``: needs no values of
    arrays, only their shapes, so that it costs nothing where its operands are at hand; such a call
    alone is no reason to leave XLA. ``effect``: keeps its place in the order of effects.
    """

    name: str
    run: Implementation
    applies: Applies
    light: bool = False
    effect: bool = False
    arrays: bool = True


HOST: dict[str, HostOp] = {}


def host(
    name: str,
    *,
    applies: Applies | None = None,
    light: bool = False,
    effect: bool = False,
    arrays: bool = True,
) -> Callable[[Implementation], Implementation]:
    """Register how the host runs the operator ``name``; see the module and :class:`HostOp`.

    ``applies`` defaults to: always. ``arrays=False``: arrays are passed as they are.
    """

    def wrap(run: Implementation) -> Implementation:
        if name in HOST:
            raise RuntimeError(f"{name} already has a host implementation")
        HOST[name] = HostOp(name, run, applies or (lambda call: True), light, effect, arrays)
        return run

    return wrap


def host_op(call: Call) -> HostOp | None:
    """The host implementation that ``call`` has to use, None where XLA can hold it."""
    if not isinstance(call.op, Op):
        return None
    found = HOST.get(call.op.name)
    return found if found is not None and not found.light and found.applies(call) else None


def bind_host(name: str, fetch: Callable[[Any], Any], put: Callable[[Any], Any]) -> Implementation:
    """``HOST[name]`` as a function of the operands' values and, last, the attributes.

    ``fetch`` makes host values of the machine's, ``put`` the other way round.
    """
    entry, operands = HOST[name], Op.get(name).operands
    run, names = entry.run, [p.name for p in operands if not p.variadic]
    variadic = any(p.variadic for p in operands)
    take = fetch if entry.arrays else _keep

    def call(*args: Any) -> Any:
        values = [take(a) for a in args[:-1]]
        attrs: dict[str, Any] = dict(args[-1])
        count = len(names)
        if variadic:
            return put(run(*values, **attrs))
        return put(run(**dict(zip(names[:count], values, strict=False)), **attrs))

    return call


def _keep(value: Any) -> Any:
    return value


def _not_constant(*positions: int) -> Applies:
    def applies(call: Call) -> bool:
        return not all(isinstance(call.args[i], Constant) for i in positions)

    return applies


# ---- shapes that depend on data
@host("relax.nonzero")
def nonzero(x: Array) -> Array:
    """numpy's: positions in row-major order, (rank, count), int64; of a scalar (1, count)."""
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


@host("relax.unique")
def unique(
    x: Array,
    sorted: int = 1,
    return_index: int = 0,
    return_inverse: int = 0,
    return_counts: int = 0,
    axis: int | None = None,
) -> Any:
    """numpy's; ``sorted`` 0 keeps the order of first appearance (as ONNX; TVM leaves it open)."""
    values, index, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(index, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = values.take(order, axis=0 if axis is None else axis)
        index, counts, inverse = index[order], counts[order], rank[inverse]
    wanted = [
        part.astype(np.int64)
        for part, flag in (
            (index, return_index),
            (inverse, return_inverse),
            (counts, return_counts),
        )
        if flag
    ]
    return (values, *wanted) if wanted else values


@host("relax.dynamic_strided_slice")
def dynamic_strided_slice(x: Array, begin: Array, end: Array, strides: Array) -> Array:
    """Python slices on every axis."""
    if 0 in strides:
        raise CallError("dynamic_strided_slice: a stride must not be 0")
    bounds = zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)
    return x[
        tuple(
            slice(b, _backwards_end(e, s, n), s)
            for (b, e, s), n in zip(bounds, x.shape, strict=True)
        )
    ]


def _backwards_end(end: int, stride: int, size: int) -> int | None:
    """``end`` for Python, which counts an end before the first element from the back."""
    return None if stride < 0 and end < -size else end


@host("relax.tensor_to_shape", applies=_not_constant(0))
def tensor_to_shape(expr: Array, name: str = "the tensor") -> tuple[int, ...]:
    """The values of a vector, which the program calls ``name``, as a tuple of integers."""
    dims = tuple(expr.tolist())
    if any(d < 0 for d in dims):
        raise CallError(
            f"tensor_to_shape of `{name}`: a dimension must not be negative; got {dims}"
        )
    return dims


@host("relax.tensor_to_bits", applies=_not_constant(0))
def tensor_to_bits(expr: Array) -> tuple[int, ...]:
    """The bits of the numbers of a vector."""
    return bits_of(expr)


@host("relax.random_key")
def random_key(name: str = "") -> Array:
    """Of numpy's global generator, whose state says whether runs repeat each other."""
    return np.random.randint(0, 1 << 63, 1, np.uint64)


# ---- properties of arrays: no values are read
@host("relax.shape_of", light=True, arrays=False)
def shape_of(expr: Any) -> tuple[int, ...]:
    """The shape of an array."""
    return tuple(expr.shape)


@host("relax.null_value", arrays=False)
def null_value() -> None:
    """Nothing."""
    return


def _bits(x: Any) -> int:
    found = next((d.bits for d in DTYPES.values() if np.dtype(d.numpy) == x.dtype), None)
    return x.dtype.itemsize * 8 if found is None else found


_PROPERTIES: dict[str, Callable[[Any], int]] = {
    "tensor_ndim": lambda x: x.ndim,
    "tensor_dtype_code": lambda x: type_code(x.dtype.name),
    "tensor_dtype_bits": _bits,
    "tensor_dtype_lanes": lambda x: 1,
}
for _name, _property in _PROPERTIES.items():
    host(f"relax.inspect.{_name}", light=True, arrays=False)(_property)


@host("relax.inspect.tensor_shape_i", light=True, arrays=False)
def tensor_shape_i(x: Any, axis: int) -> int:
    """One dimension."""
    return x.shape[axis]


def _lies_anyhow(call: Call) -> bool:
    """Whether inference leaves the layout open; tensors of known sizes are row-major to it."""
    info = call.args[0].struct_info
    return not isinstance(info, TensorStructInfo) or info.dims is None


@host("relax.inspect.tensor_byte_offset", applies=_lies_anyhow, arrays=False)
def tensor_byte_offset(x: Any) -> int:
    """Where the data of the array starts that the caller gave."""
    return layout_of(x).byte_offset


@host("relax.inspect.tensor_elem_offset", applies=_lies_anyhow, arrays=False)
def tensor_elem_offset(x: Any) -> int:
    """The same in elements."""
    return layout_of(x).byte_offset // x.dtype.itemsize


@host("relax.inspect.tensor_stride_i", applies=_lies_anyhow, arrays=False)
def tensor_stride_i(x: Any, axis: int) -> int:
    """Elements between neighbours along an axis of the array as its caller gave it."""
    return layout_of(x).strides[axis]


# ---- effects
def _show(value: Any) -> str:
    """The text of a value; a tuple's, of the texts of its fields."""
    if type(value) is tuple:
        fields: tuple[Any, ...] = value
        return f"({', '.join(map(_show, fields))})"
    return str(value)


@host("relax.print", effect=True)
def print_(*values: Any, format: str = "") -> tuple[()]:
    """Python's print, of ``format.format(*values)`` where there is a format."""
    shown = [_show(v) for v in values]
    sys.stdout.write((format.format(*shown) if format else " ".join(shown)) + "\n")
    return ()


@host("relax.assert_op", effect=True)
def assert_op(condition: Any, *format_args: Any, format: str = "") -> tuple[()]:
    """Raises :class:`AssertError`, with TVM's text, unless ``condition`` holds."""
    if not bool(condition):
        shown = [_show(v) for v in format_args]
        text = format.format(*shown) if format else ", ".join(shown)
        raise AssertError("Assertion Failed" + (f", {text}" if text else ""))
    return ()
