# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: determinants, and what else is made by elimination."""

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
    dims, n = dims_of(X), _size_of(X)
    if not n:
        return R.ones(ShapeExpr(dims[:-2]), dtype_of(X))
    if n <= SMALL:
        return _minor(X, list(range(n)), list(range(n)))
    batch = product(dims[:-2])
    made = _eliminated(ctx, R.reshape(X, ShapeExpr((batch, n, n))), n)
    return R.reshape(made, ShapeExpr(dims[:-2]))


def _size_of(x: Expr) -> int:
    """Rows and columns of square matrices."""
    dims = dims_of(x)
    if len(dims) < 2:
        raise ValueError(f"a tensor of rank {len(dims)} holds no matrices")
    rows, n = (static(d, "the size of the matrices") for d in dims[len(dims) - 2 :])
    if rows != n:
        raise ValueError(f"matrices of {rows} by {n}")
    return n


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
    order = _rows(n)

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        a, total = values
        swapped, moved = _with_pivot(ctx, a, k, n)
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


def _rows(n: int) -> Expr:
    return Constant(np.arange(n, dtype=np.int64).reshape(1, n))


def _with_pivot(ctx: Context, a: Expr, k: Expr, n: int) -> tuple[Expr, Expr]:
    """``a`` (batch, n, ...) with the row of the largest entry of column k as row k.

    And whether it had been another one. Rows before k stay where they are.
    """
    batch, order = dims_of(a)[0], _rows(n)
    column = ctx.emit(loops.element(a, k, 2))  # (batch, n)
    below = R.where(R.less(order, k), scalar(-1, dtype_of(a)), R.abs(column))
    pivot = ctx.emit(R.argmax(below, axis=1, keepdims=True))
    # Rows k and pivot change places.
    place = R.where(R.equal(order, pivot), k, R.broadcast_to(order, ShapeExpr((batch, n))))
    place = R.where(R.equal(order, k), pivot, place)
    swapped = ctx.emit(R.gather_nd(a, R.expand_dims(place, [2]), 1))
    return swapped, R.not_equal(R.squeeze(pivot, [1]), k)


def inverse_of(ctx: Context, x: Expr) -> Expr:
    """The inverses of matrices (..., n, n), by Gauss and Jordan; of a singular one not finite."""
    dims, n = dims_of(x), _size_of(x)
    if not n:
        return x
    kind, batch = dtype_of(x), product(dims[:-2])
    dtype = kind if kind == "float64" else "float32"
    eye = R.broadcast_to(R.eye(n, n, 0, dtype), ShapeExpr((batch, n, n)))
    flat = ctx.cast(R.reshape(x, ShapeExpr((batch, n, n))), dtype)
    both = ctx.emit(R.concat([flat, eye], 2))
    order, zero = R.expand_dims(_rows(n), [2]), scalar(0, dtype)

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        a, _ = _with_pivot(ctx, values[0], k, n)
        row = ctx.emit(loops.element(a, k, 1))  # (batch, 2 n)
        head = R.expand_dims(loops.element(row, k, 1), [1])
        scaled = ctx.emit(R.expand_dims(R.divide(row, head), [1]))
        factors = R.expand_dims(loops.element(a, k, 2), [2])
        here = R.equal(order, k)
        rest = R.subtract(a, R.multiply(R.where(here, zero, factors), scaled))
        return [R.where(here, scaled, rest)], []

    made = loops.scan(ctx.builder, n, step, [both], [])[0][0]
    half = R.strided_slice(made, [2], [n], [2 * n])
    return ctx.cast(R.reshape(half, ShapeExpr(dims)), kind)
