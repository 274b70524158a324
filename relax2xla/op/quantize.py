"""quantize and dequantize: ``q = clip(round(x / scale) + zero_point)`` and back.

Sources: TVM Relax v0.20 (names, inference), ONNX's QuantizeLinear and DequantizeLinear (values):
halves round to even, results stop at the limits of the dtype, and all arithmetic is in float32
(float64 for float64 data).
"""

from __future__ import annotations

from typing import Final

from relax2xla.dtypes import dtype_info, is_float, limits
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import TensorStructInfo, show
from relax2xla.ir.traits import Channelwise
from relax2xla.op.shared.checks import INTEGER, norm_axis, want_tensor, with_dtype
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    broadcast_to,
    convert,
    dtype_of,
    hlo,
    scalar,
    shape_of,
)
from relax2xla.op.unary import cast

WIDE: Final = ("float16", "bfloat16", "float32", "float64")
NARROW: Final = (
    *(d for d in INTEGER if dtype_info(d).bits <= 32),
    "float8_e4m3fn",
    "float8_e5m2",
)


def _check(
    data: TensorStructInfo, scale: Expr, zero_point: Expr, axis: int, narrow: tuple[str, ...]
) -> None:
    """Scale and zero point are scalars, or vectors as long as the axis."""
    infos = {
        "scale": want_tensor(scale, "scale", WIDE),
        "zero_point": want_tensor(zero_point, "zero_point", narrow),
    }
    at = norm_axis(axis, data.ndim) if data.ndim > 0 else 0
    size = data.dims[at] if data.dims else None
    for name, info in infos.items():
        if info.ndim not in (-1, 0, 1):
            raise OpError(f"`{name}` must have rank 0 or 1; got {show(info)}")
        own = info.dims[0] if info.dims else None
        if isinstance(own, int) and isinstance(size, int) and own not in (1, size):
            raise OpError(f"`{name}` must have {size} entries, as axis {axis}; got {show(info)}")


def _along(x: Expr, data: Expr, axis: int, dtype: str) -> Expr:
    """A scale or zero point in the shape of ``data``."""
    shape, own = shape_of(data), shape_of(x)
    x = convert(x, dtype)
    if not own or own[0] == 1:
        return broadcast_to(x, shape) if len(shape) >= len(own) else x
    return broadcast_in_dim(x, shape, [norm_axis(axis, len(shape))])


@op("relax.quantize", Channelwise())
def quantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: DTypeLike = "int8"
) -> Rule:
    """``clip(round(data / scale) + zero_point)``; float8 kinds are not rounded to integers.

    data: (*s), floating point; scale, zero_point: scalars, or vectors along ``axis``
    result: (*s), ``out_dtype`` (an integer kind of at most 32 bits or a float8 kind)
    """
    info = want_tensor(data, "data", WIDE)
    dtype = out_dtype or "int8"
    if dtype not in NARROW:
        raise OpError(f"`out_dtype` must be one of {', '.join(NARROW)}; got {dtype}")
    _check(info, scale, zero_point, axis, (*NARROW, "float16", "float32"))

    def lower() -> Expr:
        dtype = out_dtype or "int8"
        # Integers beyond 24 bits have no exact float32.
        exact = dtype_of(data) == "float64" or dtype in ("int32", "uint32")
        work = "float64" if exact else "float32"
        x = hlo("divide", convert(data, work), _along(scale, data, axis, work))
        if not is_float(dtype):
            x = hlo("round_nearest_even", x)
        x = hlo("add", x, _along(zero_point, data, axis, work))
        low, high = limits(dtype)
        return cast(hlo("clamp", scalar(low, work), x, scalar(high, work)), dtype)

    return with_dtype(info, dtype), lower


@op("relax.dequantize", Channelwise())
def dequantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: DTypeLike = "float32"
) -> Rule:
    """``(data - zero_point) * scale``.

    data: (*s), an integer kind of at most 32 bits or a float8 kind; scale, zero_point: scalars, or
    vectors along ``axis``
    result: (*s), ``out_dtype`` (float16, bfloat16, float32 or float64)
    """
    info = want_tensor(data, "data", (*NARROW, "float16", "float32"))
    dtype = out_dtype or "float32"
    if dtype not in WIDE:
        raise OpError(f"`out_dtype` must be one of {', '.join(WIDE)}; got {dtype}")
    _check(info, scale, zero_point, axis, (*NARROW, "float16"))

    def lower() -> Expr:
        dtype = out_dtype or "float32"
        work = "float64" if dtype == "float64" else "float32"
        if is_float(dtype_of(data)):
            x = hlo("subtract", convert(data, work), _along(zero_point, data, axis, work))
        else:
            # The difference of two integers may need one bit more than they have.
            wide = "int64" if dtype_info(dtype_of(data)).bits == 32 else "int32"
            x = hlo("subtract", convert(data, wide), _along(zero_point, data, axis, wide))
            x = convert(x, work)
        return convert(hlo("multiply", x, _along(scale, data, axis, work)), dtype)

    return with_dtype(info, dtype), lower
