"""``relax.image``: resize2d, resize3d, decode.

Resizing works one axis after the other: output i of an axis is a weighted sum of a few inputs, the
taps, whose positions and weights are known before the program runs. Semantics: TVM's TOPI, which
are those of ONNX's Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, PrimValue
from relax2xla.ir.op import Given, Rule, Shorthand, op
from relax2xla.ir.op_param import DTypeLike, Kind, ShapeLike
from relax2xla.ir.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque, Window
from relax2xla.op.shared.checks import REAL, literal_dims, tensor, want_shape, want_tensor
from relax2xla.op.shared.families import member
from relax2xla.op.shared.layouts import PlainRule, in_layouts
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    convert,
    dtype_of,
    full_like,
    hlo,
    index_constant,
    known,
    relax,
    reshape,
    select,
    shape_of,
    slice_axis,
    static,
    sum_dtype,
)
from relax2xla.op.shared.spatial import arrange, data_axes
from relax2xla.op.shared.traced import Numbers, Traced, clip, count_up, size_of, tensor_of, where

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
ROUNDINGS: Final[dict[str, Callable[[Numbers], Numbers]]] = {
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


def _spelled_out(n: int) -> Shorthand:
    """As TVM holds them: one number is the size of each axis, no region the empty one."""

    def rule(given: Given) -> Given:
        found: dict[str, Any] = {}
        if given["roi"] is None and given["coordinate_transformation_mode"] != "tf_crop_and_resize":
            found["roi"] = (0.0,) * (2 * n)
        size = given["size"]
        if isinstance(size, int | tir.PrimExpr | PrimValue):
            size = (size,)
        if isinstance(size, tuple | list) and len(size) == 1:
            found["size"] = tuple(size) * n
        return found

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

    def infer(self, data: Expr, size: Expr) -> TensorStructInfo:
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
        growth = {
            a: o / max(shape[a], 1) for a, o in zip(axes, space, strict=True) if known(o, shape[a])
        }
        for axis in sorted(axes, key=lambda a: growth.get(a, 1.0)):
            x = self.along(x, axis, points[axis])
        if self.mode == "tf_crop_and_resize":
            for axis, at in points.items():
                inside = (at >= 0) & (at <= size_of(shape[axis] - 1))
                if isinstance(inside, Traced) or not inside.all():
                    seen = broadcast_in_dim(tensor_of(inside, "bool"), shape_of(x), [axis])
                    x = select(seen, x, full_like(x, self.extrapolation))
        return convert(x, self.out_dtype or dtype)

    def points(self, i: int, size: int, out: int) -> Numbers:
        """Of spatial axis ``i``: where in the input each output lies."""
        x, whole, count = count_up((out,)), size_of(size), size_of(out)
        scale = whole / np.maximum(count, 1)
        gaps = np.maximum(count - 1, 1)
        match self.mode:
            case "half_pixel":
                return (x + 0.5) * scale - 0.5
            case "pytorch_half_pixel":
                return where(count > 1, (x + 0.5) * scale - 0.5, x * 0)
            case "align_corners":
                return where(count > 1, x * ((whole - 1) / gaps), x * 0)
            case "asymmetric":
                return x * scale
            case "tf_half_pixel_for_nn":
                return (x + 0.5) * scale
            case _:
                start, end = self.roi[i], self.roi[self.ndim + i]
                middle = x * 0 + 0.5 * (start + end) * (whole - 1)
                spaced = start * (whole - 1) + x * ((end - start) * (whole - 1) / gaps)
                return where(count <= 1, middle, spaced)

    def along(self, x: Expr, axis: int, points: Numbers) -> Expr:
        """``x`` resized along one axis."""
        size = shape_of(x)[axis]
        if known(size) and not isinstance(points, Traced) and np.array_equal(points, range(size)):
            return x
        last = size_of(size - 1)

        def taken(at: Numbers) -> Expr:
            return _take(x, clip(at, 0, last).astype("int64"), axis)

        if self.method == "nearest_neighbor":
            default = "round" if self.mode == "align_corners" else "floor"
            return taken(ROUNDINGS[self.rounding or default](points))
        first = np.floor(points)
        t = points - first
        if self.method == "linear":
            taps, weights = [first, first + 1], [1 - t, t]
        else:
            taps, weights = [first + i for i in (-1, 0, 1, 2)], _cubic(t, self.alpha)
            if self.exclude:
                outside = [(at < 0) | (at > last) for at in taps]
                weights = [where(o, 0.0, w) for o, w in zip(outside, weights, strict=True)]
                total = sum(weights[1:], weights[0])
                # No tap is left of a point that the caller replaces: one outside the image.
                weights = [w / where(total == 0, 1.0, total) for w in weights]
        result: Expr | None = None
        for at, weight in zip(taps, weights, strict=True):
            part = taken(at)
            wide = broadcast_in_dim(tensor_of(weight, dtype_of(x)), shape_of(part), [axis])
            part = hlo("multiply", part, wide)
            result = part if result is None else hlo("add", result, part)
        assert result is not None
        return result


def _cubic(t: Numbers, a: float) -> list[Numbers]:
    """Weights of the four taps around a point that lies ``t`` behind the second."""
    square, cube = t * t, t * t * t
    return [
        a * (cube - 2 * square + t),
        (a + 2) * cube - (3 + a) * square + 1,
        -(a + 2) * cube + (3 + 2 * a) * square - a * t,
        -a * cube + a * square,
    ]


def _take(x: Expr, index: Numbers, axis: int) -> Expr:
    """``x[index]`` along an axis; a slice, a repetition, or else a gather."""
    shape = list(shape_of(x))
    size = shape[axis]
    if isinstance(index, Traced) or not known(size):
        return relax("take", x, tensor_of(index, "int32"), axis=axis)
    count = len(index)
    step = int(index[1] - index[0]) if count > 1 else 1
    if step > 0 and np.array_equal(index, index[0] + step * np.arange(count)):
        return slice_axis(x, axis, int(index[0]), int(index[-1]) + 1, step)
    if count % size == 0 and np.array_equal(index, np.repeat(np.arange(size), count // size)):
        wide = [*shape[: axis + 1], count // size, *shape[axis + 1 :]]
        others = [a for a in range(len(wide)) if a != axis + 1]
        shape[axis] = count
        return reshape(broadcast_in_dim(x, wide, others), shape)
    return relax("take", x, index_constant(index), axis=axis)


@op("relax.image.decode", Opaque())
def decode(encoded: Expr, pixel_format: str = "RGB") -> StructInfo:
    """The pixels of an encoded image: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP, PNM.

    The host decodes it with Pillow, which has to be installed. Source: ImageDecoder of ONNX.

    encoded: (n,), uint8, the bytes of the file; pixel_format: "RGB", "BGR" or "Grayscale"
    result: (height, width, 3, or 1 for "Grayscale"), uint8
    """
    want_tensor(encoded, "encoded", ("uint8",), ndim=1)
    return TensorStructInfo(None, "uint8", ndim=3)


def _resize(
    ndim: int,
    data: Expr,
    size: ShapeLike,
    roi: Roi = None,
    layout: str = "",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: DTypeLike = None,
) -> Rule:
    def rule(x: Expr, at: str, out: str | None) -> PlainRule:
        resize = _Resize(
            *(ndim, roi, at, method, coordinate_transformation_mode, rounding_method),
            *(cubic_alpha, cubic_exclude, extrapolation_value, out_dtype),
        )
        return resize.infer(x, size), lambda x: resize.lower(x, size)

    return in_layouts(data, layout, None, rule)


resize2d = member(
    "relax.image.resize2d",
    *(_resize, 2, 2),
    traits=[Window(out="")],
    doc=_DOC.format(axes="HW"),
    defaults={"layout": "NCHW", "rounding_method": "round"},
)
resize3d = member(
    "relax.image.resize3d",
    *(_resize, 3, 3),
    traits=[Window(out="")],
    doc=_DOC.format(axes="DHW"),
    defaults={"layout": "NCDHW", "rounding_method": ""},
)
resize2d.shorthand(_spelled_out(2))
resize3d.shorthand(_spelled_out(3))
