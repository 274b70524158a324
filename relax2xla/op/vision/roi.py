"""Regions of interest: roi_align, roi_pool; and the boxes that a detector predicts.

Sources: TVM Relax v0.25 for names and inference; its TOPI for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import IntsLike
from relax2xla.ir.struct_info import TensorStructInfo, TupleStructInfo, show
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import FLOAT, common_dtype, differ, tensor, want_tensor
from relax2xla.op.shared.loops import int32, while_loop
from relax2xla.op.shared.lowering import (
    binary,
    broadcast_in_dim,
    broadcast_to,
    compare,
    concatenate,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    outputs,
    reduce,
    relax,
    reshape,
    scalar,
    select,
    shape_of,
    slice_axis,
    sum_dtype,
    transpose,
)
from relax2xla.op.shared.spatial import want_positive


def _pooled(value: Sequence[int]) -> tuple[int, int]:
    if len(value) not in (1, 2):
        raise OpError(f"`pooled_size` must have 1 or 2 entries; got {tuple(value)}")
    want_positive(value, "pooled_size")
    return value[0], value[-1]


def _regions(
    data: Expr, rois: Expr, pooled_size: Sequence[int], layout: str, layouts: Sequence[str]
) -> TensorStructInfo:
    """What roi_align and roi_pool infer."""
    x, r = want_tensor(data, "data", FLOAT, 4), want_tensor(rois, "rois", FLOAT, 2)
    common_dtype((x, r), ("data", "rois"))
    size = _pooled(pooled_size)
    if layout not in layouts:
        raise OpError(f"`layout` must be {' or '.join(map(repr, layouts))}; got {layout!r}")
    if r.dims is not None and isinstance(r.dims[1], int) and r.dims[1] != 5:
        raise OpError(
            f"`rois` must be (n, 5): the batch and two corners of each region; got {show(r)}"
        )
    if x.dims is None or r.dims is None:
        return tensor(None, x.dtype, 4, x)
    if layout == "NCHW":
        return tensor((r.dims[0], x.dims[1], *size), x.dtype, like=x)
    return tensor((r.dims[0], *size, x.dims[3]), x.dtype, like=x)


def _column(rois: Expr, i: int) -> Expr:
    """One of the five numbers of each region, (n,)."""
    return reshape(slice_axis(rois, 1, i, i + 1), shape_of(rois)[:1])


# ---- roi_align
@op("relax.vision.roi_align", Opaque())
def roi_align(
    data: Expr,
    rois: Expr,
    pooled_size: IntsLike,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Rule:
    """Regions of an image resampled to one size: each cell combines points between the pixels.

    data: (n, c, h, w), or (n, h, w, c) with layout "NHWC", a float dtype; rois: (r, 5), same dtype:
    image, x1, y1, x2, y2
    pooled_size: one number, or two: the cells of a region; spatial_scale: by which its corners are
    multiplied; sample_ratio: points of a cell in each direction, or as many as it has pixels
    (rounded up) if not positive; aligned: regions may be smaller than a pixel (no corner is moved
    by half a pixel: that is TVM's rule, not ONNX's)
    mode: "avg" or "max" of the points; points beyond one pixel outside the image count as 0
    result: (r, c, *pooled_size), or (r, *pooled_size, c)
    """
    if mode not in ("avg", "max"):
        raise OpError(f'`mode` must be "avg" or "max"; got {mode!r}')

    def lower() -> Expr:
        dtype = dtype_of(data)
        wide = sum_dtype(dtype)
        x = convert(data, wide)
        x = transpose(x, (0, 2, 3, 1)) if layout == "NCHW" else x
        regions = convert(rois, wide)
        count = shape_of(rois)[0]
        size = _pooled(pooled_size)
        scale = full((count,), spatial_scale, wide)
        image = convert(_column(regions, 0), "int32")
        starts, cells, points = [], [], []
        # Rows first: y is the second number of a corner.
        for at, parts in ((2, size[0]), (1, size[1])):
            low, high = (hlo("multiply", _column(regions, i), scale) for i in (at, at + 2))
            extent = hlo("subtract", high, low)
            if not aligned:
                extent = hlo("maximum", extent, full_like(extent, 1))
            cell = hlo("divide", extent, full_like(extent, parts))
            number = full((count,), sample_ratio, "int32")
            if sample_ratio <= 0:
                number = convert(hlo("ceil", cell), "int32")
            starts.append(low)
            cells.append(cell)
            points.append(number)
        shape = (count, *size, shape_of(x)[3])
        init = full(shape, 0 if mode == "avg" else -np.inf, wide)
        most = [reduce(p, "maximum", [0]) for p in points]
        carried = [int32(0), *most, init, x, image, *starts, *cells, *points]

        def test(i: Expr, rows: Expr, columns: Expr, *_: Expr) -> Expr:
            return compare(i, hlo("multiply", rows, columns), "LT")

        def body(i: Expr, rows: Expr, columns: Expr, total: Expr, *rest: Expr) -> list[Expr]:
            source, images = rest[:2]
            steps = (hlo("divide", i, columns), hlo("remainder", i, columns))
            where, inside = [], full((count,), True, "bool")
            for k in range(2):
                low, cell, number = rest[2 + k], rest[4 + k], rest[6 + k]
                step = broadcast_to(steps[k], (count,))
                inside = hlo("and", inside, compare(step, number, "LT"))
                half = hlo("add", convert(step, wide), full((count,), 0.5, wide))
                off = hlo("divide", hlo("multiply", half, cell), convert(number, wide))
                spots = (count, size[k])
                cell_start = hlo(
                    "multiply", iota(spots, 1, wide), broadcast_in_dim(cell, spots, [0])
                )
                where.append(
                    hlo(
                        "add",
                        hlo("add", broadcast_in_dim(low, spots, [0]), cell_start),
                        broadcast_in_dim(off, spots, [0]),
                    )
                )
            value = _bilinear(source, images, *where)
            if mode == "avg":
                number = convert(hlo("multiply", rest[6], rest[7]), wide)
                value = hlo("divide", value, broadcast_in_dim(number, shape, [0]))
            new = hlo("add" if mode == "avg" else "maximum", total, value)
            new = select(broadcast_in_dim(inside, shape, [0]), new, total)
            return [hlo("add", i, int32(1)), rows, columns, new, *rest]

        result = convert(while_loop(carried, test, body)[3], dtype)
        return transpose(result, (0, 3, 1, 2)) if layout == "NCHW" else result

    return _regions(data, rois, pooled_size, layout, ("NCHW", "NHWC")), lower


def _bilinear(x: Expr, image: Expr, rows: Expr, columns: Expr) -> Expr:
    """Values (r, p, q, c) of images (n, h, w, c) at rows (r, p) and columns (r, q)."""
    dtype = dtype_of(x)
    space = (shape_of(x)[1], shape_of(x)[2])
    grid = (*shape_of(rows), shape_of(columns)[1])
    near, far, weight, outside = [], [], [], []
    for k, at in enumerate((rows, columns)):
        at = broadcast_in_dim(at, grid, [0, 1] if k == 0 else [0, 2])
        last = full_like(at, space[k] - 1)
        outside += [
            compare(at, full_like(at, -1), "LT"),
            compare(at, full_like(at, space[k]), "GT"),
        ]
        at = hlo("minimum", hlo("maximum", at, full_like(at, 0)), last)
        low = hlo("floor", at)
        weight.append(hlo("subtract", at, low))
        near.append(convert(low, "int32"))
        far.append(convert(hlo("minimum", hlo("add", low, full_like(low, 1)), last), "int32"))
    images = broadcast_in_dim(image, grid, [0])
    wide = (*grid, shape_of(x)[3])

    def pixel(row: Expr, column: Expr) -> Expr:
        vectors = concatenate([reshape(v, (*grid, 1)) for v in (images, row, column)], 3)
        return hlo(
            "gather",
            x,
            vectors,
            dimension_numbers={
                "offset_dims": (3,),
                "collapsed_slice_dims": (0, 1, 2),
                "start_index_map": (0, 1, 2),
                "index_vector_dim": 3,
            },
            slice_sizes=(1, 1, 1, wide[3]),
        )

    def mix(a: Expr, b: Expr, part: Expr) -> Expr:
        part = broadcast_in_dim(part, wide, [0, 1, 2])
        rest = hlo("subtract", full_like(part, 1), part)
        return hlo("add", hlo("multiply", a, rest), hlo("multiply", b, part))

    value = mix(
        mix(pixel(near[0], near[1]), pixel(near[0], far[1]), weight[1]),
        mix(pixel(far[0], near[1]), pixel(far[0], far[1]), weight[1]),
        weight[0],
    )
    beyond = outside[0]
    for more in outside[1:]:
        beyond = hlo("or", beyond, more)
    return select(broadcast_in_dim(beyond, wide, [0, 1, 2]), full(wide, 0, dtype), value)


# ---- roi_pool
@op("relax.vision.roi_pool", Opaque())
def roi_pool(
    data: Expr, rois: Expr, pooled_size: IntsLike, spatial_scale: float, layout: str = "NCHW"
) -> Rule:
    """Maximum over each cell of regions of an image, whose edges are rounded to pixels.

    data: (n, c, h, w), a float dtype; rois: (r, 5), same dtype: image, x1, y1, x2, y2
    pooled_size: one number, or two: the cells of a region; spatial_scale: by which its corners are
    multiplied
    result: (r, c, *pooled_size); 0 for a cell without a pixel
    """

    def lower() -> Expr:
        _, channels, *space = shape_of(data)
        dtype = dtype_of(data)
        count = shape_of(rois)[0]
        size = _pooled(pooled_size)
        regions = convert(rois, sum_dtype(dtype))
        wide = dtype_of(regions)
        image = convert(_column(regions, 0), "int32")
        masks: list[Expr] = []
        for at, parts, extent in ((2, size[0], space[0]), (1, size[1], space[1])):
            masks.append(_cells(regions, at, parts, extent, spatial_scale, wide))
        low = full((), -np.inf, dtype)
        result = full((count, channels, *size), 0, dtype)

        def body(i: Expr, out: Expr, source: Expr, images: Expr, *own: Expr) -> list[Expr]:
            zero = int32(0)

            def pick(x: Expr, at: Expr) -> Expr:
                rest = shape_of(x)[1:]
                part = hlo("dynamic_slice", x, at, *(zero for _ in rest), slice_sizes=(1, *rest))
                return reshape(part, rest)

            x = pick(source, pick(images, i))
            rows, columns = pick(own[0], i), pick(own[1], i)
            for axis, inside in ((2, columns), (1, rows)):
                # One axis after the other: (c, h, w) to (c, h, q), then to (c, q, p).
                shape = shape_of(x)
                cells, extent = shape_of(inside)
                rest = [shape[k] for k in range(3) if k != axis]
                grown = (*rest, cells, extent)
                order = [k for k in range(3) if k != axis] + [axis]
                spread = broadcast_in_dim(transpose(x, order), grown, [0, 1, 3])
                held = broadcast_in_dim(inside, grown, [2, 3])
                x = reduce(select(held, spread, broadcast_to(low, grown)), "maximum", [3])
            x = transpose(x, (0, 2, 1))
            full_cells = hlo(
                "and",
                broadcast_in_dim(reduce(rows, "or", [1]), size, [0]),
                broadcast_in_dim(reduce(columns, "or", [1]), size, [1]),
            )
            x = select(broadcast_in_dim(full_cells, (channels, *size), [1, 2]), x, full_like(x, 0))
            x = reshape(x, (1, channels, *size))
            out = hlo("dynamic_update_slice", out, x, i, zero, zero, zero)
            return [hlo("add", i, int32(1)), out, source, images, *own]

        start = [int32(0), result, data, image, *masks]
        return while_loop(start, lambda i, *_: compare(i, int32(count), "LT"), body)[1]

    return _regions(data, rois, pooled_size, layout, ("NCHW",)), lower


def _cells(regions: Expr, at: int, parts: int, extent: int, scale: float, dtype: str) -> Expr:
    """Which pixels of an axis each cell of each region holds, (r, parts, extent), bool."""
    count = shape_of(regions)[0]

    def edge(i: int) -> Expr:
        x = hlo("multiply", _column(regions, i), full((count,), scale, dtype))
        return hlo("round_nearest_afz", x)

    low, high = edge(at), edge(at + 2)
    one = full_like(low, 1)
    length = hlo("maximum", hlo("add", hlo("subtract", high, low), one), one)
    # XLA would multiply by 1 / parts, and rounding then moves edges by a whole pixel.
    divisor = outputs(hlo("optimization_barrier", full_like(length, parts)))[0]
    cell = hlo("divide", length, divisor)
    shape = (count, parts)
    index, cell = iota(shape, 1, dtype), broadcast_in_dim(cell, shape, [0])
    low = broadcast_in_dim(low, shape, [0])
    first = hlo("add", hlo("floor", hlo("multiply", index, cell)), low)
    end = hlo("multiply", hlo("add", index, full_like(index, 1)), cell)
    end = hlo("add", hlo("ceil", end), low)
    wide = (*shape, extent)
    pixel = iota(wide, 2, dtype)
    return hlo(
        "and",
        compare(pixel, broadcast_in_dim(first, wide, [0, 1]), "GE"),
        compare(pixel, broadcast_in_dim(end, wide, [0, 1]), "LT"),
    )


# ---- predicted boxes
def _as_variances(value: Any) -> tuple[float, ...]:
    return tuple(float(getattr(v, "value", v)) for v in value)


@op("relax.vision.multibox_transform_loc", Opaque())
def multibox_transform_loc(
    cls_pred: Expr,
    loc_pred: Expr,
    anchor: Expr,
    clip: bool = False,
    threshold: float = 0.0,
    variances: Any = (1.0, 1.0, 1.0, 1.0),
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> Rule:
    """Boxes and scores from what an SSD detector predicts relative to its anchors.

    cls_pred: (b, c, n), a float dtype; loc_pred: (b, 4 * n), same dtype: x, y, w, h for each
    anchor; anchor: (1, n, 4), same dtype: left, top, right, bottom
    clip: cut boxes at 0 and 1; threshold: lower scores become 0; variances: factors of x, y, w, h;
    keep_background: else scores of class 0 become 0; apply_softmax: over the classes, before
    result: boxes (b, n, 4): ymin, xmin, ymax, xmax; and scores (b, c, n)
    """
    c = want_tensor(cls_pred, "cls_pred", FLOAT, 3)
    loc = want_tensor(loc_pred, "loc_pred", FLOAT, 2)
    a = want_tensor(anchor, "anchor", FLOAT, 3)
    common_dtype((c, loc, a), ("cls_pred", "loc_pred", "anchor"))
    if len(_as_variances(variances)) != 4:
        raise OpError(f"`variances` must be 4 numbers; got {variances}")
    if loc.dims is not None and isinstance(loc.dims[1], int) and loc.dims[1] % 4:
        raise OpError(f"`loc_pred` must have 4 numbers for each anchor; got {show(loc)}")

    def lower() -> Expr:
        batch, _, count = shape_of(cls_pred)
        dtype = dtype_of(cls_pred)
        loc = reshape(loc_pred, (batch, count, 4))
        parts = [slice_axis(loc, 2, i, i + 1) for i in range(4)]
        factors = [full_like(parts[0], v) for v in _as_variances(variances)]
        left, top, right, bottom = (slice_axis(anchor, 2, i, i + 1) for i in range(4))
        half = full_like(left, 0.5)
        ends: list[Expr] = []
        for low, high, i in ((top, bottom, 1), (left, right, 0)):
            extent = hlo("subtract", high, low)
            middle = hlo("multiply", hlo("add", low, high), half)
            shift = hlo("multiply", parts[i], factors[i])
            center = binary("add", binary("multiply", shift, extent), middle)
            grown = hlo("exponential", hlo("multiply", parts[i + 2], factors[i + 2]))
            reach = binary("multiply", hlo("multiply", grown, full_like(grown, 0.5)), extent)
            ends.append(hlo("subtract", center, reach))
            ends.append(hlo("add", center, reach))
        ymin, ymax, xmin, xmax = ends
        boxes = concatenate([ymin, xmin, ymax, xmax], 2)
        if clip:
            boxes = hlo("clamp", scalar(0, dtype), boxes, scalar(1, dtype))
        scores = relax("nn.softmax", cls_pred, axis=1) if apply_softmax else cls_pred
        keep = compare(scores, full_like(scores, threshold), "GE")
        if not keep_background:
            first = iota(shape_of(scores), 1, "int32")
            keep = hlo("and", keep, compare(first, full_like(first, 0), "GT"))
        return Tuple([boxes, select(keep, scores, full_like(scores, 0))])

    if c.dims is None:
        return TupleStructInfo([tensor(None, c.dtype, 3, c), tensor(None, c.dtype, 3, c)]), lower
    batch, _, count = c.dims
    wanted = (
        ("loc_pred", loc, (batch, count * 4)),
        ("anchor", a, (1, count, 4)),
    )
    for name, info, dims in wanted:
        for have, want in zip(info.dims or (), dims, strict=False):
            if differ(have, want):
                text = ", ".join(map(str, dims))
                raise OpError(f"`{name}` must be ({text}) for {show(c)}; got {show(info)}")
    return TupleStructInfo([tensor((batch, count, 4), c.dtype, like=c), c]), lower
