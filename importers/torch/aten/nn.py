# ruff: noqa: D103  (a converter's documentation is the ATen schema; it says what differs)
"""Matrix products, normalisation, attention, embedding, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.complex import transposed
from relax2xla.importers.torch.aten.random import dropout
from relax2xla.importers.torch.engine.context import (
    NARROW,
    Context,
    Dims,
    axis_of,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.registry import Function, aten
from relax2xla.ir import Expr

Ints = Sequence[int]


# -- products ------------------------------------------------------------------------------------
@aten("matmul", "mm", "bmm", "mv", "dot", "inner")
def matmul(
    ctx: Context,
    self: Expr,
    other: Any = None,
    mat2: Any = None,
    vec: Any = None,
    tensor: Any = None,
) -> Expr:
    right = next(v for v in (other, mat2, vec, tensor) if v is not None)
    return R.matmul(self, right)


@aten("linear")
def linear(ctx: Context, input: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    right = weight if ndim_of(weight) == 1 else R.permute_dims(weight)
    if bias is None:
        return R.matmul(input, right)
    dtype = dtype_of(input)
    if dtype not in NARROW:
        return R.add(R.matmul(input, right), bias)
    product = R.matmul(input, right, "float32")
    return ctx.cast(R.add(product, ctx.cast(bias, "float32")), dtype)


def _product(a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b, "float32" if dtype_of(a) in NARROW else None)


def _scale(x: Expr, factor: Any) -> Expr:
    return x if factor == 1 else R.multiply(x, scalar(factor, dtype_of(x)))


def _plus(ctx: Context, self: Expr, product: Expr, beta: Any, alpha: Any) -> Expr:
    product, dtype = _scale(product, alpha), dtype_of(self)
    self = ctx.cast(self, dtype_of(product))
    # With beta 0 torch does not read `self`, whose NaN must not spread.
    if beta == 0:
        made = broadcast(product, ctx.dims())
    else:
        made = R.add(_scale(self, beta), product)
    return ctx.cast(made, dtype)


@aten("addmm")
def addmm(ctx: Context, self: Expr, mat1: Expr, mat2: Expr, beta: Any = 1, alpha: Any = 1) -> Expr:
    return _plus(ctx, self, _product(mat1, mat2), beta, alpha)


@aten("addmv")
def addmv(ctx: Context, self: Expr, mat: Expr, vec: Expr, beta: Any = 1, alpha: Any = 1) -> Expr:
    return _plus(ctx, self, _product(mat, vec), beta, alpha)


@aten("baddbmm")
def baddbmm(
    ctx: Context, self: Expr, batch1: Expr, batch2: Expr, beta: Any = 1, alpha: Any = 1
) -> Expr:
    return _plus(ctx, self, _product(batch1, batch2), beta, alpha)


@aten("outer", "ger")
def outer(ctx: Context, self: Expr, vec2: Expr) -> Expr:
    a, b = ctx.promote(self, vec2, dtype=ctx.dtype())
    return R.outer(a, b)


@aten("einsum")
def einsum(ctx: Context, equation: str, tensors: Sequence[Expr]) -> Expr:
    """``path`` only says in which order torch would multiply; R.einsum chooses by itself."""
    return R.einsum(list(tensors), equation.replace(" ", ""))


# -- normalisation -------------------------------------------------------------------------------
def _or_full(x: Expr | None, dims: Sequence[Any], value: float, dtype: str) -> Expr:
    """A parameter, or the neutral one in its place (never read: the flags say so)."""
    return R.full(tuple(dims), scalar(value, dtype), dtype) if x is None else x


def _normalise(
    ctx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    var: Expr | None,
    training: bool,
    eps: float,
) -> Expr:
    if training:
        raise Unsupported(
            "batch norm in training: it updates running_mean and running_var",
            "call model.eval() before the export",
        )
    if mean is None or var is None:
        raise Unsupported("batch norm without running statistics")
    return _by_statistics(ctx, x, weight, bias, mean, var, eps)


def _by_statistics(
    ctx: Context, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, var: Expr, eps: float
) -> Expr:
    """``x`` less the mean of its channel, over the deviation there."""
    dtype, channels = dtype_of(x), dims_of(x)[1]
    gamma, beta, mean, var = (
        ctx.cast(p, dtype)
        for p in (
            _or_full(weight, [channels], 1, dtype),
            _or_full(bias, [channels], 0, dtype),
            mean,
            var,
        )
    )
    done = R.nn.batch_norm(
        x,
        gamma,
        beta,
        mean,
        var,
        axis=1,
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
        training=False,
    )
    return ctx.emit(done)[0]


def _by_own_statistics(
    x: Expr, weight: Expr | None, bias: Expr | None, axes: Sequence[int], eps: float
) -> Expr:
    """``x`` less its mean along ``axes``, over its deviation there (of n elements, not n - 1)."""
    dtype, channels = dtype_of(x), dims_of(x)[1]
    return R.nn.instance_norm(
        x,
        _or_full(weight, [channels], 1, dtype),
        _or_full(bias, [channels], 0, dtype),
        channel_axis=1,
        axes=list(axes),
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
    )


@aten("batch_norm")
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
    cudnn_enabled: bool,
) -> Expr:
    """In evaluation ``momentum`` is not used; ``cudnn_enabled`` only chooses a kernel."""
    if training and running_mean is None and running_var is None:
        return _by_own_statistics(input, weight, bias, [0, *range(2, ndim_of(input))], eps)
    return _normalise(ctx, input, weight, bias, running_mean, running_var, training, eps)


@aten("_native_batch_norm_legit_functional")
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


@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    momentum: float,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    """The saved statistics are empty in evaluation."""
    y = _normalise(ctx, input, weight, bias, running_mean, running_var, False, eps)
    return y, R.zeros(ctx.dims(1), ctx.dtype(1)), R.zeros(ctx.dims(2), ctx.dtype(2))


@aten("layer_norm")
def layer_norm(
    ctx: Context,
    input: Expr,
    normalized_shape: Ints,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Expr:
    dtype, n = dtype_of(input), len(normalized_shape)
    axes = list(range(-n, 0))
    shape = dims_of(input)[ndim_of(input) - n :]
    gamma = ctx.cast(_or_full(weight, shape, 1, dtype), dtype)
    beta = ctx.cast(_or_full(bias, shape, 0, dtype), dtype)
    return R.nn.layer_norm(
        input,
        gamma,
        beta,
        axes=axes,
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
    )


@aten("native_layer_norm")
def native_layer_norm(
    ctx: Context,
    input: Expr,
    normalized_shape: Ints,
    weight: Expr | None,
    bias: Expr | None,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    x = ctx.emit(input)
    axes = list(range(ndim_of(x) - len(normalized_shape), ndim_of(x)))
    mean, rstd = _statistics(ctx, x, axes, eps)
    return layer_norm(ctx, x, normalized_shape, weight, bias, eps), mean, rstd


def _statistics(ctx: Context, x: Expr, axes: list[int], eps: float) -> tuple[Expr, Expr]:
    """Mean and reciprocal deviation, in the shapes of the results 1 and 2."""
    mean = ctx.emit(R.mean(x, axes, True))
    off = ctx.emit(R.subtract(x, mean))
    spread = R.mean(R.multiply(off, off), axes, True)
    rstd = R.rsqrt(R.add(spread, scalar(eps, dtype_of(x))))
    return ctx.reshape(mean, ctx.dims(1)), ctx.reshape(ctx.emit(rstd), ctx.dims(2))


@aten("group_norm")
def group_norm(
    ctx: Context,
    input: Expr,
    num_groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Expr:
    dtype, channels = dtype_of(input), dims_of(input)[1]
    gamma = _or_full(weight, [channels], 1, dtype)
    beta = _or_full(bias, [channels], 0, dtype)
    axes = list(range(2, ndim_of(input)))
    return R.nn.group_norm(
        input,
        gamma,
        beta,
        num_groups=num_groups,
        channel_axis=1,
        axes=axes,
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
    )


@aten("native_group_norm")
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
) -> tuple[Expr, Expr, Expr]:
    """N, C and HxW repeat what the shape of ``input`` says."""
    x = ctx.emit(input)
    each = C * HxW // group
    mean, rstd = _statistics(ctx, ctx.emit(R.reshape(x, (N, group, each))), [2], eps)
    return group_norm(ctx, x, group, weight, bias, eps), mean, rstd


@aten("instance_norm")
def instance_norm(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Expr:
    if not use_input_stats:
        return _normalise(ctx, input, weight, bias, running_mean, running_var, False, eps)
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
    gamma = _or_full(weight, dims_of(input)[ndim_of(input) - n :], 1, dtype)
    small = EPSILON[dtype] if eps is None else eps
    return R.nn.rms_norm(input, gamma, axes=list(range(-n, 0)), epsilon=small)


# -- softmax and attention -----------------------------------------------------------------------
def _soft(apply: Callable[[Expr, int], Expr]) -> Function:
    def convert(
        ctx: Context, self: Expr, dim: int, dtype: Any = None, half_to_float: bool = False
    ) -> Expr:
        x = ctx.cast(self, ctx.dtype())
        if ndim_of(x) == 0:
            return ctx.reshape(apply(R.reshape(x, (1,)), 0), ())
        return apply(x, axis_of(dim, ndim_of(x)))

    return convert


softmax = aten("softmax.int", "_softmax")(_soft(lambda x, axis: R.nn.softmax(x, axis)))
aten("log_softmax.int", "_log_softmax")(_soft(lambda x, axis: R.nn.log_softmax(x, axis)))


@aten("_safe_softmax")
def safe_softmax(ctx: Context, self: Expr, dim: int, dtype: Any = None) -> Expr:
    """Zero where a whole row is -inf."""
    x = ctx.emit(ctx.cast(self, ctx.dtype()))
    kind, axis = dtype_of(x), axis_of(dim, ndim_of(x))
    some = R.not_equal(R.max(x, [axis], True), scalar(-math.inf, kind))
    return R.where(some, R.nn.softmax(x, axis), scalar(0, kind))


@aten("scaled_dot_product_attention")
def attention(
    ctx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """(..., heads, length, depth), as R.nn.attention's (batch, length, heads, depth)."""
    dtype = dtype_of(query)
    if dropout_p:
        return _dropping(ctx, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if enable_gqa:
        key, value = (_repeat_heads(ctx, x, query) for x in (key, value))
    query, key, value = (_with_leading(x, ctx.dims()[:-2]) for x in (query, key, value))
    q, k, v = (_heads_inside(ctx, x) for x in (query, key, value))
    mask = "TopLeft" if is_causal else None
    factor = None if scale is None else float(scale)
    if attn_mask is None:
        y = R.nn.attention(q, k, v, scale=factor, causal_mask=mask)
    else:
        bias = attn_mask
        if dtype_of(bias) == "bool":
            bias = R.where(bias, scalar(0, dtype), scalar(-math.inf, dtype))
        bias = ctx.cast(bias, dtype)
        if ndim_of(query) > 4:
            full = (*dims_of(query)[:-1], dims_of(key)[-2])
            bias = _merge(ctx, R.broadcast_to(bias, full), 4)
        bias = ctx.emit(bias)
        y = R.nn.attention(q, k, v, bias, scale=factor, causal_mask=mask)
        # A query that sees no key gives 0 in torch, where the formula gives NaN.
        some = R.greater(R.max(bias, [-1], True), scalar(-math.inf, dtype))
        return ctx.reshape(
            R.where(some, R.permute_dims(y, [0, 2, 1, 3]), scalar(0, dtype)), ctx.dims()
        )
    return ctx.reshape(R.permute_dims(y, [0, 2, 1, 3]), ctx.dims())


def _dropping(
    ctx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None,
    p: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Expr:
    """Attention with dropout of its weights, written out."""
    if grouped:
        key, value = (_repeat_heads(ctx, x, query) for x in (key, value))
    dtype = dtype_of(query)
    if scale is None:
        scale = 1.0 / math.sqrt(static(dims_of(query)[-1], "the depth of the heads"))
    score = ctx.emit(R.multiply(R.matmul(query, transposed(key)), scalar(scale, dtype)))
    low = scalar(-math.inf, dtype)
    if causal:
        rows, columns = dims_of(score)[-2:]
        past = R.less_equal(ctx.grid((1, columns), (0, 1)), ctx.grid((rows, 1), (1, 0)))
        score = R.where(past, score, low)
    if mask is not None:
        same = dtype_of(mask) == "bool"
        score = R.where(mask, score, low) if same else R.add(score, ctx.cast(mask, dtype))
    weights = ctx.emit(R.nn.softmax(score, -1))
    return R.matmul(dropout(ctx, weights, p, True), value)


def _with_leading(x: Expr, lead: Dims) -> Expr:
    """``x`` with its leading axes, all but two, broadcast to ``lead``."""
    dims = dims_of(x)
    same = len(dims) == len(lead) + 2
    if same and not any(a == 1 and b != 1 for a, b in zip(dims, lead, strict=False)):
        return x
    return R.broadcast_to(x, (*lead, *dims[-2:]))


def _merge(ctx: Context, x: Expr, ndim: int) -> Expr:
    """``x`` with its leading axes merged, or with new ones, so that its rank is ``ndim``."""
    dims = dims_of(x)
    if len(dims) <= ndim:
        return ctx.reshape(x, (*[1] * (ndim - len(dims)), *dims))
    lead: Any = 1
    for d in dims[: len(dims) - ndim + 1]:
        lead = lead * d
    return R.reshape(x, (lead, *dims[len(dims) - ndim + 1 :]))


def _heads_inside(ctx: Context, x: Expr) -> Expr:
    return R.permute_dims(_merge(ctx, x, 4), [0, 2, 1, 3])


def _repeat_heads(ctx: Context, x: Expr, query: Expr) -> Expr:
    """Each head of keys and values serves a group of the query's heads."""
    *lead, heads, length, depth = dims_of(x)
    wanted = static(dims_of(query)[-3], "the number of heads")
    times = wanted // static(heads, "the number of heads")
    if times == 1:
        return x
    wide = R.broadcast_to(
        R.reshape(x, (*lead, heads, 1, length, depth)), (*lead, heads, times, length, depth)
    )
    return R.reshape(wide, (*lead, wanted, length, depth))


# -- embedding ------------------------------------------------------------------------------
@aten("embedding")
def embedding(
    ctx: Context,
    weight: Expr,
    indices: Expr,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:
    """``padding_idx``, ``scale_grad_by_freq`` and ``sparse`` concern the gradient only."""
    return R.take(weight, indices, axis=0)


# -- losses and distances ------------------------------------------------------------------------
REDUCTIONS: dict[int, Callable[[Expr], Expr]] = {
    0: lambda x: x,
    1: lambda x: R.mean(x),
    2: lambda x: R.sum(x),
}


@aten("mse_loss")
def mse_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    gap = ctx.emit(R.subtract(a, b))
    return REDUCTIONS[reduction](R.multiply(gap, gap))


@aten("l1_loss")
def l1_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    return REDUCTIONS[reduction](R.abs(R.subtract(a, b)))


@aten("cosine_similarity")
def cosine_similarity(ctx: Context, x1: Expr, x2: Expr, dim: int = 1, eps: float = 1e-8) -> Expr:
    a, b = (ctx.emit(x) for x in ctx.promote(x1, x2))
    dtype = dtype_of(a)
    if not is_float(dtype):
        raise Unsupported(f"cosine_similarity of {dtype} tensors")
    axis = axis_of(dim, max(ndim_of(a), ndim_of(b)))

    def unit(x: Expr) -> Expr:
        length = R.sqrt(R.sum(R.multiply(x, x), [axis], True))
        return R.divide(x, R.maximum(length, scalar(eps, dtype)))

    return R.sum(R.multiply(unit(a), unit(b)), [axis])


@aten("_weight_norm_interface")
def weight_norm_interface(ctx: Context, v: Expr, g: Expr, dim: int = 0) -> tuple[Expr, Expr]:
    """The direction ``v`` with the lengths ``g``, along all axes but ``dim`` (-1: along all)."""
    axes = [a for a in range(ndim_of(v)) if dim == -1 or a != axis_of(dim, ndim_of(v))]
    length = ctx.emit(R.sqrt(R.sum(R.multiply(v, v), axes, True)))
    return R.multiply(v, R.divide(g, length)), length


@aten("_weight_norm_interface_backward")
def weight_norm_interface_backward(
    ctx: Context, grad_w: Expr, saved_v: Expr, saved_g: Expr, saved_norms: Expr, dim: int
) -> tuple[Expr, Expr]:
    """Gradients of ``v`` and of ``g``."""
    axes = [a for a in range(ndim_of(saved_v)) if dim == -1 or a != axis_of(dim, ndim_of(saved_v))]
    unit = ctx.emit(R.divide(saved_v, saved_norms))
    grad_g = ctx.emit(R.sum(R.multiply(grad_w, unit), axes, True))
    across = R.subtract(grad_w, R.multiply(unit, grad_g))
    return R.multiply(R.divide(saved_g, saved_norms), across), grad_g


@aten("_weight_norm")
def weight_norm(ctx: Context, v: Expr, g: Expr, dim: int = 0) -> Expr:
    return weight_norm_interface(ctx, v, g, dim)[0]
