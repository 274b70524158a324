"""Operators of networks that move values: padding, pixel shuffle, flattening, dropout."""

from __future__ import annotations

from typing import Annotated, Any, Final

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.op import Rule, constant_value, op
from relax2xla.ir.op_param import Kind, as_ints
from relax2xla.ir.struct_info import StructInfo, TupleStructInfo
from relax2xla.ir.traits import Opaque, Pads, Pointwise, Reshapes
from relax2xla.op.shared import lowering as low
from relax2xla.op.shared.checks import NUMBER, fold, product, tensor, want_tensor
from relax2xla.op.shared.lowering import (
    concatenate,
    dtype_of,
    elements,
    full_like,
    hlo,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
)

MODES: Final = ("constant", "reflect", "replicate", "circular")


# ---- pad
def _as_widths(value: Any) -> tuple[int, ...]:
    """``((before, after), ...)`` or the same flat, as flat."""
    flat: list[int] = []
    for item in value:
        flat.extend(as_ints(item))
    return tuple(flat)


def _as_value(value: Any) -> float:
    if isinstance(value, Expr):
        value = constant_value(value)
    elif isinstance(value, tir.IntImm | tir.FloatImm):
        value = value.value
    if value is None:
        raise TypeError("the value must be a number or a constant")
    return float(value)


Widths = Annotated[Any, Kind(False, _as_widths)]
Number = Annotated[Any, Kind(False, _as_value)]


@op("relax.nn.pad", Pads())
def pad(
    data: Expr, pad_width: Widths, pad_mode: str = "constant", pad_value: Number = 0.0
) -> StructInfo:
    """Padding of every axis.

    data:      any shape and dtype
    pad_width: ``((before, after), ...)`` for each axis, or the same flat. Negative numbers crop
               (mode "constant" only)
    pad_mode:  "constant": ``pad_value``; "reflect": mirrored without the edge; "replicate": the
               edge; "circular": the values from the other side
    pad_value: a number or a constant
    result:    each axis ``before + size + after``, dtype of ``data``
    Raises ``OpError`` for another number of widths, unknown modes, and widths for which an axis has
    too few values to mirror or to repeat.
    """
    x = want_tensor(data, "data")
    if pad_mode not in MODES:
        raise OpError(f"`pad_mode` must be one of {', '.join(MODES)}; got {pad_mode!r}")
    if len(pad_width) % 2 or (x.ndim >= 0 and len(pad_width) != 2 * x.ndim):
        raise OpError(
            f"`pad_width` must have two numbers, before and after, for each of the {x.ndim} axes; "
            f"got {pad_width}"
        )
    if pad_mode != "constant" and any(w < 0 for w in pad_width):
        raise OpError(f"`pad_width` must not be negative with mode {pad_mode!r}; got {pad_width}")
    if x.dims is None:
        return tensor(None, x.dtype, len(pad_width) // 2, x)
    out: list[tir.Dim] = []
    for axis, (size, before, after) in enumerate(
        zip(x.dims, pad_width[::2], pad_width[1::2], strict=True)
    ):
        least = {"reflect": 1 + max(before, after), "circular": max(before, after)}.get(pad_mode, 1)
        if pad_mode != "constant" and (before or after) and isinstance(size, int) and size < least:
            raise OpError(
                f"mode {pad_mode!r} with widths {(before, after)} needs at least {least} values on "
                f"axis {axis}; it has {size}"
            )
        dim = fold(size + (before + after))
        if isinstance(dim, int) and dim < 0:
            raise OpError(f"`pad_width` {(before, after)} crops more than axis {axis} has: {size}")
        out.append(dim)
    return tensor(tuple(out), x.dtype, like=x)


@pad.legalize
def _pad(
    data: Expr, pad_width: Widths, pad_mode: str = "constant", pad_value: Number = 0.0
) -> Expr:
    before, after = pad_width[::2], pad_width[1::2]
    if pad_mode == "constant":
        return low.pad(data, before, after, scalar(pad_value, dtype_of(data)))
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        data = _pad_axis(data, axis, first, last, pad_mode)
    return data


def _pad_axis(x: Expr, axis: int, before: int, after: int, mode: str) -> Expr:
    size = shape_of(x)[axis]
    parts: list[Expr] = [x]
    if mode == "reflect":
        if before:
            parts.insert(0, _reversed(slice_axis(x, axis, 1, 1 + before), axis))
        if after:
            parts.append(_reversed(slice_axis(x, axis, size - 1 - after, size - 1), axis))
    elif mode == "circular":
        if before:
            parts.insert(0, slice_axis(x, axis, size - before, size))
        if after:
            parts.append(slice_axis(x, axis, 0, after))
    else:
        if before:
            parts.insert(0, _repeated(slice_axis(x, axis, 0, 1), axis, before))
        if after:
            parts.append(_repeated(slice_axis(x, axis, size - 1, size), axis, after))
    return concatenate(parts, axis)


def _reversed(x: Expr, axis: int) -> Expr:
    return hlo("reverse", x, dimensions=(axis,))


def _repeated(x: Expr, axis: int, times: int) -> Expr:
    shape = [times if i == axis else d for i, d in enumerate(shape_of(x))]
    return low.broadcast_to(x, shape)


# ---- pixel shuffle
@op("relax.nn.pixel_shuffle", Opaque())
def pixel_shuffle(data: Expr, upscale_factor: int) -> StructInfo:
    """Channels become pixels: (*s, C * r^2, H, W) to (*s, C, H * r, W * r), r the factor.

    data:   at least three axes, any dtype
    result: dtype of ``data``
    Raises ``OpError`` for fewer axes and for channels that r^2 does not divide.
    """
    x = want_tensor(data, "data")
    r = upscale_factor
    if r < 1:
        raise OpError(f"`upscale_factor` must be at least 1; got {r}")
    if 0 <= x.ndim < 3:
        raise OpError(f"`data` must have at least 3 axes (channels, height, width); got {x.ndim}")
    if x.dims is None:
        return tensor(None, x.dtype, x.ndim, x)
    *rest, channels, height, width = x.dims
    if isinstance(channels, int) and channels % (r * r):
        raise OpError(f"`data` has {channels} channels; they must be a multiple of {r * r} = {r}^2")
    dims = (*rest, fold(channels // (r * r)), fold(height * r), fold(width * r))
    return tensor(dims, x.dtype, like=x)


@pixel_shuffle.legalize
def _pixel_shuffle(data: Expr, upscale_factor: int) -> Expr:
    r = upscale_factor
    *rest, channels, height, width = shape_of(data)
    n = len(rest)
    x = reshape(data, [*rest, channels // (r * r), r, r, height, width])
    x = transpose(x, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return reshape(x, [*rest, channels // (r * r), height * r, width * r])


# ---- batch_flatten, dropout
@op("relax.nn.batch_flatten", Reshapes())
def batch_flatten(data: Expr) -> StructInfo:
    """All axes but the first made one: (n, *s) to (n, product of s).

    data:   at least two axes, any dtype
    result: two axes, dtype of ``data``
    Raises ``OpError`` for fewer axes.
    """
    x = want_tensor(data, "data")
    if 0 <= x.ndim < 2:
        raise OpError(f"`data` must have a batch axis and at least one more; got rank {x.ndim}")
    if x.dims is None:
        return tensor(None, x.dtype, 2, x)
    return tensor((x.dims[0], product(x.dims[1:])), x.dtype, like=x)


@batch_flatten.legalize
def _batch_flatten(data: Expr) -> Expr:
    first, *rest = shape_of(data)
    return reshape(data, [first, elements(rest)])


@op("relax.nn.dropout", Pointwise(flops=0))
def dropout(data: Expr, rate: float = 0.5) -> Rule:
    """Dropout as it is at inference: ``data`` unchanged, and a mask of ones.

    data:   any shape, any number
    rate:   probability with which training would drop a value; 0 <= rate <= 1
    result: tuple of ``data`` and the mask, both as ``data``
    Raises ``OpError`` for other dtypes and rates.
    """
    x = want_tensor(data, "data", NUMBER)
    if not 0 <= rate <= 1:
        raise OpError(f"`rate` must be between 0 and 1; got {rate}")
    return TupleStructInfo((x, x)), lambda: Tuple([data, full_like(data, 1)])
