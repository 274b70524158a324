# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: Resize and Upsample of any axes; see relax2xla/op/image/resampling.py.

What is known at import is resized at once. Sizes that are computed from shapes become operators
that can be exported with symbolic sizes; other sizes, scales and regions are attributes that the
machine knows when it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.errors import OpError
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import Floats, Sizes, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    info_of,
    like,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.ops.sample import TAPS
from relax2xla.importers.shared.activations import clamped
from relax2xla.importers.shared.dims import fold_dim
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Expr, ShapeExpr
from relax2xla.op.image.resampling import (
    COORDINATES,
    NEAREST,
    POLICIES,
    Axis,
    Style,
    by_scales,
    by_sizes,
    resampled,
    with_region,
)
from relax2xla.tir import Dim

# A symbolic size times a fraction is one too, unless the fraction is a number that was rounded.
DENOMINATOR_LIMIT = 1 << 10
# Names of Relax.
_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}


def _style(mode: str, coordinates: str, nearest: str, **more: Any) -> Style:
    choice(mode, _METHODS, "mode")
    choice(coordinates, COORDINATES, "coordinate_transformation_mode")
    choice(nearest, NEAREST, "nearest_mode")
    return Style(_METHODS[mode], coordinates, nearest, **more)


def _resized(ctx: Context, x: Expr, axes: Mapping[int, Axis | float], style: Style) -> Expr:
    """``x`` with every axis of ``axes`` resized; of a symbolic one the scale is given."""
    fixed = {at: a for at, a in axes.items() if isinstance(a, Axis)}
    dtype = dtype_of(x)
    mixes = style.method != "nearest_neighbor" and not is_float(dtype)
    y = R.astype(x, "float32") if mixes else x
    try:
        y = resampled(y, fixed, style)
    except OpError as e:
        raise Unsupported(str(e)) from e
    for at, scale in axes.items():
        if not isinstance(scale, Axis):
            y = _along(ctx, y, at, scale, style)
    return R.astype(y, dtype) if mixes else y


def _by_scales(x: Expr, scales: Sequence[float], where: Sequence[int]) -> dict[int, Axis | float]:
    """The axes by scales; of a symbolic one the scale."""
    own = {at: dims_of(x)[at] for at in where}
    known = [
        (at, d, s) for (at, d), s in zip(own.items(), scales, strict=True) if isinstance(d, int)
    ]
    made: dict[int, Axis | float] = {
        **by_scales({at: d for at, d, _ in known}, [s for _, _, s in known])
    }
    for at, scale in zip(where, scales, strict=True):
        if at not in made and scale != 1:
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
    "floor": R.floor,
    "ceil": R.ceil,
}


def _along(ctx: Context, x: Expr, at: int, scale: float, style: Style) -> Expr:
    """A symbolic axis by a scale that may give sizes that are no whole numbers, rounded down."""
    dims = list(dims_of(x))
    up, down = Fraction(scale).as_integer_ratio()
    plain = Style(style.method, style.coordinates, style.rounding)
    if down > DENOMINATOR_LIMIT or style != plain or style.coordinates not in _PLACES:
        return _when_known(ctx, x, [at], style, scales=[scale])
    out = fold_dim(dims[at] * up // down)
    size, last, end = (
        ctx.emit(ctx.size(d, "float64")) for d in (dims[at], fold_dim(dims[at] - 1), out)
    )
    places = R.arange(0, out, 1, "float64")
    points = _PLACES[style.coordinates](places, scalar(scale, "float64"), size, end)

    def taken(place: Expr) -> Expr:
        return R.take(x, R.astype(clamped(place, 0, last), "int64"), at)

    if style.method == "nearest_neighbor":
        return taken(_ROUNDED[style.rounding](points))
    first, weights = TAPS[style.method]
    points = ctx.emit(points)
    base = ctx.emit(R.floor(points))
    shape = ShapeExpr([out if i == at else 1 for i in range(len(dims))])
    parts: list[Expr] = []
    for k, weight in enumerate(weights(ctx.emit(R.subtract(points, base)))):
        wide = R.reshape(ctx.cast(weight, dtype_of(x)), shape)
        parts.append(R.multiply(taken(R.add(base, like(base, first + k))), wide))
    return functools.reduce(R.add, parts)


def _when_known(ctx: Context, x: Expr, where: Sequence[int], style: Style, **numbers: Any) -> Expr:
    """The operator that is lowered when all sizes and numbers are known."""
    made = R.image.resample(
        x,
        list(where),
        method=style.method,
        coordinate_transformation_mode=style.coordinates,
        rounding_method=style.rounding,
        cubic_alpha=style.alpha,
        cubic_exclude=style.exclude_outside,
        antialias=style.antialias,
        extrapolation_value=style.extrapolation,
        **numbers,
    )
    return ctx.pinned(made, info_of(made).dims or [None] * ndim_of(x))


# Coordinates of R.image.resize2d.
_SAME = {
    "half_pixel_symmetric": "half_pixel",
    **{name: name for name in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")},
}


def _known(sizes: Mapping[int, Dim]) -> dict[int, int] | None:
    """Sizes by axis where none is symbolic."""
    made = {a: s for a, s in sizes.items() if isinstance(s, int)}
    return made if len(made) == len(sizes) else None


def _are_known(*numbers: object) -> bool:
    return all(isinstance(n, int | float) for n in numbers)


def _to_sizes(ctx: Context, x: Expr, dims: Sequence[Dim], style: Style) -> Expr:
    """To sizes of which some are symbolic: images by an operator that can be exported as such."""
    rank = len(dims)
    if (
        rank not in (3, 4, 5)
        or style.antialias
        or style.coordinates not in _SAME
        or any(a is not b and a != b for a, b in zip(dims[:2], dims_of(x)[:2], strict=True))
    ):
        return _when_known(ctx, x, range(rank), style, sizes=list(dims))
    dtype = dtype_of(x)
    nearest = style.method == "nearest_neighbor"
    mixes = not nearest and not is_float(dtype)
    y = R.astype(x, "float32") if mixes else x
    more: dict[str, Any] = {
        "method": style.method,
        "coordinate_transformation_mode": _SAME[style.coordinates],
        "rounding_method": style.rounding if nearest else "",
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
    y = ctx.pinned(y, dims)
    return R.astype(y, dtype) if mixes else y


def _sized(
    ctx: Context,
    x: Expr,
    sizes: Sequence[Dim],
    where: Sequence[int],
    style: Style,
    policy: str,
    region: Sequence[Any],
) -> Expr:
    """To one size an axis, or to the largest or smallest ones that the policy allows."""
    dims = dims_of(x)
    if len(sizes) != len(where):
        raise ValueError(f"{len(sizes)} sizes for {len(where)} axes")
    if policy == "stretch" and not region:
        full = list(dims)
        for a, s in zip(where, sizes, strict=True):
            full[a] = s
        where = [a for a in where if full[a] is not dims[a] and full[a] != dims[a]]
        sizes = [full[a] for a in where]
        if not _are_known(*sizes, *(dims[a] for a in where)):
            return _to_sizes(ctx, x, full, style)
    own, new = _known({a: dims[a] for a in where}), _known(dict(zip(where, sizes, strict=True)))
    if own is None or new is None or not _are_known(*region):
        more = {"keep_aspect_ratio_policy": policy, "roi": region}
        return _when_known(ctx, x, where, style, sizes=sizes, **more)
    made = by_sizes(own, list(new.values()), policy)
    return _resized(ctx, x, with_region(made, region) if region else made, style)


def _scaled(
    ctx: Context,
    x: Expr,
    scales: Sequence[Any],
    where: Sequence[int],
    style: Style,
    region: Sequence[Any] = (),
) -> Expr:
    """By one scale an axis."""
    if len(scales) != len(where):
        raise ValueError(f"{len(scales)} scales for {len(where)} axes")
    dims = dims_of(x)
    own = _known({a: dims[a] for a in where})
    if not _are_known(*scales, *region) or (region and own is None):
        return _when_known(ctx, x, where, style, scales=scales, roi=region)
    numbers = [float(s) for s in scales]
    if region and own is not None:
        made = by_scales(own, numbers)
        return _resized(ctx, x, with_region(made, region), style)
    sizes = _multiplied(x, numbers, where)
    if not sizes:
        return _resized(ctx, x, _by_scales(x, numbers, where), style)
    full = list(dims)
    for a, size in zip(where, sizes, strict=True):
        full[a] = size
    return _to_sizes(ctx, x, full, style)


# -- Upsample ------------------------------------------------------------------------------------
def _old(ctx: Context, x: Expr, scales: Sequence[Any], mode: str) -> Expr:
    style = _style("linear" if mode == "bilinear" else mode, "asymmetric", "floor")
    return _scaled(ctx, x, scales, range(ndim_of(x)), style)


@onnx_op("Upsample")
def upsample_sides(
    ctx: Context, X: Expr, *, height_scale: float, mode: str = "nearest", width_scale: float
) -> Expr:
    return _old(ctx, X, [1.0, 1.0, height_scale, width_scale], mode)


@onnx_op("Upsample", since=7, attributes="scales")
@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def upsample(ctx: Context, X: Expr, scales: Floats, *, mode: str = "nearest") -> Expr:
    return _old(ctx, X, scales, mode)


# -- Resize --------------------------------------------------------------------------------------
@onnx_op("Resize", since=11)
def resize(
    ctx: Context,
    X: Expr,
    roi: Floats | None = None,
    scales: Floats | None = None,
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
    style = _style(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        alpha=cubic_coeff_a,
        exclude_outside=bool(exclude_outside),
        antialias=bool(antialias),
        extrapolation=extrapolation_value,
    )
    policy = choice(keep_aspect_ratio_policy, POLICIES, "keep_aspect_ratio_policy")
    region = list(roi or ()) if style.crops else []
    if style.crops and len(region) != 2 * len(where):
        raise ValueError("tf_crop_and_resize needs a roi of two numbers an axis")
    if sizes:
        wanted = [tir.as_dim(s) for s in sizes]
        return _sized(ctx, X, wanted, where, style, policy, region)
    if scales:
        return _scaled(ctx, X, scales, where, style, region)
    raise ValueError("it has neither scales nor sizes")
