# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: determinants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dims_of, dtype_of, scalar, static
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.dims import product
from relax2xla.ir import Constant, Expr, ShapeExpr

# Matrices up to this size are expanded by cofactors.
SMALL = 3


@onnx_op("Det", since=11)
def det(ctx: Context, X: Expr) -> Expr:
    dims = dims_of(X)
    if len(dims) < 2:
        raise ValueError(f"a tensor of rank {len(dims)} holds no matrices")
    rows, n = (static(d, "the size of the matrices") for d in dims[len(dims) - 2 :])
    if rows != n:
        raise ValueError(f"matrices of {rows} by {n}")
    if not n:
        return R.ones(ShapeExpr(dims[:-2]), dtype_of(X))
    if n <= SMALL:
        return _minor(X, list(range(n)), list(range(n)))
    batch = product(dims[:-2])
    made = _eliminated(ctx, R.reshape(X, ShapeExpr((batch, n, n))), n)
    return R.reshape(made, ShapeExpr(dims[:-2]))


def _entry(x: Expr, i: int, j: int) -> Expr:
    last = len(dims_of(x)) - 1
    return R.squeeze(R.strided_slice(x, [last - 1, last], [i, j], [i + 1, j + 1]), [last - 1, last])


def _minor(x: Expr, rows: Sequence[int], columns: Sequence[int]) -> Expr:
    """The determinant of a part, along its first row."""
    if len(rows) == 1:
        return _entry(x, rows[0], columns[0])
    total: Expr | None = None
    for k, column in enumerate(columns):
        rest = [c for c in columns if c != column]
        part = R.multiply(_entry(x, rows[0], column), _minor(x, rows[1:], rest))
        if total is None:
            total = part
        else:
            total = R.subtract(total, part) if k % 2 else R.add(total, part)
    assert total is not None
    return total


def _eliminated(ctx: Context, x: Expr, n: int) -> Expr:
    """Gauss's elimination with the largest pivot of a column; ``x`` is (batch, n, n)."""
    dtype = dtype_of(x)
    batch = dims_of(x)[0]
    zero, one = scalar(0, dtype), scalar(1, dtype)
    order = Constant(np.arange(n, dtype=np.int64).reshape(1, n))

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        a, total = values
        column = ctx.emit(loops.element(a, k, 2))  # (batch, n)
        below = R.where(R.less(order, k), scalar(-1, dtype), R.abs(column))
        pivot = ctx.emit(R.argmax(below, axis=1, keepdims=True))
        # Rows k and pivot change places.
        place = R.where(R.equal(order, pivot), k, R.broadcast_to(order, ShapeExpr((batch, n))))
        place = R.where(R.equal(order, k), pivot, place)
        swapped = ctx.emit(R.gather_nd(a, R.expand_dims(place, [2]), 1))
        moved = R.not_equal(R.squeeze(pivot, [1]), k)
        row = ctx.emit(loops.element(swapped, k, 1))  # (batch, n)
        column = ctx.emit(loops.element(swapped, k, 2))
        head = ctx.emit(loops.element(row, k, 1))  # (batch,)
        safe = R.expand_dims(R.where(R.equal(head, zero), one, head), [1])
        factors = R.where(R.greater(order, k), R.divide(column, safe), zero)
        change = R.multiply(R.expand_dims(factors, [2]), R.expand_dims(row, [1]))
        total = R.multiply(total, R.where(moved, R.negative(head), head))
        return [R.subtract(swapped, change), total], []

    ones = R.ones(ShapeExpr((batch,)), dtype)
    return loops.scan(ctx.builder, n, step, [x, ones], [])[0][1]
