# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: quantised tensors: to and from them, and products of 8-bit integers.

Semantics: the operator specifications of ONNX. Arithmetic with scales is in float32, that of
integers in int32.
"""

from __future__ import annotations

from typing import Unpack

from relax2xla import op as R
from relax2xla.dtypes import is_float, limits
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import axis_of, dims_of, dtype_of, ndim_of, scalar
from relax2xla.importers.onnx.ops.math import converted
from relax2xla.importers.onnx.ops.pool import Convolved, channels_first, conv, to_channels_last
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.windows import biased
from relax2xla.ir import Expr, ShapeExpr


def fitted(p: Expr, x: Expr, axis: int, block_size: int) -> Expr:
    """A scale or zero point made to broadcast with ``x``: for all, along an axis, or by blocks."""
    if ndim_of(p) == 0 or dims_of(p) == (1,):
        return R.reshape(p, ()) if ndim_of(p) else p
    at = axis_of(axis, ndim_of(x))
    if block_size:
        spread = R.repeat(p, block_size, at)
        size, have = dims_of(x)[at], dims_of(spread)[at]
        if size is not have and size != have:
            spread = R.strided_slice(spread, [at], [0], [size])
        return spread
    if ndim_of(p) != 1:
        raise ValueError(f"a scale of rank {ndim_of(p)} without block_size")
    return R.reshape(p, ShapeExpr([dims_of(p)[0] if i == at else 1 for i in range(ndim_of(x))]))


def quantised(ctx: Context, y: Expr, zero: Expr | None, dtype: str, saturate: int = 1) -> Expr:
    """``y / scale`` rounded, moved and cut to the range of ``dtype``."""
    kind = dtype_of(y)
    if is_float(dtype):
        moved = y if zero is None else R.add(y, R.astype(zero, kind))
        return converted(ctx, moved, dtype, saturate)
    y = R.round(y)
    if zero is not None:
        y = R.add(y, R.astype(zero, kind))
    low, high = limits(dtype)
    y = R.minimum(R.maximum(y, scalar(low, kind)), scalar(high, kind))
    return R.astype(y, dtype)


@onnx_op("QuantizeLinear", since=10)
def quantize_linear(
    ctx: Context,
    x: Expr,
    y_scale: Expr,
    y_zero_point: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Expr:
    """``precision`` is of the division, which is in float32 (or float64) whatever it says."""
    if precision and not is_float(dtype_of_code(precision, "precision").name):
        raise ValueError(f"precision={precision} is no floating-point type")
    wanted = "uint8" if y_zero_point is None else dtype_of(y_zero_point)
    if output_dtype:
        wanted = dtype_of_code(output_dtype, "QuantizeLinear").name
    at = axis if ndim_of(x) > axis else -1
    kind = "float64" if dtype_of(x) == "float64" else "float32"
    scale = ctx.cast(fitted(y_scale, x, at, block_size), kind)
    zero = None if y_zero_point is None else fitted(y_zero_point, x, at, block_size)
    return quantised(ctx, R.divide(ctx.cast(x, kind), scale), zero, wanted, saturate)


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(
    ctx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Expr:
    kind = dtype_of(x_scale)
    if output_dtype:
        kind = dtype_of_code(output_dtype, "DequantizeLinear").name
    at = axis if ndim_of(x) > axis else -1
    middle = "float32" if is_float(dtype_of(x)) else "int32"
    y = R.astype(x, middle)
    if x_zero_point is not None:
        zero = fitted(x_zero_point, x, at, block_size)
        y = R.subtract(y, R.astype(zero, middle))
    scale = ctx.cast(fitted(x_scale, x, at, block_size), "float32")
    return ctx.cast(R.multiply(R.astype(y, "float32"), scale), kind)


# -- products of integers ------------------------------------------------------------------------
def centred(x: Expr, zero: Expr | None, axis: int) -> Expr:
    """``x - zero`` as int32; a zero point a row or column lies along ``axis``."""
    y = R.astype(x, "int32")
    if zero is None:
        return y
    if ndim_of(zero) == 1 and ndim_of(x) > 1:
        zero = fitted(zero, x, axis, 0)
    return R.subtract(y, R.astype(zero, "int32"))


@onnx_op("MatMulInteger", since=10)
def matmul_integer(
    ctx: Context,
    A: Expr,
    B: Expr,
    a_zero_point: Expr | None = None,
    b_zero_point: Expr | None = None,
) -> Expr:
    return R.matmul(centred(A, a_zero_point, -2), centred(B, b_zero_point, -1))


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(
    ctx: Context,
    a: Expr,
    a_scale: Expr,
    a_zero_point: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
) -> Expr:
    """Scales become one factor before they meet the sums, as those of QLinearConv do."""
    y = R.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1))
    own = [(a_scale, -2), (b_scale, -1), (y_scale, -2)]
    of_a, of_b, of_y = (
        ctx.cast(s if ndim_of(s) > 1 else fitted(s, y, at, 0), "float32") for s, at in own
    )
    scaled = R.multiply(R.astype(y, "float32"), R.divide(R.multiply(of_a, of_b), of_y))
    zero = y_zero_point if ndim_of(y_zero_point) > 1 else fitted(y_zero_point, y, -2, 0)
    return quantised(ctx, scaled, zero, dtype_of(y_zero_point))


@onnx_op("ConvInteger", since=10)
def conv_integer(
    ctx: Context,
    x: Expr,
    w: Expr,
    x_zero_point: Expr | None = None,
    w_zero_point: Expr | None = None,
    **window: Unpack[Convolved],
) -> Expr:
    """Padding holds the zero point of ``x``, which is zero after it is taken away."""
    weight = centred(w, w_zero_point, 0)
    return conv(ctx, centred(x, x_zero_point, 1), weight, None, **window)


@onnx_op("QLinearConv", since=10, lacks="channels_last")
@onnx_op("QLinearConv", domain="com.microsoft")
def qlinear_conv(
    ctx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr,
    w: Expr,
    w_scale: Expr,
    w_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    B: Expr | None = None,
    *,
    channels_last: int = 0,
    **window: Unpack[Convolved],
) -> Expr:
    """Weights are (out, in, ...) whatever ``channels_last`` says of the data."""
    data = channels_first(x) if channels_last else x
    y = biased(conv_integer(ctx, data, w, x_zero_point, w_zero_point, **window), B)
    scale = R.divide(R.multiply(x_scale, w_scale), y_scale)
    scaled = R.multiply(R.astype(y, "float32"), fitted(scale, y, 1, 0))
    made = quantised(ctx, scaled, fitted(y_zero_point, y, 1, 0), dtype_of(y_zero_point))
    return to_channels_last(made) if channels_last else made


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(ctx: Context, x: Expr) -> list[Expr]:
    """uint8 with the scale and zero point of the range of ``x``, which always holds 0."""
    zero = scalar(0, "float32")
    low = ctx.emit(R.minimum(R.min(x), zero))
    high = R.maximum(R.max(x), zero)
    scale = ctx.emit(R.divide(R.subtract(high, low), scalar(255, "float32")))
    shift = R.negative(R.divide(low, scale))
    shift = R.minimum(R.maximum(R.round(shift), zero), scalar(255, "float32"))
    point = ctx.emit(R.astype(shift, "uint8"))
    return [quantised(ctx, R.divide(x, scale), point, "uint8"), scale, point]
