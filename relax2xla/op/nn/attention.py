"""Attention over queries, keys and values with the layout (batch, sequence, heads, depth)."""

from __future__ import annotations

import math
from typing import Annotated, Any

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Expr
from relax2xla.ir.op import Kind, op
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.op._lower import (
    broadcast_in_dim,
    broadcast_to,
    compare,
    convert,
    dot_general,
    dtype_of,
    full_like,
    hlo,
    iota,
    reduce,
    select,
    shape_of,
    spread,
    sum_dtype,
    transpose,
)
from relax2xla.op._rules import FLOAT, broadcast_dims, common_dtype, tensor, want_tensor

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
_BIAS = """bias:        added to the scores; broadcastable to (batch, heads, seq, seq_kv)
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
        if isinstance(m, int) and isinstance(n, int) and m != n:
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


def _lower(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None,
    scale: float | None,
    mask: str | None,
    window: int | None,
) -> Expr:
    """Two products with batch axes (batch, heads); no operand is transposed."""
    dtype = dtype_of(query)
    wide = sum_dtype(dtype)
    depth = shape_of(query)[3]
    scores = dot_general(query, key, ([3], [3]), ((0, 2), (0, 2)), wide)  # batch, heads, q, k
    factor = 1.0 / math.sqrt(depth) if scale is None else scale
    if factor != 1.0:
        scores = hlo("multiply", scores, full_like(scores, factor))
    if bias is not None:
        added = convert(bias, wide)
        scores = hlo("add", scores, broadcast_to(added, shape_of(scores)))
    seen, blind = _seen(shape_of(scores), mask, window)
    if seen is not None:
        scores = select(seen, scores, full_like(scores, -math.inf))
    shape = shape_of(scores)
    top = reduce(scores, "maximum", [3])
    powers = hlo("exponential", hlo("subtract", scores, spread(top, shape, [3])))
    if seen is not None and blind:
        powers = select(seen, powers, full_like(powers, 0.0))
    total = reduce(powers, "add", [3])
    if blind:
        total = hlo("maximum", total, full_like(total, float.fromhex("0x1p-126")))
    weights = convert(hlo("divide", powers, spread(total, shape, [3])), dtype)
    mixed = dot_general(weights, value, ([3], [1]), ((0, 1), (0, 2)), wide)  # batch, heads, q, d
    return convert(transpose(mixed, (0, 2, 1, 3)), dtype)


def _seen(shape: tuple[int, ...], mask: str | None, window: int | None) -> tuple[Expr | None, bool]:
    """Which scores count, as (batch, heads, q, k), and whether some query sees no key at all."""
    rows, columns = shape[2:]
    if mask is None and window is None:
        return None, False
    offset = abs(rows - columns) if mask == "BottomRight" else 0
    at = iota((rows, columns), 0, "int32")
    key = iota((rows, columns), 1, "int32")
    seen: Expr | None = None
    if mask is not None:
        seen = compare(key, hlo("add", at, full_like(at, offset)), "LE")
    blind = False
    if window is not None:
        recent = compare(key, hlo("add", at, full_like(at, offset - window)), "GT")
        seen = recent if seen is None else hlo("and", seen, recent)
        blind = rows - 1 + offset - window >= columns - 1
    assert seen is not None
    return broadcast_in_dim(seen, shape, (2, 3)), blind


@op("relax.nn.attention", doc=_DOC.format(plus="", bias=""))
def attention_op(
    query: Expr,
    key: Expr,
    value: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """Attention without a bias."""
    return _infer(query, key, value, None, causal_mask, window_size)


@attention_op.legalize
def _attention_op(
    query: Expr,
    key: Expr,
    value: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    return _lower(query, key, value, None, scale, causal_mask, window_size)


@op("relax.nn.attention_bias", doc=_DOC.format(plus="+ bias", bias=_BIAS))
def attention_bias(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """Attention with a bias."""
    return _infer(query, key, value, bias, causal_mask, window_size)


@attention_bias.legalize
def _attention_bias(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr,
    scale: Scale = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Expr:
    return _lower(query, key, value, bias, scale, causal_mask, window_size)


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
