"""Shapes, bounds and paddings that are computed when the model runs.

What the numbers come to is computed as tensors; then the machine binds them as symbolic integers
(:mod:`.runtime`), and the operator stays one of XLA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.onnx.engine.bound_numbers import count_of
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.known_values import dims_of, ndim_of, scalar
from relax2xla.importers.shared.dims import fold_dim
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim

Numbers = Sequence[Any] | Expr


def _int(value: int) -> Expr:
    return scalar(value, "int64")


def _count(x: Numbers, what: str) -> int:
    return count_of(x, what) if isinstance(x, Expr) else len(x)


def reshape(ctx: Context, data: Expr, shape: Expr, allowzero: bool) -> Expr:
    """``data`` in a shape: 0 copies a dimension (unless ``allowzero``), one -1 is what is left."""
    dims = dims_of(data)
    count = count_of(shape, "the input shape")
    wanted = ctx.vector(shape)
    own = [*dims, *[0] * count][:count]
    zero, one = _int(0), _int(1)
    if count and not allowzero:
        wanted = ctx.emit(R.where(R.equal(wanted, zero), ctx.vector(own), wanted))
    if count:
        sizes = ctx.vector(dims)
        # Zeros are left out of the quotient, which says -1 beside copied zeros.
        above = R.prod(R.where(R.equal(sizes, zero), one, sizes)) if dims else one
        below = R.prod(R.where(R.less_equal(wanted, zero), one, wanted))
        left = R.floor_divide(above, below)
        if dims:
            empty = R.logical_and(
                R.equal(R.prod(sizes), zero),
                R.logical_not(R.equal(R.min(R.abs(wanted)), zero)),
            )
            left = R.where(empty, zero, left)
        wanted = ctx.emit(R.where(R.equal(wanted, _int(-1)), left, wanted))
    return R.reshape(data, ShapeExpr(ctx.sizes(wanted, "the shape")))


def expand(ctx: Context, x: Expr, shape: Expr) -> Expr:
    """Broadcast both ways: an axis of ``x`` that is larger than in ``shape`` stays."""
    dims = dims_of(x)
    count = count_of(shape, "the input shape")
    rank = max(len(dims), count)
    if not rank:
        return x
    own = ctx.vector([*[1] * (rank - len(dims)), *dims])
    wanted = ctx.vector(shape)
    if count < rank:
        wanted = R.concat([Constant(np.ones(rank - count, np.int64)), wanted])
    target = ctx.emit(R.where(R.equal(wanted, _int(1)), own, wanted))
    return R.broadcast_to(x, ShapeExpr(ctx.sizes(target, "the shape")))


def slice_(
    ctx: Context,
    data: Expr,
    starts: Numbers,
    ends: Numbers,
    axes: Numbers | None,
    steps: Numbers | None,
) -> Expr:
    """A part of ``data``; on the host where an axis or a step is computed, or a step negative."""
    dims = dims_of(data)
    rank = len(dims)
    given = [x for x in (axes, starts, ends, steps) if x is not None]
    count: Dim = next((len(x) for x in given if not isinstance(x, Expr)), None) or _length(starts)
    where, stride = axes, steps
    if where is None:
        where = list(range(count)) if isinstance(count, int) else _leading(count, rank)
    if stride is None and isinstance(count, int):
        stride = [1] * count
    if (
        not isinstance(where, Expr)
        and isinstance(stride, Sequence)
        and all(isinstance(s, int) and s > 0 for s in stride)
        and all(isinstance(a, int) for a in where)
    ):
        return _forward(ctx, data, starts, ends, [a % rank for a in where], list(stride))
    at = ctx.emit(_places(ctx, where, rank))
    rows = (
        (Constant(np.zeros(rank, np.int64)), starts),
        (ctx.vector(dims), ends),
        (Constant(np.ones(rank, np.int64)), stride),
    )
    bounds = [
        all_ if x is None else ctx.emit(R.scatter_elements(all_, at, ctx.vector(x), 0))
        for all_, x in rows
    ]
    made = R.dynamic_strided_slice(data, *bounds)
    same = set[int]()
    if not isinstance(where, Expr) and all(isinstance(a, int) for a in where):
        same = set(range(rank)) - {a % rank for a in where}
    return ctx.pinned(made, [d if i in same else None for i, d in enumerate(dims)])


def _length(x: Numbers) -> Dim:
    """How many values there are, which may be known at run time only."""
    if not isinstance(x, Expr):
        return len(x)
    dims = dims_of(x)
    return dims[0] if dims else 1


def _leading(count: Dim, rank: int) -> Expr:
    """The first ``count`` axes."""
    return R.strided_slice(Constant(np.arange(rank)), [0], [0], [count])


def _forward(
    ctx: Context, data: Expr, starts: Numbers, ends: Numbers, at: list[int], steps: list[int]
) -> Expr:
    dims = dims_of(data)
    if not at:
        return data
    sizes = ctx.vector([dims[a] for a in at])
    first, last = (
        R.minimum(R.maximum(R.where(R.less(v, _int(0)), R.add(v, sizes), v), _int(0)), sizes)
        for v in (ctx.vector(starts), ctx.vector(ends))
    )
    first = ctx.emit(first)
    step = Constant(np.array(steps, np.int64))
    span = R.add(R.maximum(R.subtract(last, first), _int(0)), R.subtract(step, _int(1)))
    lengths = ctx.emit(R.floor_divide(span, step))
    bound = ctx.sizes(ctx.emit(R.concat([first, lengths])), "the bounds")
    begin, sizes_ = bound[: len(at)], bound[len(at) :]
    # An end below zero would count from the back.
    end = [
        fold_dim(b + n if s == 1 else b + tir.max((n - 1) * s + 1, 0))
        for b, n, s in zip(begin, sizes_, steps, strict=True)
    ]
    made = R.strided_slice(data, at, begin, end, steps)
    length = dict(zip(at, sizes_, strict=True))
    return ctx.pinned(made, [length.get(i, d) for i, d in enumerate(dims)])


def pad_widths(ctx: Context, rank: int, pads: Numbers, axes: Numbers | None) -> list[Dim]:
    """How wide to pad before, then behind, each axis; negative ones crop."""
    widths = ctx.vector(pads)
    if axes is not None:
        count = _count(pads, "pads") // 2
        index = R.broadcast_to(R.expand_dims(_places(ctx, axes, rank), [0]), (2, count))
        none = Constant(np.zeros((2, rank), np.int64))
        widths = R.scatter_elements(none, index, R.reshape(widths, (2, count)), 1)
        widths = R.reshape(ctx.emit(widths), (2 * rank,))
    bound = ctx.integers(ctx.emit(widths), "the paddings")
    if len(bound) != 2 * rank:
        raise ValueError(f"{len(bound)} paddings for {rank} axes")
    return bound


def _places(ctx: Context, axes: Numbers, rank: int) -> Expr:
    """Axes of a tensor of ``rank``, counted from the front."""
    return ctx.wrap(ctx.vector(axes), rank)


def axes_in_order(ctx: Context, axes: Expr, rank: int) -> list[Dim]:
    """Axes of a tensor of ``rank``, counted from the front, in ascending order."""
    return ctx.sizes(ctx.emit(R.sort(ctx.emit(_places(ctx, axes, rank)))), "the axes")


def squeeze(ctx: Context, x: Expr, axes: Expr) -> Expr:
    """Without axes of size one."""
    for a in reversed(axes_in_order(ctx, axes, ndim_of(x))):
        x = ctx.pinned(R.squeeze(x, [a]), [None] * (ndim_of(x) - 1))
    return x


def unsqueeze(ctx: Context, x: Expr, axes: Expr) -> Expr:
    """With new axes of size one."""
    count = count_of(axes, "the input axes")
    for a in axes_in_order(ctx, axes, ndim_of(x) + count):
        x = ctx.pinned(R.expand_dims(x, [a]), [None] * (ndim_of(x) + 1))
    return x
