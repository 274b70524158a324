# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: gathers and scatters. Negative indices count from the end of their axis."""

from __future__ import annotations

import numpy as np

from relax2xla import op as R
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx.context import Context, choice
from relax2xla.importers.onnx.registry import Known, onnx_op
from relax2xla.importers.onnx.values import axis_of, dims_of, ndim_of, static
from relax2xla.ir import Constant, Expr


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
    ctx: Context, input: Expr, sequence_lens: Known, *, batch_axis: int = 1, time_axis: int = 0
) -> Expr:
    """Each sequence turned around within its length, by a gather."""
    dims = dims_of(input)
    steps = static(dims[time_axis], "the number of steps")
    batch = static(dims[batch_axis], "the batch")
    if {batch_axis, time_axis} != {0, 1}:
        raise Unsupported("axes other than 0 and 1")
    at = np.tile(np.arange(steps), (batch, 1))
    for i, length in enumerate(sequence_lens.reshape(-1).tolist()):
        at[i, :length] = np.arange(length)[::-1]
    first = np.tile(np.arange(batch)[:, None], (1, steps))
    pair = [first, at] if batch_axis == 0 else [at, first]
    index = np.stack(pair, -1)
    if batch_axis == 1:
        index = index.transpose(1, 0, 2)
    return R.gather_nd(input, Constant(np.ascontiguousarray(index)))
