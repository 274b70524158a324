"""Resizing: nearest and linear interpolation over one, two and three axes.

Each axis is gathered at places that are constants, with torch's own formulas (in float32, as torch
computes them; weights of float64 images in float64), so that a given scale factor counts and not
only the ratio of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import Array, is_float, numpy_dtype
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, dims_of, dtype_of, ndim_of, static
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Constant, Expr

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


def linear_places(
    size: int, wanted: int, scale: float | None, align: bool, kind: str
) -> tuple[Array, Array, Array]:
    """Both neighbours in the input of each output place, and the weight of the second.

    kind: the dtype to compute in
    """
    real = numpy_dtype(kind).type
    at = np.arange(wanted, dtype=real)
    if align:
        source = at * (real(size - 1) / real(max(wanted - 1, 1)))
    else:
        half = real(0.5)
        source = np.maximum(_step(size, wanted, scale, kind) * (at + half) - half, real(0))
    low = np.minimum(source.astype(np.int64), size - 1)
    return low, np.minimum(low + 1, size - 1), source - low.astype(real)


def _sizes(ctx: Context, x: Expr, n: int) -> list[tuple[int, int, int]]:
    """(axis, size, wanted size) of the axes of space."""
    old = [static(d, "the size of an image") for d in dims_of(x)[-n:]]
    new = [static(d, "the output size") for d in ctx.dims()[-n:]]
    return [(ndim_of(x) - n + i, old[i], new[i]) for i in range(n)]


def _nearest(ctx: Context, x: Expr, n: int, scales: Sequence[Any], exact: bool) -> Expr:
    for (axis, old, new), scale in zip(_sizes(ctx, x, n), scales, strict=True):
        places = nearest_places(old, new, scale, exact)
        if not np.array_equal(places, np.arange(old)):
            x = R.take(x, Constant(places), axis)
    return x


def _linear(ctx: Context, x: Expr, n: int, scales: Sequence[Any], align: bool) -> Expr:
    dtype = dtype_of(x)
    if not is_float(dtype):
        raise Unsupported(f"linear interpolation of a {dtype} tensor")
    kind = "float64" if dtype == "float64" else "float32"
    for (axis, old, new), scale in zip(_sizes(ctx, x, n), scales, strict=True):
        low, high, weight = linear_places(old, new, scale, align, kind)
        if old == new and not weight.any():
            continue
        x = ctx.emit(x)
        column = [1] * ndim_of(x)
        column[axis] = new
        second = weight.reshape(column).astype(numpy_dtype(dtype))
        first = (1 - weight).reshape(column).astype(numpy_dtype(dtype))
        left = R.multiply(R.take(x, Constant(low), axis), Constant(first))
        right = R.multiply(R.take(x, Constant(high), axis), Constant(second))
        x = R.add(left, right)
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
