"""Sampling volumes at places that are data."""

from __future__ import annotations

import itertools
import math

from relax2xla import op as R
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.torch.aten_math import half_to_even
from relax2xla.importers.torch.context import Context, Dim, Dims, dims_of, dtype_of, scalar
from relax2xla.importers.torch.registry import aten
from relax2xla.ir import Expr

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER, REFLECTION = 0, 1, 2


def _unnormalised(ctx: Context, x: Expr, size: Dim, align: bool) -> Expr:
    """From [-1, 1] to places along an axis."""
    dtype = dtype_of(x)
    one, two = scalar(1, dtype), scalar(2, dtype)
    if align:
        return R.multiply(R.add(x, one), R.divide(ctx.tensor(size - 1, dtype), two))
    whole = R.subtract(R.multiply(R.add(x, one), ctx.tensor(size, dtype)), one)
    return R.divide(whole, two)


def _reflected(ctx: Context, x: Expr, size: Dim, align: bool) -> Expr:
    """Mirrored at both ends as often as it takes; all of one point are that point."""
    dtype = dtype_of(x)
    low = scalar(0.0 if align else -0.5, dtype)
    span = ctx.emit(ctx.tensor(size - 1 if align else size, dtype))
    zero = scalar(0, dtype)
    off = ctx.emit(R.abs(R.subtract(x, low)))
    turns = ctx.emit(R.floor(R.divide(off, R.maximum(span, scalar(1, dtype)))))
    rest = ctx.emit(R.subtract(off, R.multiply(turns, span)))
    odd = R.not_equal(R.floor_mod(turns, scalar(2, dtype)), zero)
    back = R.subtract(R.add(span, low), rest)
    return R.where(R.equal(span, zero), zero, R.where(odd, back, R.add(rest, low)))


@aten("grid_sampler_3d")
def grid_sampler_3d(
    ctx: Context,
    input: Expr,
    grid: Expr,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Expr:
    """The last axis of ``grid`` holds places along width, height and depth."""
    narrow = dtype_of(input)
    # Places on a volume need more digits than the 8 of bfloat16.
    dtype = "float32" if narrow in ("bfloat16", "float16") else narrow
    x, places = ctx.emit(ctx.cast(input, dtype)), ctx.emit(ctx.cast(grid, dtype))
    batch, channels, *volume = dims_of(x)
    sizes = tuple(volume)
    if 0 in sizes or interpolation_mode not in (BILINEAR, NEAREST):
        raise Unsupported(f"grid_sampler_3d with the mode {interpolation_mode} on {sizes}")
    shape = dims_of(places)[:-1]
    at: list[Expr] = []
    for axis, size in enumerate(sizes):
        own = R.reshape(R.strided_slice(places, [4], [2 - axis], [3 - axis]), shape)
        place = ctx.emit(_unnormalised(ctx, own, size, align_corners))
        if padding_mode == REFLECTION:
            place = ctx.emit(_reflected(ctx, place, size, align_corners))
        if padding_mode != ZEROS:
            place = R.minimum(R.maximum(place, scalar(0, dtype)), ctx.tensor(size - 1, dtype))
        at.append(ctx.emit(place))
    flat = ctx.emit(R.reshape(x, (batch, channels, math.prod(sizes))))
    if interpolation_mode == NEAREST:
        from_ = [ctx.emit(half_to_even(p)) for p in at]
        return ctx.cast(_read(ctx, flat, from_, sizes, None), narrow)
    low = [ctx.emit(R.floor(p)) for p in at]
    total: Expr | None = None
    for corner in itertools.product((0, 1), repeat=3):
        here: list[Expr] = []
        weight: Expr | None = None
        for p, base, high in zip(at, low, corner, strict=True):
            here.append(ctx.emit(R.add(base, scalar(1, dtype)) if high else base))
            above = R.subtract(p, base)
            part = above if high else R.subtract(scalar(1, dtype), above)
            weight = part if weight is None else R.multiply(weight, part)
        found = _read(ctx, flat, here, sizes, weight)
        total = found if total is None else R.add(total, found)
    return ctx.cast(flat if total is None else total, narrow)


def _read(ctx: Context, flat: Expr, at: list[Expr], sizes: Dims, weight: Expr | None) -> Expr:
    """The elements at whole places, 0 outside, times a weight."""
    dtype = dtype_of(flat)
    batch, channels, _ = dims_of(flat)
    inside: Expr | None = None
    total: Expr | None = None
    for place, size in zip(at, sizes, strict=True):
        top = ctx.tensor(size - 1, dtype)
        own = R.logical_and(R.greater_equal(place, scalar(0, dtype)), R.less_equal(place, top))
        inside = own if inside is None else R.logical_and(inside, own)
        kept = R.astype(R.minimum(R.maximum(place, scalar(0, dtype)), top), "int64")
        total = kept if total is None else R.add(R.multiply(total, ctx.tensor(size, "int64")), kept)
    if inside is None or total is None:
        raise Unsupported("a volume without axes")
    _, *out = dims_of(at[0])
    many = 1
    for d in out:
        many = many * d
    line = R.reshape(total, (batch, 1, many))
    found = R.gather_elements(flat, R.broadcast_to(line, (batch, channels, many)), 2)
    found = R.reshape(found, (batch, channels, *out))
    mask = R.expand_dims(inside, [1])
    found = R.where(mask, found, scalar(0, dtype))
    return found if weight is None else R.multiply(found, R.expand_dims(weight, [1]))
