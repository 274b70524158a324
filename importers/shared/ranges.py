"""What is known of the integers in a tensor: their least and their largest value.

Indices that are computed of positions (``arange``, ``argmax``, reflections at an edge) are never
negative, and need no counting from the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla.dtypes import is_integer, limits
from relax2xla.importers.shared.tensors import dims_of, dtype_of
from relax2xla.ir import Call, Constant, Expr, Op, PrimValue, TensorStructInfo, Var
from relax2xla.tir import IntImm

Range = tuple[int, int]
# So many steps back from a value are looked at.
_DEPTH = 24
# The elements stay the same, or some of them.
_ELEMENTS = frozenset(
    f"relax.{n}"
    for n in (
        *("reshape", "expand_dims", "squeeze", "permute_dims", "broadcast_to", "flatten", "flip"),
        *("strided_slice", "take", "tile", "repeat", "gather_elements", "gather_nd"),
    )
)
_POSITIONS = frozenset({"relax.argmax", "relax.argmin", "relax.argsort"})


def _abs(a: Range) -> Range:
    ends = abs(a[0]), abs(a[1])
    return (0 if a[0] <= 0 <= a[1] else min(ends)), max(ends)


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


_UNARY: dict[str, Callable[[Range], Range]] = {
    "relax.abs": _abs,
    "relax.negative": lambda a: (-a[1], -a[0]),
}
_BINARY: dict[str, Callable[[Range, Range], Range]] = {
    "relax.add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "relax.subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "relax.multiply": _product,
    "relax.minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "relax.maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def range_of(x: Expr, value_of: Callable[[Var], Expr | None], depth: int = _DEPTH) -> Range | None:
    """The least and the largest integer that ``x`` may hold; None where nothing tells.

    ``value_of``: what a variable is bound to, as ``BlockBuilder.lookup_binding`` gives it.
    """
    known = _range_of(x, value_of, depth)
    if known is None:
        return None
    low, high = map(int, limits(dtype_of(x)))
    return known if low <= known[0] <= known[1] <= high else None  # otherwise it wraps around


def _range_of(x: Expr, value_of: Callable[[Var], Expr | None], depth: int) -> Range | None:
    info = x.struct_info
    if not depth or not isinstance(info, TensorStructInfo) or not is_integer(info.dtype):
        return None
    if isinstance(x, Var):
        value = value_of(x)
        return None if value is None else range_of(value, value_of, depth - 1)
    if isinstance(x, Constant):
        return (int(x.data.min()), int(x.data.max())) if x.data.size else (0, 0)
    if not isinstance(x, Call) or not isinstance(x.op, Op):
        return None
    name, args = x.op.name, x.args
    if name == "relax.arange":
        return _of_arange(args)
    if name in _POSITIONS:
        return _of_positions(args[0], x.attrs["axis"], info.dtype)

    def at(i: int) -> Range | None:
        return range_of(args[i], value_of, depth - 1)

    if name in _ELEMENTS or name == "relax.astype":
        return at(0)
    if name == "relax.clip":
        return _of_clip(at(0), args[1:])
    if name in _UNARY:
        one = at(0)
        return None if one is None else _UNARY[name](one)
    if name in _BINARY or name == "relax.where":
        first, second = (at(0), at(1)) if name in _BINARY else (at(1), at(2))
        if first is None or second is None:
            return None
        if name in _BINARY:
            return _BINARY[name](first, second)
        return min(first[0], second[0]), max(first[1], second[1])
    return None


def _integers(args: Sequence[Expr]) -> list[int]:
    """Those of the operands that are known integers."""
    bounds = [a.value if isinstance(a, PrimValue) else None for a in args]
    return [int(b.value) for b in bounds if isinstance(b, IntImm)]


def _of_clip(x: Range | None, bounds: Sequence[Expr]) -> Range | None:
    known = _integers(bounds)
    if len(known) != 2:
        return None
    low, high = known
    ends = (low, high) if x is None else (max(x[0], low), max(x[1], low))
    return min(ends[0], high), min(ends[1], high)


def _of_arange(args: Any) -> Range | None:
    known = _integers(args)
    if len(known) != 3 or not known[2]:
        return None
    values = range(*known)
    return (min(values[0], values[-1]), max(values[0], values[-1])) if len(values) else (0, 0)


def _of_positions(x: Expr, axis: int | None, dtype: str) -> Range | None:
    dims = dims_of(x)
    sizes = dims if axis is None else (dims[axis],)
    known = [d for d in sizes if isinstance(d, int)]
    if len(known) < len(sizes):
        return 0, int(limits(dtype)[1])
    return 0, max(math.prod(known) - 1, 0)
