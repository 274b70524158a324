# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: gathers and scatters. Negative indices count from the end of their axis."""

from __future__ import annotations

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.context import Context, choice
from relax2xla.importers.onnx.registry import Known, onnx_op
from relax2xla.importers.onnx.values import axis_of, dims_of, ndim_of
from relax2xla.ir import Constant, Expr, ShapeExpr


@onnx_op("Gather")
def gather(ctx: Context, data: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    at = axis_of(axis, ndim_of(data))
    return R.take(data, ctx.wrap(indices, dims_of(data)[at]), at)


@onnx_op("GatherElements", since=11)
def gather_elements(ctx: Context, data: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    return R.gather_elements(data, indices, axis_of(axis, ndim_of(data)))


@onnx_op("GatherND", since=11)
def gather_nd(ctx: Context, data: Expr, indices: Expr, *, batch_dims: int = 0) -> Expr:
    return R.gather_nd(data, indices, batch_dims)


# ONNX's reductions by the names that Relax has for them.
_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@onnx_op("Scatter")
def scatter(ctx: Context, data: Expr, indices: Expr, updates: Expr, *, axis: int = 0) -> Expr:
    return scatter_elements(ctx, data, indices, updates, axis=axis)


@onnx_op("ScatterElements", since=11)
def scatter_elements(
    ctx: Context,
    data: Expr,
    indices: Expr,
    updates: Expr,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Expr:
    how = _REDUCTIONS[choice(reduction, _REDUCTIONS, "reduction")]
    return R.scatter_elements(data, indices, updates, axis_of(axis, ndim_of(data)), how)


@onnx_op("ScatterND", since=11)
def scatter_nd(
    ctx: Context, data: Expr, indices: Expr, updates: Expr, *, reduction: str = "none"
) -> Expr:
    how = _REDUCTIONS[choice(reduction, _REDUCTIONS, "reduction")]
    return R.scatter_nd(data, indices, updates, how)


@onnx_op("Compress", since=9)
def compress(ctx: Context, input: Expr, condition: Known, *, axis: int | None = None) -> Expr:
    """The condition says the size of the result, so it must be known."""
    kept = np.flatnonzero(condition)
    if axis is None:
        flat = R.flatten(input)
        return R.take(flat, Constant(kept.astype(np.int64)), 0)
    return R.take(input, Constant(kept.astype(np.int64)), axis_of(axis, ndim_of(input)))


@onnx_op("ReverseSequence", since=10)
def reverse_sequence(
    ctx: Context, input: Expr, sequence_lens: Expr, *, batch_axis: int = 1, time_axis: int = 0
) -> Expr:
    """Each sequence turned around within its length, by a gather."""
    if {batch_axis, time_axis} != {0, 1}:
        raise ValueError(f"batch_axis={batch_axis} and time_axis={time_axis} are not 0 and 1")
    x = input if batch_axis == 0 else R.permute_dims(input, _swapped(input))
    batch, steps = dims_of(x)[:2]
    lens = R.reshape(ctx.cast(sequence_lens, "int64"), ShapeExpr((batch, 1)))
    at = R.reshape(R.arange(0, steps, 1, "int64"), ShapeExpr((1, steps)))
    last = R.subtract(lens, Constant(np.array(1, np.int64)))
    where = R.where(R.less(at, lens), R.subtract(last, at), at)
    made = R.gather_nd(x, R.expand_dims(where, [2]), 1)
    return made if batch_axis == 0 else R.permute_dims(made, _swapped(input))


def _swapped(x: Expr) -> list[int]:
    return [1, 0, *range(2, ndim_of(x))]
