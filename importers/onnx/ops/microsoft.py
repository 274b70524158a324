# ruff: noqa: D103  (a converter's documentation is ONNX Runtime's schema; it says what differs)
"""com.microsoft: normalisations, activations and products that graph optimisers fuse.

Semantics: the operator documentation of ONNX Runtime (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.ops.math import gelu, gemm
from relax2xla.importers.onnx.ops.nn import last_axes, saved_statistics, want_float32
from relax2xla.importers.onnx.ops.pool import (
    Convolved,
    Windowed,
    channels_first,
    conv,
    max_pool,
    to_channels_last,
)
from relax2xla.importers.shared import activations as activation
from relax2xla.ir import Expr, ShapeExpr

DOMAIN = "com.microsoft"


# -- activations ---------------------------------------------------------------------------------
onnx_op("Gelu", domain=DOMAIN, lacks="approximate")(gelu)


@onnx_op("BiasGelu", domain=DOMAIN)
def bias_gelu(ctx: Context, A: Expr, B: Expr) -> Expr:
    return R.nn.gelu(R.add(A, B))


@onnx_op("FastGelu", domain=DOMAIN)
def fast_gelu(ctx: Context, X: Expr, bias: Expr | None = None) -> Expr:
    return R.nn.gelu_tanh(X if bias is None else R.add(X, bias))


@onnx_op("QuickGelu", domain=DOMAIN)
def quick_gelu(ctx: Context, X: Expr, *, alpha: float = 1.702) -> Expr:
    return activation.swish(X, alpha)


# -- normalisations ------------------------------------------------------------------------------
def _layer_norm(x: Expr, gamma: Expr, beta: Expr | None, epsilon: float) -> Expr:
    """Over the last axis."""
    bias = R.zeros(ShapeExpr(dims_of(gamma)), dtype_of(x)) if beta is None else beta
    return R.nn.layer_norm(x, gamma, bias, [-1], epsilon, beta is not None)


def _skipped(ctx: Context, input: Expr, skip: Expr, bias: Expr | None) -> Expr:
    total = R.add(input, skip)
    return ctx.emit(total if bias is None else R.add(total, bias))


@onnx_op("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    ctx: Context,
    input: Expr,
    skip: Expr,
    gamma: Expr,
    beta: Expr | None = None,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[Expr | None]:
    total = _skipped(ctx, input, skip, bias)
    training = ctx.wants(1) or ctx.wants(2)
    saved = saved_statistics(ctx, total, [-1], epsilon) if training else [None, None]
    return [_layer_norm(total, gamma, beta, epsilon), *saved, total]


@onnx_op("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(
    ctx: Context,
    input: Expr,
    skip: Expr,
    gamma: Expr,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[Expr | None]:
    total = _skipped(ctx, input, skip, bias)
    return [R.nn.rms_norm(total, gamma, [-1], epsilon), None, None, total]


@onnx_op("SimplifiedLayerNormalization", domain=DOMAIN)
@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    ctx: Context,
    X: Expr,
    scale: Expr,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Expr]:
    """ONNX Runtime keeps it in the domain ai.onnx; ``stash_type`` 1 computes in float32."""
    want_float32(stash_type)
    axes = last_axes(X, axis)
    made: list[Expr] = [R.nn.rms_norm(X, scale, axes, epsilon)]
    if ctx.wants(1):
        x = ctx.emit(ctx.cast(X, "float32"))
        square = R.mean(R.multiply(x, x), axes, True)
        made.append(R.rsqrt(R.add(square, scalar(epsilon, "float32"))))
    return made


@onnx_op("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    ctx: Context,
    input_ids: Expr,
    segment_ids: Expr | None,
    word_embedding: Expr,
    position_embedding: Expr,
    segment_embedding: Expr | None,
    gamma: Expr,
    beta: Expr,
    mask: Expr | None = None,
    position_ids: Expr | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> list[Expr]:
    """``mask_index`` is the number of ones in each row of the mask, zero without a mask."""
    choice(mask_index_type, (0, 1), "mask_index_type")
    batch, length = dims_of(input_ids)
    total = R.take(word_embedding, input_ids, 0)
    where = R.arange(0, length, 1, "int64") if position_ids is None else position_ids
    total = R.add(total, R.take(position_embedding, where, 0))
    if segment_ids is not None and segment_embedding is not None:
        total = R.add(total, R.take(segment_embedding, segment_ids, 0))
    elif segment_ids is not None or segment_embedding is not None:
        raise ValueError("segment_ids and segment_embedding come together")
    total = ctx.emit(total)
    if mask is None:
        count: Expr = R.zeros(ShapeExpr((batch,)), "int32")
    else:
        count = R.sum(R.astype(R.equal(mask, scalar(1, dtype_of(mask))), "int32"), [1])
    return [_layer_norm(total, gamma, beta, epsilon), count, total]


# -- products ------------------------------------------------------------------------------------
def _turned(x: Expr, batch: int, last: int) -> Expr:
    """With the first axis moved behind the batch, and with the last two exchanged."""
    n = ndim_of(x)
    order = list(range(n))
    if batch:
        order = [*order[1:-1], order[0], order[-1]]
    if last:
        order = [*order[:-2], order[-1], order[-2]]
    return x if order == list(range(n)) else R.permute_dims(x, order)


@onnx_op("FusedMatMul", domain=DOMAIN)
def fused_matmul(
    ctx: Context,
    A: Expr,
    B: Expr,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Expr:
    """A vector has nothing to transpose."""
    a = A if ndim_of(A) < 2 else _turned(A, transBatchA, transA)
    b = B if ndim_of(B) < 2 else _turned(B, transBatchB, transB)
    made = R.matmul(a, b)
    return made if alpha == 1 else R.multiply(made, like(made, alpha))


# Activations of fused operators by name: the number of parameters and the rule.
ACTIVATIONS: dict[str, tuple[int, Callable[..., Expr]]] = {
    "Relu": (0, R.nn.relu),
    "Tanh": (0, R.tanh),
    "Sigmoid": (0, R.sigmoid),
    "LeakyRelu": (1, R.nn.leakyrelu),
    "Clip": (2, R.clip),
    "HardSigmoid": (2, activation.hard_sigmoid),
}


def activated(x: Expr, activation: str | None, params: Sequence[float] | None) -> Expr:
    """The activation of a fused operator; none is the identity."""
    if not activation:
        return x
    count, rule = ACTIVATIONS[choice(activation, ACTIVATIONS, "activation")]
    given = list(params or ())
    if len(given) != count:
        raise ValueError(f"{activation} takes {count} parameters; it has {len(given)}")
    return rule(x, *given)


@onnx_op("FusedConv", domain=DOMAIN)
def fused_conv(
    ctx: Context,
    X: Expr,
    W: Expr,
    B: Expr | None = None,
    Z: Expr | None = None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    **window: Unpack[Convolved],
) -> Expr:
    """``Z`` is added before the activation."""
    y = conv(ctx, X, W, B, **window)
    return activated(y if Z is None else R.add(y, Z), activation, activation_params)


@onnx_op("FusedGemm", domain=DOMAIN)
def fused_gemm(
    ctx: Context,
    A: Expr,
    B: Expr,
    C: Expr | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """The parameters of the activation are attributes of their own."""
    y = gemm(ctx, A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = (activation_alpha, activation_beta, activation_gamma)
    return activated(y, activation, [p for p in given if p is not None])


@onnx_op("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(
    ctx: Context,
    x: Expr,
    *,
    ceil_mode: int = 0,
    kernel_shape: list[int],
    **window: Unpack[Windowed],
) -> Expr:
    (y,) = max_pool(
        ctx, channels_first(x), ceil_mode=ceil_mode, kernel_shape=kernel_shape, **window
    )
    return to_channels_last(y)
