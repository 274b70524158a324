# ruff: noqa: D103  (a converter's documentation is ONNX Runtime's schema; it says what differs)
"""com.microsoft: operators on quantised tensors.

Element-wise ones compute in float32 between a dequantisation and a quantisation, products in int32.
Semantics: the operator documentation of ONNX Runtime (docs/ContribOperators.md).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Unpack

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.ops.math import along_or_from
from relax2xla.importers.onnx.ops.microsoft import DOMAIN
from relax2xla.importers.onnx.ops.pool import (
    Window,
    Windowed,
    average_pool,
    channels_first,
    to_channels_last,
)
from relax2xla.importers.onnx.ops.quant import (
    centred,
    dequantize_linear,
    dynamic_quantize_linear,
    fitted,
    quantised,
    quantize_linear,
)
from relax2xla.importers.shared.index import joined
from relax2xla.ir import Expr


def _real(ctx: Context, x: Expr, scale: Expr, zero: Expr | None) -> Expr:
    """The float32 values of a tensor with one scale."""
    y = R.astype(x, "int32")
    if zero is not None:
        y = R.subtract(y, R.astype(_one(zero), "int32"))
    return R.multiply(R.astype(y, "float32"), ctx.cast(_one(scale), "float32"))


def _one(p: Expr) -> Expr:
    return R.reshape(p, ()) if ndim_of(p) else p


def _back(ctx: Context, y: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    point = None if zero is None else _one(zero)
    return quantised(ctx, R.divide(y, ctx.cast(_one(scale), "float32")), point, dtype)


# -- element by element --------------------------------------------------------------------------
def _register_binary(name: str, rule: Callable[[Expr, Expr], Expr]) -> None:
    @onnx_op(name, domain=DOMAIN)
    def _(
        ctx: Context,
        A: Expr,
        A_scale: Expr,
        A_zero_point: Expr | None,
        B: Expr,
        B_scale: Expr,
        B_zero_point: Expr | None,
        C_scale: Expr,
        C_zero_point: Expr | None = None,
    ) -> Expr:
        made = rule(_real(ctx, A, A_scale, A_zero_point), _real(ctx, B, B_scale, B_zero_point))
        return _back(ctx, made, C_scale, C_zero_point, dtype_of(A))


_register_binary("QLinearAdd", R.add)
_register_binary("QLinearMul", R.multiply)


def _on_numbers(name: str, **form: Any) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    """Register what is computed of a tensor's numbers, in float32, for one that is quantised."""

    def register(rule: Callable[..., Expr]) -> Callable[..., Expr]:
        def convert(
            ctx: Context,
            X: Expr,
            X_scale: Expr,
            X_zero_point: Expr | None,
            Y_scale: Expr,
            Y_zero_point: Expr | None = None,
            **attributes: Any,
        ) -> Expr:
            y = rule(ctx, _real(ctx, X, X_scale, X_zero_point), **attributes)
            return _back(ctx, y, Y_scale, Y_zero_point, dtype_of(X))

        inputs = list(inspect.signature(convert).parameters.values())[:-1]
        own = list(inspect.signature(rule).parameters.values())[2:]
        convert.__signature__ = inspect.Signature([*inputs, *own])
        convert.__annotations__ |= rule.__annotations__
        onnx_op(name, domain=DOMAIN, **form)(convert)
        return rule

    return register


@_on_numbers("QLinearSigmoid")
def qlinear_sigmoid(ctx: Context, x: Expr) -> Expr:
    return R.sigmoid(x)


@_on_numbers("QLinearLeakyRelu")
def qlinear_leaky_relu(ctx: Context, x: Expr, *, alpha: float = 0.01) -> Expr:
    return R.nn.leakyrelu(x, alpha)


@_on_numbers("QLinearSoftmax", needs="Y_zero_point")
def qlinear_softmax(ctx: Context, x: Expr, *, axis: int = -1, opset: int) -> Expr:
    """Until opset 13 over all axes from ``axis`` on."""
    return along_or_from(ctx, R.nn.softmax, x, axis, opset < 13)


@_on_numbers("QLinearReduceMean")
def qlinear_reduce_mean(ctx: Context, x: Expr, *, axes: list[int], keepdims: int) -> Expr:
    return R.mean(x, [axis_of(a, ndim_of(x)) for a in axes], bool(keepdims))


@_on_numbers("QLinearAveragePool", lacks="dilations")
def qlinear_average_pool(
    ctx: Context,
    x: Expr,
    *,
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: list[int],
    **window: Unpack[Windowed],
) -> Expr:
    """With ``count_include_pad`` ONNX Runtime counts what ``ceil_mode`` adds, too."""
    if channels_last:
        x = channels_first(x)
    pooled = functools.partial(
        average_pool, ctx, x, count_include_pad=count_include_pad, kernel_shape=kernel_shape
    )
    y = pooled(ceil_mode=ceil_mode, **window)
    if ceil_mode and count_include_pad and not window["auto_pad"].startswith("SAME"):
        w, n = Window.of(x, kernel_shape, window), len(kernel_shape)
        behind = [p + s - 1 for p, s in zip(w.pads[n:], w.strides, strict=True)]
        padded: Windowed = {**window, "auto_pad": "NOTSET", "pads": [*w.pads[:n], *behind]}
        # Without the windows that would start behind the padding.
        sizes = dims_of(y)[2:]
        y = pooled(**padded)
        if dims_of(y)[2:] != sizes:
            y = R.strided_slice(y, list(range(2, 2 + n)), [0] * n, list(sizes))
    return to_channels_last(y) if channels_last else y


@_on_numbers("QLinearGlobalAveragePool", needs="X_zero_point Y_zero_point")
def qlinear_global_average_pool(ctx: Context, x: Expr, *, channels_last: int = 0) -> Expr:
    space = range(1, ndim_of(x) - 1) if channels_last else range(2, ndim_of(x))
    return R.mean(x, list(space), True)


@onnx_op("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    ctx: Context,
    condition: Expr,
    X: Expr,
    x_scale: Expr,
    x_zero_point: Expr,
    Y: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    z_scale: Expr,
    z_zero_point: Expr,
) -> Expr:
    x, y = _real(ctx, X, x_scale, x_zero_point), _real(ctx, Y, y_scale, y_zero_point)
    return _back(ctx, R.where(condition, x, y), z_scale, z_zero_point, dtype_of(X))


@onnx_op("QLinearConcat", domain=DOMAIN)
def qlinear_concat(
    ctx: Context, Y_scale: Expr, Y_zero_point: Expr, *inputs: Expr, axis: int
) -> Expr:
    """``inputs``: values, scale and zero point of each tensor."""
    if not inputs or len(inputs) % 3:
        raise ValueError(f"{len(inputs)} inputs are no values, scales and zero points")
    parts = [
        _back(ctx, _real(ctx, x, s, z), Y_scale, Y_zero_point, dtype_of(Y_zero_point))
        for x, s, z in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return joined(parts, axis)


_LATER = "block_size output_dtype"
onnx_op("QuantizeLinear", domain=DOMAIN, lacks=f"{_LATER} precision saturate")(quantize_linear)
onnx_op("DequantizeLinear", domain=DOMAIN, lacks=_LATER)(dequantize_linear)


# -- products ------------------------------------------------------------------------------------
def _scaled(ctx: Context, y: Expr, *scales: Expr) -> Expr:
    """An int32 product as float32; a scale is one number, or one a column."""
    made = R.astype(y, "float32")
    for s in scales:
        made = R.multiply(made, ctx.cast(fitted(s, y, -1, 0), "float32"))
    return made


@onnx_op("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    ctx: Context,
    A: Expr,
    B: Expr,
    a_scale: Expr,
    b_scale: Expr,
    a_zero_point: Expr | None = None,
    b_zero_point: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    product_ = R.matmul(centred(A, a_zero_point, -1), centred(B, b_zero_point, -1))
    if ndim_of(a_scale) and dims_of(a_scale) != (1,):
        raise ValueError("a_scale must be one number")
    y = ctx.cast(_scaled(ctx, product_, a_scale, b_scale), dtype_of(a_scale))
    return y if bias is None else R.add(y, bias)


@onnx_op("MatMulInteger16", domain=DOMAIN)
def matmul_integer16(ctx: Context, A: Expr, B: Expr) -> Expr:
    """Summed up in 32 bits, which wrap around: unsigned where both operands are."""
    for name, x in (("A", A), ("B", B)):
        if dtype_of(x) not in ("int16", "uint16"):
            raise ValueError(f"input {name} is {dtype_of(x)}; expected int16 or uint16")
    kind = "uint32" if dtype_of(A) == dtype_of(B) == "uint16" else "int32"
    return R.matmul(ctx.cast(A, kind), ctx.cast(B, kind))


@onnx_op("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    ctx: Context,
    A: Expr,
    B: Expr,
    b_scale: Expr,
    b_zero_point: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    """``A`` is quantised to uint8 with the scale of its own range."""
    values, scale, zero = dynamic_quantize_linear(ctx, A)
    return matmul_integer_to_float(
        ctx, ctx.emit(values), B, scale, b_scale, zero, b_zero_point, bias
    )


@onnx_op("QGemm", domain=DOMAIN)
def qgemm(
    ctx: Context,
    A: Expr,
    a_scale: Expr,
    a_zero_point: Expr,
    B: Expr,
    b_scale: Expr,
    b_zero_point: Expr,
    C: Expr | None = None,
    y_scale: Expr | None = None,
    y_zero_point: Expr | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """``C`` has the scale of the product; without ``y_scale`` the result is float32."""
    a = R.permute_dims(A) if transA else A
    b = R.permute_dims(B) if transB else B
    y = R.matmul(centred(a, _one(a_zero_point), -1), centred(b, b_zero_point, -1))
    if C is not None:
        y = R.add(y, C)
    made = _scaled(ctx, y, a_scale, b_scale)
    if alpha != 1:
        made = R.multiply(made, scalar(alpha, "float32"))
    if y_scale is None:
        return made
    dtype = dtype_of(A) if y_zero_point is None else dtype_of(y_zero_point)
    return _back(ctx, made, y_scale, y_zero_point, dtype)


def projected(
    ctx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr | None,
    weight: Expr,
    weight_scale: Expr,
    weight_zero: Expr | None,
) -> Expr:
    """The float32 product of quantised tensors, x (..., k) and weight (k, n)."""
    y = R.matmul(
        centred(x, None if x_zero is None else _one(x_zero), -1), centred(weight, weight_zero, -1)
    )
    return _scaled(ctx, y, x_scale, weight_scale)
