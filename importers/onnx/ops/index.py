# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: gathers and scatters. Negative indices count from the end of their axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import limits
from relax2xla.importers.onnx.engine.context import Context, choice, known
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    NeedsValue,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.ops.strings import is_text, known_rank, rank_of, strings_too
from relax2xla.importers.shared.dims import product
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim


@onnx_op("Gather")
@strings_too(0)
def gather(ctx: Context, data: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    at = axis_of(axis, ndim_of(data))
    return R.take(data, ctx.wrap(indices, dims_of(data)[at]), at)


@onnx_op("GatherElements", since=11)
@strings_too(0)
def gather_elements(ctx: Context, data: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    return R.gather_elements(data, indices, axis_of(axis, ndim_of(data)))


@onnx_op("GatherND", since=11)
@strings_too(0)
def gather_nd(ctx: Context, data: Expr, indices: Expr, *, batch_dims: int = 0) -> Expr:
    return R.gather_nd(data, indices, batch_dims)


# ONNX's reductions by the names that Relax has for them.
_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@onnx_op("Scatter", lacks="reduction")
@onnx_op("ScatterElements", since=11)
@strings_too(0, 2)
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
@strings_too(0, 2)
def scatter_nd(
    ctx: Context, data: Expr, indices: Expr, updates: Expr, *, reduction: str = "none"
) -> Expr:
    how = _REDUCTIONS[choice(reduction, _REDUCTIONS, "reduction")]
    return R.scatter_nd(data, indices, updates, how)


@onnx_op("Compress", since=9)
@strings_too(0)
def compress(ctx: Context, input: Expr, condition: Expr, *, axis: int | None = None) -> Expr:
    """The condition says the size of the result: unless it is known, the host looks at it."""
    flags = known(condition)
    if flags is None:
        kept = R.squeeze(_found(ctx, condition, 1), [0])
    else:
        kept = Constant(np.flatnonzero(flags).astype(np.int64))
    if axis is None:
        return R.take(R.flatten(input), kept, 0)
    return R.take(input, kept, axis_of(axis, ndim_of(input)))


# -- what is found in the values: the host says how much it is -------------------------------------
def _want_host(ctx: Context, x: Expr) -> None:
    """A gap where the host cannot look at ``x``."""
    if not ctx.binds:
        raise NeedsValue(x, "a tensor whose values say the size of a result")


def _found(ctx: Context, x: Expr, rank: int) -> Expr:
    """``R.nonzero`` with the number of what it found as a symbolic dimension."""
    _want_host(ctx, x)
    return ctx.pinned(R.nonzero(x), [rank, None])


@onnx_op("NonZero", since=9)
def nonzero(ctx: Context, X: Expr) -> Expr:
    """Of a scalar (0, n), as numpy's."""
    rank = ndim_of(X)
    made = _found(ctx, X, max(rank, 1))
    return made if rank else R.zeros(ShapeExpr((0, dims_of(made)[1])), "int64")


@onnx_op("Unique", since=11)
def unique(ctx: Context, X: Expr, *, axis: int | None = None, sorted: int = 1) -> list[Expr]:
    """Values, where each was first, which of them each element is, how often each occurs."""
    _want_host(ctx, X)
    text = is_text(X)
    keys = known_rank(ctx, R.text.ranks(X), rank_of(ctx, X)) if text else X
    dims = dims_of(keys)
    at = None if axis is None else axis_of(axis, len(dims))
    made = ctx.emit(R.unique(keys, bool(sorted), True, True, True, at))
    size: Sequence[Dim | None] = [None] if at is None else [*dims[:at], None, *dims[at + 1 :]]
    values = ctx.pinned(made[0], size)
    count = dims_of(values)[0 if at is None else at]
    total = product(dims) if at is None else dims[at]
    sizes = [count, total, count]
    first, *others = (ctx.pinned(made[i + 1], [n]) for i, n in enumerate(sizes))
    return [_at(ctx, X, first, at) if text else values, first, *others]


@strings_too(0)
def _at(ctx: Context, x: Expr, places: Expr, axis: int | None) -> Expr:
    return R.take(R.flatten(x), places, 0) if axis is None else R.take(x, places, axis)


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(
    ctx: Context,
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Expr | None = None,
    iou_threshold: Expr | None = None,
    score_threshold: Expr | None = None,
    *,
    center_point_box: int = 0,
) -> Expr:
    """Rows of batch, class and box. How many there are is read on the host."""
    _want_host(ctx, boxes)
    if max_output_boxes_per_class is None:
        return R.zeros((0, 3), "int64")
    dtype = dtype_of(boxes)
    a, b, c, d = (ctx.emit(R.strided_slice(boxes, [2], [i], [i + 1])) for i in range(4))
    if choice(center_point_box, (0, 1), "center_point_box"):
        half = scalar(0.5, dtype)
        w, h = ctx.emit(R.multiply(c, half)), ctx.emit(R.multiply(d, half))
        corners = [R.subtract(b, h), R.subtract(a, w), R.add(b, h), R.add(a, w)]
    else:
        # Any two opposite corners may be given.
        corners = [R.minimum(a, c), R.minimum(b, d), R.maximum(a, c), R.maximum(b, d)]
    low = scalar(0, dtype) if iou_threshold is None else iou_threshold
    least = scalar(limits(dtype)[0], dtype) if score_threshold is None else score_threshold
    limit = ctx.cast(max_output_boxes_per_class, "int64")
    made = ctx.emit(
        R.vision.all_class_non_max_suppression(R.concat(corners, 2), scores, limit, low, least)
    )
    (count,) = ctx.sizes(ctx.emit(made[1]), "the number of boxes")
    rows = R.strided_slice(made[0], [0], [0], [count])
    return ctx.pinned(rows, [count, 3])


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


# -- caches ----------------------------------------------------------------------------------------
@onnx_op("TensorScatter", since=24)
def tensor_scatter(
    ctx: Context,
    past_cache: Expr,
    update: Expr,
    write_indices: Expr | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Expr:
    """``update`` written over each batch entry's part of a cache from its own index on."""
    ndim = ndim_of(past_cache)
    at = axis_of(axis, ndim)
    if at == 0:
        raise ValueError("axis 0 is the batch")
    order = [0, at, *(i for i in range(1, ndim) if i != at)]
    back = [order.index(i) for i in range(ndim)]
    cache, new = R.permute_dims(past_cache, order), R.permute_dims(update, order)
    batch, steps = dims_of(new)[:2]
    position = R.reshape(R.arange(0, steps, 1, "int64"), ShapeExpr((1, steps)))
    first: Expr = R.zeros(ShapeExpr((batch,)), "int64")
    if write_indices is not None:
        first = ctx.cast(write_indices, "int64")
    where = R.add(position, R.reshape(first, ShapeExpr((batch, 1))))
    if choice(mode, ("linear", "circular"), "mode") == "circular":
        size = ctx.size(dims_of(cache)[1], "int64")
        where = R.floor_mod(where, size)
    own = R.reshape(R.arange(0, batch, 1, "int64"), ShapeExpr((batch, 1)))
    own = R.broadcast_to(own, ShapeExpr((batch, steps)))
    index = R.stack([own, R.broadcast_to(where, ShapeExpr((batch, steps)))], 2)
    return R.permute_dims(R.scatter_nd(cache, index, new, "update"), back)
