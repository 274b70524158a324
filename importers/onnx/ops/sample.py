# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: values read between the elements of an image, and images put together from parts.

GridSample and DeformConv look points up in images whose spatial axes are one; the points
and their weights are tensors. Semantics: the operator specifications of ONNX and its reference.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import Ints, Sizes, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    dims_of,
    dtype_of,
    like,
    scalar,
    statics,
)
from relax2xla.importers.onnx.ops.pool import Convolved, Window, kernel_of
from relax2xla.importers.shared.activations import clamped
from relax2xla.importers.shared.dims import fold_dim, product
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.windows import affine_points
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim

# Elements around one point that are mixed.
TAPS_LIMIT = 64
# Points whose places are made at import.
POINTS_LIMIT = 1 << 24


def working(dtype: str) -> str:
    """The dtype that coordinates and sums are computed in."""
    return "float64" if dtype == "float64" else "float32"


def between(x: Expr, low: float | Expr, high: float | Expr) -> Expr:
    """Where ``low <= x <= high``."""
    least, most = (b if isinstance(b, Expr) else like(x, b) for b in (low, high))
    return R.logical_and(R.greater_equal(x, least), R.less_equal(x, most))


@dataclass(frozen=True, slots=True)
class Side:
    """A spatial axis of an image: how many elements, the place of the last one, and where the
    image ends; numbers as scalars, because sizes may be symbolic.
    """

    size: Dim
    count: Expr
    last: Expr
    low: Expr
    high: Expr
    span: Expr

    @staticmethod
    def of(ctx: Context, size: Dim, kind: str, align_corners: int) -> Side:
        """In coordinates of ``kind``. The image ends in the middle of its outer elements
        (``align_corners``) or at their edge.
        """
        count, last = (ctx.emit(ctx.size(fold_dim(size - i), kind)) for i in (0, 1))
        if align_corners:
            return Side(size, count, last, scalar(0, kind), last, last)
        high = ctx.emit(R.subtract(count, scalar(0.5, kind)))
        return Side(size, count, last, scalar(-0.5, kind), high, count)


def _linear_index(ctx: Context, positions: Sequence[Expr], sides: Sequence[Side]) -> Expr:
    """Positions of each axis (floats that are integers within range) as one int64 index."""
    total = R.astype(positions[0], "int64")
    for at, side in zip(positions[1:], sides[1:], strict=True):
        total = R.add(R.multiply(total, ctx.size(side.size, "int64")), R.astype(at, "int64"))
    return total


def _looked_up(flat: Expr, index: Expr) -> Expr:
    """``flat`` (n, s, c) at ``index`` (n, p): (n, p, c)."""
    return R.gather_nd(flat, R.expand_dims(index, [2]), 1)


def _few(taps: int) -> None:
    """Raise a gap where so many elements around a point are mixed."""
    if taps > TAPS_LIMIT:
        raise Unsupported(f"points between {taps} elements; at most {TAPS_LIMIT} are supported")


def _channels_last(x: Expr, lead: Sequence[Dim], channels: Dim, size: Dim) -> Expr:
    """(n, c, *spatial) as (n, s, c)."""
    shape = ShapeExpr((product(lead), channels, size))
    return R.permute_dims(R.reshape(x, shape), [0, 2, 1])


# -- AffineGrid ----------------------------------------------------------------------------------
@onnx_op("AffineGrid", since=20)
def affine_grid(ctx: Context, theta: Expr, size: Sizes, *, align_corners: int = 0) -> Expr:
    return affine_points(theta, size[2:], bool(align_corners))


# -- GridSample ----------------------------------------------------------------------------------
def _reflected(x: Expr, side: Side) -> Expr:
    """``x`` mirrored at the borders until it is within."""
    twice = R.multiply(side.span, like(x, 2))
    around = R.floor_mod(R.subtract(x, side.low), twice)
    folded = R.where(R.less_equal(around, side.span), around, R.subtract(twice, around))
    # Borders that are one point have no rest.
    return R.where(R.greater(side.span, like(x, 0)), R.add(folded, side.low), side.low)


def _cubic_weights(t: Expr) -> list[Expr]:
    """Weights of the elements at -1, 0, 1, 2 for the distance ``t`` from 0 (Keys, a = -0.75)."""
    a = -0.75

    def poly(x: Expr, *coefficients: float) -> Expr:
        made: Expr = like(x, coefficients[0])
        for c in coefficients[1:]:
            made = R.add(R.multiply(made, x), like(x, c))
        return made

    one = like(t, 1)
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    rest = R.subtract(one, t)
    return [
        poly(R.add(t, one), *far),
        poly(t, *near),
        poly(rest, *near),
        poly(R.add(rest, one), *far),
    ]


def _linear_weights(t: Expr) -> list[Expr]:
    return [R.subtract(like(t, 1), t), t]


# mode: the first element beside the point, and the weights of it and those after.
TAPS: dict[str, tuple[int, Callable[[Expr], list[Expr]]]] = {
    "linear": (0, _linear_weights),
    "cubic": (-1, _cubic_weights),
}
PADDING = ("zeros", "border", "reflection")


def _grid_sample(
    ctx: Context, x: Expr, grid: Expr, mode: str, padding: str, align_corners: int
) -> Expr:
    """As ONNX's reference: points are rounded, and brought inside, before their elements are.

    ``R.image.grid_sample`` does as torch, which differs for points outside of the image. Cubic
    points outside of a border stay there, as torch and ONNX Runtime have it: only the elements
    beside them are the border's.
    """
    choice(mode, ("nearest", *TAPS), "mode")
    choice(padding, PADDING, "padding_mode")
    batch, channels, *sizes = dims_of(x)
    rank = len(sizes)
    *ahead, coordinates = dims_of(grid)
    out = ahead[1:]
    if isinstance(coordinates, int) and coordinates != rank:
        raise ValueError(f"a grid of {coordinates} coordinates for {rank} axes")
    grid = ctx.sized(grid, [*ahead, rank])
    if mode != "nearest":
        _few(len(TAPS[mode][1](scalar(0.0, "float32"))) ** rank)
    kind = working(dtype_of(x))
    sides = [Side.of(ctx, size, kind, align_corners) for size in sizes]
    points = product(out)
    flat_grid = ctx.emit(R.reshape(ctx.cast(grid, kind), ShapeExpr((batch, points, rank))))
    flat = ctx.emit(_channels_last(x, [batch], channels, product(sizes)))
    # For each axis: position and weight (None: 1) of each element that counts.
    axes: list[list[tuple[Expr, Expr | None]]] = []
    for i, side in enumerate(sides):
        at = rank - 1 - i  # the grid's coordinates are in reverse order
        n = R.squeeze(R.strided_slice(flat_grid, [2], [at], [at + 1]), [2])
        up = R.add(n, like(n, 1))
        if align_corners:
            p = R.multiply(R.divide(up, like(n, 2)), side.last)
        else:
            p = R.divide(R.subtract(R.multiply(up, side.count), like(n, 1)), like(n, 2))
        if mode == "nearest":
            p = R.round(p)
        p = ctx.emit(p)
        if padding == "reflection" or (padding == "border" and mode != "cubic"):
            moved = clamped(p, 0, side.last) if padding == "border" else _reflected(p, side)
            p = ctx.emit(R.where(between(p, side.low, side.high), p, moved))
        if mode == "nearest":
            axes.append([(p, None)])
            continue
        first, weights = TAPS[mode]
        base = ctx.emit(R.floor(p))
        parts = weights(ctx.emit(R.subtract(p, base)))
        axes.append(
            [
                (ctx.emit(R.add(base, like(base, first + k))), ctx.emit(w))
                for k, w in enumerate(parts)
            ]
        )
    made = R.permute_dims(_mixed(ctx, flat, axes, sides, padding), [0, 2, 1])
    return R.reshape(ctx.cast(made, dtype_of(x)), ShapeExpr((batch, channels, *out)))


def _mixed(
    ctx: Context,
    flat: Expr,
    axes: Sequence[Sequence[tuple[Expr, Expr | None]]],
    sides: Sequence[Side],
    padding: str,
) -> Expr:
    """The sum over every combination of one element an axis: (n, p, c)."""
    parts = (_tap(ctx, flat, taps, sides, padding) for taps in itertools.product(*axes))
    return functools.reduce(R.add, parts)


def _tap(
    ctx: Context,
    flat: Expr,
    taps: Sequence[tuple[Expr, Expr | None]],
    sides: Sequence[Side],
    padding: str,
) -> Expr:
    """One element beside each point, weighted: (n, p, c)."""
    positions: list[Expr] = []
    weight: Expr | None = None
    inside: Expr | None = None
    for (at, w), side in zip(taps, sides, strict=True):
        if padding == "zeros":
            within = between(at, 0, side.last)
            inside = within if inside is None else R.logical_and(inside, within)
        elif padding == "reflection":
            at = R.where(between(at, side.low, side.high), at, R.trunc(_reflected(at, side)))
        positions.append(clamped(at, 0, side.last))
        if w is not None:
            weight = w if weight is None else R.multiply(weight, w)
    seen = _looked_up(flat, ctx.emit(_linear_index(ctx, positions, sides)))
    if inside is not None:
        # Not a product: what is outside must not count even where it is infinite.
        seen = R.where(R.expand_dims(inside, [2]), seen, like(flat, 0))
    if weight is None:
        return seen
    return R.multiply(ctx.cast(seen, dtype_of(weight)), R.expand_dims(weight, [2]))


# Until opset 20, which takes more axes than two; the later names stand in models before it, too.
_OLD_MODES = {
    "bilinear": "linear",
    "nearest": "nearest",
    "bicubic": "cubic",
    "linear": "linear",
    "cubic": "cubic",
}


@onnx_op("GridSample", since=16, mode="bilinear")
@onnx_op("GridSample", since=20)
def grid_sample(
    ctx: Context,
    X: Expr,
    grid: Expr,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Expr:
    if ctx.opset < 20:
        mode = _OLD_MODES[choice(mode, _OLD_MODES, "mode")]
    return _grid_sample(ctx, X, grid, mode, padding_mode, align_corners)


# -- DeformConv ----------------------------------------------------------------------------------
@onnx_op("DeformConv", since=19, lacks="auto_pad")
def deform_conv(
    ctx: Context,
    X: Expr,
    W: Expr,
    offset: Expr,
    B: Expr | None = None,
    mask: Expr | None = None,
    *,
    offset_group: int = 1,
    **window: Unpack[Convolved],
) -> Expr:
    """A convolution whose kernel's elements are moved by ``offset`` and scaled by ``mask``."""
    dims = statics(dims_of(X), "the shape")
    n, channels, *sizes = dims
    weight = statics(dims_of(W), "the weight's shape")
    kernel, group = kernel_of(W, window), window["group"]
    w = Window.of(X, kernel, window)
    rank, taps = len(sizes), math.prod(kernel)
    _few(2**rank)
    out = statics(dims_of(offset)[2:], "the offset's shape")
    if taps * math.prod(out) > POINTS_LIMIT:
        raise Unsupported(f"{taps} by {math.prod(out)} points")
    if channels != weight[1] * group or weight[0] % group or channels % offset_group:
        raise ValueError(f"{channels} channels do not fit group={group}, {offset_group=}")
    kind = working(dtype_of(X))
    points = math.prod(out)
    shape = (n, offset_group, taps, rank, points)
    moves = ctx.emit(R.reshape(ctx.cast(offset, kind), shape))
    # Where an element of the kernel lies if it is not moved: (1, 1, taps, rank, points).
    kernel_at = np.stack(np.meshgrid(*map(np.arange, kernel), indexing="ij"), 0).reshape(rank, -1)
    out_at = np.stack(np.meshgrid(*map(np.arange, out), indexing="ij"), 0).reshape(rank, -1)
    axes: list[list[tuple[Expr, Expr | None]]] = []
    for i in range(rank):
        grid = kernel_at[i][:, None] * w.dilations[i] + out_at[i][None, :] * w.strides[i]
        start = Constant((grid - w.pads[i]).astype(kind)[None, None])
        own = R.squeeze(R.strided_slice(moves, [3], [i], [i + 1]), [3])
        p = R.reshape(R.add(start, own), (n * offset_group, taps * points))
        base = ctx.emit(R.floor(p))
        parts = _linear_weights(ctx.emit(R.subtract(p, base)))
        axes.append(
            [(ctx.emit(R.add(base, like(base, k))), ctx.emit(v)) for k, v in enumerate(parts)]
        )
    each = channels // offset_group
    flat = ctx.emit(_channels_last(X, [n * offset_group], each, math.prod(sizes)))
    sides = [Side.of(ctx, size, kind, 0) for size in sizes]
    total = _mixed(ctx, flat, axes, sides, "zeros")
    columns = R.reshape(total, (n, offset_group, taps, points, each))
    if mask is not None:
        scale = R.reshape(ctx.cast(mask, kind), (n, offset_group, taps, points, 1))
        columns = R.multiply(columns, scale)
    # (n, channels, taps, points), then one matmul a group.
    columns = R.permute_dims(columns, [0, 1, 4, 2, 3])
    columns = R.reshape(columns, (n, group, channels // group * taps, points))
    matrix = R.reshape(ctx.cast(W, kind), (group, weight[0] // group, weight[1] * taps))
    made = R.reshape(R.matmul(matrix, columns), (n, weight[0], *out))
    if B is not None:
        made = R.add(made, R.reshape(ctx.cast(B, kind), (1, weight[0], *[1] * rank)))
    return ctx.cast(made, dtype_of(X))


# -- patches -------------------------------------------------------------------------------------
@onnx_op("Col2Im", since=18)
def col2im(
    ctx: Context,
    input: Expr,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    return R.image.col2im(input, list(image_shape), list(block_shape), dilations, pads, strides)
