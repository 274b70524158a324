"""``relax.image``: resize2d and resize3d; grid_sample and affine_grid are in image_grid.py.

Resizing works one axis after the other: output i of an axis is a weighted sum of a few inputs, the
taps, whose positions and weights are known before the program runs. Semantics: TVM's TOPI, which
are those of ONNX's Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.errors import OpError
from relax2xla.ir.expr import Constant, Expr, PrimValue
from relax2xla.ir.op import DTypeLike, Kind, ShapeLike, op
from relax2xla.ir.struct_info import ShapeStructInfo, StructInfo
from relax2xla.op._lower import (
    broadcast_in_dim,
    convert,
    dtype_of,
    full_like,
    hlo,
    index_constant,
    relax,
    reshape,
    select,
    shape_of,
    slice_axis,
    static,
    sum_dtype,
)
from relax2xla.op._rules import REAL, literal_dims, tensor, want_shape, want_tensor
from relax2xla.op.image_grid import affine_grid as affine_grid
from relax2xla.op.image_grid import grid_sample as grid_sample
from relax2xla.op.nn._spatial import arrange, data_axes

Array = np.ndarray[Any, np.dtype[Any]]

METHODS: Final = ("nearest_neighbor", "linear", "cubic")
MODES: Final = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
# How the nearest input is found; EPSILON as in TOPI, against rounding errors of coordinates.
EPSILON: Final = 1e-5
ROUNDINGS: Final[dict[str, Callable[[Array], Array]]] = {
    "round": np.rint,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + EPSILON),
    "ceil": lambda x: np.ceil(x - EPSILON),
}

_DOC = """Resize the axes {axes} of images.

data:    axes named by ``layout``: N batch, C channels, {axes} space; any integer or float dtype
size:    shape ({axes}) of the result: one dimension for all, or one an axis
roi:     for "tf_crop_and_resize": all starts, then all ends, as fractions of the image
method:  "nearest_neighbor", "linear" or "cubic"
coordinate_transformation_mode: which point of the input a point of the result is: "half_pixel",
         "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn" or
         "tf_crop_and_resize"
rounding_method: of "nearest_neighbor": "round", "round_prefer_floor", "round_prefer_ceil", "floor",
         "ceil", or "" for "round" with "align_corners" and "floor" else
cubic_alpha: coefficient of the cubic spline; cubic_exclude: whether taps outside the image get no
         weight (else they repeat the edge)
extrapolation_value: with "tf_crop_and_resize", of points outside the image
result:  ``data`` with space ``size``, dtype ``out_dtype`` (default: of ``data``); integers are
         interpolated in float32 and truncated
Raises ``OpError`` for other ranks, layouts, sizes, methods and modes.
"""


def _as_roi(value: Any) -> tuple[float, ...]:
    if value is None:
        return ()
    if isinstance(value, int | float):
        return (float(value),)
    return tuple(float(getattr(v, "value", v)) for v in value)


def _spelled_out(n: int) -> Any:
    """As TVM holds them: one number is the size of each axis, no region the empty one."""

    def rule(
        data: Any, size: Any, roi: Any, layout: str, method: str, mode: str, *others: Any
    ) -> Mapping[str, Any]:
        given: dict[str, Any] = {}
        if roi is None and mode != "tf_crop_and_resize":
            given["roi"] = (0.0,) * (2 * n)
        if isinstance(size, int | tir.PrimExpr | PrimValue):
            size = (size,)
        if isinstance(size, tuple | list) and len(size) == 1:
            given["size"] = tuple(size) * n
        return given

    return rule


Roi = Annotated[Any, Kind(False, _as_roi)]


@dataclass(frozen=True, slots=True)
class _Resize:
    """A resize operator's attributes."""

    ndim: int
    roi: tuple[float, ...]
    layout: str
    method: str
    mode: str
    rounding: str
    alpha: float
    exclude: int
    extrapolation: float
    out_dtype: str | None

    def infer(self, data: Expr, size: Expr) -> StructInfo:
        """The struct-info rule."""
        n = self.ndim
        x = want_tensor(data, "data", REAL, n + 2)
        wanted: ShapeStructInfo = want_shape(size, "size")
        axes = data_axes(self.layout, n, "layout")
        if wanted.ndim not in (-1, 1, n):
            raise OpError(f"`size` must have 1 or {n} dimensions; got {wanted}")
        known: tuple[tuple[str, str, Sequence[str]], ...] = (
            ("method", self.method, METHODS),
            ("coordinate_transformation_mode", self.mode, MODES),
            ("rounding_method", self.rounding, ("", *ROUNDINGS)),
        )
        for name, value, values in known:
            if value not in values:
                shown = ", ".join(map(repr, values))
                raise OpError(f"`{name}` must be one of {shown}; got {value!r}")
        if len(self.roi) not in (0, 1, 2 * n):
            raise OpError(f"`roi` must have {2 * n} numbers; got {self.roi}")
        if self.mode == "tf_crop_and_resize" and len(self.roi) != 2 * n:
            raise OpError(f'"tf_crop_and_resize" needs a `roi` of {2 * n} numbers; got {self.roi}')
        dtype = self.out_dtype or x.dtype
        if x.dims is None or wanted.values is None:
            return tensor(None, dtype, n + 2, x)
        space = wanted.values * (n if len(wanted.values) == 1 else 1)
        return tensor(arrange((*(x.dims[a] for a in axes[:2]), *space), axes), dtype, like=x)

    def lower(self, data: Expr, size: Expr) -> Expr:
        """One axis after the other, those that shrink first."""
        n, dtype = self.ndim, dtype_of(data)
        axes = data_axes(self.layout, n, "layout")[2:]
        space = static(literal_dims(size, "size"), "`size`")
        space *= n if len(space) == 1 else 1
        x = data
        if self.method != "nearest_neighbor":
            x = convert(x, sum_dtype(dtype) if is_float(dtype) else "float32")
        shape = shape_of(data)
        points = {a: self.points(i, shape[a], space[i]) for i, a in enumerate(axes)}
        for axis in sorted(axes, key=lambda a: len(points[a]) / max(shape[a], 1)):
            x = self.along(x, axis, points[axis])
        if self.mode == "tf_crop_and_resize":
            for axis, at in points.items():
                inside = (at >= 0) & (at <= shape[axis] - 1)
                if not inside.all():
                    seen = broadcast_in_dim(Constant(inside), shape_of(x), [axis])
                    x = select(seen, x, full_like(x, self.extrapolation))
        return convert(x, self.out_dtype or dtype)

    def points(self, i: int, size: int, out: int) -> Array:
        """Of spatial axis ``i``: where in the input each output lies."""
        x = np.arange(out, dtype=np.float64)
        scale = size / out if out else 1.0
        match self.mode:
            case "half_pixel":
                return (x + 0.5) * scale - 0.5
            case "pytorch_half_pixel":
                return (x + 0.5) * scale - 0.5 if out > 1 else x * 0
            case "align_corners":
                return x * ((size - 1) / (out - 1)) if out > 1 else x * 0
            case "asymmetric":
                return x * scale
            case "tf_half_pixel_for_nn":
                return (x + 0.5) * scale
            case _:
                start, end = self.roi[i], self.roi[self.ndim + i]
                if out == 1:
                    return x * 0 + 0.5 * (start + end) * (size - 1)
                return start * (size - 1) + x * ((end - start) * (size - 1) / (out - 1))

    def along(self, x: Expr, axis: int, points: Array) -> Expr:
        """``x`` resized along one axis."""
        size = shape_of(x)[axis]
        if len(points) == size and np.array_equal(points, np.arange(size)):
            return x
        if self.method == "nearest_neighbor":
            default = "round" if self.mode == "align_corners" else "floor"
            nearest = ROUNDINGS[self.rounding or default](points).astype(np.int64)
            return _take(x, np.clip(nearest, 0, size - 1), axis)
        first = np.floor(points)
        t = points - first
        if self.method == "linear":
            at, weights = first[:, None] + (0, 1), np.stack([1 - t, t], axis=1)
        else:
            at, weights = first[:, None] + (-1, 0, 1, 2), _cubic(t, self.alpha)
            if self.exclude:
                weights = np.where((at < 0) | (at >= size), 0.0, weights)
                weights /= weights.sum(axis=1, keepdims=True)
        index = np.clip(at, 0, size - 1).astype(np.int64)
        total: Expr | None = None
        for tap in range(index.shape[1]):
            weight = Constant(weights[:, tap].astype(numpy_dtype(dtype_of(x))))
            part = _take(x, index[:, tap], axis)
            part = hlo("multiply", part, broadcast_in_dim(weight, shape_of(part), [axis]))
            total = part if total is None else hlo("add", total, part)
        assert total is not None
        return total


def _cubic(t: Array, a: float) -> Array:
    """Weights of the four taps around a point that lies ``t`` behind the second."""
    square, cube = t * t, t * t * t
    return np.stack(
        [
            a * (cube - 2 * square + t),
            (a + 2) * cube - (3 + a) * square + 1,
            -(a + 2) * cube + (3 + 2 * a) * square - a * t,
            -a * cube + a * square,
        ],
        axis=1,
    )


def _take(x: Expr, index: Array, axis: int) -> Expr:
    """``x[index]`` along an axis; a slice, a repetition, or else a gather."""
    shape = list(shape_of(x))
    size, count = shape[axis], len(index)
    step = int(index[1] - index[0]) if count > 1 else 1
    if step > 0 and np.array_equal(index, index[0] + step * np.arange(count)):
        return slice_axis(x, axis, int(index[0]), int(index[-1]) + 1, step)
    if count % size == 0 and np.array_equal(index, np.repeat(np.arange(size), count // size)):
        wide = [*shape[: axis + 1], count // size, *shape[axis + 1 :]]
        others = [a for a in range(len(wide)) if a != axis + 1]
        shape[axis] = count
        return reshape(broadcast_in_dim(x, wide, others), shape)
    return relax("take", x, index_constant(index), axis=axis)


@op("relax.image.resize2d", doc=_DOC.format(axes="HW"))
def resize2d(
    data: Expr,
    size: ShapeLike,
    roi: Roi = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: DTypeLike = None,
) -> StructInfo:
    """Resize height and width."""
    return _Resize(
        *(2, roi, layout, method, coordinate_transformation_mode, rounding_method),
        *(cubic_alpha, cubic_exclude, extrapolation_value, out_dtype),
    ).infer(data, size)


resize2d.shorthand(_spelled_out(2))


@resize2d.legalize
def _resize2d(
    data: Expr,
    size: ShapeLike,
    roi: Roi = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: DTypeLike = None,
) -> Expr:
    return _Resize(
        *(2, roi, layout, method, coordinate_transformation_mode, rounding_method),
        *(cubic_alpha, cubic_exclude, extrapolation_value, out_dtype),
    ).lower(data, size)


@op("relax.image.resize3d", doc=_DOC.format(axes="DHW"))
def resize3d(
    data: Expr,
    size: ShapeLike,
    roi: Roi = None,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: DTypeLike = None,
) -> StructInfo:
    """Resize depth, height and width."""
    return _Resize(
        *(3, roi, layout, method, coordinate_transformation_mode, rounding_method),
        *(cubic_alpha, cubic_exclude, extrapolation_value, out_dtype),
    ).infer(data, size)


resize3d.shorthand(_spelled_out(3))


@resize3d.legalize
def _resize3d(
    data: Expr,
    size: ShapeLike,
    roi: Roi = None,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: DTypeLike = None,
) -> Expr:
    return _Resize(
        *(3, roi, layout, method, coordinate_transformation_mode, rounding_method),
        *(cubic_alpha, cubic_exclude, extrapolation_value, out_dtype),
    ).lower(data, size)
