# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: values read between the elements of an image, and images put together from parts.

GridSample, DeformConv and RoiAlign look points up in images whose spatial axes are one; the points
and their weights are tensors. Semantics: the operator specifications of ONNX and its reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers import _loops
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx.context import Context, choice, row
from relax2xla.importers.onnx.ops_pool import Window
from relax2xla.importers.onnx.registry import Ints, Sizes, onnx_op
from relax2xla.importers.onnx.values import (
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    product,
    scalar,
    static,
    statics,
)
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim

# Elements around one point that are mixed.
TAPS_LIMIT = 64
# Points whose places are made at import.
POINTS_LIMIT = 1 << 24
# Elements of a patch that Col2Im adds one after the other.
PATCH_LIMIT = 4096


def _like(x: Expr, value: float) -> Expr:
    return scalar(value, dtype_of(x))


def _working(dtype: str) -> str:
    """The dtype that coordinates and sums are computed in."""
    return "float64" if dtype == "float64" else "float32"


def _between(x: Expr, low: float, high: float) -> Expr:
    """Where ``low <= x <= high``."""
    return R.logical_and(R.greater_equal(x, _like(x, low)), R.less_equal(x, _like(x, high)))


def _clamped(x: Expr, low: float, high: float) -> Expr:
    return R.minimum(R.maximum(x, _like(x, low)), _like(x, high))


def _linear_index(positions: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    """Positions of each axis (floats that are integers within range) as one int64 index."""
    total = R.astype(positions[0], "int64")
    for at, size in zip(positions[1:], sizes[1:], strict=True):
        total = R.add(R.multiply(total, scalar(size, "int64")), R.astype(at, "int64"))
    return total


def _looked_up(flat: Expr, index: Expr) -> Expr:
    """``flat`` (n, s, c) at ``index`` (n, p): (n, p, c)."""
    return R.gather_nd(flat, R.expand_dims(index, [2]), 1)


def _few(taps: int) -> None:
    """Raise a gap where so many elements around a point are mixed."""
    if taps > TAPS_LIMIT:
        raise Unsupported(f"points between {taps} elements; at most {TAPS_LIMIT} are supported")


def _channels_last(x: Expr, lead: Sequence[Dim], channels: Dim, size: int) -> Expr:
    """(n, c, *spatial) as (n, s, c)."""
    shape = ShapeExpr((product(lead), channels, size))
    return R.permute_dims(R.reshape(x, shape), [0, 2, 1])


# -- AffineGrid ----------------------------------------------------------------------------------
@onnx_op("AffineGrid", since=20)
def affine_grid(ctx: Context, theta: Expr, size: Sizes, *, align_corners: int = 0) -> Expr:
    space = list(size[2:])
    grid = R.image.affine_grid(theta, space, align_corners=bool(align_corners))
    return R.permute_dims(grid, [0, *range(2, 2 + len(space)), 1])


# -- GridSample ----------------------------------------------------------------------------------
def _reflected(x: Expr, low: float, high: float) -> Expr:
    """``x`` mirrored at the borders until it is within."""
    span = high - low
    if span == 0:
        return R.full_like(x, _like(x, low))
    around = R.floor_mod(R.subtract(x, _like(x, low)), _like(x, 2 * span))
    folded = R.where(
        R.less_equal(around, _like(x, span)), around, R.subtract(_like(x, 2 * span), around)
    )
    return R.add(folded, _like(x, low))


def _cubic_weights(t: Expr) -> list[Expr]:
    """Weights of the elements at -1, 0, 1, 2 for the distance ``t`` from 0 (Keys, a = -0.75)."""
    a = -0.75

    def poly(x: Expr, *coefficients: float) -> Expr:
        made: Expr = _like(x, coefficients[0])
        for c in coefficients[1:]:
            made = R.add(R.multiply(made, x), _like(x, c))
        return made

    one = _like(t, 1)
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    rest = R.subtract(one, t)
    return [
        poly(R.add(t, one), *far),
        poly(t, *near),
        poly(rest, *near),
        poly(R.add(rest, one), *far),
    ]


def _linear_weights(t: Expr) -> list[Expr]:
    return [R.subtract(_like(t, 1), t), t]


# mode: the first element beside the point, and the weights of it and those after.
_TAPS: dict[str, tuple[int, Callable[[Expr], list[Expr]]]] = {
    "linear": (0, _linear_weights),
    "cubic": (-1, _cubic_weights),
}
PADDING = ("zeros", "border", "reflection")


def _grid_sample(
    ctx: Context, x: Expr, grid: Expr, mode: str, padding: str, align_corners: int
) -> Expr:
    choice(mode, ("nearest", *_TAPS), "mode")
    choice(padding, PADDING, "padding_mode")
    batch, channels, *spatial = dims_of(x)
    sizes = statics(spatial, "the spatial sizes")
    out = dims_of(grid)[1:-1]
    if dims_of(grid)[-1] != len(sizes):
        raise ValueError(f"a grid of {dims_of(grid)[-1]} coordinates for {len(sizes)} axes")
    if mode != "nearest":
        _few(len(_TAPS[mode][1](scalar(0.0, "float32"))) ** len(sizes))
    kind = _working(dtype_of(x))
    points = product(out)
    flat_grid = ctx.emit(R.reshape(ctx.cast(grid, kind), ShapeExpr((batch, points, len(sizes)))))
    flat = ctx.emit(_channels_last(x, [batch], channels, math.prod(sizes)))
    coordinates: list[Expr] = []
    borders: list[tuple[float, float]] = []
    for i, size in enumerate(sizes):
        at = len(sizes) - 1 - i  # the grid's coordinates are in reverse order
        n = R.squeeze(R.strided_slice(flat_grid, [2], [at], [at + 1]), [2])
        up = R.add(n, _like(n, 1))
        if align_corners:
            p = R.multiply(R.divide(up, _like(n, 2)), _like(n, size - 1))
        else:
            p = R.divide(R.subtract(R.multiply(up, _like(n, size)), _like(n, 1)), _like(n, 2))
        if mode == "nearest":
            p = R.round(p)
        p = ctx.emit(p)
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        if padding != "zeros":
            moved = _clamped(p, 0, size - 1) if padding == "border" else _reflected(p, low, high)
            p = ctx.emit(R.where(_between(p, low, high), p, moved))
        coordinates.append(p)
        borders.append((low, high))
    # For each axis: position and weight (None: 1) of each element that counts.
    axes: list[list[tuple[Expr, Expr | None]]] = []
    for p in coordinates:
        if mode == "nearest":
            axes.append([(p, None)])
            continue
        first, weights = _TAPS[mode]
        base = ctx.emit(R.floor(p))
        parts = weights(ctx.emit(R.subtract(p, base)))
        axes.append(
            [
                (ctx.emit(R.add(base, _like(base, first + k))), ctx.emit(w))
                for k, w in enumerate(parts)
            ]
        )
    total: Expr | None = None
    for taps in itertools.product(*axes):
        part = _tap(ctx, flat, taps, sizes, borders, padding)
        total = part if total is None else R.add(total, part)
    assert total is not None
    made = R.permute_dims(total, [0, 2, 1])
    return R.reshape(ctx.cast(made, dtype_of(x)), ShapeExpr((batch, channels, *out)))


def _tap(
    ctx: Context,
    flat: Expr,
    taps: Sequence[tuple[Expr, Expr | None]],
    sizes: Sequence[int],
    borders: Sequence[tuple[float, float]],
    padding: str,
) -> Expr:
    """One element beside each point, weighted: (n, p, c)."""
    positions: list[Expr] = []
    weight: Expr | None = None
    inside: Expr | None = None
    for (at, w), size, (low, high) in zip(taps, sizes, borders, strict=True):
        if padding == "zeros":
            within = _between(at, 0, size - 1)
            inside = within if inside is None else R.logical_and(inside, within)
        elif padding == "reflection":
            at = R.where(_between(at, low, high), at, R.trunc(_reflected(at, low, high)))
        positions.append(_clamped(at, 0, size - 1))
        if w is not None:
            weight = w if weight is None else R.multiply(weight, w)
    seen = _looked_up(flat, ctx.emit(_linear_index(positions, sizes)))
    if inside is not None:
        # Not a product: what is outside must not count even where it is infinite.
        seen = R.where(R.expand_dims(inside, [2]), seen, _like(flat, 0))
    if weight is None:
        return seen
    return R.multiply(ctx.cast(seen, dtype_of(weight)), R.expand_dims(weight, [2]))


_OLD_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@onnx_op("GridSample", since=16)
def grid_sample_2d(
    ctx: Context,
    X: Expr,
    grid: Expr,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Expr:
    known = _OLD_MODES[choice(mode, _OLD_MODES, "mode")]
    return _grid_sample(ctx, X, grid, known, padding_mode, align_corners)


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
    return _grid_sample(ctx, X, grid, mode, padding_mode, align_corners)


# -- DeformConv ----------------------------------------------------------------------------------
@onnx_op("DeformConv", since=19)
def deform_conv(
    ctx: Context,
    X: Expr,
    W: Expr,
    offset: Expr,
    B: Expr | None = None,
    mask: Expr | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """A convolution whose kernel's elements are moved by ``offset`` and scaled by ``mask``."""
    dims = statics(dims_of(X), "the shape")
    n, channels, *sizes = dims
    weight = statics(dims_of(W), "the weight's shape")
    kernel = weight[2:]
    if kernel_shape is not None and list(kernel_shape) != kernel:
        raise ValueError(f"kernel_shape {kernel_shape} differs from the weight's {kernel}")
    w = Window.of(X, kernel, strides, dilations, pads, "NOTSET")
    rank, taps = len(sizes), math.prod(kernel)
    _few(2**rank)
    out = statics(dims_of(offset)[2:], "the offset's shape")
    if taps * math.prod(out) > POINTS_LIMIT:
        raise Unsupported(f"{taps} by {math.prod(out)} points")
    if channels != weight[1] * group or weight[0] % group or channels % offset_group:
        raise ValueError(f"{channels} channels do not fit group={group}, {offset_group=}")
    kind = _working(dtype_of(X))
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
            [(ctx.emit(R.add(base, _like(base, k))), ctx.emit(v)) for k, v in enumerate(parts)]
        )
    each = channels // offset_group
    flat = ctx.emit(_channels_last(X, [n * offset_group], each, math.prod(sizes)))
    total: Expr | None = None
    for corner in itertools.product(*axes):
        part = _tap(ctx, flat, corner, sizes, [(0.0, 0.0)] * rank, "zeros")
        total = part if total is None else R.add(total, part)
    assert total is not None
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


# -- regions -------------------------------------------------------------------------------------
@onnx_op("RoiAlign", since=10)
def roi_align_corner(
    ctx: Context,
    X: Expr,
    rois: Expr,
    batch_indices: Expr,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    """Before opset 16 pixels are at their corners."""
    return _roi_align(
        ctx,
        X,
        rois,
        batch_indices,
        mode,
        (output_height, output_width),
        sampling_ratio,
        spatial_scale,
        0.0,
    )


@onnx_op("RoiAlign", since=16)
def roi_align(
    ctx: Context,
    X: Expr,
    rois: Expr,
    batch_indices: Expr,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    kinds = ("half_pixel", "output_half_pixel")
    half = choice(coordinate_transformation_mode, kinds, "coordinate_transformation_mode")
    return _roi_align(
        ctx,
        X,
        rois,
        batch_indices,
        mode,
        (output_height, output_width),
        sampling_ratio,
        spatial_scale,
        0.5 if half == "half_pixel" else 0.0,
    )


def _roi_align(
    ctx: Context,
    x: Expr,
    rois: Expr,
    batch_indices: Expr,
    mode: str,
    size: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
    shift: float,
) -> Expr:
    """A loop over the samples of a bin, as many as the largest region has (or the ratio says)."""
    average = choice(mode, ("avg", "max"), "mode") == "avg"
    batch, channels, height, width = statics(dims_of(x), "the shape")
    count = dims_of(rois)[0]
    kind = _working(dtype_of(x))
    flat = R.permute_dims(R.reshape(x, (batch, channels, height * width)), [0, 2, 1])
    flat = ctx.emit(R.reshape(ctx.cast(flat, kind), (batch * height * width, channels)))
    boxes = ctx.emit(R.multiply(ctx.cast(rois, kind), scalar(spatial_scale, kind)))

    def edge(i: int) -> Expr:
        part = R.reshape(R.strided_slice(boxes, [1], [i], [i + 1]), ShapeExpr((count, 1)))
        return R.subtract(part, scalar(shift, kind))

    starts, bins, grids = list[Expr](), list[Expr](), list[Expr]()
    for at, out in ((1, size[0]), (0, size[1])):
        low = ctx.emit(edge(at))
        length = R.subtract(edge(at + 2), low)
        if not shift:
            length = R.maximum(length, scalar(1, kind))
        each = ctx.emit(R.divide(length, scalar(out, kind)))
        grid: Expr = scalar(sampling_ratio, kind)
        grid = R.ceil(each) if sampling_ratio <= 0 else R.full_like(each, grid)
        starts.append(low)
        bins.append(each)
        grids.append(ctx.emit(R.astype(grid, "int64")))
    most = [ctx.emit(R.maximum(R.max(g), scalar(1, "int64"))) for g in grids]
    offset = R.multiply(R.astype(batch_indices, "int64"), scalar(height * width, "int64"))
    offset = ctx.emit(R.reshape(offset, ShapeExpr((count, 1, 1))))
    shape = ShapeExpr((count, *size, channels))

    def samples(i: Expr, axis: int) -> tuple[Expr, Expr, Expr, Expr, Expr]:
        """Sample ``i`` of each bin along an axis, (rois, out): low and high element, weight of
        the high one, whether it is inside, and whether the bin has it."""
        out, limit = size[axis], (height, width)[axis]
        number = R.reshape(R.arange(0, out, 1, kind), (1, out))
        step = R.divide(R.add(R.astype(i, kind), scalar(0.5, kind)), R.astype(grids[axis], kind))
        p = R.add(starts[axis], R.multiply(R.add(number, step), bins[axis]))
        p = ctx.emit(p)
        inside = ctx.emit(_between(p, -1.0, limit))
        p = R.maximum(p, scalar(0, kind))
        low = ctx.emit(R.minimum(R.floor(p), scalar(limit - 1, kind)))
        rest = R.subtract(R.minimum(p, scalar(limit - 1, kind)), low)
        high = R.minimum(R.add(low, scalar(1, kind)), scalar(limit - 1, kind))
        has = R.less(i, grids[axis])
        return low, ctx.emit(high), ctx.emit(R.maximum(rest, scalar(0, kind))), inside, has

    def step(values: Sequence[Expr]) -> list[Expr]:
        k, total = values
        ys = samples(ctx.emit(R.floor_divide(k, most[1])), 0)
        xs = samples(ctx.emit(R.floor_mod(k, most[1])), 1)

        def pair(a: Expr, b: Expr, rule: Callable[[Expr, Expr], Expr]) -> Expr:
            return rule(R.expand_dims(a, [2]), R.expand_dims(b, [1]))

        inside = R.expand_dims(ctx.emit(pair(ys[3], xs[3], R.logical_and)), [3])
        parts: list[Expr] = []
        one = scalar(1, kind)
        for y, wy in ((ys[0], R.subtract(one, ys[2])), (ys[1], ys[2])):
            for x_, wx in ((xs[0], R.subtract(one, xs[2])), (xs[1], xs[2])):
                index = pair(
                    R.multiply(R.astype(y, "int64"), scalar(width, "int64")),
                    R.astype(x_, "int64"),
                    R.add,
                )
                seen = R.take(flat, R.add(index, offset), 0)
                weight = R.expand_dims(pair(wy, wx, R.multiply), [3])
                parts.append(ctx.emit(R.where(inside, R.multiply(seen, weight), scalar(0, kind))))
        has = R.expand_dims(pair(ys[4], xs[4], R.logical_and), [3])
        rule = R.add if average else R.maximum
        value = rule(rule(parts[0], parts[1]), rule(parts[2], parts[3]))
        new = R.where(R.broadcast_to(has, shape), rule(total, value), total)
        return [R.add(k, scalar(1, "int64")), new]

    start = R.full(shape, scalar(0 if average else -math.inf, kind), kind)
    limit = ctx.emit(R.multiply(most[0], most[1]))
    result = _loops.while_loop(
        ctx.builder, lambda v: R.less(v[0], limit), step, [scalar(0, "int64"), start]
    )[1]
    number = R.reshape(R.multiply(*grids), ShapeExpr((count, 1, 1, 1)))
    if average:
        result = R.divide(result, R.astype(R.maximum(number, scalar(1, "int64")), kind))
    else:
        result = R.where(R.isinf(result), scalar(0, kind), result)
    return ctx.cast(R.permute_dims(result, [0, 3, 1, 2]), dtype_of(x))


@onnx_op("MaxRoiPool")
def max_roi_pool(
    ctx: Context, X: Expr, rois: Expr, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Expr:
    """The largest element of each bin of a region; 0 for a bin without one.

    First over rows, then over columns: both with a mask of the elements that a bin has.
    """
    sizes = statics(dims_of(X)[2:], "the spatial sizes")
    kind = dtype_of(X)
    count = dims_of(rois)[0]
    columns = [
        R.reshape(R.strided_slice(rois, [1], [i], [i + 1]), ShapeExpr((count,))) for i in range(5)
    ]
    images = R.take(X, R.astype(columns[0], "int64"), 0)

    def rounded(x: Expr) -> Expr:
        # Halves go up, as C's round does for what is not negative.
        return R.floor(
            R.add(
                R.multiply(R.astype(x, "float32"), scalar(spatial_scale, "float32")),
                scalar(0.5, "float32"),
            )
        )

    low = scalar(-math.inf, kind)
    for axis, (start, end) in enumerate(((2, 4), (1, 3))):
        first = ctx.emit(rounded(columns[start]))
        length = R.add(R.subtract(rounded(columns[end]), first), scalar(1, "float32"))
        each = R.divide(
            R.maximum(length, scalar(1, "float32")), scalar(pooled_shape[axis], "float32")
        )
        each = R.reshape(each, ShapeExpr((count, 1)))
        number = R.reshape(R.arange(0, pooled_shape[axis], 1, "float32"), (1, pooled_shape[axis]))
        begin = R.floor(R.multiply(number, each))
        stop = R.ceil(R.multiply(R.add(number, scalar(1, "float32")), each))
        first = R.reshape(first, ShapeExpr((count, 1)))
        begin, stop = (
            R.expand_dims(_clamped(R.add(v, first), 0, sizes[axis]), [2]) for v in (begin, stop)
        )
        position = R.reshape(R.arange(0, sizes[axis], 1, "float32"), (1, 1, sizes[axis]))
        mask = R.logical_and(R.greater_equal(position, begin), R.less(position, stop))
        # (rois, channels, bins, height, width), or (rois, channels, bins, columns, width).
        mask = R.expand_dims(mask, [1, 4] if axis == 0 else [1, 2])
        wide = R.expand_dims(images, [2] if axis == 0 else [3])
        images = ctx.emit(R.max(R.where(mask, wide, low), [3] if axis == 0 else [4]))
    return R.where(R.isinf(images), scalar(0, kind), images)


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
    """Sums of the patches that cover an element: each element of the patch is spread and added."""
    image, block = statics(image_shape, "image_shape"), statics(block_shape, "block_shape")
    rank = len(image)
    step, spread = list(strides or [1] * rank), list(dilations or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    if not len(block) == len(step) == len(spread) == rank or len(around) != 2 * rank:
        raise ValueError(f"lists for {len(block)} and {rank} axes")
    taps = math.prod(block)
    if taps > PATCH_LIMIT:
        raise Unsupported(f"patches of {taps} elements")
    full = [image[i] + around[i] + around[rank + i] for i in range(rank)]
    counts = [
        (f - (s * (b - 1) + 1)) // t + 1
        for f, s, b, t in zip(full, spread, block, step, strict=True)
    ]
    batch, wide, _ = dims_of(input)
    channels = static(wide, "the channels") // taps
    x = ctx.emit(R.reshape(input, ShapeExpr((batch, channels, taps, *counts))))
    n = static(batch, "the batch")
    total: Expr | None = None
    for k, offsets in enumerate(itertools.product(*map(range, block))):
        part = R.squeeze(R.strided_slice(x, [2], [k], [k + 1]), [2])
        low = [o * s for o, s in zip(offsets, spread, strict=True)]
        high = [
            f - b - ((c - 1) * t + 1) for f, b, c, t in zip(full, low, counts, step, strict=True)
        ]
        part = row(
            "pad",
            R.reshape(part, (n, channels, *counts)),
            _like(input, 0),
            edge_padding_low=[0, 0, *low],
            edge_padding_high=[0, 0, *high],
            interior_padding=[0, 0, *(t - 1 for t in step)],
        )
        total = part if total is None else R.add(total, part)
    assert total is not None
    if not any(around):
        return total
    axes = list(range(2, 2 + rank))
    ends = [a + i for a, i in zip(around, image, strict=False)]
    return R.strided_slice(total, axes, around[:rank], ends)


# -- caches --------------------------------------------------------------------------------------
@onnx_op("TensorScatter", since=24)
def tensor_scatter(
    ctx: Context,
    past_cache: Expr,
    update: Expr,
    write_indices: Expr | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Expr:
    """``update`` written over each batch entry's part of a cache from its own index on."""
    ndim = ndim_of(past_cache)
    at = axis_of(axis, ndim)
    if at == 0:
        raise ValueError("axis 0 is the batch")
    order = [0, at, *(i for i in range(1, ndim) if i != at)]
    back = [order.index(i) for i in range(ndim)]
    cache, new = R.permute_dims(past_cache, order), R.permute_dims(update, order)
    batch, steps = dims_of(new)[:2]
    position = R.reshape(R.arange(0, steps, 1, "int64"), ShapeExpr((1, steps)))
    first: Any = R.zeros(ShapeExpr((batch,)), "int64")
    if write_indices is not None:
        first = ctx.cast(write_indices, "int64")
    where = R.add(position, R.reshape(first, ShapeExpr((batch, 1))))
    if choice(mode, ("linear", "circular"), "mode") == "circular":
        size = ctx.size(dims_of(cache)[1], "int64")
        where = R.floor_mod(where, size)
    own = R.reshape(R.arange(0, batch, 1, "int64"), ShapeExpr((batch, 1)))
    own = R.broadcast_to(own, ShapeExpr((batch, steps)))
    index = R.stack([own, R.broadcast_to(where, ShapeExpr((batch, steps)))], 2)
    return R.permute_dims(R.scatter_nd(cache, index, new, "update"), back)
