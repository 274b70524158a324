"""Calls of builtins in symbolic scalar expressions."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.node import FloatImm, IntImm, PrimExpr, is_int, set_field


class OpName(str):
    """The name of an operator, which stands for it: ``call.op.name`` is the same name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name as a plain string."""
        return "".join(self)

    def same_as(self, other: object) -> bool:
        """Whether both name the same operator."""
        return self == other


class Call(PrimExpr):
    """A call of a named builtin such as ``tir.if_then_else`` or ``tir.shift_left``."""

    __slots__ = ("args", "op")
    op: OpName
    args: tuple[PrimExpr, ...]
    _fields = ("dtype", "op", "args")

    def __init__(self, dtype: str, op: str, args: Sequence[PrimExpr | float]) -> None:
        set_field(self, "dtype", dtype)
        set_field(self, "op", OpName(op))
        set_field(self, "args", tuple(as_prim_expr(a) for a in args))
        set_field(self, "_hash", hash(("Call", dtype, op, tuple(a._hash for a in self.args))))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.args

    def payload(self) -> tuple[object, ...]:
        return (self.op,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        if self.op == "tir.if_then_else" and isinstance(children[0], IntImm):
            return children[1] if children[0].value else children[2]
        if self.op == "tir.reinterpret" and _folds(children[0], self.dtype):
            return FloatImm(self.dtype, float_of_bits(children[0].value))
        fold = INT_BUILTINS.get(self.op)
        if fold is not None and is_int(self.dtype):
            values = [c.value for c in children if isinstance(c, IntImm)]
            if len(values) == len(children):
                return IntImm(self.dtype, fold(*values))
        return Call(self.dtype, self.op, children)


def _folds(bits: PrimExpr, dtype: str) -> TypeGuard[IntImm]:
    """Whether ``bits`` are those of a float64 that is known."""
    return dtype == "float64" and isinstance(bits, IntImm) and bits.dtype == "int64"


def float_of_bits(bits: int) -> float:
    """The float64 whose bits are those of an int64."""
    return struct.unpack("<d", struct.pack("<q", bits))[0]


INT_BUILTINS: dict[str, Callable[..., Any]] = {
    "tir.shift_left": operator.lshift,
    "tir.shift_right": operator.rshift,
    "tir.bitwise_and": operator.and_,
    "tir.bitwise_or": operator.or_,
    "tir.bitwise_xor": operator.xor,
    "tir.bitwise_not": operator.invert,
}
