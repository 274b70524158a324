"""Distinct values, counts and histograms, medians and modes, running extrema."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.numbers.complex import is_complex
from relax2xla.importers.torch.aten.places.data_dependent import places
from relax2xla.importers.torch.aten.reduce import kept_or_not, sort
from relax2xla.importers.torch.aten.shape import take_range
from relax2xla.importers.torch.engine.context import (
    NARROW,
    Context,
    Dims,
    as_bool,
    axis_of,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    row,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Constant, Expr, ShapeStructInfo, TensorStructInfo


# -- distinct values -----------------------------------------------------------------------------
def _distinct(ctx: Context, x: Expr, axis: int | None) -> tuple[Expr, Expr, Expr]:
    """Values, the place of each element among them, and how often each occurs."""
    found = ctx.emit(R.unique(x, True, False, True, True, axis))
    count = ctx.dims(0)[0 if axis is None else axis]
    match = ctx.builder.match_cast
    values = match(found[0], TensorStructInfo(ctx.dims(0), dtype_of(x)))
    size: Any = 1
    for d in dims_of(x) if axis is None else dims_of(x)[axis : axis + 1]:
        size = size * d
    inverse = match(found[1], TensorStructInfo((size,), "int64"))
    counts = match(found[2], TensorStructInfo((count,), "int64"))
    return values, inverse, counts


def _answers(
    ctx: Context, values: Expr, inverse: Expr, counts: Expr, with_inverse: bool, with_counts: bool
) -> tuple[Expr, Expr, Expr]:
    none = R.zeros((0,), "int64")
    return (
        values,
        ctx.reshape(inverse, ctx.dims(1)) if with_inverse else none,
        counts if with_counts else none,
    )


@aten("_unique2", ignored="sorted return_inverse")
def unique2(ctx: Context, self: Expr, return_counts: bool = False) -> tuple[Expr, Expr, Expr]:
    """Sorted also where ``sorted`` is False, which leaves the order open."""
    made = _distinct(ctx, ctx.emit(R.reshape(self, (-1,))), None)
    # Torch's counts follow the request for them; its inverse always has the input's shape.
    values, none, counts = _answers(ctx, *made, 0 not in ctx.dims(1), return_counts)
    return values, R.zeros(ctx.dims(1), "int64") if 0 in ctx.dims(1) else none, counts


@aten("unique_dim", ignored="sorted")
def unique_dim(
    ctx: Context,
    self: Expr,
    dim: int,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Expr, Expr, Expr]:
    made = _distinct(ctx, ctx.emit(self), axis_of(dim, ndim_of(self)))
    # Torch gives the inverse whether it is asked for or not.
    return _answers(ctx, *made, return_inverse or 0 not in ctx.dims(1), return_counts)


@aten("unique_consecutive")
def unique_consecutive(
    ctx: Context,
    self: Expr,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Expr, Expr, Expr]:
    x = ctx.emit(R.reshape(self, (-1,)) if dim is None else self)
    axis = 0 if dim is None else axis_of(dim, ndim_of(x))
    if len(ctx.dims(0)) != ndim_of(x):
        raise Unsupported(
            f"unique_consecutive with dim={dim}, for which torch.export gives a wrong shape",
            f"use dim={axis}",
        )
    size = dims_of(x)[axis]
    # Of places, not of slices: there may be none.
    place = ctx.emit(ctx.grid((size,), (1,)))
    first = R.equal(place, scalar(0, "int64"))
    earlier = R.take(x, R.maximum(R.subtract(place, scalar(1, "int64")), scalar(0, "int64")), axis)
    others = [i for i in range(ndim_of(x)) if i != axis]
    change = R.astype(R.not_equal(x, earlier), "int32")
    change = R.max(change, others) if others else change
    starts = ctx.emit(R.maximum(change, R.astype(first, "int32")))
    count = ctx.dims(0)[axis]
    at = ctx.emit(R.reshape(places(ctx, starts, count), (count,)))
    values = R.take(x, at, axis)
    inverse = R.subtract(R.cumsum(R.astype(starts, "int64"), 0), scalar(1, "int64"))
    ends = R.concat([at, ctx.full((1,), size, "int64")], 0)
    after = R.strided_slice(ctx.emit(ends), [0], [1], [count + 1], assume_inbound=True)
    counts = R.subtract(after, at)
    return _answers(ctx, values, inverse, counts, return_inverse, return_counts)


# -- counts --------------------------------------------------------------------------------------
@aten("bincount")
def bincount(ctx: Context, self: Expr, weights: Expr | None = None, minlength: Any = 0) -> Expr:
    """As long as the largest value demands, which is known when the data are there."""
    x = ctx.emit(ctx.cast(self, "int64"))
    (count,) = ctx.dims()
    if not isinstance(count, int):
        least = ctx.tensor(minlength, "int64")
        top = R.maximum(R.add(R.max(x), scalar(1, "int64")), least)
        shape = ctx.emit(R.tensor_to_shape(ctx.emit(R.reshape(top, (1,)))))
        ctx.builder.match_cast(shape, ShapeStructInfo((count,)))
    hits = R.equal(R.expand_dims(R.arange(0, count, 1, "int64"), [1]), x)
    dtype = ctx.dtype()
    if weights is None:
        return R.sum(R.astype(hits, "int64"), [1])
    return R.sum(R.where(hits, ctx.cast(weights, dtype), scalar(0, dtype)), [1])


@aten("searchsorted.Tensor", "searchsorted.Scalar", ignored="out_int32")
def searchsorted(
    ctx: Context,
    sorted_sequence: Expr,
    self: Any,
    right: bool = False,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    edges = sorted_sequence
    if 0 in dims_of(edges) or 0 in ctx.dims():
        return R.zeros(ctx.dims(), ctx.dtype())
    if sorter is not None:
        last = ndim_of(edges) - 1
        edges = R.gather_elements(edges, ctx.wrap(sorter, dims_of(edges)[last]), last)
    edges, values = ctx.promote(edges, self)
    after = right or side == "right"
    if ndim_of(edges) > 1:
        edges = R.expand_dims(edges, [-2])
    column = ctx.emit(R.expand_dims(values, [-1]))
    passed = R.less_equal(edges, column) if after else R.less(edges, column)
    if is_float(dtype_of(values)):
        passed = R.logical_or(passed, R.isnan(column))  # NaN passes all
    return ctx.reshape(R.sum(R.astype(passed, ctx.dtype()), [-1]), ctx.dims())


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    ctx: Context, self: Any, boundaries: Expr, out_int32: bool = False, right: bool = False
) -> Expr:
    if isinstance(self, Expr) and dtype_of(self) == dtype_of(boundaries):
        return R.bucketize(self, boundaries, out_int32, right)
    return searchsorted(ctx, boundaries, self, right)


def _bounds(
    ctx: Context, x: Expr, given: Sequence[float] | None, apart: float
) -> tuple[Expr, Expr]:
    """Of a histogram: those given, or the data's; ``apart`` from it where they are equal."""
    dtype = dtype_of(x)
    if given is not None:
        low, high = given
        a, b = (low, high) if low != high else (low - apart, high + apart)
        return scalar(a, dtype), scalar(b, dtype)
    if 0 in dims_of(x):
        return scalar(0, dtype), scalar(1, dtype)
    low, high = ctx.emit(R.min(x)), ctx.emit(R.max(x))
    same = R.equal(low, high)
    one = scalar(apart, dtype)
    return (
        ctx.emit(R.where(same, R.subtract(low, one), low)),
        ctx.emit(R.where(same, R.add(high, one), high)),
    )


@aten("histc")
def histc(ctx: Context, self: Expr, bins: int = 100, min: Any = 0, max: Any = 0) -> Expr:
    dtype = dtype_of(self)
    x = ctx.emit(R.reshape(self, (-1,)))
    low, high = _bounds(ctx, x, (min, max) if min != max else None, 1)
    inside = ctx.emit(R.logical_and(R.greater_equal(x, low), R.less_equal(x, high)))
    # The places by the formula of torch, in the tensor's own dtype.
    width = R.subtract(high, low)
    share = R.divide(R.multiply(R.subtract(x, low), scalar(bins, dtype)), width)
    at = R.astype(R.where(inside, share, scalar(0, dtype)), "int64")
    at = R.minimum(at, scalar(bins - 1, "int64"))
    hits = R.equal(Constant(np.arange(bins).reshape(bins, 1)), at)
    return R.sum(R.astype(R.logical_and(hits, inside), ctx.dtype()), [1])


def _edges(ctx: Context, x: Expr, bins: int, range: Sequence[float] | None) -> Expr:
    """Of ``bins`` bins of equal width over the range, or over that of the vector ``x``."""
    low, high = _bounds(ctx, x, range, 0.5)
    line = np.arange(bins + 1) / bins
    part = Constant(line.astype(dtype_of(x)))
    edges = R.add(low, R.multiply(R.subtract(high, low), part))
    edges = R.where(Constant(line == 1), high, edges)
    return ctx.emit(R.broadcast_to(edges, (bins + 1,)))


@aten("histogram.bin_ct", "histogram.bins_tensor")
def histogram(
    ctx: Context,
    self: Expr,
    bins: Any = 100,
    range: Sequence[float] | None = None,
    weight: Expr | None = None,
    density: bool = False,
) -> tuple[Expr, Expr]:
    dtype = dtype_of(self)
    x = ctx.emit(R.reshape(self, (-1,)))
    edges = ctx.emit(bins) if isinstance(bins, Expr) else _edges(ctx, x, bins, range)
    count = dims_of(edges)[0] - 1
    left = R.expand_dims(take_range(edges, 0, 0, count), [1])
    right = R.expand_dims(take_range(edges, 0, 1, count + 1), [1])
    closed = R.equal(ctx.grid((count, 1), (1, 0)), ctx.tensor(count - 1, "int64"))
    hits = R.less(x, right)
    hits = R.logical_or(hits, R.logical_and(closed, R.equal(x, right)))
    hits = R.logical_and(hits, R.greater_equal(x, left))
    if weight is None:
        total = R.sum(R.astype(hits, dtype), [1])
    else:
        own = R.reshape(weight, (-1,))
        total = R.sum(R.where(hits, own, scalar(0, dtype)), [1])
    if density:
        widths = R.reshape(R.subtract(right, left), (count,))
        total = ctx.emit(total)
        total = R.divide(total, R.multiply(R.sum(total), widths))
    return total, edges


@aten("histogramdd", "histogramdd.int_bins", "histogramdd.TensorList_bins")
def histogramdd(
    ctx: Context,
    self: Expr,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Expr | None = None,
    density: bool = False,
) -> tuple[Expr, list[Expr]]:
    """Each point, a row of ``self``, counts in the cell where it lies."""
    dtype = dtype_of(self)
    points = R.reshape(self, (-1, dims_of(self)[-1]))
    points = ctx.emit(points)
    count, rank = dims_of(points)[0], static(dims_of(points)[1], "the number of axes")
    wanted = [bins] * rank if isinstance(bins, int) else bins
    edges: list[Expr] = []
    inside: Expr = R.full((count,), scalar(True, "bool"), "bool")
    cell: Expr = R.zeros((count,), "int64")
    for i, own in enumerate(wanted):
        x = R.reshape(R.strided_slice(points, [1], [i], [i + 1]), (count,))
        x = ctx.emit(x)
        bounds = None if range is None else range[2 * i : 2 * i + 2]
        line = ctx.emit(own) if isinstance(own, Expr) else _edges(ctx, x, own, bounds)
        edges.append(line)
        size = dims_of(line)[0] - 1
        passed = R.greater_equal(R.expand_dims(x, [1]), line)
        at = R.subtract(R.sum(R.astype(passed, "int64"), [1]), scalar(1, "int64"))
        last = take_range(line, 0, size, size + 1)
        inside = R.logical_and(inside, R.greater_equal(at, scalar(0, "int64")))
        inside = ctx.emit(R.logical_and(inside, R.less_equal(x, last)))
        # The last bin holds its right edge.
        at = R.minimum(R.maximum(at, scalar(0, "int64")), ctx.tensor(size - 1, "int64"))
        cell = ctx.emit(R.add(R.multiply(cell, ctx.tensor(size, "int64")), at))
    own_weight = scalar(1, dtype) if weight is None else R.reshape(weight, (count,))
    counted = R.where(inside, own_weight, scalar(0, dtype))
    cells = math.prod(ctx.dims(0))
    total = R.scatter_elements(R.zeros((cells,), dtype), cell, counted, 0, "add")
    total = ctx.emit(R.reshape(total, ctx.dims(0)))
    if density:
        total = R.divide(total, R.sum(total))
        for i, line in enumerate(edges):
            size = dims_of(line)[0] - 1
            width = R.subtract(take_range(line, 0, 1, size + 1), take_range(line, 0, 0, size))
            total = R.divide(total, R.reshape(width, [-1, *[1] * (rank - 1 - i)]))
    return total, edges


# -- medians and modes ---------------------------------------------------------------------------
def _middle(ctx: Context, x: Expr, axis: int, keepdim: bool, ignore: bool) -> tuple[Expr, Expr]:
    """The lower middle value and its place; NaN wins, or (``ignore``) does not count."""
    dtype = dtype_of(x)
    x = ctx.emit(x)
    size = dims_of(x)[axis]
    values, order = (ctx.emit(v) for v in sort(ctx, x, axis))
    thin: Dims = tuple(1 if i == axis else d for i, d in enumerate(dims_of(x)))
    at = ctx.full(thin, (size - 1) // 2, "int64")
    if is_float(dtype):
        # NaN is sorted to the end.
        missing = ctx.emit(R.sum(R.astype(R.isnan(x), "int64"), [axis], True))
        if ignore:
            there = R.subtract(ctx.tensor(size - 1, "int64"), missing)
            half = R.floor_divide(R.maximum(there, scalar(0, "int64")), scalar(2, "int64"))
            at = half
        else:
            some = R.greater(missing, scalar(0, "int64"))
            at = R.where(some, R.subtract(ctx.tensor(size, "int64"), missing), at)
    at = ctx.emit(at)
    return kept_or_not([R.gather_elements(v, at, axis) for v in (values, order)], axis, keepdim)


def _along(ignore: bool) -> Function:
    def convert(ctx: Context, self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
        if ndim_of(self) == 0:
            return self, R.zeros((), "int64")
        size = dims_of(self)[axis_of(dim, ndim_of(self))]
        if isinstance(size, int) and not ignore:
            pair = ctx.emit(R.median(self, [dim], keepdim))
            return pair[0], pair[1]
        return _middle(ctx, self, axis_of(dim, ndim_of(self)), keepdim, ignore)

    return convert


def _of_all(ignore: bool) -> Function:
    def convert(ctx: Context, self: Expr) -> Expr:
        if 0 in dims_of(self):
            return scalar(math.nan, dtype_of(self))
        if not ignore and all(isinstance(d, int) for d in dims_of(self)):
            made = R.median(self)
        else:
            made = _middle(ctx, R.reshape(self, (-1,)), 0, False, ignore)[0]
        if not is_float(dtype_of(self)):
            return made
        # Its gradient is divided among the elements that are equal to it.
        made = ctx.emit(made)
        hit = R.where(R.isnan(made), R.isnan(self), R.equal(self, made))
        count = R.sum(R.astype(hit, dtype_of(self)))
        whole = R.sum(R.where(hit, self, scalar(0, dtype_of(self))))
        return R.grad.differentiate_as(made, R.divide(whole, count))

    return convert


for _name, _ignore in (("median", False), ("nanmedian", True)):
    aten(_name)(_of_all(_ignore))
    aten(f"{_name}.dim")(_along(_ignore))


@aten("mode")
def mode(ctx: Context, self: Expr, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The smallest of the most frequent values, and its last place."""
    if ndim_of(self) == 0:
        return self, R.zeros((), "int64")
    axis, last = axis_of(dim, ndim_of(self)), ndim_of(self) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    x = ctx.emit(self if axis == last else R.permute_dims(self, order))
    same = ctx.emit(R.equal(R.expand_dims(x, [-1]), R.expand_dims(x, [-2])))
    often = ctx.emit(R.sum(R.astype(same, "int64"), [-1]))
    most = ctx.emit(R.equal(often, R.max(often, [-1], True)))
    ranked, places_ = (ctx.emit(v) for v in sort(ctx, x, last))
    wanted = R.astype(R.gather_elements(R.astype(most, "int32"), places_, last), "int32")
    first = ctx.emit(R.expand_dims(R.argmax(wanted, -1, False), [-1]))
    value = ctx.emit(R.gather_elements(ranked, R.astype(first, "int64"), last))
    hit = R.equal(x, value)
    count = ctx.grid((dims_of(x)[last],), (1,))
    at = R.max(R.where(hit, count, scalar(0, "int64")), [-1])
    value = R.squeeze(value, [last])
    if keepdim:
        return ctx.reshape(value, ctx.dims(0)), ctx.reshape(at, ctx.dims(1))
    return value, at


# -- running extrema and sums --------------------------------------------------------------------
def _running(ctx: Context, self: Expr, dim: int, largest: bool) -> tuple[Expr, Expr]:
    """The last of equal values counts, and NaN wins."""
    if ndim_of(self) == 0 or 0 in dims_of(self):
        return self, R.zeros(dims_of(self), "int64")
    dtype = dtype_of(self)
    axis = axis_of(dim, ndim_of(self))
    x = ctx.emit(ctx.cast(self, "int8") if dtype == "bool" else self)
    thin: Dims = tuple(d for i, d in enumerate(dims_of(x)) if i != axis)
    better = R.greater_equal if largest else R.less_equal

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        best, at = values
        here = ctx.emit(_loops.element(x, k, axis))
        wins = better(here, best)
        if is_float(dtype):
            wins = R.logical_or(R.isnan(here), R.logical_and(wins, R.logical_not(R.isnan(best))))
        wins = ctx.emit(wins)
        best = ctx.emit(R.where(wins, here, best))
        at = ctx.emit(R.where(wins, k, at))
        return [best, at], [best, at]

    start = [ctx.emit(_loops.element(x, _loops.number(0), axis)), ctx.emit(R.zeros(thin, "int64"))]
    stacks = [_loops.Stack(axis), _loops.Stack(axis)]
    _, made = _loops.scan(ctx.builder, dims_of(x)[axis], step, start, stacks)
    return ctx.cast(made[0], dtype), made[1]


aten("cummax")(lambda ctx, self, dim: _running(ctx, self, dim, True))
aten("cummin")(lambda ctx, self, dim: _running(ctx, self, dim, False))


@aten("logcumsumexp")
def logcumsumexp(ctx: Context, self: Expr, dim: int) -> Expr:
    dtype = dtype_of(self)
    if not is_float(dtype) and not is_complex(self):
        raise Unsupported(f"logcumsumexp of a {dtype} tensor")
    if ndim_of(self) == 0 or 0 in dims_of(self):
        return self
    axis = axis_of(dim, ndim_of(self))
    kind = "float32" if dtype in NARROW else dtype
    x = ctx.emit(ctx.cast(self, kind))
    thin: Dims = tuple(d for i, d in enumerate(dims_of(x)) if i != axis)

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        (total,) = values
        here = ctx.emit(_loops.element(x, k, axis))
        if not is_complex(x):
            made = ctx.emit(R.log_add_exp(total, here))
            return [made], [made]
        # The real parts tell which of the two is the larger number.
        first = ctx.emit(R.greater_equal(row("real", total), row("real", here)))
        high, low = ctx.emit(R.where(first, total, here)), R.where(first, here, total)
        gap = row("log_plus_one", R.exp(R.subtract(low, high)))
        size = ctx.emit(row("real", high))
        made = R.where(R.isinf(size), high, R.add(high, gap))
        made = ctx.emit(R.where(R.isnan(size), high, made))
        return [made], [made]

    start = ctx.emit(R.full(thin, scalar(-math.inf, kind), kind))
    _, made = _loops.scan(ctx.builder, dims_of(x)[axis], step, [start], [_loops.Stack(axis)])
    return ctx.cast(made[0], dtype)


@aten("nonzero_static", ignored="size")
def nonzero_static(ctx: Context, self: Expr, fill_value: int = -1) -> Expr:
    ndim, dims, wanted = ndim_of(self), dims_of(self), ctx.dims()[0]
    if ndim == 0 or 0 in dims or 0 in ctx.dims():
        return ctx.full(ctx.dims(), fill_value, "int64")
    total = math.prod(dims)
    end = ctx.emit(ctx.tensor(total, "int64"))
    flat = R.reshape(self, (-1,))
    place = R.where(as_bool(flat), ctx.grid((total,), (1,)), end)
    more = ctx.full((larger(wanted - total, 0),), end, "int64")
    at = ctx.emit(take_range(ctx.emit(R.concat([R.sort(place, 0), more], 0)), 0, 0, wanted))
    columns: list[Expr] = []
    for i, d in enumerate(dims):
        inner = ctx.tensor(math.prod(dims[i + 1 :]), "int64")
        columns.append(R.floor_mod(R.floor_divide(at, inner), ctx.tensor(d, "int64")))
    found = R.stack(columns, 1)
    there = R.expand_dims(R.less(at, end), [1])
    return R.where(there, found, scalar(fill_value, "int64"))
