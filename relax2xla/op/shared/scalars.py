"""Operands that are scalars of the compiler: PrimValues, and tuples of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, cast

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Constant, Expr, ShapeExpr, Tuple
from relax2xla.ir.op_param import Kind, as_prim_operand
from relax2xla.ir.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.op.shared.lowering import symbols_allowed
from relax2xla.tir import Dim

Number = int | float


def as_prims_operand(value: Any) -> Expr:
    """One number or symbolic integer, or a sequence of them, as a Tuple of PrimValues."""
    if isinstance(value, ShapeExpr):
        return Tuple([as_prim_operand(v) for v in value.values])
    if isinstance(value, Expr):
        return value
    if isinstance(value, Iterable) and not isinstance(value, tir.PrimExpr):
        return Tuple([as_prim_operand(v) for v in value])
    return Tuple([as_prim_operand(value)])


PrimsLike = Annotated[Any, Kind(True, as_prims_operand)]


def prim_of(x: Any, name: str) -> tir.PrimExpr | None:
    """Value of a scalar operand if it is known; OpError if it is no scalar."""
    if isinstance(x, bool | int | float):
        return tir.const(x, "float64" if isinstance(x, float) else "int64")
    info = x.struct_info
    if not isinstance(info, PrimStructInfo):
        raise OpError(f"`{name}` must be a scalar such as R.prim_value(1); got {show(info)}")
    return info.value


def dim_of(x: Any, name: str) -> Dim | None:
    """A scalar integer operand as a dimension-like value; None where its value is not known."""
    value = prim_of(x, name)
    if value is None:
        return None
    if isinstance(value, tir.FloatImm):
        raise OpError(f"`{name}` must be an integer; got {value}")
    return tir.as_dim(value)


def dims_operand(x: Expr, name: str) -> tuple[Dim | None, ...] | None:
    """Values of a tuple of scalars (None: not known), or None if their number is unknown."""
    info = x.struct_info
    if isinstance(x, Tuple):
        return tuple(dim_of(f, name) for f in x.fields)
    if isinstance(info, ShapeStructInfo):
        return info.values
    if isinstance(info, TupleStructInfo):
        for f in info.fields:
            if not isinstance(f, PrimStructInfo):
                raise OpError(f"`{name}` must be a tuple of scalars; got {show(info)}")
        return tuple(
            None if f.value is None else tir.as_dim(f.value)
            for f in info.fields
            if isinstance(f, PrimStructInfo)
        )
    raise OpError(f"`{name}` must be a tuple of scalars; got {show(info)}")


def number(x: Any, name: str) -> Number:
    """The number that a scalar operand is, for lowering; LegalizeError where it is not known.

    Within :func:`symbolic_dims` it may be a symbolic integer.
    """
    if isinstance(x, Constant) and x.data.ndim == 0:
        return x.data.item()
    value = prim_of(x, name)
    if isinstance(value, tir.IntImm | tir.FloatImm):
        return value.value
    if value is not None and symbols_allowed() and not is_float(value.dtype):
        return cast(int, value)
    raise LegalizeError(
        f"`{name}` must be a number to lower this operator; it is {value}. Bind the symbolic "
        "variables first (Function.bind_symbolic_vars)"
    )


def integer(x: Any, name: str) -> int:
    """:func:`number` for an operand that must be an integer."""
    value = number(x, name)
    if isinstance(value, float):
        raise LegalizeError(f"`{name}` must be an integer; got {value}")
    return value if isinstance(value, tir.PrimExpr) else int(value)


def scalar_dtype(x: Any) -> str:
    """dtype of a scalar operand, a PrimValue or a tensor of rank 0; "" where unknown."""
    if isinstance(x, bool | int | float):
        return {bool: "bool", int: "int64", float: "float64"}[type(x)]
    info = x.struct_info
    return info.dtype if isinstance(info, PrimStructInfo | TensorStructInfo) else ""


def clamp_to(value: Number, low: Number, high: Number) -> Number:
    """``value`` within [low, high], as an int where the bounds are ints (infinities included)."""
    if isinstance(low, int) and not np.isfinite(value):
        return low if value < 0 else high
    return max(low, min(high, value))
