"""Sampling of images at computed points: ``relax.image.grid_sample`` and ``affine_grid``.

Semantics: torch's functions of these names. Grids are laid out as in TVM, coordinates on axis 1;
``grid_sample`` takes torch's and ONNX's layout, coordinates last, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, ShapeExpr
from relax2xla.ir.op import Given, Rule, op
from relax2xla.ir.op_param import ShapeLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import (
    FLOAT,
    REAL,
    differ,
    literal_dims,
    tensor,
    want_shape,
    want_tensor,
)
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    dot_general,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    reshape,
    select,
    shape_of,
    slice_axis,
    static,
    sum_dtype,
    transpose,
)
from relax2xla.op.shared.spatial import arrange, data_axes
from relax2xla.op.shared.traced import Traced, count_up, size_of, spread_to

METHODS: Final = ("nearest", "bilinear", "bicubic")
PADDINGS: Final = ("zeros", "border", "reflection")
# Of the cubic spline, as in torch.
CUBIC_ALPHA: Final = -0.75


# ---- affine_grid
@op("relax.image.affine_grid", Opaque())
def affine_grid(data: Expr, size: ShapeLike, align_corners: bool = True) -> StructInfo:
    """The grid of points that an affine map makes of a regular grid over [-1, 1].

    data: (n, 2, 3) or (n, 3, 4), a float dtype: the maps; size: (h, w) or (d, h, w), one number
    meaning a square; align_corners: -1 and 1 are the centres of the outer pixels, else their edges
    result: (n, 2, h, w) or (n, 3, d, h, w): x, y (and z) of each point, dtype of ``data``
    """
    x = want_tensor(data, "data", FLOAT, 3)
    wanted = want_shape(size, "size")
    rank = wanted.ndim if wanted.ndim != -1 else None
    if rank not in (None, 2, 3):
        raise OpError(f"`size` must have 2 or 3 dimensions; got {wanted}")
    if x.dims is not None:
        rows, columns = x.dims[1:]
        n = rank or (rows if isinstance(rows, int) else None)
        if n is not None:
            for have, want in ((rows, n), (columns, n + 1)):
                if isinstance(have, int) and have != want:
                    raise OpError(
                        f"`data` must be (n, {n}, {n + 1}) for a {n}-dimensional grid; "
                        f"got {show(x)}"
                    )
    if wanted.values is None or x.dims is None or rank is None:
        return tensor(None, x.dtype, -1 if rank is None else rank + 2, x)
    return tensor((x.dims[0], rank, *wanted.values), x.dtype, like=x)


@affine_grid.shorthand
def _(given: Given) -> Given:
    size = given["size"]
    return {"size": ShapeExpr((size, size))} if isinstance(size, int | tir.PrimExpr) else {}


@affine_grid.legalize
def _(data: Expr, size: ShapeLike, align_corners: bool = True) -> Expr:
    space = static(literal_dims(size, "size"))
    n, dtype = len(space), dtype_of(data)
    wide = sum_dtype(dtype)
    axes: list[Any] = []
    for extent in space:
        count = size_of(extent)
        edge = 1.0 if align_corners else 1.0 - 1.0 / np.maximum(count, 1)
        steps = count_up((extent,)) * 2 - (count - 1)  # From one end to the other.
        axes.append(steps * (edge / np.maximum(count - 1, 1)))
    lines = [spread_to(x, wide, (d,)) for x, d in zip(axes, space, strict=True)]
    grid = [broadcast_in_dim(x, (1, *space), [1 + i]) for i, x in enumerate(lines)]
    base = concatenate([*grid[::-1], full((1, *space), 1, wide)], 0)
    points = dot_general(convert(data, wide), base, ([2], [0]))
    return convert(reshape(points, (shape_of(data)[0], n, *space)), dtype)


# ---- grid_sample
def _points_last(grid: TensorStructInfo, n: int) -> bool:
    """Whether coordinates are the last axis of a grid; on axis 1 where both have the size."""
    if grid.dims is None:
        return False
    first, last = grid.dims[1], grid.dims[-1]
    return not (isinstance(first, int) and first == n) and isinstance(last, int) and last == n


@op("relax.image.grid_sample", Opaque())
def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Rule:
    """Values of an image between its pixels, at points of a grid over [-1, 1].

    data: axes named by ``layout``: N batch, C channels, HW or DHW space; any integer or float dtype
    grid: (n, 2, h, w) or (n, 3, d, h, w), a float dtype: x, y (and z) of each point; or with the
    coordinates as last axis, where axis 1 has another size
    method: "nearest" (of two the even one), "bilinear" (in three dimensions trilinear) or
    "bicubic" (two dimensions only)
    padding_mode: outside the image: "zeros", "border": the nearest pixel, "reflection": mirrored
    align_corners: -1 and 1 are the centres of the outer pixels, else their edges
    result: ``data`` with the space of the grid, axes named by ``layout``, dtype of ``data``
    """
    n = len(layout) - 2
    if n not in (2, 3):
        raise OpError(f'`layout` must be a layout such as "NCHW" or "NCDHW"; got {layout!r}')
    axes = data_axes(layout, n, "layout")
    x = want_tensor(data, "data", REAL, n + 2)
    g = want_tensor(grid, "grid", FLOAT, n + 2)
    methods = METHODS if n == 2 else METHODS[:2]
    for name, value, known in (
        ("method", method, methods),
        ("padding_mode", padding_mode, PADDINGS),
    ):
        if value not in known:
            raise OpError(f"`{name}` must be one of {', '.join(known)}; got {value!r}")
    if g.dims is not None:
        last = _points_last(g, n)
        at = g.dims[-1] if last else g.dims[1]
        if isinstance(at, int) and at != n:
            raise OpError(
                f"`grid` must have {n} coordinates on axis 1 (or on the last axis); got {show(g)}"
            )
        if x.dims is not None:
            a, b = x.dims[axes[0]], g.dims[0]
            if differ(a, b):
                raise OpError(f"`data` and `grid` must have one batch; got {show(x)} and {show(g)}")

    def lower() -> Expr:
        at = grid if _points_last(g, n) else transpose(grid, (0, *range(2, n + 2), 1))
        points = convert(at, sum_dtype(dtype_of(grid)))
        image = transpose(data, [axes[0], *axes[2:], axes[1]])
        dtype = dtype_of(data)
        if 0 in (
            shape_of(image)[0],
            shape_of(points)[0],
        ):  # there is no pixel that a gather could take
            result = full((*shape_of(points)[:-1], shape_of(image)[-1]), 0, dtype)
        else:
            result = _Sampler(image, points, padding_mode, align_corners).sample(method)
        if dtype_of(result) != dtype:
            result = hlo("convert", result, out=tensor(shape_of(result), dtype))
        order = arrange(range(n + 2), axes)  # What is where: batch, channels, space.
        place = {0: 0, 1: n + 1, **{2 + i: 1 + i for i in range(n)}}
        return transpose(result, [place[i] for i in order])

    if x.dims is None or g.dims is None:
        return tensor(None, x.dtype, n + 2, x), lower
    space = g.dims[1:-1] if _points_last(g, n) else g.dims[2:]
    return tensor(arrange([x.dims[axes[0]], x.dims[axes[1]], *space], axes), x.dtype, like=x), lower


class _Sampler:
    """An image (n, *space, c) at points (n, *out, k), whose last coordinate is of the first axis
    of space.
    """

    def __init__(self, image: Expr, points: Expr, padding: str, align: bool) -> None:
        self.image, self.padding, self.align = image, padding, align
        self.space = shape_of(image)[1:-1]
        self.out = shape_of(points)[:-1]
        self.dtype = dtype_of(points)
        rank = len(self.space)
        columns = [reshape(slice_axis(points, rank + 1, i, i + 1), self.out) for i in range(rank)][
            ::-1
        ]
        self.at = [self._pixels(p, s) for p, s in zip(columns, self.space, strict=True)]

    def _pixels(self, point: Expr, size: int) -> Expr:
        """A coordinate from [-1, 1] to pixels."""
        count = size_of(size, self.dtype)
        span = count - 1 if self.align else count
        return self._wide(Traced(point) * (span * 0.5) + (count - 1) * 0.5)

    def _wide(self, x: Traced) -> Expr:
        return spread_to(x, self.dtype, self.out)

    def _clamp(self, x: Expr, size: int) -> Expr:
        # Neither bound has a derivative, which half of it would be between a maximum and a minimum.
        low, high = full_like(x, 0), self._wide(size_of(size, self.dtype) - 1)
        inside = select(compare(x, high, "GE"), high, x)
        return select(compare(x, low, "LE"), low, inside)

    def _inside(self, x: Expr, size: int) -> Expr:
        """A coordinate brought into the image, as ``padding`` says."""
        if self.padding == "zeros":
            return x
        if self.padding == "reflection":
            x = self._reflect(x, size)
        return self._clamp(x, size)

    def _reflect(self, x: Expr, size: int) -> Expr:
        """A coordinate mirrored at the edges until it is inside."""
        count = size_of(size, self.dtype)
        low, span = (0.0, count - 1) if self.align else (-0.5, count)
        if not isinstance(span, Traced) and span == 0:
            return full_like(x, 0)
        away = hlo("abs", self._wide(Traced(x) - low))
        width = spread_to(span, self.dtype, self.out)
        times = hlo("floor", hlo("divide", away, width))
        extra = hlo("remainder", away, width)
        half = hlo("multiply", times, full_like(x, 0.5))
        even = compare(hlo("floor", half), half, "EQ")
        there, back = Traced(extra) + low, (span + low) - Traced(extra)
        inside = select(even, self._wide(there), self._wide(back))
        if not isinstance(span, Traced):
            return inside
        return select(compare(width, full_like(x, 0), "GT"), inside, full_like(x, 0))

    def _pixel(self, where: Sequence[Expr]) -> Expr:
        """Pixels at whole coordinates (n, *out), 0 outside the image: (n, *out, c)."""
        channels = shape_of(self.image)[-1]
        wide = (*self.out, channels)
        known: Expr | None = None
        columns: list[Expr] = [reshape(iota(self.out, 0, "int32"), (*self.out, 1))]
        for at, size in zip(where, self.space, strict=True):
            held = self._clamp(at, size)
            same = compare(at, held, "EQ")
            known = same if known is None else hlo("and", known, same)
            columns.append(reshape(convert(held, "int32"), (*self.out, 1)))
        assert known is not None
        rank = len(self.space)
        value = hlo(
            "gather",
            self.image,
            concatenate(columns, rank + 1),
            dimension_numbers={
                "offset_dims": (rank + 1,),
                "collapsed_slice_dims": tuple(range(rank + 1)),
                "start_index_map": tuple(range(rank + 1)),
                "index_vector_dim": rank + 1,
            },
            slice_sizes=(*(1 for _ in range(rank + 1)), channels),
        )
        if self.padding != "zeros":
            return value
        spread = broadcast_in_dim(known, wide, range(rank + 1))
        return select(spread, value, full(wide, 0, dtype_of(value)))

    def _weighted(self, value: Expr, weight: Expr) -> Expr:
        value = convert(value, self.dtype)
        wide = broadcast_in_dim(weight, shape_of(value), range(len(shape_of(weight))))
        return hlo("multiply", value, wide)

    def sample(self, method: str) -> Expr:
        """The values at the points, (n, *out, c)."""
        if method == "bicubic":
            return self._cubic()
        at = [self._inside(p, s) for p, s in zip(self.at, self.space, strict=True)]
        if method == "nearest":
            return self._pixel([hlo("round_nearest_even", p) for p in at])
        taps: list[list[tuple[Expr, Expr]]] = []
        for p in at:
            low = hlo("floor", p)
            part = hlo("subtract", p, low)
            one = full_like(p, 1)
            taps.append([(low, hlo("subtract", one, part)), (hlo("add", low, one), part)])
        return self._sum(taps)

    def _sum(self, taps: Sequence[Sequence[tuple[Expr, Expr]]]) -> Expr:
        """The sum over all combinations of one tap (pixel, weight) an axis."""
        total: Expr | None = None
        for chosen in combinations(*taps):
            weight = chosen[0][1]
            for _, more in chosen[1:]:
                weight = hlo("multiply", weight, more)
            term = self._weighted(self._pixel([at for at, _ in chosen]), weight)
            total = term if total is None else hlo("add", total, term)
        assert total is not None
        return total

    def _cubic(self) -> Expr:
        """Sixteen pixels, each brought into the image by itself."""
        taps: list[list[tuple[Expr, Expr]]] = []
        for p, size in zip(self.at, self.space, strict=True):
            low = hlo("floor", p)
            part = hlo("subtract", p, low)
            taps.append(
                [
                    (
                        self._inside(hlo("add", low, full_like(low, i - 1)), size),
                        self._spline(hlo("abs", hlo("subtract", part, full_like(part, i - 1)))),
                    )
                    for i in range(4)
                ]
            )
        if self.padding == "reflection":
            # Mirrored at a half pixel, a whole coordinate may fall between two.
            taps = [[(hlo("floor", at), w) for at, w in line] for line in taps]
        return self._sum(taps)

    def _spline(self, t: Expr) -> Expr:
        """The weight of a pixel at a distance of 0 to 2."""
        a = CUBIC_ALPHA

        def horner(*coefficients: float) -> Expr:
            value: Expr = full_like(t, coefficients[0])
            for c in coefficients[1:]:
                value = hlo("add", hlo("multiply", value, t), full_like(t, c))
            return value

        near = horner(a + 2, -(a + 3), 0, 1)
        far = horner(a, -5 * a, 8 * a, -4 * a)
        return select(compare(t, full_like(t, 1), "LE"), near, far)
