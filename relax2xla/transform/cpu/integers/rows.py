"""What calls for integers take, and their forms in rows: functions of operators of Relax.

A form computes from the very operands that the call takes, bit for bit what the call computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import limits
from relax2xla.ir import Constant, Expr, Function, TensorStructInfo, Var
from relax2xla.ir.make import const
from relax2xla.kernels.integers.calls import (
    Call,
    Convolution,
    ConvolutionSum,
    MaxPool,
    Product,
    Quantisation,
    Sum,
)
from relax2xla.kernels.integers.packing import Packing, Parts


def scalar(value: float, dtype: str) -> Constant:
    """A constant without axes."""
    return const(value, dtype)


def vector(value: Expr) -> Expr:
    """A value of one element, or one along one axis, with one axis."""
    return R.reshape(value, (-1,))


# -- weights ---------------------------------------------------------------------------------------
def packed(weight: Expr, zero: Expr | None, parts: Parts, by: Packing, dtype: str) -> Expr:
    """A weight [height, width, channels, results] of ``dtype`` as the call wants it.

    zero: its zero point, (1,) or (results,)
    """
    centred = R.astype(weight, "int32")
    if parts.is_depthwise or not by.bytes:
        if zero is not None:
            centred = R.subtract(centred, R.astype(zero, "int32"))
        if parts.is_depthwise:
            return R.astype(R.reshape(centred, (*parts.window, parts.results)), "int16")
    elif dtype == "uint8":
        centred = R.subtract(centred, scalar(128, "int32"))
    own = parts.results // parts.groups
    shaped = R.reshape(centred, (parts.count, parts.length, parts.groups, own))
    steps, panels = parts.steps(by), parts.panels(by)
    behind = (steps * by.depth - parts.length, panels * by.columns - own)
    if any(behind):
        shaped = R.nn.pad(shaped, (0, 0, 0, behind[0], 0, 0, 0, behind[1]))
    split = (parts.count, steps, by.depth, parts.groups, panels, by.columns)
    turned = R.permute_dims(R.reshape(R.astype(shaped, by.dtype), split), (3, 4, 0, 1, 5, 2))
    return turned


def unpacked(weight: Expr, parts: Parts, by: Packing) -> Expr:
    """The inverse of :func:`packed`: [height, width, channels, results] of int32."""
    shape = (*parts.window, parts.channels, parts.results)
    whole = R.astype(weight, "int32")
    if parts.is_depthwise:
        return R.reshape(whole, shape)
    own, steps, panels = parts.results // parts.groups, parts.steps(by), parts.panels(by)
    whole = R.permute_dims(whole, (2, 3, 5, 0, 1, 4))
    joined = (parts.count, steps * by.depth, parts.groups, panels * by.columns)
    cut = R.strided_slice(R.reshape(whole, joined), (1, 3), (0, 0), (parts.length, own))
    return R.reshape(cut, shape)


def integers_of(
    bias: Expr | None, weight: Expr, zero: Expr | None, parts: Parts, by: Packing, dtype: str
) -> Expr:
    """Bias, and in bytes zero points and sums of columns: (1 or 3, results) of int32."""
    results = parts.results
    empty = const(_zeros(results), "int32")
    first = empty if bias is None else R.astype(_spread(bias, results), "int32")
    if not by.bytes:
        return R.reshape(first, (1, results))
    moved = 128 if dtype == "uint8" else 0
    if parts.is_depthwise:
        second, third = empty, empty
    else:
        second = empty if zero is None else R.astype(_spread(zero, results), "int32")
        third = R.sum(R.astype(weight, "int32"), [0, 1, 2])
        if moved:
            second = R.subtract(second, scalar(moved, "int32"))
            third = R.subtract(third, scalar(moved * parts.depth, "int32"))
    return R.concat([R.reshape(v, (1, results)) for v in (first, second, third)], 0)


def _spread(value: Expr, count: int) -> Expr:
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return value if info.dims == (count,) else R.broadcast_to(value, (count,))


def _zeros(count: int) -> Any:
    return np.zeros(count, "int32")


# -- forms -----------------------------------------------------------------------------------------
def form(call: Call) -> Function:
    """The function of rows that a composite for ``call`` names."""
    params = [Var(f"x{i}", TensorStructInfo(t.shape, t.dtype)) for i, t in enumerate(call.operands)]
    builder = BlockBuilder()
    with builder.function("form", params, private=True):
        with builder.dataflow():
            made = builder.emit_output(_FORMS[type(call)](call, params))
        builder.emit_func_output(made)
    (func,) = builder.get().relax_functions().values()
    return func


def _convolution(call: Convolution, x: Sequence[Var]) -> Expr:
    parts, by = call.parts, call.packed
    image = R.subtract(R.astype(x[0], "int32"), _at(x[5], 0))
    weight = unpacked(x[1], parts, by)
    if by.bytes and not parts.is_depthwise:
        weight = R.subtract(weight, _row(x[2], 1))
    sums = R.nn.conv2d(
        image,
        weight,
        call.strides,
        call.padding,
        call.dilation,
        call.groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    sums = R.add(sums, _row(x[2], 0))
    addend = x[4] if call.added else None
    rest = _scaled(x[6], _at(x[5], 2), x[7]) if isinstance(call, ConvolutionSum) else None
    return _finished(sums, x[3], (addend, rest), _at(x[5], 1), call.dtype, call.relu)


def _product(call: Product, x: Sequence[Var]) -> Expr:
    right = R.permute_dims(x[1], (0, 2, 1)) if call.turned else x[1]
    centred = [R.subtract(R.astype(v, "int32"), _at(x[3], i)) for i, v in enumerate((x[0], right))]
    return _finished(R.matmul(*centred), x[2], (), _at(x[3], 2), call.dtype, False)


def _sum(call: Sum, x: Sequence[Var]) -> Expr:
    real = [_scaled(x[i], _at(x[3], i), _at(x[2], i)) for i in (0, 1)]
    return _rounded(R.divide(R.add(*real), _at(x[2], 2)), _at(x[3], 2), call.dtype, call.relu)


def _scaled(bytes_: Expr, zero: Expr, scale: Expr) -> Expr:
    return R.multiply(R.astype(R.subtract(R.astype(bytes_, "int32"), zero), "float32"), scale)


def _pool(call: MaxPool, x: Sequence[Var]) -> Expr:
    return R.nn.max_pool2d(
        x[0], call.window, call.strides, call.padding, call.dilation, layout="NHWC"
    )


def _quantisation(call: Quantisation, x: Sequence[Var]) -> Expr:
    return _rounded(R.divide(x[0], _at(x[1], 0)), _at(x[2], 0), call.dtype, False)


def _at(values: Expr, place: int) -> Expr:
    return R.reshape(R.strided_slice(values, (0,), (place,), (place + 1,)), ())


def _row(values: Expr, place: int) -> Expr:
    return vector(R.strided_slice(values, (0,), (place,), (place + 1,)))


def _finished(
    sums: Expr, factors: Expr, addends: Sequence[Expr | None], zero: Expr, dtype: str, relu: bool
) -> Expr:
    if dtype == "int32":
        return sums
    real = R.multiply(R.astype(sums, "float32"), factors)
    for addend in addends:
        real = real if addend is None else R.add(real, addend)
    if dtype == "float32":
        return real
    return _rounded(real, zero, dtype, relu)


def _rounded(real: Expr, zero: Expr, dtype: str, relu: bool) -> Expr:
    point = R.astype(zero, "float32")
    moved = R.add(R.round(real), point)
    if relu:
        moved = R.maximum(moved, point)
    low, high = limits(dtype)
    cut = R.minimum(R.maximum(moved, scalar(low, "float32")), scalar(high, "float32"))
    return R.astype(cut, dtype)


_FORMS: Final[Mapping[type[Call], Callable[[Any, Sequence[Var]], Expr]]] = {
    Convolution: _convolution,
    ConvolutionSum: _convolution,
    Product: _product,
    Sum: _sum,
    MaxPool: _pool,
    Quantisation: _quantisation,
}
