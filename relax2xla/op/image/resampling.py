"""``relax.image.resample``: tensors of any rank resized along any axes, one after the other.

Result i of an axis is a weighted sum of a few elements, whose positions and weights (the taps) are
known when the program is lowered. Semantics: ONNX's Resize and, where its specification is open,
its reference: the scale that is given enters the coordinates even where the size was rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla import tir
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import AxesLike, FloatsLike, IntsLike
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import REAL, norm_axes, tensor, want_tensor
from relax2xla.op.shared.lowering import dtype_of, relax, scalar, shape_of

Floats = npt.NDArray[np.float64]
# Positions and weights (the taps) of an axis: as many as 43 seconds of sound at 48 kHz take by
# cubic splines.
TAPS_LIMIT = 1 << 23
# Values of the matrix that many taps of each point are multiplied by.
MATRIX_LIMIT = 1 << 24
# Taps that are gathered one after the other, where the matrix would be larger.
GATHERED_LIMIT = 64
METHODS: Final = ("nearest_neighbor", "linear", "cubic")
POLICIES: Final = ("stretch", "not_larger", "not_smaller")


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
    """How points are found and mixed; the names are those of the operator's attributes."""

    method: str = "nearest_neighbor"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    alpha: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0

    def check(self) -> None:
        """OpError for a name that is none."""
        known: tuple[tuple[str, str, Sequence[str]], ...] = (
            ("method", self.method, METHODS),
            ("coordinate_transformation_mode", self.coordinates, tuple(COORDINATES)),
            ("rounding_method", self.rounding, tuple(NEAREST)),
        )
        for name, value, values in known:
            if value not in values:
                shown = ", ".join(map(repr, values))
                raise OpError(f"`{name}` must be one of {shown}; got {value!r}")

    @property
    def crops(self) -> bool:
        """Whether a region of the input is looked at."""
        return self.coordinates == "tf_crop_and_resize"


# ---- where a point of the result lies in the input
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


COORDINATES: Final[dict[str, Callable[[Floats, Axis], Floats]]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda x, a: _half_pixel(x, a) if a.out > 1 else np.zeros_like(x),
    "align_corners": _align_corners,
    "asymmetric": lambda x, a: x / a.scale,
    "tf_half_pixel_for_nn": lambda x, a: (x + 0.5) / a.scale,
    "tf_crop_and_resize": _crop,
}
NEAREST: Final[dict[str, Callable[[Floats], Floats]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x),
    "ceil": lambda x: np.ceil(x),
}


# ---- what of the input goes into it
def _hat(distance: Floats, alpha: float) -> Floats:
    return np.clip(1 - np.abs(distance), 0, 1)


def _cubic(distance: Floats, a: float) -> Floats:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


KERNELS: Final[dict[str, tuple[int, Callable[[Floats, float], Floats]]]] = {
    "linear": (1, _hat),
    "cubic": (2, _cubic),
}


def _first_tap(axis: Axis, style: Style) -> int:
    """Where the taps of a point begin, beside the element before it; they end as far behind."""
    if style.method not in KERNELS:
        return 0
    squeeze = min(axis.scale, 1.0) if style.antialias else 1.0
    return math.floor(-KERNELS[style.method][0] / squeeze) + 1


def _taps(points: Floats, axis: Axis, style: Style) -> tuple[npt.NDArray[np.int64], Floats]:
    """Positions and weights, both (out, taps)."""
    if style.method not in KERNELS:
        at = NEAREST[style.rounding](points)
        return np.clip(at, 0, axis.size - 1).astype(np.int64)[:, None], np.ones((axis.out, 1))
    kernel = KERNELS[style.method][1]
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


def _along(x: Expr, at: int, axis: Axis, style: Style) -> Expr:
    if not axis.out:  # of no place, so that there is no weight to say how wide the result is
        return relax("strided_slice", x, axes=[at], begin=[0], end=[0])
    count = 1 if style.method not in KERNELS else 2 - 2 * _first_tap(axis, style)
    small = axis.size * axis.out <= MATRIX_LIMIT
    if axis.out * count > TAPS_LIMIT or not (small or count <= GATHERED_LIMIT):
        raise OpError(
            f"an axis that is resized to {axis.out} values, each of {count} elements: at most "
            f"{TAPS_LIMIT:,} in all are supported, and {GATHERED_LIMIT} of each on long axes"
        )
    points = COORDINATES[style.coordinates](np.arange(axis.out, dtype=np.float64), axis)
    positions, weights = _taps(points, axis, style)
    if style.method not in KERNELS:
        y: Expr = relax("take", x, Constant(positions[:, 0]), axis=at)
    elif count <= 4 or not small:
        y = _weighted_sum(x, at, positions, weights)
    else:
        y = _contracted(x, at, axis, positions, weights)
    if style.crops:
        outside = (points < 0) | (points > axis.size - 1)
        if outside.any():
            shape = [axis.out if i == at else 1 for i in range(_ndim(x))]
            value = scalar(style.extrapolation, dtype_of(x))
            y = relax("where", Constant(outside.reshape(shape)), value, y)
    return y


def _ndim(x: Expr) -> int:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    return info.ndim


def _weighted_sum(x: Expr, at: int, positions: npt.NDArray[np.int64], weights: Floats) -> Expr:
    shape = [len(positions) if i == at else 1 for i in range(_ndim(x))]
    kind = numpy_dtype(dtype_of(x))
    total: Expr | None = None
    for k in range(positions.shape[1]):
        if not weights[:, k].any():
            continue
        part: Expr = relax("take", x, Constant(np.ascontiguousarray(positions[:, k])), axis=at)
        part = relax("multiply", part, Constant(weights[:, k].astype(kind).reshape(shape)))
        total = part if total is None else relax("add", total, part)
    return relax("zeros_like", x) if total is None else total


def _contracted(
    x: Expr, at: int, axis: Axis, positions: npt.NDArray[np.int64], weights: Floats
) -> Expr:
    """Many taps: a product with the matrix (size, out) of their weights."""
    matrix = np.zeros((axis.size, axis.out))
    for k in range(positions.shape[1]):
        np.add.at(matrix, (positions[:, k], np.arange(axis.out)), weights[:, k])
    ndim = _ndim(x)
    order = [i for i in range(ndim) if i != at] + [at]
    back = [order.index(i) for i in range(ndim)]
    turned = relax("permute_dims", x, axes=order)
    made = relax("matmul", turned, Constant(matrix.astype(numpy_dtype(dtype_of(x)))))
    return relax("permute_dims", made, axes=back)


def resampled(x: Expr, axes: Mapping[int, Axis], style: Style) -> Expr:
    """``x`` with every axis of ``axes`` resized; integers are mixed in float32."""
    style.check()
    dtype = dtype_of(x)
    mixes = style.method in KERNELS and not is_float(dtype)
    y: Expr = relax("astype", x, dtype="float32") if mixes else x
    for at, axis in axes.items():
        crops = style.crops and (axis.start, axis.end) != (0, 1)
        if axis.out != axis.size or axis.scale != 1 or crops:
            y = _along(y, at, axis, style)
    return relax("astype", y, dtype=dtype) if mixes else y


# ---- from what is given to sizes
def by_scales(sizes: Mapping[int, int], scales: Sequence[float]) -> dict[int, Axis]:
    """Axes of these sizes, times scales. OpError for a scale that is no positive number."""
    for (at, _), s in zip(sizes.items(), scales, strict=True):
        if not (s > 0 and math.isfinite(s)):
            raise OpError(f"the scale {s} of axis {at}: scales are positive numbers")
    return {
        at: Axis(size, math.floor(size * s), s)
        for (at, size), s in zip(sizes.items(), scales, strict=True)
    }


def by_sizes(sizes: Mapping[int, int], wanted: Sequence[int], policy: str) -> dict[int, Axis]:
    """Axes of these sizes, resized to others or to the largest, or smallest, that keep their ratio.

    OpError for a size that is negative, and another policy than :data:`POLICIES`.
    """
    if policy not in POLICIES:
        shown = ", ".join(map(repr, POLICIES))
        raise OpError(f"`keep_aspect_ratio_policy` must be one of {shown}; got {policy!r}")
    pairs = list(zip(sizes.items(), wanted, strict=True))
    for (at, size), new in pairs:
        if new < 0 or (new and not size):
            raise OpError(f"the size {new} of axis {at}, which has {size} elements")
    if policy == "stretch":
        return {at: Axis(size, new, new / size if size else 1.0) for (at, size), new in pairs}
    pick = min if policy == "not_larger" else max
    scale = pick(new / size for (_, size), new in pairs)
    return {at: Axis(size, math.floor(scale * size + 0.5), scale) for (at, size), _ in pairs}


def with_region(axes: Mapping[int, Axis], roi: Sequence[float]) -> dict[int, Axis]:
    """Axes of which a region is looked at: all starts, then all ends. OpError for other counts."""
    if len(roi) != 2 * len(axes):
        raise OpError(f"a region of {len(roi)} numbers; it has two for each of {len(axes)} axes")
    starts, ends = roi[: len(axes)], roi[len(axes) :]
    return {
        at: Axis(axis.size, axis.out, axis.scale, start, end)
        for (at, axis), start, end in zip(axes.items(), starts, ends, strict=True)
    }


# ---- the operator
@op("relax.image.resample", Opaque())
def resample(
    data: Expr,
    axes: IntsLike,
    sizes: AxesLike = None,
    scales: FloatsLike = (),
    roi: FloatsLike = (),
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round_prefer_floor",
    cubic_alpha: float = -0.75,
    cubic_exclude: bool = False,
    antialias: bool = False,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
) -> Rule:
    """Axes resized to ``sizes``, or by ``scales`` (rounded down), which may be symbolic numbers.

    data:   (*s), any integer or float dtype; integers are mixed in float32
    axes:   those that are resized; ``sizes``, ``scales`` and ``roi`` go along with them
    roi:    for "tf_crop_and_resize": all starts, then all ends, as fractions of the input
    method: "nearest_neighbor", "linear" or "cubic", the other attributes are those of
            ``image.resize2d``; antialias: whether the taps of a smaller result are wider
    keep_aspect_ratio_policy: "stretch", or "not_larger", "not_smaller": sizes are bounds of a
            result with the ratio of the input
    result: ``data`` with these sizes, dtype of ``data``
    Raises ``OpError`` for other names, for scales that are not positive and for negative sizes.
    Source: Resize of ONNX.
    """
    x = want_tensor(data, "data", REAL)
    style = Style(
        *(method, coordinate_transformation_mode, rounding_method, cubic_alpha),
        *(cubic_exclude, antialias, extrapolation_value),
    )
    style.check()
    if (sizes is None) == (not scales):
        raise OpError("`sizes` or `scales` must be given, and not both")

    def lower() -> Expr:
        shape = shape_of(data)
        at = norm_axes(axes, len(shape), "axes")
        own = [shape[a] for a in at]
        if not all(isinstance(v, int | float) for v in (*own, *(sizes or ()), *scales, *roi)):
            raise LegalizeError(
                "positions and weights need sizes, scales and regions that are known"
            )
        made = _plan(own, at, sizes, scales, keep_aspect_ratio_policy)
        return resampled(data, with_region(made, roi) if style.crops else made, style)

    if x.ndim == -1:
        return tensor(None, x.dtype, like=x), lower
    at = norm_axes(axes, x.ndim, "axes")
    given: Sequence[Any] = scales if sizes is None else sizes
    if len(given) != len(at):
        name = "scales" if sizes is None else "sizes"
        raise OpError(f"{len(given)} `{name}` for {len(at)} axes")
    if style.crops and len(roi) != 2 * len(at):
        raise OpError(f'"tf_crop_and_resize" needs a `roi` of {2 * len(at)} numbers; got {roi}')
    if x.dims is None:
        return tensor(None, x.dtype, x.ndim, x), lower
    dims = list(x.dims)
    own = [d for d in (dims[a] for a in at) if isinstance(d, int)]
    if len(own) == len(at) and all(isinstance(v, int | float) for v in given):
        made = _plan(own, at, sizes, scales, keep_aspect_ratio_policy)
        for a, axis in made.items():
            dims[a] = axis.out
    elif sizes is not None and keep_aspect_ratio_policy == "stretch":
        for a, size in zip(at, sizes, strict=True):
            dims[a] = tir.as_dim(size)
    else:
        return tensor(None, x.dtype, x.ndim, x), lower
    return tensor(tuple(dims), x.dtype, like=x), lower


def _plan(
    own: Sequence[int],
    at: Sequence[int],
    sizes: Sequence[int] | None,
    scales: Sequence[float],
    policy: str,
) -> dict[int, Axis]:
    have = dict(zip(at, own, strict=True))
    return by_scales(have, scales) if sizes is None else by_sizes(have, sizes, policy)
