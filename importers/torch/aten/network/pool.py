"""Pooling: averages, maxima with or without their places, of windows of any size or at random.

A window is a list of places in the flattened image, computed of the sizes alone (or, for random
windows, of samples); -1 marks a place outside. Everything is then a gather and a reduction over the
windows. Small windows at regular places are looked at place by place instead, which needs no
gather.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float, limits
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.windows import ADAPTIVE_AVG_POOL, AVG_POOL, MAX_POOL
from relax2xla.importers.torch.aten.reduce import arg_extremum
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    Dims,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.importers.torch.source.window_gradients import MAX_TAPS
from relax2xla.ir import Constant, Expr

ZERO, OUTSIDE = scalar(0, "int64"), scalar(-1, "int64")


def per_axis(values: Any, ndim: int) -> list[int]:
    """One number for each axis of space."""
    given = [values] if isinstance(values, int) else [static(v, "a window") for v in values]
    return given * ndim if len(given) == 1 else given


def batched(x: Expr, ndim: int) -> tuple[Expr, bool]:
    """``x`` with a batch axis, and whether it had none."""
    alone = ndim_of(x) != ndim + 2
    return (R.reshape(x, (1, *dims_of(x))) if alone else x), alone


def unbatched(x: Expr, alone: bool) -> Expr:
    """``x`` without the batch axis that it was given."""
    return R.squeeze(x, [0]) if alone else x


def _unpooled(ctx: Context, self: Expr, indices: Expr, ndim: int) -> Expr:
    """Of elements that meet in one place one is kept; gradients are given to all of them."""
    image = ctx.dims()[-ndim:]
    rows = math.prod(ctx.dims()[:-ndim])
    x = ctx.emit(R.reshape(self, (rows, math.prod(dims_of(self)[-ndim:]))))
    at = ctx.emit(R.reshape(indices, dims_of(x)))
    empty = R.zeros((rows, math.prod(image)), dtype_of(x))
    if 0 in dims_of(x):
        return R.reshape(empty, ctx.dims())
    made = ctx.emit(R.scatter_elements(empty, at, x, 1, "update"))
    if is_float(dtype_of(x)):
        step = R.where(R.isfinite(x), R.subtract(x, R.grad.no_grad(x)), scalar(0, dtype_of(x)))
        slope = R.scatter_elements(empty, at, ctx.emit(step), 1, "add")
        made = R.grad.differentiate_as(made, R.add(R.grad.no_grad(made), slope))
    return R.reshape(made, ctx.dims())


aten("max_unpool2d", ignored="output_size")(
    lambda ctx, self, indices: _unpooled(ctx, self, indices, 2)
)
aten("max_unpool3d", ignored="output_size stride padding")(
    lambda ctx, self, indices: _unpooled(ctx, self, indices, 3)
)


def windows_of(
    kernel_size: Any, stride: Any, padding: Any, dilation: Any, ndim: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Sizes, steps, padding and dilation, by axis; without a stride windows lie side by side."""
    window = per_axis(kernel_size, ndim)
    step = per_axis(stride, ndim) if stride else window
    return window, step, per_axis(padding, ndim), per_axis(dilation, ndim)


def space(x: Expr, ndim: int) -> Dims:
    """The sizes of an image."""
    return dims_of(x)[-ndim:]


def regular(
    ctx: Context, size: Dim, count: Dim, window: int, step: int, pad: int, spread: int
) -> Expr:
    """Places of evenly spaced windows along one axis, (count, window)."""
    at = ctx.grid((count, window), (step, spread), -pad)
    inside = R.logical_and(R.greater_equal(at, ZERO), R.less(at, ctx.tensor(size, "int64")))
    return ctx.emit(R.where(inside, at, OUTSIDE))


def adaptive(ctx: Context, size: Dim, count: Dim) -> Expr:
    """Windows that share an axis out, filled up with -1 to one length."""
    many, length = ctx.tensor(count, "int64"), ctx.tensor(size, "int64")
    start = R.floor_divide(ctx.grid((count, 1), (size, 0)), many)
    # Rounded up: the floor of the negative.
    stop = R.negative(R.floor_divide(R.negative(ctx.grid((count, 1), (size, 0), size)), many))
    longest = (size + count - 1) // larger(count, 1) + 1
    at = ctx.emit(R.add(start, ctx.grid((1, longest), (0, 1))))
    return ctx.emit(R.where(R.less(at, R.minimum(stop, length)), at, OUTSIDE))


def flat_places(ctx: Context, lines: Sequence[Expr], sizes: Dims) -> Expr:
    """Places in the flattened image, (windows, places of one); -1 where any axis is outside."""
    rank = len(lines)
    counts, widths = ([dims_of(x)[i] for x in lines] for i in range(2))
    total: Expr = ZERO
    inside: Expr = scalar(True, "bool")
    for axis, (line, size) in enumerate(zip(lines, sizes, strict=True)):
        shape: list[Dim] = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = counts[axis], widths[axis]
        at = ctx.emit(R.reshape(line, shape))
        inside = R.logical_and(inside, R.greater_equal(at, ZERO))
        total = R.add(R.multiply(total, ctx.tensor(size, "int64")), at)
    made = R.where(inside, total, OUTSIDE)
    return ctx.emit(R.reshape(made, (math.prod(counts), math.prod(widths))))


def windows(ctx: Context, x: Expr, ndim: int, at: Expr, none: Any) -> Expr:
    """The elements of each window along a last axis, ``none`` outside."""
    lead = dims_of(x)[: ndim_of(x) - ndim]
    flat = R.reshape(x, (*lead, math.prod(space(x, ndim))))
    taken = R.take(flat, R.maximum(at, ZERO), len(lead))
    inside = R.greater_equal(at, ZERO)
    return ctx.emit(R.where(inside, taken, scalar(none, dtype_of(x))))


def lowest(dtype: str) -> Any:
    """What no maximum picks."""
    return -math.inf if is_float(dtype) else limits(dtype)[0]


def largest(ctx: Context, x: Expr, ndim: int, at: Expr, index: int) -> tuple[Expr, Expr]:
    """The maximum of each window, and where in the image it is; shapes are those of the result."""
    found = windows(ctx, x, ndim, at, lowest(dtype_of(x)))
    last = ndim_of(found) - 1
    found = ctx.emit(found)
    best = ctx.emit(arg_extremum(ctx, found, last, True, True))
    values = R.max(found, [last])
    if is_float(dtype_of(x)):
        first = R.squeeze(R.gather_elements(found, best, last), [last])
        values = R.grad.differentiate_as(values, first)
    wide = R.broadcast_to(at, dims_of(found))
    where = R.squeeze(R.gather_elements(wide, best, last), [last])
    return ctx.reshape(values, ctx.dims(0)), ctx.reshape(where, ctx.dims(index))


# -- maxima with their places --------------------------------------------------------------------
def _largest_tap(
    ctx: Context, x: Expr, counts: Sequence[Any], form: Sequence[Sequence[int]]
) -> Expr:
    """Where in the image the maximum of each window is, by a look at each place in the window.

    Of equal ones the first, of NaN the last, as torch's kernel has it.
    """
    ndim, dtype = len(counts), dtype_of(x)
    sizes: Sequence[Any] = space(x, ndim)
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(ndim)]
    kind = "int32" if math.prod(sizes) < 2**31 else "int64"
    first, begin, widths = np.zeros([1] * ndim, kind), np.zeros([1] * ndim, kind), []
    for axis, (many, size, k, s, p, d) in enumerate(zip(counts, sizes, *form, strict=True)):
        start = np.arange(many, dtype=kind) * s - p
        # What a window has outside is passed over, whatever is inside.
        inside = -(-np.maximum(-start, 0) // d) * d
        shape = [-1 if i == axis else 1 for i in range(ndim)]
        begin = begin + (start * strides[axis]).reshape(shape)
        first = first + (inside * strides[axis]).reshape(shape)
        widths += [p, max((many - 1) * s + d * (k - 1) + 1 - size - p, 0)]
    lead = ndim_of(x) - ndim
    none = scalar(lowest(dtype), dtype)
    padded = ctx.emit(R.nn.pad(x, [0] * (2 * lead) + widths, "constant", none))
    axes, result = list(range(lead, lead + ndim)), (*dims_of(x)[:lead], *counts)
    best: Expr = R.full(result, none, dtype)
    at: Expr = R.broadcast_to(Constant(first.astype(kind)), result)
    for tap in product(*map(range, form[0])):
        low = [i * d for i, d in zip(tap, form[3], strict=True)]
        high = [i + (n - 1) * s + 1 for i, n, s in zip(low, counts, form[1], strict=True)]
        value = ctx.emit(R.strided_slice(padded, axes, low, high, list(form[1])))
        better = R.greater(value, best)
        if is_float(dtype):
            better = R.logical_or(better, R.isnan(value))
        better = ctx.emit(better)
        offset = np.array(sum(i * s for i, s in zip(low, strides, strict=True)), kind)
        at = ctx.emit(R.where(better, Constant(offset), at))
        best = ctx.emit(R.where(better, value, best))
    found = R.add(at, Constant(begin.astype(kind)))
    return ctx.cast(ctx.emit(found), "int64")


def _max_pool(ndim: int, with_places: bool) -> Function:
    def convert(
        ctx: Context,
        self: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        """The values come from the plain pooling, so that the places cost nothing if unused."""
        form = windows_of(kernel_size, stride, padding, dilation, ndim)
        x = ctx.emit(self)
        image, alone = batched(x, ndim)
        values = unbatched(MAX_POOL[ndim](image, *form, ceil_mode), alone)
        if not with_places:
            return values
        if not ctx.reads(1):
            return values, None
        counts = ctx.dims(0)[-ndim:]
        known = all(isinstance(size, int) for size in (*space(x, ndim), *counts))
        if known and math.prod(form[0]) <= MAX_TAPS:
            return values, _largest_tap(ctx, x, counts, form)
        every = zip(space(x, ndim), counts, *form, strict=True)
        at = flat_places(ctx, [regular(ctx, *one) for one in every], space(x, ndim))
        return values, largest(ctx, x, ndim, at, 1)[1]

    return convert


def _adaptive_max_pool(ndim: int) -> Function:
    def convert(ctx: Context, self: Expr) -> tuple[Expr, Expr]:
        sizes = space(self, ndim)
        lines = [adaptive(ctx, *pair) for pair in zip(sizes, ctx.dims(0)[-ndim:], strict=True)]
        return largest(ctx, ctx.emit(self), ndim, flat_places(ctx, lines, sizes), 1)

    return convert


# -- averages -----------------------------------------------------------------------------------
def summed(
    ctx: Context,
    x: Expr,
    counts: Dims,
    window: list[int],
    step: list[int],
    pads: list[int],
) -> Expr:
    """The sum over each window, places outside counting as 0."""
    ndim = len(window)
    sizes = space(x, ndim)
    every = zip(sizes, counts, window, step, pads, [1] * ndim, strict=True)
    at = flat_places(ctx, [regular(ctx, *one) for one in every], sizes)
    found = windows(ctx, x, ndim, at, 0)
    return R.sum(found, [ndim_of(found) - 1])


def _avg_pool(ndim: int) -> Function:
    def convert(
        ctx: Context,
        self: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        x, alone = batched(self, ndim)
        window, step, pads, one = windows_of(kernel_size, stride, padding, 1, ndim)
        if divisor_override is None:
            y = AVG_POOL[ndim](x, window, step, pads, one, ceil_mode, count_include_pad)
        elif ceil_mode:
            y = summed(ctx, ctx.emit(x), ctx.dims()[-ndim:], window, step, pads)
            y = R.divide(y, scalar(divisor_override, dtype_of(y)))
            return ctx.reshape(y, ctx.dims())
        else:
            counted = count_include_pad or any(pads)  # the divisor is given for all windows
            y = AVG_POOL[ndim](x, window, step, pads, one, False, counted)
            if divisor_override != math.prod(window):
                y = R.multiply(y, scalar(math.prod(window) / divisor_override, dtype_of(y)))
        return unbatched(y, alone)

    return convert


def _adaptive_avg_pool(ndim: int) -> Function:
    def convert(ctx: Context, self: Expr) -> Expr:
        x, alone = batched(self, ndim)
        y = ADAPTIVE_AVG_POOL[ndim](x, ctx.dims()[-ndim:])
        return unbatched(y, alone)

    return convert


for _n in (1, 2, 3):
    aten(f"max_pool{_n}d")(_max_pool(_n, with_places=False))
    aten(f"max_pool{_n}d_with_indices")(_max_pool(_n, with_places=True))
    aten(f"adaptive_max_pool{_n}d", ignored="output_size")(_adaptive_max_pool(_n))
    aten(f"avg_pool{_n}d")(_avg_pool(_n))
    _names = f"adaptive_avg_pool{_n}d" + (f" _adaptive_avg_pool{_n}d" if _n > 1 else "")
    aten(_names, ignored="output_size", wide=True)(_adaptive_avg_pool(_n))


# -- random windows ------------------------------------------------------------------------------
def _fractional(ndim: int) -> Function:
    def convert(
        ctx: Context, self: Expr, kernel_size: Any, random_samples: Expr
    ) -> tuple[Expr, Expr]:
        """Windows begin where the samples, one for each image, channel and axis, put them."""
        x = ctx.emit(self if ndim_of(self) == ndim + 2 else R.expand_dims(self, [0]))
        sizes, kernel = space(x, ndim), per_axis(kernel_size, ndim)
        counts = [static(d, "the output size") for d in ctx.dims(0)[-ndim:]]
        batch, channels = dims_of(x)[:2]
        samples = ctx.emit(random_samples)
        total: Expr | None = None
        for axis in range(ndim):
            # The samples of two axes are those of the columns first.
            pick = ndim - 1 - axis if ndim == 2 else axis
            u = R.strided_slice(samples, [2], [pick], [pick + 1])
            starts = _starts(ctx, u, sizes[axis], counts[axis], kernel[axis])
            shape: list[Any] = [batch, channels, *[1] * (2 * ndim)]
            shape[2 + axis] = counts[axis]
            inner = [1] * (2 + 2 * ndim)
            inner[2 + ndim + axis] = kernel[axis]
            line = R.reshape(ctx.grid((kernel[axis],), (1,)), inner)
            at = R.add(R.reshape(starts, shape), line)
            at = R.multiply(at, ctx.tensor(math.prod(sizes[axis + 1 :]), "int64"))
            total = at if total is None else R.add(total, at)
        if total is None:
            raise Unsupported("fractional pooling without axes")
        many = (batch, channels, math.prod(counts), math.prod(kernel))
        places = ctx.emit(R.reshape(total, many))
        flat = R.reshape(x, (batch, channels, math.prod(sizes)))
        merged = R.reshape(places, (batch, channels, many[2] * many[3]))
        found = ctx.emit(R.reshape(R.gather_elements(flat, merged, 2), many))
        best = ctx.emit(arg_extremum(ctx, found, 3, True, True))
        where = R.gather_elements(places, best, 3)
        values = R.max(found, [3])
        if is_float(dtype_of(x)):
            first = R.squeeze(R.gather_elements(found, best, 3), [3])
            values = R.grad.differentiate_as(values, first)
        return ctx.reshape(values, ctx.dims(0)), ctx.reshape(where, ctx.dims(1))

    return convert


def _starts(ctx: Context, u: Expr, size: Dim, count: int, window: int) -> Expr:
    """Torch's sequence of random steps of 1 or 2, (batch, channels, count)."""
    dtype = dtype_of(u)
    last = ctx.tensor(size - window, "int64")
    if count == 1:
        return ctx.full((*dims_of(u)[:2], 1), last, "int64")
    alpha = R.divide(ctx.tensor(size - window, "float64"), scalar(float(count - 1), "float64"))
    alpha = ctx.cast(alpha, dtype)
    places = R.reshape(ctx.grid((count,), (1,)), (1, 1, count))
    line = ctx.cast(places, dtype)
    shifted = R.astype(R.multiply(R.add(line, u), alpha), "int64")
    first = R.astype(R.multiply(u, alpha), "int64")
    ends = R.equal(places, scalar(count - 1, "int64"))
    return R.where(ends, last, R.subtract(shifted, first))


aten("fractional_max_pool2d", ignored="output_size")(_fractional(2))
aten("fractional_max_pool3d", ignored="output_size")(_fractional(3))
