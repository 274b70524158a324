"""Literals of symbolic scalar expressions, and operands brought to one dtype."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from relax2xla.dtypes import DTYPES, is_float
from relax2xla.errors import OperandTypeError
from relax2xla.tir.node import (
    OTHER_NAMES,
    Dim,
    FloatImm,
    IntImm,
    PrimExpr,
    StandsForExpr,
    StringImm,
    element_of,
    int_range,
    is_int,
    lanes_of,
    operations,
    rounded,
    set_field,
    wrapped,
)


def const(value: float, dtype: str | None = None) -> PrimExpr:
    """A literal. Without a dtype: bool, int64 and float32 for Python's bool, int and float.

    A float that only a float64 holds is one.
    """
    if not isinstance(value, int | float) and not hasattr(value, "__float__"):
        raise TypeError(f"a literal is a number; got {value!r}, of type {type(value).__name__}")
    if dtype is None:
        dtype = (
            "bool"
            if isinstance(value, bool)
            else "int64"
            if isinstance(value, int)
            else _float_dtype(value)
        )
    dtype = OTHER_NAMES.get(dtype, dtype)
    if is_float(dtype):
        return FloatImm(dtype, value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"const: {value} is not a value of {dtype}")
        value = int(value)
    return IntImm(dtype, value)


def _float_dtype(value: float) -> str:
    """float32, or float64 for a number that would be an infinity otherwise."""
    fits = math.isfinite(rounded("float32", value)) or not math.isfinite(value)
    return "float32" if fits else "float64"


def cast(dtype: str, value: PrimExpr) -> PrimExpr:
    """``value`` converted to ``dtype``; literals fold (integers wrap, floats truncate)."""
    dtype = OTHER_NAMES.get(dtype, dtype)
    if value.dtype == dtype:
        return value
    if isinstance(value, StringImm):
        raise OperandTypeError("Can't cast a handle to other types")
    if lanes_of(dtype) != 1:
        broadcast = operations["Broadcast"]
        if lanes_of(value.dtype) == 1:
            return broadcast(cast(element_of(dtype), value), lanes_of(dtype))
        if type(value) is broadcast and lanes_of(value.dtype) == lanes_of(dtype):
            (scalar,) = value.children()
            return broadcast(cast(element_of(dtype), scalar), lanes_of(dtype))
        return Cast(dtype, value)
    if isinstance(value, IntImm | FloatImm):
        if is_float(dtype):
            return float_imm(dtype, value.written if isinstance(value, FloatImm) else value.value)
        if dtype == "bool":
            return IntImm("bool", int(value.value != 0))
        if (is_int(dtype)) and math.isfinite(value.value):
            return IntImm(dtype, wrapped(int(value.value), dtype))
    return Cast(dtype, value)


def float_imm(dtype: str, value: float) -> FloatImm:
    """What a computation gives as a literal: infinite where it is beyond the dtype."""
    held = rounded(dtype, value)
    return FloatImm(dtype, value if math.isfinite(held) else held)


def as_prim_expr(value: PrimExpr | StandsForExpr | float, dtype: str | None = "int64") -> PrimExpr:
    """``value`` itself if it is an expression, otherwise a literal of ``dtype``.

    Without a dtype an int is an int32, or an int64 where it needs it, and a float a float32.
    """
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, StandsForExpr):
        return value.as_expr()
    if isinstance(value, bool):
        return IntImm("bool", value)
    if isinstance(value, float):
        return FloatImm(dtype if dtype and is_float(dtype) else _float_dtype(value), value)
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(
            f"expected a scalar expression or a Python number, got {type(value).__name__}"
        ) from None
    if dtype is None:
        low, high = int_range("int32")
        dtype = "int32" if low <= whole <= high else "int64"
    return const(whole, dtype)


def as_expr(value: Any) -> PrimExpr:
    """``value`` as TVM reads it: that of :func:`as_prim_expr` without a dtype, or a string.

    TypeError for what is no number, string or expression.
    """
    return StringImm(value) if isinstance(value, str) else as_prim_expr(value, None)


def as_dim(value: Dim | StandsForExpr) -> Dim:
    """A dimension in its one form: an int64 literal becomes a Python int.

    Raises TypeError for what is no integer, such as a string.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, IntImm) and value.dtype == "int64":
        return value.value
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, StandsForExpr):
        return as_dim(value.as_expr())
    try:
        return operator.index(value)
    except TypeError:
        hint = f'; write tir.Var("{value}", "int64")' if isinstance(value, str) else ""
        raise TypeError(
            "a dimension must be an integer or a symbolic integer; got the "
            f"{type(value).__name__} {value!r}{hint}"
        ) from None


def match_dtypes(
    a: PrimExpr | StandsForExpr | float, b: PrimExpr | StandsForExpr | float
) -> tuple[PrimExpr, PrimExpr]:
    """Both operands in one dtype: literals follow the expression, otherwise the wider type wins."""
    a = a.as_expr() if isinstance(a, StandsForExpr) else a
    b = b.as_expr() if isinstance(b, StandsForExpr) else b
    if not isinstance(a, PrimExpr):
        a = _literal_like(a, b) if isinstance(b, PrimExpr) else as_prim_expr(a)
    if not isinstance(b, PrimExpr):
        b = _literal_like(b, a)
    x, y = a.dtype, b.dtype
    if x == y:
        return a, b
    if "handle" in (x, y):
        raise TypeError(f"no arithmetic between {x} and {y}: `{a}` and `{b}`")
    if lanes_of(x) != 1 or lanes_of(y) != 1:
        return _match_vectors(a, b)
    if is_float(x) != is_float(y):
        dtype = x if is_float(x) else y
    elif DTYPES[x].bits != DTYPES[y].bits:
        dtype = x if DTYPES[x].bits > DTYPES[y].bits else y
    else:
        dtype = x if x.startswith("uint") else y  # of one width the unsigned one, as in C
    return cast(dtype, a), cast(dtype, b)


def _match_vectors(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Both in one dtype; a scalar beside a vector is repeated in its lanes."""
    n, m = lanes_of(a.dtype), lanes_of(b.dtype)
    if n != m and 1 not in (n, m):
        raise TypeError(f"no arithmetic between {a.dtype} and {b.dtype}: `{a}` and `{b}`")
    if n == 1:
        a = operations["Broadcast"](a, m)
    if m == 1:
        b = operations["Broadcast"](b, n)
    if a.dtype == b.dtype:
        return a, b
    one, other = (const(0, element_of(e.dtype)) for e in (a, b))
    dtype = match_dtypes(one, other)[0].dtype + a.dtype.removeprefix(one.dtype)
    return (
        a if a.dtype == dtype else Cast(dtype, a),
        b if b.dtype == dtype else Cast(dtype, b),
    )


def _literal_like(value: object, like: PrimExpr) -> PrimExpr:
    if isinstance(value, bool):
        return IntImm("bool", value)
    if isinstance(value, float):
        return FloatImm(like.dtype if is_float(like.dtype) else "float32", value)
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise TypeError(
            f"expected a scalar expression or a Python number beside `{like}`, "
            f"got {type(value).__name__}"
        ) from None
    if is_float(like.dtype):
        return FloatImm(like.dtype, number)
    if is_int(like.dtype):
        low, high = int_range(like.dtype)
        if low <= number <= high:
            return IntImm(like.dtype, number)
        return IntImm("int64", number)
    element = element_of(like.dtype)
    if element != like.dtype and is_int(element):
        low, high = int_range(element)
        if low <= number <= high:
            return IntImm(element, number)
    return IntImm("int32", number)


class Cast(PrimExpr):
    """``value`` converted to ``dtype``."""

    __slots__ = ("value",)
    value: PrimExpr
    _fields = ("dtype", "value")

    def __init__(self, dtype: str, value: PrimExpr | float) -> None:
        value = as_prim_expr(value)
        set_field(self, "dtype", dtype)
        set_field(self, "value", value)
        set_field(self, "_hash", hash(("Cast", dtype, value._hash)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return cast(self.dtype, children[0])
