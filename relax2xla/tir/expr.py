"""Operations of symbolic scalar expressions that are not binary, and what operators build."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from relax2xla.dtypes import DTYPES, is_float
from relax2xla.errors import OperandTypeError, OpError
from relax2xla.tir.binary import EQ, GE, GT, LE, LT, NE, Add, Div, FloorDiv, FloorMod, Mul, Sub
from relax2xla.tir.call import Call
from relax2xla.tir.convert import cast, match_dtypes
from relax2xla.tir.node import IntImm, PrimExpr, element_of, is_int, operations, set_field


class Not(PrimExpr):
    """``not a``"""

    __slots__ = ("a",)
    a: PrimExpr
    _fields = ("a",)

    def __init__(self, a: PrimExpr) -> None:
        if element_of(a.dtype) != "bool":
            raise TypeError(f"Not: expected a bool operand, got {a.dtype} (`{a}`)")
        set_field(self, "a", a)
        set_field(self, "dtype", a.dtype)
        set_field(self, "_hash", hash(("Not", a._hash)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        (a,) = children
        return IntImm("bool", not a.value) if isinstance(a, IntImm) else Not(a)


class Select(PrimExpr):
    """``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""

    __slots__ = ("condition", "false_value", "true_value")
    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr
    _fields = ("condition", "true_value", "false_value")

    def __init__(
        self,
        condition: PrimExpr | bool,
        true_value: PrimExpr | float,
        false_value: PrimExpr | float,
    ) -> None:
        if isinstance(condition, bool):
            condition = IntImm("bool", condition)
        if element_of(condition.dtype) != "bool":
            raise OperandTypeError(f"Select: expected a bool condition, got {condition.dtype}")
        true_value, false_value = match_dtypes(true_value, false_value)
        set_field(self, "condition", condition)
        set_field(self, "true_value", true_value)
        set_field(self, "false_value", false_value)
        set_field(self, "dtype", true_value.dtype)
        hashes = (condition._hash, true_value._hash, false_value._hash)
        set_field(self, "_hash", hash(("Select", hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.condition, self.true_value, self.false_value)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        condition, yes, no = children
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        return Select(condition, yes, no)


def _bitwise(name: str, a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_int(element_of(a.dtype)) and a.dtype != "bool":
        raise OperandTypeError(f"{name}: expected integer operands, got {a.dtype} (`{a}`, `{b}`)")
    if name.startswith("shift") and isinstance(b, IntImm):
        bits = DTYPES[b.dtype].bits
        if not 0 <= b.value < bits:
            raise OpError(f"{name}: {a.dtype} is shifted by 0 to {bits - 1} bits; got {b.value}")
    return Call(a.dtype, f"tir.{name}", (a, b)).rebuild((a, b))


def _bitwise_not(a: PrimExpr) -> PrimExpr:
    if not is_int(element_of(a.dtype)) and a.dtype != "bool":
        raise OperandTypeError(f"bitwise_not: expected an integer, got {a.dtype} (`{a}`)")
    return Call(a.dtype, "tir.bitwise_not", (a,)).rebuild((a,))


def _true_divide(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_float(element_of(a.dtype)):
        raise TypeError(
            f"`/` between integers (`{a}` / `{b}`) is ambiguous: use `//` or tir.floordiv, "
            "or tir.truncdiv"
        )
    return Div.make(a, b)


operations.update(
    {
        kind.__name__: kind.make
        for kind in (Add, Sub, Mul, FloorDiv, FloorMod, EQ, NE, LT, LE, GT, GE)
    },
    true_divide=_true_divide,
    cast=cast,
    bitwise_not=_bitwise_not,
)
for _name in ("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor"):
    operations[_name] = functools.partial(_bitwise, _name)
