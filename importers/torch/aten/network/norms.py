"""Normalisation, of batches, layers, groups, instances, and of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import numpy_dtype
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import (
    Context,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Constant, Expr

Ints = Sequence[int]


# Neutral parameters of up to so many elements are constants.
SMALL = 1 << 16


def _affine(
    x: Expr, weight: Expr | None, bias: Expr | None, dims: Sequence[Any]
) -> tuple[list[Expr], dict[str, bool]]:
    """Scale and offset, and which are there: neutral ones are in the place of others, not read.

    Those that are constants are for the lowering to see, which leaves them out.
    """
    dtype, shape = dtype_of(x), tuple(dims)
    if all(isinstance(d, int) for d in shape) and math.prod(shape) <= SMALL:
        made = (
            Constant(np.full(shape, value, numpy_dtype(dtype))) if p is None else p
            for p, value in ((weight, 1), (bias, 0))
        )
        return list(made), {}
    gamma, beta = (
        R.full(shape, scalar(value, dtype), dtype) if p is None else p
        for p, value in ((weight, 1), (bias, 0))
    )
    return [gamma, beta], {"center": bias is not None, "scale": weight is not None}


def _normalise(
    ctx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    var: Expr | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Expr:
    if training:
        raise Unsupported(
            "batch norm in training: it updates running_mean and running_var",
            "call model.eval() before the export",
        )
    if mean is None or var is None:
        raise Unsupported("batch norm without running statistics")
    return _by_statistics(ctx, x, weight, bias, mean, var, eps, momentum)


def _by_statistics(
    ctx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    var: Expr,
    eps: float,
    momentum: float = 0.1,
) -> Expr:
    """``x`` less the mean of its channel, over the deviation there."""
    affine, given = _affine(x, weight, bias, [dims_of(x)[1]])
    params = (ctx.cast(p, dtype_of(x)) for p in (*affine, mean, var))
    done = R.nn.batch_norm(
        x, *params, axis=1, epsilon=eps, momentum=momentum, training=False, **given
    )
    return ctx.emit(done)[0]


def _by_own_statistics(
    x: Expr, weight: Expr | None, bias: Expr | None, axes: Sequence[int], eps: float
) -> Expr:
    """``x`` less its mean along ``axes``, over its deviation there (of n elements, not n - 1)."""
    affine, given = _affine(x, weight, bias, [dims_of(x)[1]])
    return R.nn.instance_norm(x, *affine, channel_axis=1, axes=list(axes), epsilon=eps, **given)


@aten("batch_norm", ignored="cudnn_enabled", wide=True)
def batch_norm(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Expr:
    """In evaluation ``momentum`` changes nothing; ``cudnn_enabled`` only chooses a kernel."""
    if training and running_mean is None and running_var is None:
        return _by_own_statistics(input, weight, bias, [0, *range(2, ndim_of(input))], eps)
    form = training, momentum, eps
    return _normalise(ctx, input, weight, bias, running_mean, running_var, *form)


@aten("_native_batch_norm_legit_functional", wide=True)
def batch_norm_functional(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    training: bool,
    momentum: Any,
    eps: float,
) -> list[Expr]:
    """Also the batch's mean and 1 / deviation, and the new running statistics.

    The deviation is that of n elements, the running variance that of n - 1.
    """
    if not training:
        raise Unsupported("batch norm that is not training, in its functional form")
    dtype, axes = dtype_of(input), [0, *range(2, ndim_of(input))]
    mean, var = ctx.emit(R.mean(input, axes)), ctx.emit(R.variance(input, axes))
    of_all = R.divide(ctx.count(input, axes, 0, dtype), ctx.count(input, axes, 1, dtype))
    new = [
        R.add(
            R.multiply(old, R.subtract(scalar(1, dtype), ctx.tensor(momentum, dtype))),
            R.multiply(of_batch, ctx.tensor(momentum, dtype)),
        )
        for old, of_batch in (
            (running_mean, mean),
            (running_var, R.multiply(var, of_all)),
        )
    ]
    done = _by_statistics(ctx, input, weight, bias, mean, var, eps)
    return [done, mean, R.rsqrt(R.add(var, scalar(eps, dtype))), *new]


@aten("_native_batch_norm_legit.no_stats", ignored="momentum", wide=True)
def batch_norm_of_itself(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    training: bool,
    eps: float,
) -> list[Expr | None]:
    """By the batch's own statistics, ``training`` or not; they are the other results."""
    x, axes = ctx.emit(input), [0, *range(2, ndim_of(input))]
    return [
        _by_own_statistics(x, weight, bias, axes, eps),
        *_statistics(ctx, lambda: x, axes, eps),
    ]


@aten("_native_batch_norm_legit_no_training", wide=True)
def batch_norm_no_training(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    """The saved statistics are empty in evaluation."""
    y = _normalise(ctx, input, weight, bias, running_mean, running_var, False, momentum, eps)
    saved = [R.zeros(ctx.dims(i), ctx.dtype(i)) if ctx.reads(i) else None for i in (1, 2)]
    return [y, *saved]


@aten("layer_norm", ignored="cudnn_enable")
def layer_norm(
    ctx: Context,
    input: Expr,
    normalized_shape: Ints,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
) -> Expr:
    n = len(normalized_shape)
    affine, given = _affine(input, weight, bias, dims_of(input)[ndim_of(input) - n :])
    params = (ctx.cast(p, dtype_of(input)) for p in affine)
    return R.nn.layer_norm(input, *params, axes=list(range(-n, 0)), epsilon=eps, **given)


@aten("native_layer_norm", wide=True)
def native_layer_norm(
    ctx: Context,
    input: Expr,
    normalized_shape: Ints,
    weight: Expr | None,
    bias: Expr | None,
    eps: float,
) -> list[Expr | None]:
    x = ctx.emit(input)
    axes = list(range(ndim_of(x) - len(normalized_shape), ndim_of(x)))
    made = layer_norm(ctx, x, normalized_shape, weight, bias, eps)
    return [made, *_statistics(ctx, lambda: x, axes, eps)]


def _statistics(
    ctx: Context, data: Callable[[], Expr], axes: list[int], eps: float
) -> Sequence[Expr | None]:
    """Mean and reciprocal deviation, in the shapes of the results 1 and 2, where they are read."""
    if not ctx.reads(1) and not ctx.reads(2):
        return None, None
    x = data()
    mean = ctx.emit(R.mean(x, axes, True))
    off = ctx.emit(R.subtract(x, mean))
    spread = R.mean(R.multiply(off, off), axes, True)
    rstd = R.rsqrt(R.add(spread, scalar(eps, dtype_of(x))))
    return ctx.reshape(mean, ctx.dims(1)), ctx.reshape(ctx.emit(rstd), ctx.dims(2))


@aten("group_norm", ignored="cudnn_enabled")
def group_norm(
    ctx: Context,
    input: Expr,
    num_groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
) -> Expr:
    affine, given = _affine(input, weight, bias, [dims_of(input)[1]])
    axes = list(range(2, ndim_of(input)))
    return R.nn.group_norm(
        input, *affine, num_groups=num_groups, channel_axis=1, axes=axes, epsilon=eps, **given
    )


@aten("native_group_norm", wide=True)
def native_group_norm(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    N: Any,
    C: Any,
    HxW: Any,
    group: int,
    eps: float,
) -> list[Expr | None]:
    """N, C and HxW repeat what the shape of ``input`` says."""
    x = ctx.emit(input)
    each = C * HxW // group
    made = group_norm(ctx, x, group, weight, bias, eps)
    return [made, *_statistics(ctx, lambda: ctx.emit(R.reshape(x, (N, group, each))), [2], eps)]


@aten("instance_norm", ignored="momentum cudnn_enabled", wide=True)
def instance_norm(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    use_input_stats: bool,
    eps: float,
) -> Expr:
    if not use_input_stats:
        form = False, 0.1, eps
        return _normalise(ctx, input, weight, bias, running_mean, running_var, *form)
    if running_mean is not None:
        raise Unsupported("instance norm in training: it updates running_mean and running_var")
    return _by_own_statistics(input, weight, bias, list(range(2, ndim_of(input))), eps)


EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@aten("rms_norm")
def rms_norm(
    ctx: Context,
    input: Expr,
    normalized_shape: Ints,
    weight: Expr | None = None,
    eps: float | None = None,
) -> Expr:
    """Without ``eps`` torch adds the dtype's machine epsilon."""
    dtype, n = dtype_of(input), len(normalized_shape)
    if dtype not in EPSILON:
        raise Unsupported(f"rms_norm of a {dtype} tensor")
    (gamma, _), _ = _affine(input, weight, None, dims_of(input)[ndim_of(input) - n :])
    small = EPSILON[dtype] if eps is None else eps
    return R.nn.rms_norm(input, gamma, axes=list(range(-n, 0)), epsilon=small)


# -- weights ---------------------------------------------------------------------------------------
def _others(x: Expr, dim: int) -> list[int]:
    return [a for a in range(ndim_of(x)) if dim == -1 or a != axis_of(dim, ndim_of(x))]


@aten("_weight_norm_interface")
def weight_norm_interface(ctx: Context, v: Expr, g: Expr, dim: int = 0) -> tuple[Expr, Expr]:
    """The direction ``v`` with the lengths ``g``, along all axes but ``dim`` (-1: along all)."""
    axes = _others(v, dim)
    length = ctx.emit(R.sqrt(R.sum(R.multiply(v, v), axes, True)))
    return R.multiply(v, R.divide(g, length)), length


@aten("_weight_norm_interface_backward")
def weight_norm_interface_backward(
    ctx: Context, grad_w: Expr, saved_v: Expr, saved_g: Expr, saved_norms: Expr, dim: int
) -> tuple[Expr, Expr]:
    """Gradients of ``v`` and of ``g``."""
    axes = _others(saved_v, dim)
    unit = ctx.emit(R.divide(saved_v, saved_norms))
    grad_g = ctx.emit(R.sum(R.multiply(grad_w, unit), axes, True))
    across = R.subtract(grad_w, R.multiply(unit, grad_g))
    return R.multiply(R.divide(saved_g, saved_norms), across), grad_g


@aten("_weight_norm")
def weight_norm(ctx: Context, v: Expr, g: Expr, dim: int = 0) -> Expr:
    return weight_norm_interface(ctx, v, g, dim)[0]
