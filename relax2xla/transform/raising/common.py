"""What patterns share: holes, ends in a narrower dtype, how numbers and axes are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla.dtypes import dtype_info, is_float
from relax2xla.ir import Call, Expr, TensorStructInfo
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name
from relax2xla.transform.raising.match import Hole


def hole(shape: Sequence[int], dtype: str, name: str = "x") -> Hole:
    """A hole for a tensor."""
    return Hole(name, TensorStructInfo.make(tuple(shape), dtype))


def like(e: Expr, name: str = "x") -> Hole:
    """A hole for a tensor of the struct info of ``e``."""
    return Hole(name, e.struct_info)


def last(axis: int, ndim: int) -> int:
    """``axis``, the last one as -1, which is how it is usually written."""
    return -1 if axis == ndim - 1 else axis


def core(graph: Graph, call: Call) -> Call:
    """The row before a conversion from float32 to a narrower float, which narrow operators end in;
    otherwise ``call``.
    """
    if row_name(call) == "convert" and is_float(dtype_of(call)):
        inner = graph.value(call.args[0])
        if isinstance(inner, Call) and dtype_info(dtype_of(call)).bits < 32:
            return inner
    return call


def shortest(number: Any) -> float:
    """The shortest decimal number that rounds to ``number`` in its dtype."""
    if number.dtype.name in ("float32", "float16"):
        return float(str(number[()]))
    if number.dtype.name == "float64":
        return number.item()
    return float(format(float(number), ".3g")) if number.dtype.itemsize < 4 else float(number)
