"""ai.onnx: pools over regions of images. Semantics: ONNX's specification and its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dims_of, dtype_of, scalar
from relax2xla.importers.onnx.ops.sample import between, working
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.dims import fold_dim, product
from relax2xla.ir import Expr, ShapeExpr


@onnx_op("RoiAlign", since=10, lacks="coordinate_transformation_mode")
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
    """A loop over the samples of a bin, as many as the largest region has (or the ratio says).

    Before opset 16 pixels are at their corners.
    """
    kinds = ("half_pixel", "output_half_pixel")
    half = choice(coordinate_transformation_mode, kinds, "coordinate_transformation_mode")
    shift = 0.5 if half == "half_pixel" and ctx.opset >= 16 else 0.0
    size = (output_height, output_width)
    average = choice(mode, ("avg", "max"), "mode") == "avg"
    batch, channels, *sides = dims_of(X)
    count = dims_of(rois)[0]
    kind = working(dtype_of(X))
    area = product(sides)
    flat = R.permute_dims(R.reshape(X, ShapeExpr((batch, channels, area))), [0, 2, 1])
    flat = ctx.cast(flat, kind)
    flat = ctx.emit(R.reshape(flat, ShapeExpr((product([batch, area]), channels))))
    width = ctx.emit(ctx.size(sides[1], "int64"))
    counts = [ctx.emit(ctx.size(d, kind)) for d in sides]
    lasts = [ctx.emit(ctx.size(fold_dim(d - 1), kind)) for d in sides]
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
    offset = R.multiply(R.astype(batch_indices, "int64"), ctx.size(area, "int64"))
    offset = ctx.emit(R.reshape(offset, ShapeExpr((count, 1, 1))))
    shape = ShapeExpr((count, *size, channels))

    def samples(i: Expr, axis: int) -> tuple[Expr, Expr, Expr, Expr, Expr]:
        """Sample ``i`` of each bin along an axis, (rois, out): low and high element, weight of
        the high one, whether it is inside, and whether the bin has it."""
        out, last = size[axis], lasts[axis]
        number = R.reshape(R.arange(0, out, 1, kind), (1, out))
        step = R.divide(R.add(R.astype(i, kind), scalar(0.5, kind)), R.astype(grids[axis], kind))
        p = R.add(starts[axis], R.multiply(R.add(number, step), bins[axis]))
        p = ctx.emit(p)
        inside = ctx.emit(between(p, -1.0, counts[axis]))
        p = R.maximum(p, scalar(0, kind))
        low = ctx.emit(R.minimum(R.floor(p), last))
        rest = R.subtract(R.minimum(p, last), low)
        high = R.minimum(R.add(low, scalar(1, kind)), last)
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
                    R.multiply(R.astype(y, "int64"), width),
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
    result = loops.while_loop(
        ctx.builder, lambda v: R.less(v[0], limit), step, [scalar(0, "int64"), start]
    )[1]
    number = R.reshape(R.multiply(*grids), ShapeExpr((count, 1, 1, 1)))
    if average:
        result = R.divide(result, R.astype(R.maximum(number, scalar(1, "int64")), kind))
    else:
        result = R.where(R.isinf(result), scalar(0, kind), result)
    return ctx.cast(R.permute_dims(result, [0, 3, 1, 2]), dtype_of(X))


@onnx_op("MaxRoiPool")
def max_roi_pool(
    ctx: Context, X: Expr, rois: Expr, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Expr:
    """The largest element of each bin of a region; 0 for a bin without one."""
    return R.vision.roi_pool(X, rois, pooled_shape, spatial_scale)
