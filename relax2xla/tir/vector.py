"""Vectors of scalars, as vectorised kernels have them: their dtypes, ``Ramp`` and ``Broadcast``.

The dtype of four float32 is ``float32x4``. Semantics are those of TVM v0.20's ``tir``.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.dtypes import DTYPES

from .expr import as_prim_expr
from .node import PrimExpr, element_of, lanes_of, operations, set_field


def with_lanes(dtype: str, lanes: int) -> str:
    """The dtype of ``lanes`` values of the element of ``dtype``."""
    return element_of(dtype) if lanes == 1 else f"{element_of(dtype)}x{lanes}"


def is_dtype(name: str) -> bool:
    """Whether ``name`` is the dtype of a scalar or of a vector."""
    return element_of(name) in DTYPES


class Ramp(PrimExpr):
    """``[base, base + stride, ...]``, ``lanes`` values."""

    __slots__ = ("base", "lanes", "stride")
    base: PrimExpr
    stride: PrimExpr
    lanes: int
    _fields = ("base", "stride", "lanes")

    def __init__(self, base: PrimExpr | int, stride: PrimExpr | int, lanes: int) -> None:
        base = as_prim_expr(base, "int32")
        stride = as_prim_expr(stride, base.dtype)
        if stride.dtype != base.dtype:
            raise TypeError(f"Ramp: base and stride differ in dtype: {base.dtype}, {stride.dtype}")
        if lanes < 2:
            raise ValueError(f"Ramp: expected two lanes or more, got {lanes}")
        set_field(self, "base", base)
        set_field(self, "stride", stride)
        set_field(self, "lanes", lanes)
        set_field(self, "dtype", with_lanes(base.dtype, lanes))
        set_field(self, "_hash", hash(("Ramp", hash(base), hash(stride), lanes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.base, self.stride)

    def payload(self) -> tuple[object, ...]:
        return (self.lanes,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        base, stride = children
        return Ramp(base, stride, self.lanes)


class Broadcast(PrimExpr):
    """``[value, value, ...]``, ``lanes`` values."""

    __slots__ = ("lanes", "value")
    value: PrimExpr
    lanes: int
    _fields = ("value", "lanes")

    def __init__(self, value: PrimExpr | float, lanes: int) -> None:
        value = as_prim_expr(value, "int32")
        if lanes < 2 or lanes_of(value.dtype) != 1:
            raise ValueError(
                f"Broadcast: expected a scalar and two lanes or more, got {value.dtype} and {lanes}"
            )
        set_field(self, "value", value)
        set_field(self, "lanes", lanes)
        set_field(self, "dtype", with_lanes(value.dtype, lanes))
        set_field(self, "_hash", hash(("Broadcast", hash(value), lanes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def payload(self) -> tuple[object, ...]:
        return (self.lanes,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return Broadcast(children[0], self.lanes)


operations["Broadcast"] = Broadcast
