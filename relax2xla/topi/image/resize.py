"""Images, lines and volumes of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.shared import FUNCTIONS, of_dtype, want_one_of

_METHODS = ("nearest_neighbor", "linear", "cubic")
_ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_floor, _ceil = FUNCTIONS["floor"], FUNCTIONS["ceil"]

Tap = tuple[Any, Any]
"""A place along an axis, and its weight (None is 1)."""


def _float(value: Any) -> Any:
    return of_dtype(value, "float32")


def _place(x: Any, old: Any, new: Any, mode: str, start: Any, end: Any) -> Any:
    """Where along an axis of size ``old`` the place ``x`` of ``new`` ones is."""
    at, inside, outside = _float(x), _float(old), _float(new)
    half = _float(0.5)
    scale = inside / outside
    single = new <= 1
    match mode:
        case "half_pixel":
            return (at + half) * scale - half
        case "align_corners":
            # Of one place it is the first.
            steps = tir.max(outside - _float(1), _float(1))
            return (inside - _float(1)) / steps * at
        case "asymmetric":
            return scale * at
        case "pytorch_half_pixel":
            return tir.if_then_else(single, _float(0), (at + half) * scale - half)
        case "tf_half_pixel_for_nn":
            return (at + half) * scale
        case "tf_crop_and_resize":
            span = inside - _float(1)
            steps = tir.max(outside - _float(1), _float(1))
            several = start * span + at * (end - start) * span / steps
            return tir.if_then_else(single, half * (start + end) * span, several)
        case _:
            raise ValueError(
                "topi.image: coordinate_transformation_mode is half_pixel, align_corners, "
                "asymmetric, pytorch_half_pixel, tf_half_pixel_for_nn or tf_crop_and_resize; got "
                f"{mode!r}"
            )


def _rounded(at: Any, how: str) -> Any:
    """The nearest place; ``floor`` and ``ceil`` forgive rounding errors."""
    half, little = _float(0.5), _float(1e-5)
    made = {
        "round": lambda: FUNCTIONS["round"](at),
        "round_prefer_floor": lambda: _ceil(at - half),
        "round_prefer_ceil": lambda: _floor(at + half),
        "floor": lambda: _floor(at + little),
        "ceil": lambda: _ceil(at - little),
    }[how]()
    return made


def _clamped(i: Any, length: Any) -> Any:
    return tir.max(tir.min(i, length - 1), of_dtype(0, i.dtype))


def _cubic(t: Any, a: Any) -> list[Any]:
    """Keys' weights of the four places around the fraction ``t``."""

    def near(d: Any) -> Any:
        return ((a + _float(2)) * d - (a + _float(3))) * d * d + _float(1)

    def far(d: Any) -> Any:
        return ((a * d - _float(5) * a) * d + _float(8) * a) * d - _float(4) * a

    one = _float(1)
    return [far(t + one), near(t), near(one - t), far(_float(2) - t)]


def taps(at: Any, length: Any, index: str, method: str, rounding: str, options: Any) -> list[Tap]:
    """The places along one axis that make the value at ``at``, with their weights."""
    alpha, exclude = options
    if method == "nearest_neighbor":
        return [(_clamped(tir.cast(index, _rounded(at, rounding)), length), None)]
    low = _floor(at)
    first, part = tir.cast(index, low), at - low
    if method == "linear":
        weights = [_float(1) - part, part]
        return [(_clamped(first + n, length), w) for n, w in enumerate(weights)]
    weights = _cubic(part, _float(alpha))
    if exclude:
        for n, w in enumerate(weights):
            outside = tir.Or.make(first + (n - 1) < 0, first + (n - 1) >= length)
            weights[n] = tir.if_then_else(outside, _float(0), w)
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [(_clamped(first + (n - 1), length), w) for n, w in enumerate(weights)]


def _resized(
    letters: str,
    data: te.Tensor,
    roi: Any,
    target: Sequence[Any],
    layout: str,
    method: str,
    mode: str,
    rounding: str,
    options: tuple[float, int],
    extrapolation: float,
    out_dtype: str | None,
) -> te.Tensor:
    want_one_of(method, _METHODS, "image.resize: method")
    want_one_of(rounding, _ROUNDINGS, "image.resize: rounding_method")
    order = [c for c in layout if c.isalpha()]
    if any(c not in order or c.lower() in order for c in letters) or len(order) != data.ndim:
        raise ValueError(f"topi.image.resize: {layout!r} is no layout with the axes {letters}")
    axes = [order.index(c) for c in letters]
    dim = len(axes)
    if len(target) != dim:
        raise ValueError(f"topi.image.resize: size has {dim} numbers; got {list(target)}")
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    crop = mode == "tf_crop_and_resize"
    # ``roi``: where each axis begins, and then where each ends.
    region = list(roi) if crop else [0.0] * (2 * dim)
    shape = list(data.shape)
    for a, n in zip(axes, target, strict=True):
        shape[a] = n if isinstance(n, tir.PrimExpr) else of_dtype(n, data.shape[a].dtype)
    dtype = out_dtype or data.dtype

    def element(*i: Any) -> Any:
        found: list[list[Tap]] = []
        outside: list[Any] = []
        for n, a in enumerate(axes):
            start, end = _float(region[n]), _float(region[n + dim])
            old = data.shape[a]
            at = _place(i[a], old, shape[a], mode, start, end)
            found.append(taps(at, old, i[a].dtype, method, rounding, options))
            outside += [at < _float(0), at > _float(old - 1)]
        value = _weighted(lambda where: data(*_at(i, axes, where)), found, method)
        if crop:
            value = tir.if_then_else(tir.any(*outside), of_dtype(extrapolation, value.dtype), value)
        return tir.cast(dtype, value)

    return te.compute(shape, element, "resize", "injective")


def _at(i: Sequence[Any], axes: Sequence[int], where: Sequence[Any]) -> list[Any]:
    made = list(i)
    for a, v in zip(axes, where, strict=True):
        made[a] = v
    return made


def _weighted(
    read: Callable[[Sequence[Any]], Any], found: Sequence[Sequence[Tap]], method: str
) -> Any:
    """The sum over all places, one axis inside the other."""
    if method == "nearest_neighbor":
        return read([t[0][0] for t in found])

    def along(n: int, where: list[Any]) -> Any:
        if n == len(found):
            return tir.cast("float32", read(where))
        made: Any = None
        for place, weight in found[n]:
            part = along(n + 1, [*where, place]) * weight
            made = part if made is None else made + part
        return made

    return along(0, [])


def _resize(letters: str, default: str) -> Callable[..., te.Tensor]:
    def function(
        data: te.Tensor,
        roi: Any,
        size: Sequence[Any],
        layout: str = default,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: Any = None,
    ) -> te.Tensor:
        options = (bicubic_alpha, bicubic_exclude)
        target = list(size) if output_shape is None else _sizes(output_shape, layout, letters)
        return _resized(
            *(letters, data, roi, target, layout, method, coordinate_transformation_mode),
            *(rounding_method, options, extrapolation_value, out_dtype),
        )

    function.__name__ = function.__qualname__ = f"resize{len(letters)}d"
    function.__doc__ = f"""Another size along {", ".join(letters)}.

    size: of the result; method: "nearest_neighbor", "linear" or "cubic" (Keys' with
    ``bicubic_alpha``, places outside left out if ``bicubic_exclude``);
    coordinate_transformation_mode: which place of the input each place of the result is;
    rounding_method: of the nearest neighbour, "floor" by default and "round" if corners are
    aligned; roi: for "tf_crop_and_resize" the begins and then the ends, as parts of the size,
    outside of which ``extrapolation_value`` is taken. Weights are in float32.
    """
    return function


def _sizes(output_shape: Sequence[Any], layout: str, letters: str) -> list[Any]:
    return [output_shape[layout.index(c)] for c in letters]


resize1d = _resize("W", "NCW")
resize2d = _resize("HW", "NCHW")
resize3d = _resize("DHW", "NCDHW")
