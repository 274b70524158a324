"""numpy's arithmetic on tensors, for what lowerings compute of sizes.

Of known sizes it is computed with numpy and becomes a constant; of symbolic ones the same formulas,
over :class:`Traced` in place of arrays, become rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.ir.expr import Constant, Expr
from relax2xla.op.shared.lowering import (
    binary,
    broadcast_to,
    compare,
    convert,
    dtype_of,
    hlo,
    info_of,
    iota,
    known,
    scalar,
    select,
)

# Arrays and Traced alike; no type says what numpy does with both.
Numbers = Any


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor on which numpy's functions build rows; numbers beside it take its dtype."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        rule = _ROWS.get(ufunc)
        if rule is None or method != "__call__" or kwargs:
            return NotImplemented
        dtype = next(dtype_of(x.expr) for x in inputs if isinstance(x, Traced))
        return Traced(rule(*(tensor_of(x, dtype) for x in inputs)))

    def astype(self, dtype: Any) -> Traced:
        """In another dtype."""
        return Traced(convert(self.expr, np.dtype(dtype).name))


def _row(name: str) -> Callable[..., Expr]:
    return lambda *xs: hlo(name, *xs) if len(xs) == 1 else binary(name, *xs)


def _compare(direction: str) -> Callable[..., Expr]:
    return lambda a, b: compare(a, b, direction)


def _floor_divide(a: Expr, b: Expr) -> Expr:
    """Of integers with a positive divisor."""
    quotient = binary("divide", a, b)
    below = compare(binary("multiply", quotient, b), a, "GT")
    return binary("subtract", quotient, convert(below, dtype_of(quotient)))


_ROWS: Final[dict[Any, Callable[..., Expr]]] = {
    np.add: _row("add"),
    np.subtract: _row("subtract"),
    np.multiply: _row("multiply"),
    np.true_divide: _row("divide"),
    np.floor_divide: _floor_divide,
    np.negative: _row("negate"),
    np.floor: _row("floor"),
    np.ceil: _row("ceil"),
    np.rint: _row("round_nearest_even"),
    np.maximum: _row("maximum"),
    np.minimum: _row("minimum"),
    np.bitwise_and: _row("and"),
    np.bitwise_or: _row("or"),
    np.equal: _compare("EQ"),
    np.less: _compare("LT"),
    np.less_equal: _compare("LE"),
    np.greater: _compare("GT"),
    np.greater_equal: _compare("GE"),
}


def size_of(dim: int, dtype: str = "float64") -> Numbers:
    """A size as a number."""
    if known(dim):
        return numpy_dtype(dtype).type(dim)
    return Traced(scalar(dim, dtype))


def count_up(shape: tuple[int, ...], axis: int = 0, dtype: str = "float64") -> Numbers:
    """0, 1, 2, ... along an axis of ``shape``; where all sizes are known, broadcastable to it."""
    if known(*shape):
        line = np.arange(shape[axis], dtype=numpy_dtype(dtype))
        return line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return Traced(iota(shape, axis, dtype))


def where(test: Any, a: Any, b: Any) -> Numbers:
    """numpy's ``where``; one of the values is traced if ``test`` is."""
    if not any(isinstance(x, Traced) for x in (test, a, b)):
        return np.where(test, a, b)
    dtype = next(dtype_of(x.expr) for x in (a, b, test) if isinstance(x, Traced))
    return Traced(select(*(tensor_of(x, d) for x, d in ((test, "bool"), (a, dtype), (b, dtype)))))


def clip(x: Numbers, low: Any, high: Any) -> Numbers:
    """numpy's ``clip``, with the upper bound counting more."""
    return np.minimum(np.maximum(x, low), high)


def tensor_of(x: Any, dtype: str) -> Expr:
    """Numbers as a tensor of a dtype."""
    if isinstance(x, Traced):
        return x.expr if dtype_of(x.expr) == "bool" else convert(x.expr, dtype)
    return Constant(np.ascontiguousarray(np.asarray(x).astype(numpy_dtype(dtype))))


def spread_to(x: Any, dtype: str, shape: tuple[int, ...]) -> Expr:
    """:func:`tensor_of` in a shape that it broadcasts to."""
    made = tensor_of(x, dtype)
    return made if info_of(made).dims == shape else broadcast_to(made, shape)
