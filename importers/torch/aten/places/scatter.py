"""Writing and reducing at places that are data."""

from __future__ import annotations

import math
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float, limits
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import (
    Context,
    Dims,
    axis_of,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

KINDS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


def neutral(reduce: str, dtype: str) -> float | int:
    """What changes nothing under a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    low, high = (-float("inf"), float("inf")) if is_float(dtype) else limits(dtype)
    return low if reduce == "amax" else high


def reduced(
    ctx: Context, self: Expr, axis: int, index: Expr, src: Expr, reduce: str, with_self: bool
) -> Expr:
    """``src`` reduced into the places ``index`` along an axis; places without any stay."""
    if reduce not in KINDS:
        raise Unsupported(f"the reduction {reduce!r}")
    dtype = dtype_of(self)
    if dtype == "bool":
        args = (ctx.cast(self, "int32"), axis, index, ctx.cast(src, "int32"), reduce, with_self)
        return ctx.cast(reduced(ctx, *args), "bool")
    self, index, src = ctx.emit(self), ctx.emit(index), ctx.emit(src)
    base: Expr = self
    touched: Expr | None = None
    if not with_self:
        ones = R.ones(dims_of(index), "int32")
        none = R.zeros(dims_of(self), "int32")
        touched = R.scatter_elements(none, index, ones, axis, "update")
        touched = ctx.emit(R.greater(touched, scalar(0, "int32")))
        base = R.where(touched, scalar(neutral(reduce, dtype), dtype), self)
    made = R.scatter_elements(base, index, src, axis, KINDS[reduce])
    if reduce in ("amax", "amin") and is_float(dtype):
        made = _shared(ctx, ctx.emit(made), self, axis, index, src, touched)
    if reduce == "mean":
        start = R.ones if with_self else R.zeros
        many = R.scatter_elements(
            start(dims_of(self), "int32"), index, R.ones(dims_of(index), "int32"), axis, "add"
        )
        count = ctx.cast(R.maximum(many, scalar(1, "int32")), dtype)
        made = R.divide(made, count) if is_float(dtype) else R.floor_divide(made, count)
    return made if touched is None else R.where(touched, made, self)


def _shared(
    ctx: Context,
    made: Expr,
    self: Expr,
    axis: int,
    index: Expr,
    src: Expr,
    touched: Expr | None,
) -> Expr:
    """``made``, the extrema, with torch's derivative: equal elements share it.

    touched: where ``self`` has no part in them.
    """
    dtype = dtype_of(made)
    one, zero = scalar(1, dtype), scalar(0, dtype)

    def moves(x: Expr) -> Expr:
        """0, with the derivative of ``x``."""
        finite = ctx.emit(R.where(R.isfinite(x), x, zero))
        return R.subtract(finite, R.grad.no_grad(finite))

    still = ctx.emit(R.grad.no_grad(made))
    own = ctx.emit(R.where(R.equal(self, still), one, zero))
    theirs = R.where(R.equal(src, R.gather_elements(still, index, axis)), one, zero)
    theirs = ctx.emit(theirs)
    count = ctx.emit(R.scatter_elements(own, index, theirs, axis, "add"))
    # Where a NaN is the extremum none is equal to it.
    count = ctx.emit(R.maximum(count, one))
    mine = R.multiply(moves(self), R.divide(own, count))
    if touched is not None:
        mine = R.where(touched, zero, mine)
    parts = R.multiply(moves(src), R.divide(theirs, R.gather_elements(count, index, axis)))
    smooth = R.add(still, R.scatter_elements(mine, index, parts, axis, "add"))
    return R.grad.differentiate_as(made, smooth)


def _reduced_scalar(
    ctx: Context, self: Expr, index: Expr, src: Expr, reduce: str, with_self: bool
) -> Expr:
    x, index, src = (ctx.reshape(v, (1,)) for v in (self, index, src))
    return ctx.reshape(reduced(ctx, x, 0, index, src, reduce, with_self), ())


@aten("scatter_reduce.two")
def scatter_reduce(
    ctx: Context,
    self: Expr,
    dim: int,
    index: Expr,
    src: Expr,
    reduce: str,
    include_self: bool = True,
) -> Expr:
    if ndim_of(self) == 0:
        return _reduced_scalar(ctx, self, index, src, reduce, include_self)
    if ndim_of(index) == 0:
        index, src = ctx.reshape(index, (1,)), ctx.reshape(src, (1,))
    axis = axis_of(dim, ndim_of(self))
    part = src
    for a, (have, want) in enumerate(zip(dims_of(src), dims_of(index), strict=True)):
        if have != want:
            part = R.strided_slice(part, [a], [0], [want])
    at = ctx.wrap(index, dims_of(self)[axis])
    return reduced(ctx, self, axis, at, part, reduce, include_self)


@aten("index_reduce")
def index_reduce(
    ctx: Context,
    self: Expr,
    dim: int,
    index: Expr,
    source: Expr,
    reduce: str,
    include_self: bool = True,
) -> Expr:
    if ndim_of(self) == 0:
        return _reduced_scalar(ctx, self, index, source, reduce, include_self)
    axis = axis_of(dim, ndim_of(self))
    column: list[Any] = [1] * ndim_of(self)
    at = ctx.wrap(index, dims_of(self)[axis])
    column[axis] = dims_of(at)[0] if ndim_of(index) else 1
    wide = R.broadcast_to(R.reshape(at, column), dims_of(source))
    return reduced(ctx, self, axis, wide, source, reduce, include_self)


@aten("put")
def put(ctx: Context, self: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    flat = ctx.emit(R.reshape(self, (-1,)))
    at = ctx.wrap(R.reshape(index, (-1,)), dims_of(flat)[0])
    kind = "add" if accumulate else "update"
    made = R.scatter_elements(flat, at, R.reshape(source, (-1,)), 0, kind)
    return ctx.reshape(made, dims_of(self))


def ranks(ctx: Context, mask: Expr) -> Expr:
    """The number of places that hold before each one, in row-major order; -1 before the first."""
    flat = R.astype(R.reshape(mask, (-1,)), "int64")
    return ctx.reshape(R.subtract(R.cumsum(flat, 0), scalar(1, "int64")), dims_of(mask))


def of_ranks(ctx: Context, values: Expr, mask: Expr, axis: int) -> Expr:
    """For the k-th place of ``mask`` the k-th of the values along an axis, or the last of them.

    A symbolic number of values may turn out to be none, where the mask holds nowhere: one more
    keeps ``take`` from an axis without elements.
    """
    have = dims_of(values)
    if not isinstance(have[axis], int):
        more = ctx.full((*have[:axis], 1, *have[axis + 1 :]), 0, dtype_of(values))
        values = ctx.emit(R.concat([values, more], axis))
    at = R.minimum(ranks(ctx, mask), ctx.tensor(have[axis] - 1, "int64"))
    return R.take(values, R.maximum(at, scalar(0, "int64")), axis)


@aten("masked_scatter")
def masked_scatter(ctx: Context, self: Expr, mask: Expr, source: Expr) -> Expr:
    x, m = (broadcast(v, ctx.dims()) for v in (self, mask))
    m = ctx.emit(m)
    have = dims_of(source)
    if 0 in have:
        return x
    if all(isinstance(d, int) for d in have):
        # What a place outside of the mask takes does not matter, nor does its position.
        many = dims_of(m)
        line = m if len(many) == 1 else R.reshape(m, (-1,))
        known = [d for d in many if isinstance(d, int)]
        small = len(known) == len(many) and math.prod(known) < 1 << 31
        kind = "int32" if small else "int64"
        at = ctx.emit(R.subtract(R.cumsum(line, 0, kind), scalar(1, kind)))
        flat = source if len(have) == 1 else R.reshape(source, (-1,))
        return R.where(m, ctx.reshape(R.take(flat, at, 0), many), x)
    flat = ctx.emit(R.reshape(source, (-1,)))
    return R.where(m, of_ranks(ctx, flat, m, 0), x)


# -- segments ------------------------------------------------------------------------------------
@aten("segment_reduce", ignored="unsafe")
def segment_reduce(
    ctx: Context,
    data: Expr,
    reduce: str,
    lengths: Expr | None = None,
    indices: Expr | None = None,
    offsets: Expr | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Expr:
    """By a mask of (segments, rows); ``unsafe`` only leaves out torch's checks."""
    if indices is not None or (lengths is None and offsets is None):
        raise Unsupported("segment_reduce without lengths or offsets")
    dtype = dtype_of(data)
    data = ctx.emit(data)
    rows = dims_of(data)[axis]
    if lengths is not None:
        ends = ctx.emit(R.cumsum(ctx.cast(lengths, "int64"), axis))
        starts = R.subtract(ends, ctx.cast(lengths, "int64"))
    else:
        bounds = ctx.emit(ctx.cast(offsets, "int64")) if offsets is not None else data
        many = dims_of(bounds)[axis]
        ends = R.strided_slice(bounds, [axis], [1], [many])
        starts = R.strided_slice(bounds, [axis], [0], [many - 1])
    place = R.arange(0, rows, 1, "int64")
    inside = R.logical_and(
        R.greater_equal(place, R.expand_dims(starts, [-1])),
        R.less(place, R.expand_dims(ends, [-1])),
    )
    inside = ctx.emit(inside)
    count = R.sum(R.astype(inside, "int64"), [axis + 1])
    trailing = ndim_of(data) - axis - 1
    lifted: Dims = (*dims_of(inside), *[1] * trailing)
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    none = scalar(neutral(kind, dtype), dtype)
    wide = R.where(R.reshape(inside, lifted), R.expand_dims(data, [axis]), none)
    over = [axis + 1]
    plain = {"amax": R.max, "amin": R.min, "prod": R.prod}.get(kind, R.sum)
    made = ctx.emit(plain(wide, over))
    short = R.reshape(count, (*dims_of(inside)[:-1], *[1] * trailing))
    start = None if initial is None else scalar(initial, dtype)
    if start is not None:
        join = {"amax": R.maximum, "amin": R.minimum, "prod": R.multiply}.get(kind, R.add)
        made = join(made, start)
    if kind != "mean":
        return made
    empty = R.equal(short, scalar(0, "int64"))
    average = R.divide(made, ctx.cast(R.maximum(short, scalar(1, "int64")), dtype))
    return R.where(empty, scalar(float("nan"), dtype) if start is None else start, average)
