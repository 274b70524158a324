"""com.microsoft: products and tables whose weights have few bits, in blocks with a scale each.

Semantics: the operator documentation of ONNX Runtime (docs/ContribOperators.md).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.onnx.ops.microsoft import DOMAIN
from relax2xla.ir import Constant, Expr, ShapeExpr


def _unpacked(x: Expr, bits: int) -> Expr:
    """uint8 (..., n) as its values of ``bits`` bits, low bits first: (..., n * 8 / bits)."""
    if bits == 8:
        return x
    each = 8 // bits
    dims = dims_of(x)
    shifts = Constant(np.arange(0, 8, bits, dtype=np.uint8))
    spread = R.right_shift(R.expand_dims(x, [len(dims)]), shifts)
    values = R.bitwise_and(spread, scalar(2**bits - 1, "uint8"))
    return R.reshape(values, ShapeExpr((*dims[:-1], static(dims[-1], "a size") * each)))


@onnx_op("MatMulNBits", domain=DOMAIN)
def matmul_nbits(
    ctx: Context,
    A: Expr,
    B: Expr,
    scales: Expr,
    zero_points: Expr | None = None,
    g_idx: Expr | None = None,
    bias: Expr | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Expr:
    """The weight stays packed until it is used; products are in the dtype of ``A``.

    ``accuracy_level`` is the least that is asked for, and ``A`` is never quantised here.
    """
    choice(bits, (2, 4, 8), "bits")
    choice(weight_prepacked, (0,), "weight_prepacked")
    choice(accuracy_level, range(5), "accuracy_level")
    if K < 1 or N < 1 or block_size < 1:
        raise ValueError(f"K={K}, N={N} and block_size={block_size} must be positive")
    blocks = math.ceil(K / block_size)
    dtype = dtype_of(A)
    packed = R.reshape(B, (N, blocks, block_size * bits // 8))
    weight = ctx.cast(_unpacked(packed, bits), dtype)
    scale = ctx.cast(R.reshape(scales, (N, blocks)), dtype)
    if zero_points is None:
        zero: Expr = like(scale, 2 ** (bits - 1))
    elif dtype_of(zero_points) == "uint8":
        row = math.ceil(blocks * bits / 8)
        zero = _unpacked(R.reshape(zero_points, (N, row)), bits)
        zero = ctx.cast(R.strided_slice(zero, [1], [0], [blocks]), dtype)
    else:
        zero = ctx.cast(R.reshape(zero_points, (N, blocks)), dtype)
    if g_idx is None:
        if zero_points is not None:
            zero = R.expand_dims(zero, [2])
        full = R.multiply(R.subtract(weight, zero), R.expand_dims(scale, [2]))
        full = R.strided_slice(R.reshape(full, (N, blocks * block_size)), [1], [0], [K])
    else:
        # Each column of the weight names its block.
        flat = R.strided_slice(R.reshape(weight, (N, blocks * block_size)), [1], [0], [K])
        own = R.strided_slice(g_idx, [0], [0], [K])
        if zero_points is not None:
            zero = R.take(zero, own, 1)
        full = R.multiply(R.subtract(flat, zero), R.take(scale, own, 1))
    y = R.matmul(A, R.permute_dims(full))
    return y if bias is None else R.add(y, ctx.cast(bias, dtype))


# Values of four bits by their code: FP4 with the sign in the highest bit, and NF4, as bitsandbytes
# has them; blocks are scaled by their largest magnitude.
_FP4: Final = (0.0, 5.208333333e-03, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_NF4: Final = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
_BNB4: Final = ((*_FP4, *(-v for v in _FP4)), _NF4)


@onnx_op("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(
    ctx: Context,
    A: Expr,
    B: Expr,
    absmax: Expr,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Expr:
    """The first of two values of a byte has its high bits; ``training_mode`` changes no value."""
    choice(quant_type, (0, 1), "quant_type")
    if K < 1 or N < 1 or block_size < 1:
        raise ValueError(f"K={K}, N={N} and block_size={block_size} must be positive")
    dtype, count = dtype_of(A), N * K
    shifts = Constant(np.array([4, 0], np.uint8))
    codes = R.bitwise_and(R.right_shift(R.expand_dims(B, [1]), shifts), scalar(15, "uint8"))
    codes = R.strided_slice(R.reshape(codes, (-1,)), [0], [0], [count])
    table = Constant(np.array(_BNB4[quant_type], np.float32))
    values = R.take(table, R.astype(codes, "int32"), 0)
    blocks = math.ceil(count / block_size)
    scale = ctx.cast(R.reshape(absmax, (blocks, 1)), "float32")
    spread = R.reshape(R.broadcast_to(scale, (blocks, block_size)), (blocks * block_size,))
    whole = R.multiply(values, R.strided_slice(spread, [0], [0], [count]))
    weight = ctx.cast(R.reshape(whole, (N, K)), dtype)
    return R.matmul(A, R.permute_dims(weight) if transB else weight)


@onnx_op("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(
    ctx: Context,
    data: Expr,
    indices: Expr,
    scales: Expr,
    zero_points: Expr | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Expr:
    """What is looked up is dequantised, and nothing else of the table.

    In bytes, values of fewer bits lie together along the last axis, low bits first, and stand for
    numbers around the middle of their range where no zero point is given.
    """
    rank, dtype = ndim_of(data), dtype_of(data)
    at, along = axis_of(gather_axis, rank), axis_of(quantize_axis, rank)
    if at == along:
        raise ValueError(f"gather_axis and quantize_axis are both {at}")
    if block_size < 1:
        raise ValueError(f"block_size={block_size} must be positive")
    bytes_ = dtype == "uint8"
    if bytes_:
        choice(bits, (2, 4, 8), "bits")
    index = ctx.emit(ctx.wrap(indices, dims_of(data)[at]))

    def looked_up(x: Expr) -> Expr:
        # A scale of one row is that of all rows.
        taken = x if dims_of(x)[at] == 1 != dims_of(data)[at] else R.take(x, index, at)
        if taken is x:
            return R.reshape(x, (*dims_of(x)[:at], *[1] * ndim_of(index), *dims_of(x)[at + 1 :]))
        return taken

    kind = dtype_of(scales)
    values, scale = looked_up(data), looked_up(scales)
    zero = None if zero_points is None else looked_up(zero_points)
    axis = along + ndim_of(index) - 1 if along > at else along
    if bytes_:
        values = _unpacked(ctx.emit(values), bits)
        zero = None if zero is None else _unpacked(ctx.emit(zero), bits)
    size = static(dims_of(values)[axis], "the size of the axis that is quantised")
    blocks = math.ceil(size / block_size)

    def spread(x: Expr) -> Expr:
        """A number a block for each of its values; those of zero points may be packed in whole."""
        x = R.strided_slice(x, [axis], [0], [blocks])
        return R.strided_slice(R.repeat(ctx.emit(x), block_size, axis), [axis], [0], [size])

    made = ctx.cast(values, kind)
    if zero is not None:
        made = R.subtract(made, ctx.cast(spread(zero), kind))
    elif bytes_:
        made = R.subtract(made, like(made, 2 ** (bits - 1)))
    return R.multiply(made, spread(scale))
