"""What bytecode keeps of the IR as plain data: patterns, attributes, arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.ir import (
    Call,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.ir.base import Attrs
from relax2xla.ir.op import call_attrs
from relax2xla.tir import Dim
from relax2xla.vm.plan.host_reasons import device_of

Pattern = tuple[Any, ...]

# TIR's operations as builtins.
ARITHMETIC: dict[type[tir.PrimExpr], str] = {
    tir.Add: "add",
    tir.Sub: "sub",
    tir.Mul: "mul",
    tir.FloorDiv: "floordiv",
    tir.FloorMod: "floormod",
    tir.Div: "truncdiv",
    tir.Mod: "truncmod",
    tir.Min: "min",
    tir.Max: "max",
    tir.EQ: "eq",
    tir.NE: "ne",
    tir.LT: "lt",
    tir.LE: "le",
    tir.GT: "gt",
    tir.GE: "ge",
    tir.And: "and",
    tir.Or: "or",
    tir.Not: "not",
    tir.Select: "select",
}
FUNCTIONS: dict[str, str] = {
    "tir.if_then_else": "select",
    "tir.shift_left": "shift_left",
    "tir.shift_right": "shift_right",
    "tir.bitwise_and": "bitwise_and",
    "tir.bitwise_or": "bitwise_or",
    "tir.bitwise_xor": "bitwise_xor",
    "tir.bitwise_not": "bitwise_not",
}


def placed_pattern(info: StructInfo) -> Pattern:
    """:func:`pattern_of` with the devices of arrays: ("placed", device, pattern of the array)."""
    if isinstance(info, TupleStructInfo):
        return ("tuple", tuple(placed_pattern(f) for f in info.fields))
    if not isinstance(info, TensorStructInfo) or info.vdevice is None:
        return pattern_of(info)
    return ("placed", str(device_of(info.vdevice)), pattern_of(info))


def pattern_of(info: StructInfo, dim: Callable[[Dim], Any] | None = None) -> Pattern:
    """``info`` as plain data, see ``code.builtins.match``; without ``dim`` sizes are left out."""

    def dims(values: Sequence[Dim] | None) -> Any:
        return None if values is None or dim is None else tuple(dim(d) for d in values)

    match info:
        case TensorStructInfo():
            return ("tensor", info.dtype, info.ndim, dims(info.dims))
        case ShapeStructInfo():
            return ("shape", info.ndim, dims(info.values))
        case PrimStructInfo():
            known = info.value is not None and info.dtype == "int64"
            value = (tir.as_dim(info.value),) if known and info.value is not None else None
            return ("prim", info.dtype, dims(value))
        case TupleStructInfo():
            return ("tuple", tuple(pattern_of(f, dim) for f in info.fields))
        case _:
            return ("object",)


def plain_attrs(call: Call) -> dict[str, Any]:
    """The attributes of a call as plain data."""

    def plain(value: Any) -> Any:
        if isinstance(value, Attrs):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return value

    return {k: plain(v) for k, v in call_attrs(call).items()}
