"""Operators that make tensors of nothing, and triangles of given ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from relax2xla import tir, topi
from relax2xla.dtypes import is_integer, numpy_dtype
from relax2xla.ir import Expr, const
from relax2xla.transform.lower.te_forms.table import (
    Form,
    Site,
    form,
    plain,
    prim,
    shape_of,
    value_of_shape,
)

# The value of each element; None: it is the second operand.
_FILLED: Final[dict[str, float | None]] = {"full": None, "ones": 1.0, "zeros": 0.0}


def _full(name: str, value: float | None, like: bool) -> Form:
    def rule(s: Site) -> Expr:
        filled = plain(s.args[1]) if value is None else value
        if isinstance(filled, float) and is_integer(s.dtype):
            filled = int(filled)
        shape = shape_of(s.x) if like else value_of_shape(s.x)
        return s.te(topi.full, shape, s.dtype, filled, name=name)

    return rule


for _name, _value in _FILLED.items():
    form(f"relax.{_name}")(_full(_name, _value, False))
    form(f"relax.{_name}_like")(_full(_name, _value, True))


@form("relax.eye")
def _(s: Site) -> Expr:
    rows, columns, k = *s.args, *(s.x, 0)[len(s.args) - 1 :]
    return s.te(topi.eye, rows, columns, k, s.dtype)


@form("relax.eye_like")
def _(s: Site) -> Expr:
    k = s.args[1] if len(s.args) > 1 else 0
    return s.te(topi.eye, *shape_of(s.x).values, k, s.dtype, name="eye_like")


@form("relax.arange")
def _(s: Site) -> Expr:
    bounds = [prim(x) for x in s.args]
    if all(isinstance(b, tir.IntImm | tir.FloatImm) for b in bounds):
        made = np.arange(*(b.value for b in bounds), dtype=numpy_dtype(s.dtype))
        return const(made, s.dtype)
    return s.te(topi.arange, *bounds, s.dtype)


def _triangle(name: str) -> Form:
    return lambda s: s.te(topi.trilu, *s.args, upper=name == "triu", name=name)


for _name in ("tril", "triu"):
    form(f"relax.{_name}")(_triangle(_name))
