"""Vectors of scalars, as vectorised kernels have them: their dtypes, ``Ramp`` and ``Broadcast``.

The dtype of four float32 is ``float32x4``. Semantics are those of TVM v0.20's ``tir``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from relax2xla.dtypes import DTYPES
from relax2xla.errors import OpError
from relax2xla.tir.binary import Mul
from relax2xla.tir.call import Call
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.node import IntImm, PrimExpr, element_of, lanes_of, operations, set_field


def with_lanes(dtype: str, lanes: int) -> str:
    """The dtype of ``lanes`` values of the element of ``dtype``; lanes as of ``lanes_of``."""
    if lanes == 1:
        return element_of(dtype)
    return f"{element_of(dtype)}xvscalex{-lanes}" if lanes < 0 else f"{element_of(dtype)}x{lanes}"


def is_dtype(name: str) -> bool:
    """Whether ``name`` is the dtype of a scalar or of a vector."""
    return element_of(name) in DTYPES


def vscale() -> PrimExpr:
    """How many times longer the processor's vectors are than the shortest, known at run time."""
    return Call("int32", "tir.vscale", ())


Lanes: TypeAlias = int | PrimExpr
"""How many lanes: a number, or ``vscale() * n``."""


def lanes_from(lanes: Lanes, what: str) -> tuple[Lanes, int]:
    """The lanes in their one form, and the number that ``lanes_of`` gives for them.

    A negative number -n means ``vscale() * n``. OpError for other expressions, and below two lanes.
    """
    if isinstance(lanes, int | IntImm):
        count = int(lanes)
        if count < 0:
            return Mul(vscale(), IntImm("int32", -count)), count
        if count < 2:
            raise OpError(f"{what}: expected two lanes or more, got {count}")
        return count, count
    if isinstance(lanes, Mul):
        for one, other in ((lanes.a, lanes.b), (lanes.b, lanes.a)):
            if isinstance(one, Call) and one.op == "tir.vscale" and isinstance(other, IntImm):
                if other.value > 0:
                    return Mul(one, IntImm("int32", other.value)), -other.value
    raise OpError(f"{what}: the lanes are a number, or T.vscale() times a number; got `{lanes}`")


class Ramp(PrimExpr):
    """``[base, base + stride, ...]``, ``lanes`` values."""

    __slots__ = ("base", "lanes", "stride")
    base: PrimExpr
    stride: PrimExpr
    lanes: Lanes
    _fields = ("base", "stride", "lanes")

    def __init__(self, base: PrimExpr | int, stride: PrimExpr | int, lanes: Lanes) -> None:
        base = as_prim_expr(base, "int32")
        stride = as_prim_expr(stride, base.dtype)
        if stride.dtype != base.dtype:
            raise TypeError(f"Ramp: base and stride differ in dtype: {base.dtype}, {stride.dtype}")
        lanes, count = lanes_from(lanes, "Ramp")
        set_field(self, "base", base)
        set_field(self, "stride", stride)
        set_field(self, "lanes", lanes)
        set_field(self, "dtype", with_lanes(base.dtype, count))
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
    lanes: Lanes
    _fields = ("value", "lanes")

    def __init__(self, value: PrimExpr | float, lanes: Lanes) -> None:
        value = as_prim_expr(value, "int32")
        lanes, count = lanes_from(lanes, "Broadcast")
        if lanes_of(value.dtype) != 1:
            raise OpError(f"Broadcast: expected a scalar, got {value.dtype}")
        set_field(self, "value", value)
        set_field(self, "lanes", lanes)
        set_field(self, "dtype", with_lanes(value.dtype, count))
        set_field(self, "_hash", hash(("Broadcast", hash(value), lanes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def payload(self) -> tuple[object, ...]:
        return (self.lanes,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return Broadcast(children[0], self.lanes)


operations["Broadcast"] = Broadcast
