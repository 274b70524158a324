# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: normalisations and dropout, as they are at inference.

Semantics: the operator specifications of ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import Floats, Ints, one, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
    static,
    statics,
)
from relax2xla.importers.onnx.ops.random import dropped
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.reductions import marked_root
from relax2xla.ir import Expr, ShapeExpr


# -- batch normalisation -------------------------------------------------------------------------
@onnx_op("BatchNormalization", lacks="training_mode")
@onnx_op("BatchNormalization", since=7, lacks="is_test training_mode")
@onnx_op("BatchNormalization", since=14, lacks="is_test spatial")
def batch_normalization(
    ctx: Context,
    X: Expr,
    scale: Expr,
    B: Expr,
    input_mean: Expr,
    input_var: Expr,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> list[Expr]:
    """Until opset 6 the mode is ``is_test``, until 13 more than one output asks for training.

    With ``spatial=0`` each position has statistics of its own: they have the shape of one entry.
    """
    if ctx.opset < 14 and not is_test and any(ctx.wanted[1:]):
        raise Unsupported("training outputs; export the model for inference")
    if not spatial:
        deviation = R.sqrt(R.add(input_var, scalar(epsilon, dtype_of(input_var))))
        return [R.add(R.multiply(R.divide(R.subtract(X, input_mean), deviation), scale), B)]
    # The five tensors' dtypes may differ since opset 14: the data's holds.
    made = R.nn.batch_norm(
        X,
        *(ctx.cast(p, dtype_of(X)) for p in (scale, B, input_mean, input_var)),
        axis=1,
        epsilon=epsilon,
        # ONNX's momentum is the share of the old statistics.
        momentum=1.0 - momentum,
        training=bool(training_mode),
    )
    return [made[i] for i in range(3 if training_mode else 1)]


# -- layer, group, instance ----------------------------------------------------------------------
def want_float32(stash_type: int) -> None:
    """A gap unless statistics are computed in float32, as ``stash_type`` 1 says."""
    if stash_type != 1:
        raise Unsupported(f"stash_type={stash_type}")


def last_axes(x: Expr, axis: int) -> list[int]:
    """The axes from ``axis`` on."""
    return list(range(axis_of(axis, ndim_of(x)), ndim_of(x)))


@onnx_op("LayerNormalization")
@onnx_op("LayerNormalization", since=17)
def layer_normalization(
    ctx: Context,
    X: Expr,
    Scale: Expr,
    B: Expr | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Expr]:
    """``stash_type`` 1 computes in float32, as R.nn.layer_norm does of all narrow dtypes.

    ONNX has it since opset 17; ONNX Runtime knew it at every opset before.
    """
    want_float32(stash_type)
    axes = last_axes(X, axis)
    dims = [dims_of(X)[a] for a in axes]
    scale = _spread(ctx, Scale, dims)
    bias = R.zeros(ShapeExpr(dims), dtype_of(X)) if B is None else _spread(ctx, B, dims)
    made: list[Expr] = [R.nn.layer_norm(X, scale, bias, axes, epsilon, B is not None)]
    return made + saved_statistics(ctx, X, axes, epsilon) if ctx.wants(1) or ctx.wants(2) else made


def saved_statistics(ctx: Context, x: Expr, axes: list[int], epsilon: float) -> list[Expr]:
    """Mean and 1 / deviation along ``axes``, in float32, as outputs for training."""
    x = ctx.emit(ctx.cast(x, "float32"))
    mean = ctx.emit(R.mean(x, axes, True))
    centred = ctx.emit(R.subtract(x, mean))
    spread = R.mean(R.multiply(centred, centred), axes, True)
    return [mean, R.rsqrt(R.add(spread, scalar(epsilon, "float32")))]


def _spread(ctx: Context, x: Expr, dims: Sequence[Any]) -> Expr:
    """A parameter in the shape of the axes that it scales."""
    return x if dims_of(x) == tuple(dims) else R.broadcast_to(x, ShapeExpr(dims))


@onnx_op("RMSNormalization", since=23)
def rms_normalization(
    ctx: Context,
    X: Expr,
    scale: Expr,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Expr:
    want_float32(stash_type)
    axes = last_axes(X, axis)
    weight = _spread(ctx, scale, [dims_of(X)[a] for a in axes])
    return R.nn.rms_norm(X, weight, axes, epsilon)


def _channels(ndim: int) -> list[int]:
    return list(range(2, ndim))


@onnx_op("InstanceNormalization")
def instance_normalization(
    ctx: Context, input: Expr, scale: Expr, B: Expr, *, epsilon: float = 1e-5
) -> Expr:
    return R.nn.instance_norm(input, scale, B, 1, _channels(ndim_of(input)), epsilon)


@onnx_op("GroupNormalization", since=18, lacks="stash_type")
@onnx_op("GroupNormalization", since=21)
def group_normalization(
    ctx: Context,
    X: Expr,
    scale: Expr,
    bias: Expr,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Expr:
    """Until opset 21 the parameters are one number a group."""
    want_float32(stash_type)
    if ctx.opset < 21:
        each = static(dims_of(X)[1], "the number of channels") // num_groups
        scale, bias = (R.repeat(p, each, 0) for p in (scale, bias))
    return R.nn.group_norm(X, scale, bias, num_groups, 1, _channels(ndim_of(X)), epsilon)


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(ctx: Context, X: Expr, *, axes: list[int] | None = None) -> Expr:
    over = [0, 2, 3] if axes is None else axes
    dtype = dtype_of(X)
    centred = ctx.emit(R.subtract(X, R.mean(X, over, True)))
    deviation = marked_root(ctx.emit(R.mean(R.multiply(centred, centred), over, True)))
    return R.divide(centred, R.add(deviation, scalar(1e-9, dtype)))


@onnx_op("LpNormalization")
def lp_normalization(ctx: Context, input: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    if p not in (1, 2):
        raise Unsupported(f"p={p}")
    at = [axis_of(axis, ndim_of(input))]
    if p == 1:
        length = R.sum(R.abs(input), at, True)
    else:
        length = marked_root(ctx.emit(R.sum(R.multiply(input, input), at, True)))
    length = ctx.emit(length)
    zero = scalar(0, dtype_of(input))
    flat = ctx.emit(R.equal(length, zero))
    made = R.where(flat, zero, R.divide(input, length))
    # Gradients of the branch that is not taken are no numbers.
    smooth = R.where(flat, zero, R.divide(input, R.where(flat, like(input, 1), length)))
    return R.grad.differentiate_as(made, smooth)


@onnx_op("LRN")
def lrn(
    ctx: Context,
    X: Expr,
    *,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Expr:
    """Divided by a power of the sum of squares over ``size`` neighbouring channels."""
    dims = dims_of(X)
    if len(dims) < 2:
        raise ValueError("it needs a channel axis")
    dtype = dtype_of(X)
    before = (size - 1) // 2
    # The channels as the one spatial axis of an average, which counts the padding.
    rest = statics(dims[2:], "the spatial sizes")
    area = math.prod(rest)
    square = R.reshape(R.multiply(X, X), ShapeExpr((dims[0], 1, dims[1], area)))
    mean = R.nn.avg_pool2d(
        square, (size, 1), (1, 1), (before, 0, size - 1 - before, 0), count_include_pad=True
    )
    scaled = R.multiply(R.reshape(mean, ShapeExpr(dims)), scalar(alpha, dtype))
    base = R.add(scaled, scalar(bias, dtype))
    if beta == 0.75:
        # Roots are much cheaper than the general power: b^0.75 = sqrt(b) * sqrt(sqrt(b)).
        root = ctx.emit(R.sqrt(base))
        return R.divide(X, R.multiply(root, R.sqrt(root)))
    return R.divide(X, R.power(base, scalar(beta, dtype)))


# -- dropout -------------------------------------------------------------------------------------
def _dropout(ctx: Context, x: Expr, mask: str) -> list[Expr]:
    """Nothing is dropped at inference: the values, and a mask that keeps all of them."""
    return [x, R.ones(ShapeExpr(dims_of(x)), mask)] if ctx.wants(1) else [x]


@onnx_op("Dropout")
@onnx_op("Dropout", since=7, lacks="is_test")
def dropout_inference(
    ctx: Context, data: Expr, *, ratio: float = 0.5, is_test: int = 0
) -> list[Expr]:
    """Until opset 12 of inference only: runtimes always took opsets 1 to 6 for that, too, whatever
    ``is_test`` and ``ratio`` are.
    """
    return _dropout(ctx, data, dtype_of(data) if ctx.opset < 10 else "bool")


@onnx_op("Dropout", since=12)
def dropout(
    ctx: Context,
    data: Expr,
    ratio: Floats | None = None,
    training_mode: Ints | None = None,
    *,
    seed: int | None = None,
) -> list[Expr]:
    """In training mode the mask is drawn with ``seed``; see :mod:`.random`."""
    rate = 0.5 if ratio is None else one(ratio, "ratio")
    training = 0 if training_mode is None else one(training_mode, "training_mode")
    trains, drops = isinstance(training, int), isinstance(rate, float)
    if (trains and not training) or (drops and not rate):
        return _dropout(ctx, data, "bool")
    made, kept = dropped(ctx, data, rate, seed)
    if trains:
        return [made, kept]
    flag = ctx.emit(R.number_to_tensor(training, "bool"))
    return [R.where(flag, made, data), R.logical_or(R.logical_not(flag), kept)]
