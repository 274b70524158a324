"""Pooling that says where it found its values, with windows of any size, or at random places.

A window is a list of places in the flattened image, known at the import (or, for random windows,
computed); -1 marks a place outside. Everything is then a gather and a reduction over the windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import Array, is_float, limits
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.torch.aten_reduce import arg_extremum
from relax2xla.importers.torch.context import Context, dims_of, dtype_of, ndim_of, scalar, static
from relax2xla.importers.torch.registry import Function, aten
from relax2xla.ir import Constant, Expr

# (start, step inside the window, length) of the windows along one axis.
Line = list[list[int]]


def per_axis(values: Any, ndim: int) -> list[int]:
    """One number for each axis of space."""
    given = [values] if isinstance(values, int) else [static(v, "a window") for v in values]
    return given * ndim if len(given) == 1 else given


def space(x: Expr, ndim: int) -> list[int]:
    """The sizes of an image."""
    return [static(d, "the size of an image") for d in dims_of(x)[-ndim:]]


def regular(size: int, count: int, window: int, step: int, pad: int, spread: int) -> Line:
    """Places of evenly spaced windows; -1 outside."""
    lines: Line = []
    for i in range(count):
        at = [i * step - pad + j * spread for j in range(window)]
        lines.append([p if 0 <= p < size else -1 for p in at])
    return lines


def adaptive(size: int, count: int) -> Line:
    """Windows that share an axis out, filled up with -1 to one length."""
    found = [list(range(i * size // count, -(-(i + 1) * size // count))) for i in range(count)]
    longest = max(map(len, found), default=0)
    return [f + [-1] * (longest - len(f)) for f in found]


def flat_places(lines: Sequence[Line], sizes: Sequence[int]) -> Array:
    """Places in the flattened image, (windows, places of one)."""
    total = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), np.bool_)
    for line, size in zip(lines, sizes, strict=True):
        at = np.array(line, np.int64).reshape(len(line), -1)
        total = total[:, None, :, None] * size + at[None, :, None, :]
        inside = inside[:, None, :, None] & (at >= 0)[None, :, None, :]
        total = total.reshape(-1, total.shape[2] * total.shape[3])
        inside = inside.reshape(total.shape)
    return np.where(inside, total, -1)


def windows(ctx: Context, x: Expr, ndim: int, at: Array, none: Any) -> Expr:
    """The elements of each window along a last axis, ``none`` outside."""
    lead = dims_of(x)[: ndim_of(x) - ndim]
    flat = R.reshape(x, (*lead, math.prod(space(x, ndim))))
    taken = R.take(flat, Constant(np.maximum(at, 0)), len(lead))
    if (at >= 0).all():
        return ctx.emit(taken)
    return ctx.emit(R.where(Constant(at >= 0), taken, scalar(none, dtype_of(x))))


def lowest(dtype: str) -> Any:
    """What no maximum picks."""
    return -math.inf if is_float(dtype) else limits(dtype)[0]


def largest(ctx: Context, x: Expr, ndim: int, at: Array, index: int) -> tuple[Expr, Expr]:
    """The maximum of each window, and where in the image it is; shapes are those of the result."""
    found = windows(ctx, x, ndim, at, lowest(dtype_of(x)))
    last = ndim_of(found) - 1
    values = R.max(found, [last])
    best = ctx.emit(arg_extremum(ctx, found, last, True, True))
    wide = R.broadcast_to(Constant(at), dims_of(found))
    where = R.squeeze(R.gather_elements(wide, best, last), [last])
    return ctx.reshape(values, ctx.dims(0)), ctx.reshape(where, ctx.dims(index))


# -- maxima with their places --------------------------------------------------------------------
def _max_pool(ndim: int) -> Function:
    def convert(
        ctx: Context,
        self: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Expr, Expr | None]:
        """The values come from the plain pooling, so that the places cost nothing if unused.

        Places in images of symbolic sizes are left to the decomposition.
        """
        window = per_axis(kernel_size, ndim)
        step = per_axis(stride, ndim) if stride else window
        pads, spread = per_axis(padding, ndim), per_axis(dilation, ndim)
        x, where = ctx.emit(self), None
        if all(isinstance(d, int) for d in (*dims_of(x)[-ndim:], *ctx.dims(0)[-ndim:])):
            sizes, counts = space(x, ndim), [static(d, "a size") for d in ctx.dims(0)[-ndim:]]
            every = zip(sizes, counts, window, step, pads, spread, strict=True)
            at = flat_places([regular(*one) for one in every], sizes)
            _, where = largest(ctx, x, ndim, at, 1)
        plain = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}[ndim]
        batched = x if ndim_of(x) == ndim + 2 else R.reshape(x, (1, *dims_of(x)))
        values = plain(batched, window, step, pads, spread, ceil_mode)
        return ctx.reshape(ctx.emit(values), ctx.dims(0)), where

    return convert


def _adaptive_max_pool(ndim: int) -> Function:
    def convert(ctx: Context, self: Expr, output_size: Any) -> tuple[Expr, Expr]:
        sizes = space(self, ndim)
        counts = [static(d, "the output size") for d in ctx.dims(0)[-ndim:]]
        lines = [adaptive(s, c) for s, c in zip(sizes, counts, strict=True)]
        return largest(ctx, ctx.emit(self), ndim, flat_places(lines, sizes), 1)

    return convert


for _n in (1, 2, 3):
    aten(f"max_pool{_n}d_with_indices")(_max_pool(_n))
    aten(f"adaptive_max_pool{_n}d")(_adaptive_max_pool(_n))


def summed(
    ctx: Context,
    x: Expr,
    counts: Sequence[int],
    window: list[int],
    step: list[int],
    pads: list[int],
) -> Expr:
    """The sum over each window, places outside counting as 0."""
    ndim = len(window)
    sizes = space(x, ndim)
    every = zip(sizes, counts, window, step, pads, [1] * ndim, strict=True)
    found = windows(ctx, x, ndim, flat_places([regular(*one) for one in every], sizes), 0)
    return R.sum(found, [ndim_of(found) - 1])


# -- random windows ------------------------------------------------------------------------------
def _fractional(ndim: int) -> Function:
    def convert(
        ctx: Context, self: Expr, kernel_size: Any, output_size: Any, random_samples: Expr
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
            starts = _starts(u, sizes[axis], counts[axis], kernel[axis])
            shape: list[Any] = [batch, channels, *[1] * (2 * ndim)]
            shape[2 + axis] = counts[axis]
            inner = [1] * (2 + 2 * ndim)
            inner[2 + ndim + axis] = kernel[axis]
            line = Constant(np.arange(kernel[axis]).reshape(inner))
            at = R.add(R.reshape(starts, shape), line)
            stride = math.prod(sizes[axis + 1 :])
            at = R.multiply(at, scalar(stride, "int64"))
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
        return ctx.reshape(R.max(found, [3]), ctx.dims(0)), ctx.reshape(where, ctx.dims(1))

    return convert


def _starts(u: Expr, size: int, count: int, window: int) -> Expr:
    """Torch's sequence of random steps of 1 or 2, (batch, channels, count)."""
    dtype = dtype_of(u)
    last = size - window
    if count == 1:
        return R.full((*dims_of(u)[:2], 1), scalar(last, "int64"), "int64")
    alpha = scalar(last / (count - 1), dtype)
    line = Constant(np.arange(count).astype(dtype).reshape(1, 1, count))
    shifted = R.astype(R.multiply(R.add(line, u), alpha), "int64")
    first = R.astype(R.multiply(u, alpha), "int64")
    ends = Constant(np.arange(count).reshape(1, 1, count) == count - 1)
    return R.where(ends, scalar(last, "int64"), R.subtract(shifted, first))


aten("fractional_max_pool2d")(_fractional(2))
aten("fractional_max_pool3d")(_fractional(3))


# -- smoothed resizing ---------------------------------------------------------------------------
def _triangle(t: float) -> float:
    return max(0.0, 1 - abs(t))


def _cubic(t: float) -> float:
    a, t = -0.5, abs(t)
    if t < 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


FILTERS: dict[str, tuple[Callable[[float], float], int]] = {
    "bilinear": (_triangle, 2),
    "bicubic": (_cubic, 4),
}


def smoothing(size: int, wanted: int, scale: float | None, align: bool, name: str) -> Array:
    """The weight of each input place in each output place, (wanted, size)."""
    shape, width = FILTERS[name]
    if align:
        step = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        step = 1 / scale if scale else size / wanted
    support = width / 2 * max(step, 1.0)
    made = np.zeros((wanted, size))
    for i in range(wanted):
        centre = step * (i + 0.5)
        low = max(int(centre - support + 0.5), 0)
        high = min(int(centre + support + 0.5), size)
        weights = [shape((p - centre + 0.5) / max(step, 1.0)) for p in range(low, high)]
        made[i, low:high] = np.array(weights) / (sum(weights) or 1.0)
    return made


def _smoothed(name: str) -> Function:
    def convert(
        ctx: Context,
        self: Any = None,
        output_size: Any = None,
        align_corners: bool = False,
        scales_h: Any = None,
        scales_w: Any = None,
        input: Any = None,
        scale_factors: Any = None,
    ) -> Expr:
        x = self if self is not None else input
        dtype = dtype_of(x)
        if not is_float(dtype):
            raise Unsupported(f"smoothed resizing of a {dtype} tensor")
        sizes, wanted = space(x, 2), [static(d, "a size") for d in ctx.dims()[-2:]]
        scales = scale_factors or [scales_h, scales_w]
        high, wide = (
            Constant(smoothing(s, w, f, align_corners, name).astype("float64"))
            for s, w, f in zip(sizes, wanted, scales, strict=True)
        )
        kind = dtype if dtype == "float64" else "float32"
        y = R.matmul(ctx.cast(high, kind), ctx.cast(x, kind))
        return ctx.cast(R.matmul(y, R.permute_dims(ctx.cast(wide, kind), [1, 0])), dtype)

    return convert


for _name in FILTERS:
    aten(f"_upsample_{_name}2d_aa", f"_upsample_{_name}2d_aa.vec")(_smoothed(_name))
