"""Softmax, and scaled dot product attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.reductions import log_sum_exp
from relax2xla.importers.torch.aten.numbers.complex import transposed
from relax2xla.importers.torch.aten.random import dropout
from relax2xla.importers.torch.engine.context import (
    Context,
    Dims,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr


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
    return _safe(ctx, ctx.cast(self, ctx.dtype()), axis_of(dim, ndim_of(self)))


def _safe(ctx: Context, x: Expr, axis: int) -> Expr:
    x = ctx.emit(x)
    kind = dtype_of(x)
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
    if enable_gqa:
        key, value = (_repeat_heads(ctx, x, query) for x in (key, value))
    if dropout_p:
        return _dropping(ctx, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _attention(ctx, ctx.dims(), query, key, value, attn_mask, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu", wide=True)
def flash_attention(
    ctx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Expr | None = None,
    scale: float | None = None,
) -> list[Expr | None]:
    """Also the logarithm of each query's sum, where torch's decomposition gives the weights."""
    if dropout_p:
        raise Unsupported("dropout in the CPU's kernel, which torch refuses too")
    key, value = (_repeat_heads(ctx, x, query) for x in (key, value))
    y = _attention(ctx, ctx.dims(0), query, key, value, attn_mask, is_causal, scale)
    if not ctx.reads(1):
        return [y, None]
    dtype = ctx.dtype(1)
    score = _score(ctx, query, key, attn_mask, is_causal, scale)
    total = ctx.emit(R.squeeze(log_sum_exp(score, [-1]), [-1]))
    low, none = scalar(-math.inf, dtype), scalar(0, dtype)
    # Of a query that sees no key the kernel says 0.
    return [y, R.where(R.equal(total, low), none, total)]


def _attention(
    ctx: Context,
    dims: Dims,
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None,
    is_causal: bool,
    scale: float | None,
) -> Expr:
    """Attention without dropout, of the shape ``dims``, for as many heads of keys and values."""
    dtype = dtype_of(query)
    query, key, value = (_with_leading(x, dims[:-2]) for x in (query, key, value))
    q, k, v = (_heads_inside(ctx, x) for x in (query, key, value))
    mask = "TopLeft" if is_causal else None
    factor = None if scale is None else float(scale)
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
    return ctx.reshape(y, dims)


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
    score = _score(ctx, query, key, mask, causal, scale)
    weights = ctx.emit(R.nn.softmax(score, -1) if mask is None else _safe(ctx, score, -1))
    return R.matmul(dropout(ctx, weights, p, True), value)


def _score(
    ctx: Context,
    query: Expr,
    key: Expr,
    mask: Expr | None,
    causal: bool,
    scale: float | None,
) -> Expr:
    """What the softmax is taken of: -inf where a query does not see a key."""
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
    return ctx.emit(score)


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
