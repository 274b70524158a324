# ruff: noqa: D103  (a converter's documentation is ONNX Runtime's schema; it says what differs)
"""com.microsoft: attention in its forms, and rotary positions.

Queries, keys and values are (batch, heads, length, size) in here. Scores and their softmax are
computed in float32 where the data is narrower. Semantics: the operator documentation of ONNX
Runtime (docs/ContribOperators.md) and, where that is silent, what its CPU provider gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, Unpack

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import limits
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import Sizes, onnx_op
from relax2xla.importers.onnx.engine.known_values import dims_of, dtype_of, ndim_of, scalar, static
from relax2xla.importers.onnx.ops.microsoft import DOMAIN
from relax2xla.importers.onnx.ops.microsoft_quant import projected
from relax2xla.importers.shared.dims import fold_dim, larger, same_dim
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.loops import number
from relax2xla.ir import Expr, ShapeExpr
from relax2xla.tir import Dim

# Without mask_filter_value a masked score is lowered by so much.
FILTER = -10000.0


# -- the core ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Scores:
    """How scores become weights.

    ``scale``: of the scores, ``bias``: added to them, ``hidden``: where (booleans) the weight is
    zero, ``softcap``: scores are bent below it, ``sink``: a score for nothing, (heads,).
    """

    scale: float
    bias: Sequence[Expr] = ()
    hidden: Expr | None = None
    softcap: float = 0.0
    sink: Expr | None = None


def attend(ctx: Context, q: Expr, k: Expr, v: Expr, how: Scores) -> tuple[Expr, Expr, Expr]:
    """The weighted values (batch, heads, length, size of v); the scores, in the lowest of which
    nothing is seen; the weights.

    Heads of queries share those of keys and values, where these are fewer.
    """
    dtype = dtype_of(q)
    wide = "float64" if dtype == "float64" else "float32"
    heads, shared = dims_of(q)[1], dims_of(k)[1]
    if heads != shared:
        each = static(heads, "the number of heads") // static(shared, "the number of heads")
        k, v = R.repeat(k, each, 1), R.repeat(v, each, 1)
    scores = R.matmul(ctx.cast(q, wide), R.permute_dims(ctx.cast(k, wide), [0, 1, 3, 2]))
    scores = R.multiply(scores, scalar(how.scale, wide))
    if how.softcap:
        cap = scalar(how.softcap, wide)
        scores = R.multiply(R.tanh(R.divide(scores, cap)), cap)
    for b in how.bias:
        scores = R.add(scores, ctx.cast(b, wide))
    if how.hidden is not None:
        scores = R.where(how.hidden, scalar(limits(wide)[0], wide), scores)
    scores = ctx.emit(scores)
    if how.sink is None:
        weights = R.nn.softmax(scores, -1)
    else:
        b, n, s, t = dims_of(scores)
        sink = R.reshape(ctx.cast(how.sink, wide), ShapeExpr((1, n, 1, 1)))
        column = R.broadcast_to(sink, ShapeExpr((b, n, s, 1)))
        weights = R.nn.softmax(R.concat([scores, column], 3), -1)
        weights = R.strided_slice(weights, [3], [0], [t])
    weights = ctx.emit(weights)
    made = R.matmul(weights, ctx.cast(v, wide))
    return ctx.cast(made, dtype), ctx.cast(scores, dtype), ctx.cast(weights, dtype)


def split_heads(ctx: Context, x: Expr, heads: int) -> Expr:
    """(batch, length, heads * size) by heads."""
    b, s, width = dims_of(x)
    size = fold_dim(width // heads)
    return R.permute_dims(ctx.reshape(x, (b, s, heads, size)), [0, 2, 1, 3])


def joined(ctx: Context, x: Expr) -> Expr:
    """The reverse of :func:`split_heads`."""
    b, n, s, h = dims_of(x)
    return ctx.reshape(R.permute_dims(x, [0, 2, 1, 3]), (b, s, fold_dim(n * h)))


def _scale(scale: float | None, q: Expr) -> float:
    """0 and no value both mean one over the root of the size of a head."""
    return scale if scale else 1.0 / math.sqrt(static(dims_of(q)[3], "the size of a head"))


def _ahead(q: Dim, k: Dim, past: Dim) -> Expr:
    """Whether a key stands behind the query's own place, (1, 1, q, k)."""
    return R.expand_dims(R.greater(_positions(k, 0), R.add(_column(q), number(past))), [0, 1])


def _positions(size: Dim, extra: int) -> Expr:
    """0, 1, ... along the last of ``1 + extra`` axes."""
    made = R.arange(0, size, 1, "int64")
    return R.expand_dims(made, list(range(extra))) if extra else made


def _column(size: Dim) -> Expr:
    return R.expand_dims(_positions(size, 0), [1])


def _mask(ctx: Context, mask: Expr, batch: Dim, total: Dim, fill: float) -> Expr:
    """What a mask adds to the scores: 0, or ``fill`` where it hides, broadcast to four axes.

    mask: ends (batch,), ends then starts (2 * batch,), ends then where packed entries start
          (3 * batch + 2,), or ones that are seen (batch, total) and (batch, length, total)
    """
    dims = dims_of(mask)
    zero = scalar(0, "float32")
    if len(dims) in (2, 3):
        if not same_dim(dims[-1], total):
            raise Unsupported(f"a mask over {dims[-1]} of {total} keys")
        seen = R.greater(mask, scalar(0, dtype_of(mask)))
        seen = R.expand_dims(seen, [1, 2] if len(dims) == 2 else [1])
        return ctx.emit(R.where(seen, zero, scalar(fill, "float32")))
    if len(dims) != 1:
        raise Unsupported(f"a mask of rank {len(dims)}")
    rows = ctx.emit(R.astype(mask, "int64"))
    at = _positions(total, 1)
    if same_dim(dims[0], batch):
        seen = R.less(at, R.expand_dims(rows, [1]))
    elif same_dim(dims[0], fold_dim(3 * batch + 2)):
        # Nothing is packed here: the starts are those that the lengths of the axes say.
        ends = R.strided_slice(rows, [0], [0], [batch])
        seen = R.less(at, R.expand_dims(ends, [1]))
    elif same_dim(dims[0], fold_dim(2 * batch)):
        ends = R.strided_slice(rows, [0], [0], [batch])
        starts = R.strided_slice(rows, [0], [batch], [fold_dim(2 * batch)])
        seen = R.logical_and(
            R.less(at, R.expand_dims(ends, [1])), R.greater_equal(at, R.expand_dims(starts, [1]))
        )
    else:
        raise Unsupported(f"a mask of {dims[0]} numbers for a batch of {batch}")
    return ctx.emit(R.where(R.expand_dims(seen, [1, 2]), zero, scalar(fill, "float32")))


# -- Attention -----------------------------------------------------------------------------------
class Attended(TypedDict):
    """Attributes of attention; a masked score is lowered by ``mask_filter_value``."""

    mask_filter_value: Annotated[float, FILTER]
    num_heads: int
    scale: Annotated[float | None, None]
    unidirectional: Annotated[int, 0]


class Merged(Attended):
    """Those of attention whose queries, keys and values lie side by side."""

    do_rotary: Annotated[int, 0]
    past_present_share_buffer: Annotated[int, 0]


def _of_mask(ctx: Context, x: Expr, mask: Expr | None, past: Expr | None) -> Expr:
    """``x`` (batch, length, width) with the sizes that only a mask or what is past knows.

    The call checks them. A mask of one axis says the batch where its forms leave one.
    """
    batch, length, width = dims_of(x)
    _, cached, _, before, _ = (0, batch, 0, 0, 0) if past is None else dims_of(past)
    seen = () if mask is None else dims_of(mask)
    batches, lengths = [cached], list[Dim]()
    if len(seen) == 1 and isinstance(n := seen[0], int):
        # Ends; ends and starts; those of packed entries.
        forms = [n, *([n // 2] if n % 2 == 0 else []), *([n // 3] if n % 3 == 2 and n > 2 else [])]
        batches += forms if len(forms) == 1 else []
    elif len(seen) > 1:
        batches += [d for d in seen[:1] if d != 1]
        lengths += [fold_dim(seen[-1] - before)]
    sizes = [
        next((d for d in [own, *found] if isinstance(d, int) and d > 0), own)
        for own, found in ((batch, batches), (length, lengths))
    ]
    return ctx.sized(x, [*sizes, width])


def _merged(
    ctx: Context,
    x: Expr,
    sizes: Sequence[int],
    mask: Expr | None,
    past: Expr | None,
    bias: Expr | None,
    form: Merged,
) -> list[Expr]:
    """Attention of projected queries, keys and values that lie side by side in ``x``."""
    choice(form["do_rotary"], (0,), "do_rotary")
    choice(form["past_present_share_buffer"], (0,), "past_present_share_buffer")
    x = _of_mask(ctx, x, mask, past)
    cuts = [sizes[0], sizes[0] + sizes[1]]
    parts = ctx.emit(R.split(x, cuts, 2))
    q, k, v = (ctx.emit(split_heads(ctx, parts[i], form["num_heads"])) for i in range(3))
    before: Dim = 0
    if past is not None:
        before = dims_of(past)[3]
        old = ctx.emit(R.split(past, 2, 0))
        k = ctx.emit(R.concat([R.squeeze(old[0], [0]), k], 2))
        v = ctx.emit(R.concat([R.squeeze(old[1], [0]), v], 2))
    batch, total = dims_of(q)[0], dims_of(k)[2]
    biases = [] if mask is None else [_mask(ctx, mask, batch, total, form["mask_filter_value"])]
    biases += [] if bias is None else [bias]
    hidden = _ahead(dims_of(q)[2], total, before) if form["unidirectional"] else None
    made, _, _ = attend(ctx, q, k, v, Scores(_scale(form["scale"], q), biases, hidden))
    outputs = [joined(ctx, made)]
    if ctx.wants(1):
        outputs.append(R.concat([R.expand_dims(k, [0]), R.expand_dims(v, [0])], 0))
    return outputs


@onnx_op("Attention", domain=DOMAIN)
def attention(
    ctx: Context,
    input: Expr,
    weights: Expr,
    bias: Expr | None = None,
    mask_index: Expr | None = None,
    past: Expr | None = None,
    attention_bias: Expr | None = None,
    *,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    **form: Unpack[Merged],
) -> list[Expr]:
    choice(rotary_embedding_dim, (0,), "rotary_embedding_dim")
    width = static(dims_of(weights)[1], "the width of the weights")
    sizes = qkv_hidden_sizes or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width:
        raise ValueError(f"qkv_hidden_sizes {sizes} of weights of the width {width}")
    x = R.matmul(input, weights)
    if bias is not None:
        x = R.add(x, bias)
    return _merged(ctx, x, sizes, mask_index, past, attention_bias, form)


@onnx_op("QAttention", domain=DOMAIN)
def qattention(
    ctx: Context,
    input: Expr,
    weight: Expr,
    bias: Expr,
    input_scale: Expr,
    weight_scale: Expr,
    mask_index: Expr | None = None,
    input_zero_point: Expr | None = None,
    weight_zero_point: Expr | None = None,
    past: Expr | None = None,
    **form: Unpack[Merged],
) -> list[Expr]:
    width = static(dims_of(weight)[1], "the width of the weights")
    given = (input, input_scale, input_zero_point)
    x = projected(ctx, *given, weight, weight_scale, weight_zero_point)
    return _merged(ctx, R.add(x, bias), [width // 3] * 3, mask_index, past, None, form)


# -- MultiHeadAttention --------------------------------------------------------------------------
def _packed(ctx: Context, x: Expr) -> list[Expr]:
    """(batch, length, heads, n, size) as n tensors by heads."""
    count = static(dims_of(x)[3], "a packed tensor's axis 3")
    parts = ctx.emit(R.split(x, count, 3))
    return [R.permute_dims(R.squeeze(parts[i], [3]), [0, 2, 1, 3]) for i in range(count)]


@onnx_op("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    ctx: Context,
    query: Expr,
    key: Expr | None = None,
    value: Expr | None = None,
    bias: Expr | None = None,
    key_padding_mask: Expr | None = None,
    attention_bias: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    past_sequence_length: Expr | None = None,
    **form: Unpack[Attended],
) -> list[Expr]:
    """Queries, keys and values apart, or packed; keys of four axes are those of a cache.

    With ``past_sequence_length`` the cache is longer than what it holds, and stays as long. The
    last output is the scores.
    """
    num_heads, unidirectional = form["num_heads"], form["unidirectional"]
    if ndim_of(query) == 5:
        if key is not None or value is not None:
            raise ValueError("a packed query holds the key and value")
        q, k, v = _packed(ctx, query)
    elif key is not None and ndim_of(key) == 5:
        q = split_heads(ctx, query, num_heads)
        k, v = _packed(ctx, key)
    elif key is None or value is None:
        raise ValueError("key and value are missing, and the query is not packed")
    else:
        q = split_heads(ctx, query, num_heads)
        k, v = (x if ndim_of(x) == 4 else split_heads(ctx, x, num_heads) for x in (key, value))
    if bias is not None:
        widths = [static(fold_dim(num_heads * dims_of(x)[3]), "the width") for x in (q, k, v)]
        parts = ctx.emit(R.split(bias, [widths[0], widths[0] + widths[1]], 0))
        rows = [(1, num_heads, 1, width // num_heads) for width in widths]
        q = R.add(q, R.reshape(parts[0], rows[0]))
        if key is None or ndim_of(key) != 4:
            k = R.add(k, R.reshape(parts[1], rows[1]))
            v = R.add(v, R.reshape(parts[2], rows[2]))
    before: Dim = 0
    hidden: Expr | None = None
    if past_key is not None and past_value is not None:
        before = dims_of(past_key)[2]
        if past_sequence_length is None:
            k, v = R.concat([past_key, k], 2), R.concat([past_value, v], 2)
        else:
            if ctx.wants(3) or unidirectional or key_padding_mask is not None:
                raise Unsupported("scores, masks or unidirectional=1 with past_sequence_length")
            start = R.reshape(ctx.cast(past_sequence_length, "int64"), (1, 1))
            start = ctx.emit(R.broadcast_to(start, ShapeExpr((dims_of(k)[0], 1))))
            hidden = R.greater_equal(
                _positions(before, 3), R.add(R.expand_dims(start, [2, 3]), number(dims_of(k)[2]))
            )
            k = _appended(ctx, past_key, ctx.emit(k), start, before, rest=True)
            v = _appended(ctx, past_value, ctx.emit(v), start, before, rest=True)
    elif past_key is not None or past_value is not None or past_sequence_length is not None:
        raise ValueError("past_key and past_value come together, past_sequence_length with them")
    q, k, v = ctx.emit(q), ctx.emit(k), ctx.emit(v)
    batch, total = dims_of(q)[0], dims_of(k)[2]
    biases: list[Expr] = []
    if key_padding_mask is not None:
        biases.append(_mask(ctx, key_padding_mask, batch, total, form["mask_filter_value"]))
    if attention_bias is not None:
        biases.append(attention_bias)
    if unidirectional:
        hidden = _ahead(dims_of(q)[2], total, before)
    made, scores, _ = attend(ctx, q, k, v, Scores(_scale(form["scale"], q), biases, hidden))
    return [joined(ctx, made), k, v, scores]


# -- rotary positions ----------------------------------------------------------------------------
def rotated(
    ctx: Context, x: Expr, at: Expr, cos_cache: Expr, sin_cache: Expr, interleaved: int
) -> Expr:
    """``x`` turned by the angles of the positions ``at``, (batch or 1, length).

    Only as many entries of a head as the caches have angles for, twice, are turned.
    """
    size = static(dims_of(x)[3], "the size of a head")
    half = static(dims_of(cos_cache)[1], "the number of angles")
    dtype = dtype_of(x)
    cos, sin = (
        ctx.emit(R.expand_dims(ctx.cast(R.take(c, at, 0), dtype), [1]))
        for c in (cos_cache, sin_cache)
    )
    turned = x if 2 * half == size else R.strided_slice(x, [3], [0], [2 * half])
    if interleaved:
        first, second = (R.strided_slice(turned, [3], [i], [2 * half], [2]) for i in (0, 1))
    else:
        first, second = (R.strided_slice(turned, [3], [i * half], [(i + 1) * half]) for i in (0, 1))
    first, second = ctx.emit(first), ctx.emit(second)
    real = R.subtract(R.multiply(first, cos), R.multiply(second, sin))
    imaginary = R.add(R.multiply(second, cos), R.multiply(first, sin))
    if interleaved:
        pair = R.concat([R.expand_dims(real, [4]), R.expand_dims(imaginary, [4])], 4)
        made = R.reshape(pair, ShapeExpr(dims_of(turned)))
    else:
        made = R.concat([real, imaginary], 3)
    if 2 * half == size:
        return made
    return R.concat([made, R.strided_slice(x, [3], [2 * half], [size])], 3)


@onnx_op("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(
    ctx: Context,
    input: Expr,
    position_ids: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Expr:
    """One position is that of the first entry; without ``num_heads`` the caches say a head's size.

    ``is_packed_batching`` only lifts a limit on lengths that is not held here.
    """
    choice(scale, (1.0,), "scale")
    choice(is_packed_batching, (0, 1), "is_packed_batching")
    half = static(dims_of(cos_cache)[1], "the number of angles")
    if rotary_embedding_dim and rotary_embedding_dim != 2 * half:
        raise ValueError(f"rotary_embedding_dim={rotary_embedding_dim} and {half} angles")
    if ndim_of(input) == 4:
        x = input
    else:
        width = static(dims_of(input)[2], "the hidden size")
        if rotary_embedding_dim and not num_heads:
            raise ValueError("rotary_embedding_dim needs num_heads")
        x = split_heads(ctx, input, num_heads or width // (2 * half))
    x = ctx.emit(x)
    at = ctx.cast(position_ids, "int64")
    if ndim_of(at) == 1:
        at = R.expand_dims(R.add(at, R.arange(0, dims_of(x)[2], 1, "int64")), [0])
    made = rotated(ctx, x, at, cos_cache, sin_cache, interleaved)
    return made if ndim_of(input) == 4 else joined(ctx, made)


# -- GroupQueryAttention -------------------------------------------------------------------------
@onnx_op("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    ctx: Context,
    query: Expr,
    key: Expr | None,
    value: Expr | None,
    past_key: Expr | None,
    past_value: Expr | None,
    seqlens_k: Expr,
    total_sequence_length: Sizes,
    cos_cache: Expr | None = None,
    sin_cache: Expr | None = None,
    position_ids: Expr | None = None,
    attention_bias: Expr | None = None,
    head_sink: Expr | None = None,
    k_scale: Expr | None = None,
    v_scale: Expr | None = None,
    q_norm_weight: Expr | None = None,
    k_norm_weight: Expr | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> list[Expr]:
    """With a cache whose length is the larger of the old one's and the total.

    Entry b of the batch has ``seqlens_k[b] + 1`` keys in all; those of this call come last, and
    the cache is zero behind them. ``qk_output`` 1 gives the scores, zero where nothing is seen,
    and 2 the weights.
    """
    choice(k_quant_type, ("NONE",), "k_quant_type")
    choice(v_quant_type, ("NONE",), "v_quant_type")
    choice(kv_cache_bit_width, (0,), "kv_cache_bit_width")
    choice(qk_output, (0, 1, 2), "qk_output")
    choice(sliding_window_cache, (0,), "sliding_window_cache")
    if k_scale is not None or v_scale is not None:
        raise Unsupported("a quantised cache")
    if key is None or value is None:
        size = static(dims_of(query)[2], "the width") // (num_heads + 2 * kv_num_heads)
        parts = ctx.emit(R.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], 2))
        query, key, value = parts[0], parts[1], parts[2]
    q = ctx.emit(split_heads(ctx, query, num_heads))
    k = ctx.emit(split_heads(ctx, key, kv_num_heads))
    v = split_heads(ctx, value, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = ctx.emit(R.nn.rms_norm(q, q_norm_weight, [-1], qk_norm_epsilon))
        k = ctx.emit(R.nn.rms_norm(k, k_norm_weight, [-1], qk_norm_epsilon))
    batch, _, length, _ = dims_of(q)
    total = tir.as_dim(total_sequence_length[0])
    ends = R.add(ctx.cast(R.reshape(seqlens_k, ShapeExpr((batch, 1))), "int64"), number(1))
    # A first prompt starts at 0, though shorter entries of the batch may be filled up behind.
    prompt = R.equal(number(total), number(length))
    start = R.where(prompt, number(0), R.subtract(ends, number(length)))
    start = ctx.emit(start)  # (batch, 1)
    at = ctx.emit(R.add(start, _positions(length, 1)))  # (batch, length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        where = at if position_ids is None else ctx.cast(position_ids, "int64")
        q = ctx.emit(rotated(ctx, q, where, cos_cache, sin_cache, rotary_interleaved))
        k = ctx.emit(rotated(ctx, k, where, cos_cache, sin_cache, rotary_interleaved))
    k, v = ctx.emit(k), ctx.emit(v)
    if past_key is not None and past_value is not None:
        k = ctx.emit(_appended(ctx, past_key, k, start, total))
        v = ctx.emit(_appended(ctx, past_value, v, start, total))
    elif past_key is not None or past_value is not None:
        raise ValueError("past_key and past_value come together")
    cache = dims_of(k)[2]
    keys = _positions(cache, 2)  # (1, 1, cache)
    own = R.expand_dims(at, [2])
    hidden = R.greater_equal(keys, R.expand_dims(ends, [2]))
    if causal:
        hidden = R.logical_or(R.greater(keys, own), hidden)
        # Rows that only fill up a prompt see what is before them, as nothing else is there.
        hidden = R.where(
            R.greater_equal(own, R.expand_dims(ends, [2])), R.greater(keys, own), hidden
        )
    if local_window_size > 0:
        if not causal:
            raise ValueError("local_window_size needs causal=1")
        far = R.less_equal(keys, R.subtract(own, number(local_window_size)))
        hidden = R.logical_or(hidden, far)
    biases: list[Expr] = []
    if attention_bias is not None:
        biases.append(_widened(attention_bias, cache))
    sink = head_sink
    if sink is None and smooth_softmax == 1:
        sink = R.zeros(ShapeExpr((num_heads,)), "float32")
    hidden = ctx.emit(R.expand_dims(hidden, [1]))
    how = Scores(_scale(scale, q), biases, hidden, softcap, sink)
    made, scores, weights = attend(ctx, q, k, v, how)
    outputs = [joined(ctx, made), k, v]
    if qk_output:
        if qk_output == 1:
            weights = R.where(hidden, scalar(0, dtype_of(scores)), scores)
        outputs.append(R.strided_slice(weights, [3], [0], [total]))
    return outputs


def _appended(
    ctx: Context, past: Expr, new: Expr, start: Expr, total: Dim, rest: bool = False
) -> Expr:
    """The cache with ``new`` at ``start`` (batch, 1), as long as ``total`` needs.

    Behind it stand zeros, or with ``rest`` what stood there.
    """
    b, n, held, size = dims_of(past)
    length = dims_of(new)[2]
    cache: Any = total if same_dim(fold_dim(held + length), total) else larger(held, total)
    more = fold_dim(cache - held)
    filled = past
    if not same_dim(more, 0):
        filled = R.concat([past, R.zeros(ShapeExpr((b, n, more, size)), dtype_of(past))], 2)
    offset = ctx.emit(R.subtract(_positions(cache, 1), start))  # (batch, cache)
    last = R.subtract(number(length), number(1))
    index = R.minimum(R.maximum(offset, number(0)), last)
    rows = R.gather_nd(R.permute_dims(new, [0, 2, 1, 3]), R.expand_dims(index, [2]), 1)
    old, behind = (
        R.expand_dims(x, [1, 3]) for x in (R.less(offset, number(0)), R.greater(offset, last))
    )
    rows = R.permute_dims(rows, [0, 2, 1, 3])
    if rest:
        return R.where(R.logical_or(old, behind), filled, rows)
    return R.where(old, filled, R.where(behind, scalar(0, dtype_of(past)), rows))


def _widened(bias: Expr, cache: Dim) -> Expr:
    """A bias over the keys so far, with zeros for the rest of the cache."""
    *rest, have = dims_of(bias)
    if same_dim(have, cache):
        return bias
    more = R.zeros(ShapeExpr((*rest, fold_dim(cache - have))), dtype_of(bias))
    return R.concat([bias, more], 3)
