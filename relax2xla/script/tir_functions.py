"""Functions of ``T`` on symbolic integers, as a text and a signature of TVMScript may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import tir as lib
from relax2xla.ir import PrimValue


class Dtype:
    """``T.int64``: of nothing a variable, of a number a literal, of an expression a cast."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any = None, *, is_size_var: bool = False) -> lib.PrimExpr:
        if value is None:
            return (lib.SizeVar if is_size_var else lib.Var)("", self.name)
        if isinstance(value, PrimValue):
            value = value.value
        if isinstance(value, lib.PrimExpr):
            return lib.cast(self.name, value)
        return lib.const(float(value) if isinstance(value, str) else value, self.name)

    def __repr__(self) -> str:
        return f"T.{self.name}"


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "index_map": lib.IndexMap.from_func,
    "max": lib.max,
    "min": lib.min,
    "floordiv": lib.floordiv,
    "floormod": lib.floormod,
    "truncdiv": lib.truncdiv,
    "truncmod": lib.truncmod,
    "ceildiv": lib.ceildiv,
    "div": lib.div,
    "Div": lib.Div.make,
    "Select": lib.Select,
    "if_then_else": lib.if_then_else,
    "all": lib.all,
    "any": lib.any,
    "And": lib.And.make,
    "Or": lib.Or.make,
    "Not": lib.Not,
    "EQ": lib.EQ.make,
    "NE": lib.NE.make,
    "Cast": lambda dtype, value: lib.cast(dtype, value),
    "cast": lambda value, dtype: lib.cast(dtype, value),
    "reinterpret": lib.reinterpret,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a,
    "Var": lambda name, dtype="int64": lib.Var(name, getattr(dtype, "name", dtype)),
}
