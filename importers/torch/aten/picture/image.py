"""Resizing: nearest, linear and cubic interpolation over one, two and three axes.

Each axis is gathered at places that are constants, with torch's own formulas (in float32, as torch
computes them; weights of float64 images in float64), so that a given scale factor counts and not
only the ratio of the sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import Array, is_float, numpy_dtype
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Constant, Expr

# -- at places that are constants ------------------------------------------------------------------
# Suffixes of the schema's arguments, by the number of axes.
AXES = {1: ("",), 2: ("_h", "_w"), 3: ("_d", "_h", "_w")}


def _step(size: int, wanted: int, scale: float | None, kind: str) -> Any:
    """How far apart in the input two neighbours of the output are."""
    real = numpy_dtype(kind).type
    return real(1.0 / scale) if scale else real(size) / real(wanted)


def nearest_places(size: int, wanted: int, scale: float | None, exact: bool) -> Array:
    """The input place of each output place."""
    at = np.arange(wanted, dtype=np.float32) + np.float32(0.5 if exact else 0)
    found = np.floor(at * _step(size, wanted, scale, "float32")).astype(np.int64)
    return np.minimum(found, size - 1)


def _points(size: int, wanted: int, scale: float | None, align: bool, kind: str) -> Array:
    """Where the middle of each output place is in the input, which may be outside of it."""
    real = numpy_dtype(kind).type
    at = np.arange(wanted, dtype=real)
    if align:
        return at * (real(size - 1) / real(max(wanted - 1, 1)))
    half = real(0.5)
    return _step(size, wanted, scale, kind) * (at + half) - half


def linear_places(
    size: int, wanted: int, scale: float | None, align: bool, kind: str
) -> tuple[Array, Array, Array]:
    """Both neighbours in the input of each output place, and the weight of the second.

    kind: the dtype to compute in
    """
    real = numpy_dtype(kind).type
    source = np.maximum(_points(size, wanted, scale, align, kind), real(0))
    low = np.minimum(source.astype(np.int64), size - 1)
    return low, np.minimum(low + 1, size - 1), source - low.astype(real)


# The factor of Keys' kernel (1981) that torch takes where it does not smooth.
SHARPNESS = -0.75


def cubic_places(
    size: int, wanted: int, scale: float | None, align: bool, kind: str
) -> list[tuple[Array, Array]]:
    """The four neighbours in the input of each output place, each with its weight.

    kind: the dtype to compute in
    """
    real, a = numpy_dtype(kind).type, SHARPNESS
    source = _points(size, wanted, scale, align, kind)
    low = np.floor(source)
    t = source - low

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = far(t + 1), near(t), near(1 - t), far(2 - t)
    places = (np.clip(low.astype(np.int64) + i, 0, size - 1) for i in range(-1, 3))
    return [(p, w.astype(real)) for p, w in zip(places, weights, strict=True)]


def _sizes(ctx: Context, x: Expr, n: int) -> list[tuple[int, int, int]]:
    """(axis, size, wanted size) of the axes of space."""
    old = [static(d, "the size of an image") for d in dims_of(x)[-n:]]
    new = [static(d, "the output size") for d in ctx.dims()[-n:]]
    return [(ndim_of(x) - n + i, old[i], new[i]) for i in range(n)]


# How far a pixel's point is from its corner, as R.image.resize2d names it.
POINTS = {"half_pixel": 0.5, "asymmetric": 0.0}


def _are_nearest(places: Array, size: int, point: float) -> bool:
    """Whether these are clearly the places nearest to the points of a result's pixels."""
    at = (np.arange(len(places)) + point) * (size / len(places)) - point
    # None is in the middle between two: which one is taken there is a matter of rounding.
    return bool((np.abs(at - places) < 0.499).all())


def _nearest(ctx: Context, x: Expr, n: int, scales: Sequence[Any], exact: bool) -> Expr:
    found = [
        (axis, old, nearest_places(old, new, scale, exact))
        for (axis, old, new), scale in zip(_sizes(ctx, x, n), scales, strict=True)
    ]
    for mode, point in POINTS.items() if n == 2 else ():
        if all(_are_nearest(places, old, point) for _, old, places in found):
            size = [len(places) for *_, places in found]
            return R.image.resize2d(
                x, size, method="nearest_neighbor", coordinate_transformation_mode=mode
            )
    for axis, old, places in found:
        if not np.array_equal(places, np.arange(old)):
            x = R.take(x, Constant(places), axis)
    return x


def _weighted(ctx: Context, x: Expr, axis: int, parts: Sequence[tuple[Array, Array]]) -> Expr:
    """The sum of ``x`` taken along an axis at some places, each times its weights."""
    x = ctx.emit(x)
    column = [1] * ndim_of(x)
    column[axis] = -1
    dtype = numpy_dtype(dtype_of(x))
    terms = [
        R.multiply(R.take(x, Constant(at), axis), Constant(weight.reshape(column).astype(dtype)))
        for at, weight in parts
    ]
    return functools.reduce(R.add, terms)


def _linear(ctx: Context, x: Expr, n: int, scales: Sequence[Any], align: bool) -> Expr:
    dtype = dtype_of(x)
    if not is_float(dtype):
        raise Unsupported(f"linear interpolation of a {dtype} tensor")
    kind = "float64" if dtype == "float64" else "float32"
    for (axis, old, new), scale in zip(_sizes(ctx, x, n), scales, strict=True):
        low, high, weight = linear_places(old, new, scale, align, kind)
        if old == new and not weight.any():
            continue
        x = _weighted(ctx, x, axis, [(low, 1 - weight), (high, weight)])
    return x


def _bicubic(ctx: Context, x: Expr, n: int, scales: Sequence[Any], align: bool) -> Expr:
    """One axis after the other, four products each; what torch makes of it reads 16 pixels."""
    dtype = dtype_of(x)
    if not is_float(dtype):
        raise Unsupported(f"cubic interpolation of a {dtype} tensor")  # torch takes bytes apart
    kind = "float64" if dtype == "float64" else "float32"
    axes = list(zip(_sizes(ctx, x, n), scales, strict=True))
    for (axis, old, new), scale in reversed(axes):
        x = _weighted(ctx, x, axis, cubic_places(old, new, scale, align, kind))
    return x


def _resize(n: int, resize: Callable[..., Expr]) -> Function:
    """Of the overloads with sizes and scales as lists, and argument by argument."""

    def convert(
        ctx: Context,
        self: Expr,
        align_corners: bool = False,
        scale_factors: Any = None,
        scales: Any = None,
        scales_d: Any = None,
        scales_h: Any = None,
        scales_w: Any = None,
    ) -> Expr:
        each = {"": scales, "_d": scales_d, "_h": scales_h, "_w": scales_w}
        given = scale_factors or [each[axis] for axis in AXES[n]]
        return resize(ctx, self, n, given, align_corners)

    return convert


KINDS: tuple[tuple[str, Callable[..., Expr]], ...] = (
    ("upsample_nearest{n}d", lambda *args: _nearest(*args[:-1], exact=False)),
    ("_upsample_nearest_exact{n}d", lambda *args: _nearest(*args[:-1], exact=True)),
    ("upsample_{linear}{n}d", _linear),
)
for _n, _prefix in {1: "", 2: "bi", 3: "tri"}.items():
    for _name, _kind in KINDS:
        _full = _name.format(n=_n, linear=f"{_prefix}linear")
        aten(_full, f"{_full}.vec", ignored="output_size", wide=_kind is _linear)(
            _resize(_n, _kind)
        )


_cubic_form = aten("upsample_bicubic2d", "upsample_bicubic2d.vec", ignored="output_size", wide=True)
_cubic_form(_resize(2, _bicubic))


# -- smoothed resizing ---------------------------------------------------------------------------
def _f64(value: float) -> Constant:
    return scalar(value, "float64")


def _triangle(t: Expr) -> Expr:
    return R.maximum(_f64(0.0), R.subtract(_f64(1.0), t))


def _cubic(t: Expr) -> Expr:
    """Keys' kernel with a = -0.5, by Horner's rule, of distances up to 1, up to 2, and beyond."""

    def polynomial(*factors: float) -> Expr:
        total: Expr = _f64(factors[0])
        for f in factors[1:]:
            total = R.add(R.multiply(total, t), _f64(f))
        return total

    near, far = polynomial(1.5, -2.5, 0.0, 1.0), polynomial(-0.5, 2.5, -4.0, 2.0)
    rest = R.where(R.less(t, _f64(2.0)), far, _f64(0.0))
    return R.where(R.less(t, _f64(1.0)), near, rest)


FILTERS: dict[str, tuple[Callable[[Expr], Expr], int]] = {
    "bilinear": (_triangle, 2),
    "bicubic": (_cubic, 4),
}


# Of the weights of bytes, at most.
MOST_BITS = 22


def smoothing(
    ctx: Context, size: Dim, wanted: Dim, scale: float | None, align: bool, name: str
) -> Expr:
    """The weight of each input place in each output place, (wanted, size), in float64."""
    shape, width = FILTERS[name]
    old, new = (ctx.tensor(d, "float64") for d in (size, wanted))
    if align:
        gaps = R.subtract(new, _f64(1.0))
        ratio = R.divide(R.subtract(old, _f64(1.0)), R.maximum(gaps, _f64(1.0)))
        step = R.where(R.greater(gaps, _f64(0.0)), ratio, _f64(0.0))
    else:
        step = _f64(1 / scale) if scale else R.divide(old, new)
    step = ctx.emit(step)
    wide = ctx.emit(R.maximum(step, _f64(1.0)))
    support = R.multiply(wide, _f64(width / 2))
    half = _f64(0.5)
    place = ctx.cast(ctx.grid((1, size), (0, 1)), "float64")
    centre = ctx.emit(
        R.multiply(step, R.add(ctx.cast(ctx.grid((wanted, 1), (1, 0)), "float64"), half))
    )
    low = R.maximum(R.trunc(R.add(R.subtract(centre, support), half)), _f64(0.0))
    high = R.trunc(R.add(R.add(centre, support), half))
    away = R.abs(R.divide(R.add(R.subtract(place, centre), half), wide))
    weight = shape(ctx.emit(away))
    inside = R.logical_and(R.greater_equal(place, low), R.less(place, high))
    weight = ctx.emit(R.where(inside, weight, _f64(0.0)))
    total = ctx.emit(R.sum(weight, [1], True))
    return R.divide(weight, R.where(R.equal(total, _f64(0.0)), _f64(1.0), total))


def _bytes(ctx: Context, x: Expr, weight: Expr, columns: bool) -> Expr:
    """The weighted sums along an axis of an int32 image of bytes, as torch's kernel has them: of
    weights with 15 bits at most, rounded to bytes again.
    """
    one = scalar(1, "int32")
    powers = Constant(2.0 ** np.arange(1, MOST_BITS + 1))
    fits = R.less(R.add(R.multiply(R.max(weight), powers), _f64(0.5)), _f64(2.0**15))
    bits = ctx.emit(R.sum(ctx.cast(fits, "int32")))
    scaled = ctx.emit(R.multiply(weight, ctx.cast(R.left_shift(one, bits), "float64")))
    half = R.where(R.less(scaled, _f64(0.0)), _f64(-0.5), _f64(0.5))
    whole = ctx.cast(R.trunc(R.add(scaled, half)), "int32")
    sums = R.matmul(x, R.permute_dims(whole, [1, 0])) if columns else R.matmul(whole, x)
    rounded = R.add(sums, R.left_shift(one, R.subtract(bits, one)))
    return ctx.emit(R.clip(R.right_shift(rounded, bits), 0, 255))


def _smoothed(name: str) -> Function:
    def convert(
        ctx: Context,
        self: Expr,
        align_corners: bool,
        scales_h: Any = None,
        scales_w: Any = None,
        scale_factors: Any = None,
    ) -> Expr:
        dtype = dtype_of(self)
        scales = scale_factors or [scales_h, scales_w]
        sizes = dims_of(self)[-2:], ctx.dims()[-2:]
        if dtype == "uint8":
            high, wide = _weights(ctx, *sizes, scales, align_corners, name, "float64")
            y = _bytes(ctx, ctx.cast(self, "int32"), wide, columns=True)
            return ctx.cast(_bytes(ctx, y, high, columns=False), dtype)
        if not is_float(dtype):
            raise Unsupported(
                f"smoothed resizing of a {dtype} tensor, which torch has for floats and uint8 only"
            )
        high, wide = _weights(ctx, *sizes, scales, align_corners, name, dtype)
        return R.matmul(R.matmul(high, self), R.permute_dims(wide, [1, 0]))

    return convert


def _weights(
    ctx: Context,
    sizes: Sequence[Dim],
    wanted: Sequence[Dim],
    scales: Sequence[Any],
    align: bool,
    name: str,
    dtype: str,
) -> list[Expr]:
    """What :func:`smoothing` gives for each axis."""
    return [
        ctx.cast(smoothing(ctx, s, w, f, align, name), dtype)
        for s, w, f in zip(sizes, wanted, scales, strict=True)
    ]


def _smoothed_backward(name: str) -> Function:
    def convert(
        ctx: Context,
        grad_output: Expr,
        align_corners: bool,
        scales_h: Any = None,
        scales_w: Any = None,
    ) -> Expr:
        """The same weights the other way."""
        sizes, scales = (ctx.dims()[-2:], dims_of(grad_output)[-2:]), [scales_h, scales_w]
        form = (align_corners, name, dtype_of(grad_output))
        high, wide = _weights(ctx, *sizes, scales, *form)
        return R.matmul(R.matmul(R.permute_dims(high, [1, 0]), grad_output), wide)

    return convert


for _name in FILTERS:
    _full = f"_upsample_{_name}2d_aa"
    aten(_full, f"{_full}.vec", ignored="output_size", wide=True)(_smoothed(_name))
    _back = aten(f"{_full}_backward", ignored="output_size input_size", wide=True)
    _back(_smoothed_backward(_name))
