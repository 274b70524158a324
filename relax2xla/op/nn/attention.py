"""Attention over queries, keys and values with the layout (batch, sequence, heads, depth)."""

from __future__ import annotations

import math
from typing import Annotated, Any

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import Kind
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Contraction
from relax2xla.op.shared.checks import (
    FLOAT,
    broadcast_dims,
    common_dtype,
    differ,
    tensor,
    want_tensor,
)
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    broadcast_to,
    compare,
    convert,
    dot_general,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    known,
    reduce,
    select,
    shape_of,
    spread,
    sum_dtype,
    transpose,
)

_DOC = """Multi-head attention: ``softmax(query @ key^T * scale {plus}) @ value``, head by head.

query:       (batch, seq, heads, depth), a float dtype
key:         (batch, seq_kv, heads, depth), of the dtype of ``query``
value:       (batch, seq_kv, heads, depth_v), of the dtype of ``query``
{bias}scale:       factor of the scores; by default ``1 / sqrt(depth)``
causal_mask: "TopLeft": query i sees the keys up to i; "BottomRight": up to
             ``i + abs(seq - seq_kv)``; None: all
window_size: with a mask, each query sees only the last ``window_size`` keys of those; without one,
             the keys ``j > i - window_size``
result:      (batch, seq, heads, depth_v), dtype of ``query``
Scores are computed in float32 at least; a query that sees no key gives 0. Raises ``OpError`` for
other ranks and dtypes, sizes that contradict each other, and unknown masks.
"""
_BIAS = """\
bias:        added to the scores; broadcastable to (batch, heads, seq, seq_kv). A query for which
             it is -inf at every key gives NaN, as the softmax of such a row does in TVM
"""


def _as_scale(value: Any) -> float | None:
    if isinstance(value, tir.FloatImm | tir.IntImm):
        value = value.value
    return None if value is None else float(value)


Scale = Annotated[Any, Kind(False, _as_scale)]
_AXES = ("batch", "sequence", "heads", "depth")


def _agree(a: TensorStructInfo, b: TensorStructInfo, names: str, axes: tuple[int, ...]) -> None:
    """OpError where two operands differ on one of ``axes``."""
    if a.dims is None or b.dims is None:
        return
    for axis in axes:
        m, n = a.dims[axis], b.dims[axis]
        if differ(m, n):
            raise OpError(f"{names} must agree in {_AXES[axis]} (axis {axis}); got {m} and {n}")


def _infer(
    query: Expr, key: Expr, value: Expr, bias: Expr | None, mask: str | None, window: int | None
) -> StructInfo:
    q = want_tensor(query, "query", FLOAT, 4)
    k = want_tensor(key, "key", FLOAT, 4)
    v = want_tensor(value, "value", FLOAT, 4)
    dtype = common_dtype((q, k, v), ("query", "key", "value"))
    _agree(q, k, "`query` and `key`", (0, 2, 3))
    _agree(k, v, "`key` and `value`", (0, 1, 2))
    if mask not in (None, "TopLeft", "BottomRight"):
        raise OpError(f'`causal_mask` must be "TopLeft", "BottomRight" or None; got {mask!r}')
    if window is not None and window < 1:
        raise OpError(f"`window_size` must be at least 1; got {window}")
    if bias is not None:
        b = want_tensor(bias, "bias", FLOAT)
        if q.dims is not None and k.dims is not None and b.dims is not None:
            scores = (q.dims[0], q.dims[2], q.dims[1], k.dims[1])
            if len(b.dims) > 4 or broadcast_dims((scores, b.dims), "scores and `bias`") not in (
                None,
                scores,
            ):
                raise OpError(
                    f"`bias` must be broadcastable to (batch, heads, seq, seq_kv) = "
                    f"({', '.join(map(str, scores))}); got {show(b)}"
                )
    if q.dims is None or v.dims is None:
        return tensor(None, dtype, 4, q)
    return tensor((*q.dims[:3], v.dims[3]), dtype, like=q)


def _rule(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None,
    scale: float | None,
    mask: str | None,
    window: int | None,
) -> Rule:
    """Attention with a mask that depends on positions alone."""

    def lower() -> Expr:
        return _within(query, key, value, bias, scale, mask, window)

    return _infer(query, key, value, bias, mask, window), lower


def _within(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None,
    scale: float | None,
    mask: str | None,
    window: int | None,
    apart: bool = False,
) -> Expr:
    shape = (shape_of(query)[1], shape_of(key)[1])
    return _attend(query, key, value, bias, scale, *_seen(shape, mask, window), apart)


def _attend(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None,
    scale: float | None,
    seen: Expr | None,
    blind: bool,
    apart: bool = False,
) -> Expr:
    """Two products with batch axes (batch, heads); no operand is transposed.

    ``seen``: which scores (seq, seq_kv) count; ``blind``: whether some query may see no key at all;
    ``apart``: no derivative is taken of the NaN of a row that the bias makes -inf.
    """
    dtype = dtype_of(query)
    wide = sum_dtype(dtype)
    scores = dot_general(query, key, ([3], [3]), ((0, 2), (0, 2)), wide)  # batch, heads, q, k
    shape = shape_of(scores)
    depth = shape_of(query)[3]
    if scale is None and not known(depth):
        scores = hlo("divide", scores, hlo("sqrt", full_like(scores, depth)))
    else:
        factor = 1.0 / math.sqrt(depth) if scale is None else scale
        if factor != 1.0:
            scores = hlo("multiply", scores, full_like(scores, factor))
    if bias is not None:
        scores = hlo("add", scores, broadcast_to(convert(bias, wide), shape))
    if seen is not None:
        seen = broadcast_in_dim(seen, shape, (2, 3))
        scores = select(seen, scores, full_like(scores, -math.inf))
    top = reduce(scores, "maximum", [3])
    some = compare(top, full_like(top, -math.inf), "NE") if apart else None
    if some is not None:
        scores = select(spread(some, shape, [3]), scores, full_like(scores, 0.0))
        top = select(some, top, full_like(top, 0.0))
    powers = hlo("exponential", hlo("subtract", scores, spread(top, shape, [3])))
    if seen is not None and blind:
        powers = select(seen, powers, full_like(powers, 0.0))
    total = reduce(powers, "add", [3])
    if blind:
        total = hlo("maximum", total, full_like(total, float.fromhex("0x1p-126")))
    weights = convert(hlo("divide", powers, spread(total, shape, [3])), dtype)
    mixed = dot_general(weights, value, ([3], [1]), ((0, 1), (0, 2)), wide)  # batch, heads, q, d
    if some is not None:
        mixed = select(spread(some, shape_of(mixed), [3]), mixed, full_like(mixed, math.nan))
    return convert(transpose(mixed, (0, 2, 1, 3)), dtype)


def _distance(a: int, b: int) -> Any:
    return abs(a - b) if known(a, b) else tir.max(a - b, b - a)


def _seen(shape: tuple[int, int], mask: str | None, window: int | None) -> tuple[Expr | None, bool]:
    """Which scores (seq, seq_kv) count, and whether some query sees no key at all."""
    rows, columns = shape
    if mask is None and window is None:
        return None, False
    offset = _distance(rows, columns) if mask == "BottomRight" else 0
    at = iota((rows, columns), 0, "int32")
    key = iota((rows, columns), 1, "int32")
    seen: Expr | None = None
    if mask is not None:
        seen = compare(key, hlo("add", at, full_like(at, offset)), "LE")
    blind = False
    if window is not None:
        recent = compare(key, hlo("add", at, full_like(at, offset - window)), "GT")
        seen = recent if seen is None else hlo("and", seen, recent)
        # What costs little, of sequences whose lengths are symbolic, is to expect it.
        blind = not known(rows, columns) or rows - 1 + offset - window >= columns - 1
    assert seen is not None
    return seen, blind


@op("relax.nn.attention", Contraction(), doc=_DOC.format(plus="", bias=""))
def attention_op(
    query: Expr,
    key: Expr,
    value: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Rule:
    """Attention without a bias."""
    return _rule(query, key, value, None, scale, causal_mask, window_size)


@op("relax.nn.attention_bias", Contraction(), doc=_DOC.format(plus="+ bias", bias=_BIAS))
def attention_bias(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Rule:
    """Attention with a bias."""
    return _rule(query, key, value, bias, scale, causal_mask, window_size)


@attention_bias.derivative
def _(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    """A row that is masked out has no gradient, where a caller replaces its NaN (as torch does)."""
    return _within(query, key, value, bias, scale, causal_mask, window_size, apart=True)


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """Multi-head attention; with ``bias`` a call of ``relax.nn.attention_bias``, else of
    ``relax.nn.attention``, as in TVM. See their documentation.
    """
    if bias is None:
        return attention_op(query, key, value, scale, causal_mask, window_size)
    return attention_bias(query, key, value, bias, scale, causal_mask, window_size)


# ---- sequences of various lengths, one after the other
@op("relax.nn.attention_var_len", Contraction())
def attention_var_len_op(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    seqstart_k: Expr,
    max_seqlen_q: Expr,
    max_seqlen_k: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Rule:
    """Attention within each of several sequences that lie one after the other.

    queries:    (1, total, heads, depth), a float dtype
    keys:       (1, total_kv, heads, depth); values: (1, total_kv, heads, depth_v); same dtype
    seqstart_q, seqstart_k: (sequences + 1,), int32: where each sequence starts, and the total
    max_seqlen_q, max_seqlen_k: the longest sequence, int32: of no effect on the result
    scale, causal_mask, window_size: as in ``attention``, with positions and lengths of a sequence
    result:     (1, total, heads, depth_v), dtype of ``queries``
    Raises ``OpError`` for other ranks, dtypes and sizes, and unknown masks.
    """
    for name, operand in (("queries", queries), ("keys", keys), ("values", values)):
        info = want_tensor(operand, name, FLOAT, 4)
        if info.dims is not None and isinstance(info.dims[0], int) and info.dims[0] != 1:
            raise OpError(f"`{name}` must have a first axis of size 1; got {show(info)}")
    starts = [
        want_tensor(operand, name, ("int32",), 1)
        for name, operand in (("seqstart_q", seqstart_q), ("seqstart_k", seqstart_k))
    ]
    counts = [i.dims[0] for i in starts if i.dims is not None and isinstance(i.dims[0], int)]
    if len(set(counts)) > 1:
        raise OpError(f"`seqstart_q` and `seqstart_k` must have one size; got {counts}")
    for name, operand in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        want_tensor(operand, name, ("int32",))

    def lower() -> Expr:
        shape = (shape_of(queries)[1], shape_of(keys)[1])

        def rows(x: Expr) -> Expr:
            return broadcast_in_dim(x, shape, (0,))

        def columns(x: Expr) -> Expr:
            return broadcast_in_dim(x, shape, (1,))

        order_q, at_q, length_q = _places(seqstart_q, shape[0])
        order_k, at_k, length_k = _places(seqstart_k, shape[1])
        seen = compare(rows(order_q), columns(order_k), "EQ")
        last = rows(at_q)
        if causal_mask == "BottomRight":
            gap = hlo("abs", hlo("subtract", rows(length_q), columns(length_k)))
            last = hlo("add", last, gap)
        if causal_mask is not None:
            seen = hlo("and", seen, compare(columns(at_k), last, "LE"))
        if window_size is not None:
            first = hlo("subtract", last, full_like(last, window_size))
            seen = hlo("and", seen, compare(columns(at_k), first, "GT"))
        return _attend(queries, keys, values, None, scale, seen, True)

    return _infer(queries, keys, values, None, causal_mask, window_size), lower


def _places(starts: Expr, total: int) -> tuple[Expr, Expr, Expr]:
    """Of each token: the number of its sequence, its place there, and the sequence's length."""
    shape = (total, shape_of(starts)[0])
    token = iota(shape, 0, "int32")
    bounds = broadcast_in_dim(starts, shape, (1,))
    begun = compare(token, bounds, "GE")
    order = reduce(convert(begun, "int32"), "add", [1])
    first = reduce(select(begun, bounds, full(shape, 0, "int32")), "maximum", [1])
    behind = reduce(select(begun, full(shape, total, "int32"), bounds), "minimum", [1])
    return order, hlo("subtract", iota((total,), 0, "int32"), first), hlo("subtract", behind, first)


def attention_var_len(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    max_seqlen_q: Expr,
    seqstart_k: Expr | None = None,
    max_seqlen_k: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """A call of ``relax.nn.attention_var_len``; keys start where queries do unless said otherwise,
    as in TVM.
    """
    return attention_var_len_op(
        *(queries, keys, values, seqstart_q),
        *(seqstart_q if seqstart_k is None else seqstart_k, max_seqlen_q),
        *(max_seqlen_q if max_seqlen_k is None else max_seqlen_k, scale, causal_mask, window_size),
    )
