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
from relax2xla.importers.torch.engine.converters import Function, aten
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


def _scale(x: Expr, factor: Any) -> Expr:
    return x if factor == 1 else R.multiply(x, scalar(factor, dtype_of(x)))


@aten("addmm", "addmv", "baddbmm")
def addmm(
    ctx: Context,
    self: Expr,
    mat1: Any = None,
    mat: Any = None,
    batch1: Any = None,
    mat2: Any = None,
    vec: Any = None,
    batch2: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
) -> Expr:
    left, right = (x for x in (mat1, mat, batch1, mat2, vec, batch2) if x is not None)
    narrow = dtype_of(left) in NARROW
    product = _scale(R.matmul(left, right, "float32" if narrow else None), alpha)
    dtype = dtype_of(self)
    self = ctx.cast(self, dtype_of(product))
    # With beta 0 torch does not read `self`, whose NaN must not spread.
    if beta == 0:
        made = broadcast(product, ctx.dims())
    else:
        made = R.add(_scale(self, beta), product)
    return ctx.cast(made, dtype)


@aten("outer", "ger")
def outer(ctx: Context, self: Expr, vec2: Expr) -> Expr:
    a, b = ctx.promote(self, vec2, dtype=ctx.dtype())
    return R.outer(a, b)


@aten("einsum")
def einsum(ctx: Context, equation: str, tensors: Sequence[Expr]) -> Expr:
    """``path`` only says in which order torch would multiply; R.einsum chooses by itself."""
    return R.einsum(list(tensors), equation.replace(" ", ""))


# -- normalisation -------------------------------------------------------------------------------
def _affine(
    x: Expr, weight: Expr | None, bias: Expr | None, dims: Sequence[Any]
) -> tuple[list[Expr], dict[str, bool]]:
    """Scale and offset, and which are there: neutral ones are in the place of others, not read."""
    dtype, shape = dtype_of(x), tuple(dims)
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
    affine, given = _affine(x, weight, bias, [dims_of(x)[1]])
    params = (ctx.cast(p, dtype_of(x)) for p in (*affine, mean, var))
    done = R.nn.batch_norm(x, *params, axis=1, epsilon=eps, training=False, **given)
    return ctx.emit(done)[0]


def _by_own_statistics(
    x: Expr, weight: Expr | None, bias: Expr | None, axes: Sequence[int], eps: float
) -> Expr:
    """``x`` less its mean along ``axes``, over its deviation there (of n elements, not n - 1)."""
    affine, given = _affine(x, weight, bias, [dims_of(x)[1]])
    return R.nn.instance_norm(x, *affine, channel_axis=1, axes=list(axes), epsilon=eps, **given)


@aten("batch_norm", ignored="momentum cudnn_enabled", wide=True)
def batch_norm(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    training: bool,
    eps: float,
) -> Expr:
    """In evaluation ``momentum`` is not used; ``cudnn_enabled`` only chooses a kernel."""
    if training and running_mean is None and running_var is None:
        return _by_own_statistics(input, weight, bias, [0, *range(2, ndim_of(input))], eps)
    return _normalise(ctx, input, weight, bias, running_mean, running_var, training, eps)


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


@aten("_native_batch_norm_legit_no_training", ignored="momentum", wide=True)
def batch_norm_no_training(
    ctx: Context,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    """The saved statistics are empty in evaluation."""
    y = _normalise(ctx, input, weight, bias, running_mean, running_var, False, eps)
    return y, R.zeros(ctx.dims(1), ctx.dtype(1)), R.zeros(ctx.dims(2), ctx.dtype(2))


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
) -> tuple[Expr, Expr, Expr]:
    """N, C and HxW repeat what the shape of ``input`` says."""
    x = ctx.emit(input)
    each = C * HxW // group
    mean, rstd = _statistics(ctx, ctx.emit(R.reshape(x, (N, group, each))), [2], eps)
    return group_norm(ctx, x, group, weight, bias, eps), mean, rstd


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
    (gamma, _), _ = _affine(input, weight, None, dims_of(input)[ndim_of(input) - n :])
    small = EPSILON[dtype] if eps is None else eps
    return R.nn.rms_norm(input, gamma, axes=list(range(-n, 0)), epsilon=small)


# -- softmax and attention -----------------------------------------------------------------------
def _soft(apply: Callable[[Expr, int], Expr]) -> Function:
    def convert(ctx: Context, self: Expr, dim: int) -> Expr:
        x = ctx.cast(self, ctx.dtype())
        if ndim_of(x) == 0:
            return ctx.reshape(apply(R.reshape(x, (1,)), 0), ())
        return apply(x, axis_of(dim, ndim_of(x)))

    return convert


aten("softmax.int", "_softmax", ignored="dtype half_to_float")(_soft(R.nn.softmax))
aten("log_softmax.int", "_log_softmax", ignored="dtype half_to_float")(_soft(R.nn.log_softmax))


@aten("_safe_softmax", ignored="dtype")
def safe_softmax(ctx: Context, self: Expr, dim: int) -> Expr:
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
    if enable_gqa:
        key, value = (_repeat_heads(ctx, x, query) for x in (key, value))
    if dropout_p:
        return _dropping(ctx, query, key, value, attn_mask, dropout_p, is_causal, scale)
    query, key, value = (_with_leading(x, ctx.dims()[:-2]) for x in (query, key, value))
    q, k, v = (_heads_inside(ctx, x) for x in (query, key, value))
    mask = "TopLeft" if is_causal else None
    factor = None if scale is None else float(scale)
    bias = attn_mask
    if bias is not None:
        if dtype_of(bias) == "bool":
            bias = R.where(bias, scalar(0, dtype), scalar(-math.inf, dtype))
        bias = ctx.cast(bias, dtype)
        if ndim_of(query) > 4:
            full = (*dims_of(query)[:-1], dims_of(key)[-2])
            bias = _merge(ctx, R.broadcast_to(bias, full), 4)
        bias = ctx.emit(bias)
    y = R.nn.attention(q, k, v, bias, scale=factor, causal_mask=mask)
    y = R.permute_dims(y, [0, 2, 1, 3])
    if bias is not None:
        # A query that sees no key gives 0 in torch, where the formula gives NaN.
        some = R.greater(R.max(bias, [-1], True), scalar(-math.inf, dtype))
        y = R.where(some, y, scalar(0, dtype))
    return ctx.reshape(y, ctx.dims())


def _dropping(
    ctx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None,
    p: float,
    causal: bool,
    scale: float | None,
) -> Expr:
    """Attention with dropout of its weights, written out."""
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
@aten("embedding", ignored="padding_idx scale_grad_by_freq sparse")
def embedding(ctx: Context, weight: Expr, indices: Expr) -> Expr:
    """``padding_idx``, ``scale_grad_by_freq`` and ``sparse`` concern the gradient only."""
    return R.take(weight, indices, axis=0)


# -- losses and distances ------------------------------------------------------------------------
REDUCTIONS: dict[int, Callable[[Expr], Expr]] = {
    0: lambda x: x,
    1: R.mean,
    2: R.sum,
}


@aten("mse_loss", wide=True)
def mse_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    gap = ctx.emit(R.subtract(a, b))
    return REDUCTIONS[reduction](R.multiply(gap, gap))


@aten("l1_loss")
def l1_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    return REDUCTIONS[reduction](R.abs(R.subtract(a, b)))


@aten("cosine_similarity", wide=True)
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
