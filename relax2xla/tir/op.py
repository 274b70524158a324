"""The functions of ``tir``: variables, divisions, extrema, selection, conjunctions."""

from __future__ import annotations

from relax2xla.errors import OperandTypeError
from relax2xla.tir.binary import And, Div, FloorDiv, FloorMod, Max, Min, Mod, Or
from relax2xla.tir.call import Call
from relax2xla.tir.convert import match_dtypes
from relax2xla.tir.node import IntImm, PrimExpr, SizeVar, Var


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A scalar variable, such as a symbolic size."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """A scalar variable that is known to be zero or more."""
    return SizeVar(name, dtype)


def floordiv(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    """``a / b`` rounded towards minus infinity."""
    return FloorDiv.make(a, b)


def floormod(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    """The remainder of ``floordiv``."""
    return FloorMod.make(a, b)


def truncdiv(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    """``a / b`` rounded towards zero."""
    return Div.make(a, b)


def truncmod(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    """The remainder of ``truncdiv``."""
    return Mod.make(a, b)


def div(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    """C's division: ``truncdiv`` for integers, the quotient for floating point."""
    return Div.make(a, b)


def ceildiv(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    """``a / b`` rounded towards plus infinity, as ``(a + b - 1) // b``."""
    a, b = match_dtypes(a, b)
    return FloorDiv.make(a + b - 1, b)


def min(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    """The smaller of two."""
    return Min.make(a, b)


def max(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    """The larger of two."""
    return Max.make(a, b)


def if_then_else(
    condition: PrimExpr | bool, true_value: PrimExpr | float, false_value: PrimExpr | float
) -> PrimExpr:
    """``true_value`` where ``condition`` holds, else ``false_value``; one of them is evaluated."""
    yes, no = match_dtypes(true_value, false_value)
    if isinstance(condition, bool):
        condition = IntImm("bool", condition)
    if condition.dtype != "bool":
        raise OperandTypeError(f"if_then_else: expected a bool condition, got {condition.dtype}")
    return Call(yes.dtype, "tir.if_then_else", (condition, yes, no)).rebuild((condition, yes, no))


def reinterpret(dtype: str, value: PrimExpr | int) -> PrimExpr:
    """The float64 with the bits of an int64, so that symbolic integers can stand for any number."""
    value = value if isinstance(value, PrimExpr) else IntImm("int64", value)
    if dtype != "float64" or value.dtype != "int64":
        raise TypeError(f"reinterpret: expected int64 as float64, got {value.dtype} as {dtype}")
    return Call(dtype, "tir.reinterpret", (value,)).rebuild((value,))


def all(*conditions: PrimExpr) -> PrimExpr:
    """The conjunction of the conditions; true for none."""
    result: PrimExpr = IntImm("bool", 1)
    for condition in conditions:
        result = And.make(result, condition)
    return result


def any(*conditions: PrimExpr) -> PrimExpr:
    """The disjunction of the conditions; false for none."""
    result: PrimExpr = IntImm("bool", 0)
    for condition in conditions:
        result = Or.make(result, condition)
    return result
