"""Numbers that are known, out of expressions, as ``topi`` and what is written like it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relax2xla import tir
from relax2xla.te import Tensor


def get_const_int(expr: Any) -> int:
    """The integer that ``expr`` is; ValueError where it is not known."""
    known = tir.simplify(expr) if isinstance(expr, tir.PrimExpr) else expr
    if isinstance(known, int | tir.IntImm):
        return int(known)
    raise ValueError(f"get_const_int: expected an integer that is known; got {expr}")


def get_const_float(expr: Any) -> float:
    """The float that ``expr`` is; ValueError where it is not known."""
    known = tir.simplify(expr) if isinstance(expr, tir.PrimExpr) else expr
    if isinstance(known, float | tir.FloatImm):
        return float(known)
    raise ValueError(f"get_const_float: expected a float that is known; got {expr}")


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes: those that are known as integers, and expressions of the others."""
    if isinstance(in_tuple, Tensor):
        raise TypeError(
            "get_const_tuple takes a shape; got a tensor: did you mean get_const_tuple(t.shape)?"
        )
    sizes = [tir.as_dim(tir.simplify(s)) for s in in_tuple]
    return tuple(int(s) if isinstance(s, int | tir.IntImm) else s for s in sizes)
