"""SumsAsProducts: sums and means over planes with channels last, as products with a row of ones.

XLA:CPU sums over other axes than the last in a loop without vectors: 1 ms for all the means of an
EfficientNet-B0. YNNPACK is faster, but plans each sum at a program's first run, and takes in what
comes before a sum, products too, which then take longer. Eigen multiplies a row of ones by such a
matrix at the speed of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, IRModule, Op, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import FunctionPass, PassContext, register

# Sums over fewer rows, and of fewer columns, are not worth a product.
_LEAST_ROWS: Final = 16
_LEAST_COLUMNS: Final = 8

_x = wildcard()


@register(opt_level=2, stage="static", platform="cpu")
class SumsAsProducts(FunctionPass):
    """Rewrite ``sum`` and ``mean`` over two and more neighbouring axes ahead of the last ones.

    In float32, static shapes. Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, _RULES, inside=False)[0]


def _product(m: Match) -> Expr | None:
    info, result = m[_x].struct_info_, m.call.struct_info_
    if not isinstance(info, TensorStructInfo) or not isinstance(result, TensorStructInfo):
        return None
    dims = [d for d in info.dims or () if isinstance(d, int)]
    if info.dtype != "float32" or len(dims) != info.ndim:
        return None
    place = _place(call_attrs(m.call)["axis"], len(dims))
    if place is None:
        return None
    batch, rows, columns = (
        math.prod(part) for part in (dims[: place[0]], dims[place[0] : place[1]], dims[place[1] :])
    )
    if rows < _LEAST_ROWS or columns < _LEAST_COLUMNS or not batch:
        return None
    left, right = (
        ((batch, 1, rows), (batch, rows, columns))
        if batch > 1
        else (
            (1, rows),
            (rows, columns),
        )
    )
    ones = m.bind("ones", _op("ones", left, "float32"))
    matrix = m.bind("matrix", _op("reshape", m[_x], right))
    total: Expr = _op("reshape", m.bind("sums", _op("matmul", ones, matrix)), result.dims)
    if m.call.op is Op.get("relax.mean"):
        count = m.bind("count", _op("full", (), float(rows), "float32"))
        total = _op("divide", m.bind("total", total), count)
    return total


def _place(axes: Sequence[int] | None, rank: int) -> tuple[int, int] | None:
    """From which axis to which, where they are neighbours and end ahead of the last."""
    if not axes:  # all, or none
        return None
    found = sorted({a % rank for a in axes})
    begin, end = found[0], found[-1] + 1
    return (begin, end) if len(found) == end - begin and end < rank else None


def _op(name: str, *args: object) -> Call:
    return Op.get(f"relax.{name}")(*args)


_RULES: Final = [Rule(is_op(f"relax.{name}")(_x), _product) for name in ("sum", "mean")]
