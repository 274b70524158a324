# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: Resize and Upsample of any axes, one axis after the other.

Result i of an axis is a weighted sum of a few elements, whose positions and weights (the taps) are
known at import. Semantics: ONNX's specification and, where that is open, its reference: the scale
that the node gives enters the coordinates even where the size was rounded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx import late
from relax2xla.importers.onnx.context import Context, choice, fold_dim
from relax2xla.importers.onnx.ops_sample import TAPS, clamped
from relax2xla.importers.onnx.registry import Known, Lazy, Sizes, onnx_op
from relax2xla.importers.onnx.values import (
    axis_of,
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
    static,
    statics,
)
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim

Floats = npt.NDArray[np.float64]
# Positions and weights (the taps) of an axis, which are made at import: as many as 43 seconds of
# sound at 48 kHz take by cubic splines.
TAPS_LIMIT = 1 << 23
# Values of the matrix that many taps of each point are multiplied by.
MATRIX_LIMIT = 1 << 24
# A symbolic size times a fraction is one too, unless the fraction is a number that was rounded.
DENOMINATOR_LIMIT = 1 << 10
# Taps that are gathered one after the other, where the matrix would be larger.
GATHERED_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: sizes before and after, the scale, and the part of the input that is looked at."""

    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Style:
    """How points are found and mixed; the names are those of Resize's attributes."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    alpha: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


# -- where a point of the result lies in the input -----------------------------------------------
def _half_pixel(x: Floats, a: Axis) -> Floats:
    return (x + 0.5) / a.scale - 0.5


def _symmetric(x: Floats, a: Axis) -> Floats:
    centre = a.size / 2
    return centre * (1 - a.out / (a.scale * a.size)) + _half_pixel(x, a)


def _align_corners(x: Floats, a: Axis) -> Floats:
    length = a.scale * a.size
    return np.zeros_like(x) if length == 1 else x * (a.size - 1) / (length - 1)


def _crop(x: Floats, a: Axis) -> Floats:
    if a.out == 1:
        return np.full_like(x, 0.5 * (a.start + a.end) * (a.size - 1))
    return a.start * (a.size - 1) + x * (a.end - a.start) * (a.size - 1) / (a.out - 1)


COORDINATES: dict[str, Callable[[Floats, Axis], Floats]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda x, a: _half_pixel(x, a) if a.out > 1 else np.zeros_like(x),
    "align_corners": _align_corners,
    "asymmetric": lambda x, a: x / a.scale,
    "tf_half_pixel_for_nn": lambda x, a: (x + 0.5) / a.scale,
    "tf_crop_and_resize": _crop,
}
NEAREST: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x),
    "ceil": lambda x: np.ceil(x),
}


# -- what of the input goes into it --------------------------------------------------------------
def _hat(distance: Floats, alpha: float) -> Floats:
    return np.clip(1 - np.abs(distance), 0, 1)


def _cubic(distance: Floats, a: float) -> Floats:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


KERNELS: dict[str, tuple[int, Callable[[Floats, float], Floats]]] = {
    "linear": (1, _hat),
    "cubic": (2, _cubic),
}


def _first_tap(axis: Axis, style: Style) -> int:
    """Where the taps of a point begin, beside the element before it; they end as far behind."""
    if style.mode == "nearest":
        return 0
    squeeze = min(axis.scale, 1.0) if style.antialias else 1.0
    return math.floor(-KERNELS[style.mode][0] / squeeze) + 1


def _taps(points: Floats, axis: Axis, style: Style) -> tuple[npt.NDArray[np.int64], Floats]:
    """Positions and weights, both (out, taps)."""
    if style.mode == "nearest":
        at = NEAREST[style.nearest](points)
        return np.clip(at, 0, axis.size - 1).astype(np.int64)[:, None], np.ones((axis.out, 1))
    kernel = KERNELS[style.mode][1]
    squeeze = min(axis.scale, 1.0) if style.antialias else 1.0
    first = _first_tap(axis, style)
    base = np.floor(points)[:, None]
    at = base + np.arange(first, 2 - first)[None, :]
    weights = kernel((at - points[:, None]) * squeeze, style.alpha)
    if style.exclude_outside:
        weights = np.where((at >= 0) & (at < axis.size), weights, 0)
    if style.exclude_outside or style.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(at, 0, axis.size - 1).astype(np.int64), weights


def _resize_axis(ctx: Context, x: Expr, at: int, axis: Axis, style: Style) -> Expr:
    count = 1 if style.mode == "nearest" else 2 - 2 * _first_tap(axis, style)
    small = axis.size * axis.out <= MATRIX_LIMIT
    if axis.out * count > TAPS_LIMIT or not (small or count <= GATHERED_LIMIT):
        raise Unsupported(
            f"an axis that is resized to {axis.out} values, each of {count} elements: at most "
            f"{TAPS_LIMIT:,} in all are supported, and {GATHERED_LIMIT} of each on long axes"
        )
    points = COORDINATES[style.coordinates](np.arange(axis.out, dtype=np.float64), axis)
    positions, weights = _taps(points, axis, style)
    dtype = dtype_of(x)
    if style.mode == "nearest":
        y: Expr = R.take(x, Constant(positions[:, 0]), at)
    elif count <= 4 or not small:
        y = _weighted_sum(ctx, x, at, positions, weights)
    else:
        y = _contracted(x, at, axis, positions, weights)
    if style.coordinates == "tf_crop_and_resize":
        outside = (points < 0) | (points > axis.size - 1)
        shape = [axis.out if i == at else 1 for i in range(len(dims_of(x)))]
        if outside.any():
            value = scalar(style.extrapolation, dtype)
            y = R.where(Constant(outside.reshape(shape)), value, y)
    return y


def _weighted_sum(
    ctx: Context, x: Expr, at: int, positions: npt.NDArray[np.int64], weights: Floats
) -> Expr:
    shape = [len(positions) if i == at else 1 for i in range(len(dims_of(x)))]
    kind = numpy_dtype(dtype_of(x))
    total: Expr | None = None
    for k in range(positions.shape[1]):
        if not weights[:, k].any():
            continue
        part = R.take(x, Constant(np.ascontiguousarray(positions[:, k])), at)
        part = R.multiply(part, Constant(weights[:, k].astype(kind).reshape(shape)))
        total = part if total is None else R.add(total, part)
    return R.zeros_like(x) if total is None else total


def _contracted(
    x: Expr, at: int, axis: Axis, positions: npt.NDArray[np.int64], weights: Floats
) -> Expr:
    """Many taps: a product with the matrix (size, out) of their weights."""
    matrix = np.zeros((axis.size, axis.out))
    for k in range(positions.shape[1]):
        np.add.at(matrix, (positions[:, k], np.arange(axis.out)), weights[:, k])
    ndim = len(dims_of(x))
    order = [i for i in range(ndim) if i != at] + [at]
    back = [order.index(i) for i in range(ndim)]
    turned = R.permute_dims(x, order)
    made = R.matmul(turned, Constant(matrix.astype(numpy_dtype(dtype_of(x)))))
    return R.permute_dims(made, back)


def _resized(ctx: Context, x: Expr, axes: Mapping[int, Axis | float], style: Style) -> Expr:
    """``x`` with every axis of ``axes`` resized; integers by way of float32."""
    choice(style.mode, ("nearest", *KERNELS), "mode")
    choice(style.coordinates, COORDINATES, "coordinate_transformation_mode")
    choice(style.nearest, NEAREST, "nearest_mode")
    dtype = dtype_of(x)
    mixes = style.mode != "nearest" and not is_float(dtype)
    y = R.astype(x, "float32") if mixes else x
    for at, axis in axes.items():
        if not isinstance(axis, Axis):
            y = _along(ctx, y, at, axis, style)
            continue
        crops = style.coordinates == "tf_crop_and_resize" and (axis.start, axis.end) != (0, 1)
        if axis.out != axis.size or axis.scale != 1 or crops:
            y = _resize_axis(ctx, y, at, axis, style)
    return R.astype(y, dtype) if mixes else y


def _by_scales(x: Expr, scales: Sequence[float], where: Sequence[int]) -> dict[int, Axis | float]:
    """The axes by scales; of a symbolic one the scale."""
    made: dict[int, Axis | float] = {}
    for at, scale in zip(where, scales, strict=True):
        size = dims_of(x)[at]
        if isinstance(size, int):
            made[at] = Axis(size, math.floor(size * scale), scale)
        elif scale != 1:
            made[at] = scale
    return made


def _multiplied(x: Expr, scales: Sequence[float], where: Sequence[int]) -> list[Dim]:
    """The sizes by scales where a symbolic axis is resized and all sizes are whole numbers for
    certain; else nothing.
    """
    dims = [dims_of(x)[a] for a in where]
    if all(isinstance(d, int) or s == 1 for d, s in zip(dims, scales, strict=True)):
        return []
    made: list[Dim] = []
    for d, s in zip(dims, scales, strict=True):
        if s.is_integer():
            made.append(fold_dim(d * int(s)))
        elif isinstance(d, int) and (d * s).is_integer():
            made.append(int(d * s))
        else:
            return []
    return made


def _by_sizes(
    x: Expr, sizes: Sequence[object], where: Sequence[int], policy: str
) -> dict[int, Axis]:
    dims = dims_of(x)
    if len(sizes) != len(where):
        raise ValueError(f"{len(sizes)} sizes for {len(where)} axes")
    changed = [
        (a, s) for a, s in zip(where, sizes, strict=True) if s is not dims[a] and s != dims[a]
    ]
    old = {a: static(dims[a], "the size of a resized axis") for a, _ in changed}
    new = {a: static(s, "the size of the result") for a, s in changed}
    kind = choice(policy, ("stretch", "not_larger", "not_smaller"), "keep_aspect_ratio_policy")
    if kind == "stretch":
        return {a: Axis(old[a], new[a], new[a] / old[a]) for a in old}
    whole = [
        (static(dims[a], "a size"), static(s, "a size")) for a, s in zip(where, sizes, strict=True)
    ]
    pick = min if kind == "not_larger" else max
    scale = pick(b / a for a, b in whole)
    return {
        at: Axis(a, math.floor(scale * a + 0.5), scale)
        for at, (a, _) in zip(where, whole, strict=True)
    }


def _late_half(x: Expr, s: Expr) -> Expr:
    return R.subtract(R.divide(R.add(x, like(x, 0.5)), s), like(x, 0.5))


def _late_symmetric(x: Expr, s: Expr, size: Expr, out: Expr) -> Expr:
    share = R.subtract(like(x, 1), R.divide(out, R.multiply(s, size)))
    return R.add(R.multiply(R.divide(size, like(x, 2)), share), _late_half(x, s))


def _late_corners(x: Expr, s: Expr, size: Expr, out: Expr) -> Expr:
    rest = R.subtract(R.multiply(s, size), like(x, 1))
    moved = R.divide(R.multiply(x, R.subtract(size, like(x, 1))), rest)
    return R.where(R.equal(rest, like(x, 0)), like(x, 0), moved)


# COORDINATES of a symbolic axis: from the place in the result, the scale and both sizes.
_PLACES: dict[str, Callable[[Expr, Expr, Expr, Expr], Expr]] = {
    "half_pixel": lambda x, s, size, out: _late_half(x, s),
    "half_pixel_symmetric": _late_symmetric,
    "pytorch_half_pixel": lambda x, s, size, out: R.where(
        R.greater(out, like(x, 1)), _late_half(x, s), like(x, 0)
    ),
    "align_corners": _late_corners,
    "asymmetric": lambda x, s, size, out: R.divide(x, s),
    "tf_half_pixel_for_nn": lambda x, s, size, out: R.divide(R.add(x, like(x, 0.5)), s),
}
_ROUNDED: dict[str, Callable[[Expr], Expr]] = {
    "round_prefer_floor": lambda x: R.ceil(R.subtract(x, like(x, 0.5))),
    "round_prefer_ceil": lambda x: R.floor(R.add(x, like(x, 0.5))),
    "floor": lambda x: R.floor(x),
    "ceil": lambda x: R.ceil(x),
}


def _along(ctx: Context, x: Expr, at: int, scale: float, style: Style) -> Expr:
    """A symbolic axis by a scale that may give sizes that are no whole numbers, rounded down."""
    what = f"with the scale {scale} of an axis whose size is not known at import"
    hint = "give the shape in shape_dict"
    if style.antialias or style.exclude_outside or style.alpha != Style().alpha:
        raise Unsupported(f"antialias, exclude_outside or cubic_coeff_a {what}", hint)
    if style.coordinates not in _PLACES:
        raise Unsupported(f"coordinate_transformation_mode={style.coordinates!r} {what}", hint)
    dims = list(dims_of(x))
    up, down = Fraction(scale).as_integer_ratio()
    if down <= DENOMINATOR_LIMIT:
        out = fold_dim(dims[at] * up // down)
    else:
        out = late.scaled(ctx, x, Constant(np.array([scale])), [at], whole=False)[0]
    size, last, end = (
        ctx.emit(ctx.size(d, "float64")) for d in (dims[at], fold_dim(dims[at] - 1), out)
    )
    places = R.arange(0, out, 1, "float64")
    points = _PLACES[style.coordinates](places, scalar(scale, "float64"), size, end)

    def taken(place: Expr) -> Expr:
        return R.take(x, R.astype(clamped(place, 0, last), "int64"), at)

    if style.mode == "nearest":
        return taken(_ROUNDED[style.nearest](points))
    first, weights = TAPS[style.mode]
    points = ctx.emit(points)
    base = ctx.emit(R.floor(points))
    shape = ShapeExpr([out if i == at else 1 for i in range(len(dims))])
    parts: list[Expr] = []
    for k, weight in enumerate(weights(ctx.emit(R.subtract(points, base)))):
        wide = R.reshape(ctx.cast(weight, dtype_of(x)), shape)
        parts.append(R.multiply(taken(R.add(base, like(base, first + k))), wide))
    return functools.reduce(R.add, parts)


def _numbers(scales: Sequence[Any], where: Sequence[int]) -> list[float]:
    """One positive scale an axis."""
    if len(scales) != len(where):
        raise ValueError(f"{len(scales)} scales for {len(where)} axes")
    numbers = [float(s) for s in scales]
    for s in numbers:
        if not (s > 0 and math.isfinite(s)):
            raise ValueError(f"the scale {s}")
    return numbers


# Names of R.image.resize2d.
_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_SAME = {"half_pixel_symmetric": "half_pixel"}


def _late(ctx: Context, x: Expr, dims: Sequence[Dim], style: Style) -> Expr:
    """Signals, images and volumes to sizes that are computed at run time."""
    rank = len(dims)
    if rank not in (3, 4, 5):
        raise Unsupported(f"sizes computed at run time for a tensor of rank {rank}")
    if style.antialias:
        raise Unsupported("antialias with sizes computed at run time")
    how = choice(
        _SAME.get(style.coordinates, style.coordinates),
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
        "coordinate_transformation_mode",
    )
    dtype = dtype_of(x)
    mixes = style.mode != "nearest" and not is_float(dtype)
    y = R.astype(x, "float32") if mixes else x
    more: dict[str, Any] = {
        "method": _METHODS[choice(style.mode, _METHODS, "mode")],
        "coordinate_transformation_mode": how,
        "rounding_method": style.nearest if style.mode == "nearest" else "",
        "cubic_alpha": style.alpha,
        "cubic_exclude": int(style.exclude_outside),
    }
    if rank == 5:
        y = R.image.resize3d(y, list(dims[2:]), layout="NCDHW", **more)
    elif rank == 4:
        y = R.image.resize2d(y, list(dims[2:]), layout="NCHW", **more)
    else:
        # A signal is an image of one row.
        y = R.image.resize2d(R.expand_dims(y, [2]), [1, dims[2]], layout="NCHW", **more)
        y = R.squeeze(y, [2])
    # The check at run time says so where the batch or the channels were to change, too.
    y = ctx.pinned(y, dims)
    return R.astype(y, dtype) if mixes else y


# -- Upsample ------------------------------------------------------------------------------------
_OLD = ("asymmetric", "floor")


def _old(ctx: Context, x: Expr, scales: Sequence[Any] | Expr, mode: str) -> Expr:
    style = Style("linear" if mode == "bilinear" else mode, *_OLD)
    where = range(ndim_of(x))
    if isinstance(scales, Expr):
        return _late(ctx, x, late.scaled(ctx, x, scales, where), style)
    numbers = _numbers(scales, where)
    sizes = _multiplied(x, numbers, where)
    return (
        _late(ctx, x, sizes, style)
        if sizes
        else _resized(ctx, x, _by_scales(x, numbers, where), style)
    )


@onnx_op("Upsample")
def upsample_sides(
    ctx: Context, X: Expr, *, height_scale: float, mode: str = "nearest", width_scale: float
) -> Expr:
    return _old(ctx, X, [1.0, 1.0, height_scale, width_scale], mode)


@onnx_op("Upsample", since=7)
def upsample_attribute(
    ctx: Context, X: Expr, *, mode: str = "nearest", scales: list[float]
) -> Expr:
    return _old(ctx, X, scales, mode)


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def upsample(ctx: Context, X: Expr, scales: Lazy, *, mode: str = "nearest") -> Expr:
    return _old(ctx, X, scales, mode)


# -- Resize --------------------------------------------------------------------------------------
@onnx_op("Resize", since=11)
def resize(
    ctx: Context,
    X: Expr,
    roi: Known | None = None,
    scales: Lazy | None = None,
    sizes: Sizes | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expr:
    ndim = len(dims_of(X))
    where = list(range(ndim)) if axes is None else [axis_of(a, ndim) for a in axes]
    style = Style(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        bool(antialias),
        extrapolation_value,
    )
    numbers: list[float] = []
    if isinstance(scales, Expr):
        sizes = late.scaled(ctx, X, scales, where)
    elif scales is not None and len(scales):
        numbers = _numbers(scales, where)
        sizes = _multiplied(X, numbers, where) or sizes
    if sizes is not None and any(isinstance(tir.as_dim(s), tir.PrimExpr) for s in sizes):
        choice(keep_aspect_ratio_policy, ("stretch",), "keep_aspect_ratio_policy")
        full = list(dims_of(X))
        for a, s in zip(where, sizes, strict=True):
            full[a] = tir.as_dim(s)
        return _late(ctx, X, full, style)
    if sizes is not None and len(sizes):
        resized: dict[int, Axis | float] = {**_by_sizes(X, sizes, where, keep_aspect_ratio_policy)}
    elif numbers:
        resized = _by_scales(X, numbers, where)
    else:
        raise ValueError("it has neither scales nor sizes")
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(where):
            raise ValueError("tf_crop_and_resize needs a roi of two numbers an axis")
        ends = roi.astype(np.float64).reshape(2, -1)
        sizes_of = dict(zip(where, statics((dims_of(X)[a] for a in where), "a size"), strict=True))
        for i, a in enumerate(where):
            found = resized.get(a)
            out, scale = (found.out, found.scale) if isinstance(found, Axis) else (sizes_of[a], 1.0)
            resized[a] = Axis(sizes_of[a], out, scale, float(ends[0, i]), float(ends[1, i]))
    return _resized(ctx, X, resized, style)
