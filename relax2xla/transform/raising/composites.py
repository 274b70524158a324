"""Patterns of several rows: activations, norms, softmax, pooling, attention, sorting, ranges.

Operators that say so themselves are found by their lowerings (operators.py). Each other pattern is
a function of the graph and of the last row. It guesses which operator the rows may be, over holes,
with attributes that it reads off the rows above; the matcher then compares them with the operator's
lowering, with its spellings, or with further ``forms`` in which JAX writes the same. So a pattern
may guess wrong, but not raise wrong.

Forms that round otherwise than the lowering (by a digit or two at the end): means as a sum times
1 / n in norms or divided by n; ``x / sqrt(v)`` for ``x * rsqrt(v)``; gelu by erfc; gelu's cube;
average pooling summed in one step; batch normalisation as one row.
"""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import product
from typing import Any, Final

from relax2xla.dtypes import is_float
from relax2xla.errors import TVMError
from relax2xla.ir import Call, TensorStructInfo
from relax2xla.op.shared.lowering import (
    compare,
    hlo,
    relax,
    scalar,
    select,
    spread,
)
from relax2xla.op.shared.spatial import SPATIAL
from relax2xla.transform.raising.attention import jax_attention
from relax2xla.transform.raising.common import (
    Guesses,
    Look,
    Pattern,
    core,
    hole,
    last,
    like,
    plus,
    rule,
    shortest,
)
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess
from relax2xla.transform.raising.norms import batch_norm, batch_norm_row, group_norm, layer_norm
from relax2xla.transform.raising.operators import REDUCTIONS, patterns
from relax2xla.transform.raising.rows import (
    CONV,
    axes_or_all,
    contraction,
    conv_attrs,
    reduction_row,
)
from relax2xla.transform.raising.windows import WINDOWS


# ---- element by element
def _leakyrelu(graph: Graph, call: Call) -> Guesses:
    """``x if x > 0 else alpha * x``."""
    below = graph.value(call.args[2])
    if not is_float(dtype_of(call)) or row_name(below) != "multiply":
        return
    assert isinstance(below, Call)
    for factor in below.args:
        known = graph.splat(factor)
        if known is not None:
            alpha = shortest(known)

            def make(alpha: float = alpha) -> Guess:
                return Guess(relax("nn.leakyrelu", like(call), alpha=alpha))

            yield graph.once(("nn.leakyrelu", call.struct_info, alpha), make)


def _astype(graph: Graph, call: Call) -> Guesses:
    """Floats to integers, NaN to 0."""
    inner = graph.value(call.args[0])
    if row_name(inner) == "select" and is_float(dtype_of(inner)):
        yield graph.once(
            ("astype", inner.struct_info, dtype_of(call)),
            lambda: Guess(relax("astype", like(inner), dtype=dtype_of(call))),
        )


# ---- softmax and reductions
def _softmax(name: str) -> Look:
    """``e / sum(e)`` with ``e = exp(x - max(x))``; ``x - max(x) - log(sum(e))``."""

    def pattern(graph: Graph, call: Call) -> Guesses:
        end = core(graph, call)
        total = graph.find(end.args[1], "reduce") if len(end.args) == 2 else None
        shape = shape_of(call)
        if shape is None or total is None or len(total.attrs["dimensions"]) != 1:
            return
        axis = last(total.attrs["dimensions"][0], len(shape))
        if -1 <= axis < len(shape) and is_float(dtype_of(call)):

            def make() -> Guess:
                return Guess(relax(name, like(call), axis=axis))

            yield graph.once((name, call.struct_info, axis), make)

    return pattern


def _statistics(*names: str) -> Look:
    """mean: ``sum(x) / n``; variance: ``mean((x - mean(x))^2)``; std: its root; with and without
    the axes that are reduced.
    """

    def pattern(graph: Graph, call: Call) -> Guesses:
        end = core(graph, call)
        total = graph.find(end, "reduce")
        out, shape = shape_of(call), None if total is None else shape_of(total.args[0])
        if total is None or out is None or shape is None or not is_float(dtype_of(call)):
            return
        dims = tuple(total.attrs["dimensions"])
        keepdims = tuple(1 if i in dims else d for i, d in enumerate(shape))
        axis = axes_or_all(dims, len(shape))

        def make(name: str) -> Guess:
            x = hole(shape, dtype_of(call))
            kept = {"keepdims": True} if out == keepdims else {}
            return Guess(relax(name, x, axis=axis, **kept))

        for name in names:
            yield graph.once((name, shape, dims, call.struct_info), lambda name=name: make(name))

    return pattern


def _reduced(graph: Graph, call: Call) -> Guesses:
    """Reductions of narrow floats, summed in float32; and with ``keepdims``."""
    end = core(graph, call)
    total = graph.find(end, "reduce")
    out, shape = shape_of(call), None if total is None else shape_of(total.args[0])
    if total is None or out is None or shape is None:
        return
    dims = tuple(total.attrs["dimensions"])
    keepdims = tuple(1 if i in dims else d for i, d in enumerate(shape))
    if out != keepdims and row_name(call) != "convert":
        return
    name = REDUCTIONS.get(reduction_row(graph, total)) if len(total.args) == 3 else None
    if name is None or (dtype_of(call) == "bool" and name not in ("sum", "prod")):
        return
    axis = axes_or_all(dims, len(shape))
    kept = {"keepdims": True} if out == keepdims else {}
    yield graph.once(
        ("reduced", name, shape, dims, call.struct_info),
        lambda: Guess(relax(name, hole(shape, dtype_of(call)), axis=axis, **kept)),
    )


# ---- attention
def _attention(graph: Graph, call: Call) -> Guesses:
    """``softmax(q k^T * scale + bias) v`` of (batch, seq, heads, depth), as it is lowered."""
    end = core(graph, call)
    if tuple(end.attrs.get("permutation", ())) != (0, 2, 1, 3):
        return
    mixed = graph.find(end, "dot_general")
    scores = None if mixed is None else graph.find(mixed.args[0], "dot_general")
    if mixed is None or scores is None:
        return
    query, key, value = (shape_of(x) for x in (*scores.args, mixed.args[1]))
    if query is None or key is None or value is None or len(query) != 4:
        return
    if not is_float(dtype_of(call)):
        return
    dtype = dtype_of(call)
    factors = [None]
    scaled = graph.find(mixed.args[0], "multiply")
    known = [] if scaled is None else [graph.splat(a) for a in scaled.args]
    factors += [shortest(k) for k in known if k is not None]
    masks: list[dict[str, Any]] = [{}]
    if graph.find(mixed.args[0], "iota") is not None:
        masks = [{"causal_mask": m} for m in ("TopLeft", "BottomRight")]
    bias = graph.find(mixed.args[0], "add")
    shape = shape_of(scores)

    def make(own: tuple[int, ...] | None, factor: float | None, mask: dict[str, Any]) -> Guess:
        named = zip((query, key, value), ("q", "k", "v"), strict=True)
        operands = [hole(s or (), dtype, n) for s, n in named]
        if own is None:
            return Guess(relax("nn.attention", *operands, scale=factor, **mask))
        operands.append(hole(own, dtype, "bias"))
        return Guess(relax("nn.attention_bias", *operands, scale=factor, **mask))

    about = (dtype, query, key, value)
    for factor, mask in product(factors, masks):
        yield graph.once(
            ("nn.attention", about, factor, *mask.values()),
            lambda factor=factor, mask=mask: make(None, factor, mask),
        )
        if bias is None or shape is None:
            continue
        # The smallest tensor from which the bias may be broadcast comes first.
        levels = [shape_of(lv.expr) for operand in bias.args for lv in graph.levels(operand)]
        for own in sorted((s for s in set(levels) if s is not None), key=math.prod):
            if len(own) <= 4:
                yield graph.once(
                    ("nn.attention_bias", about, own, factor, *mask.values()),
                    lambda own=own, factor=factor, mask=mask: make(own, factor, mask),
                )


# ---- contractions of narrow floats
def _wide_product(graph: Graph, call: Call) -> Guesses:
    """Products of narrow floats are summed in float32 and converted."""
    end = core(graph, call)
    if end is call:
        return
    infos = tuple([a.struct_info for a in end.args])
    key = ("product", end.op, end.attrs, infos, call.struct_info)
    yield from graph.once(key, lambda: _products(end, dtype_of(call)))


def _products(end: Call, dtype: str) -> list[Guess]:
    """Operators that the product ``end``, converted to ``dtype``, may be."""
    if row_name(end) == "convolution":
        n = len(end.attrs["dimension_numbers"]["input_spatial_dimensions"])
        x, w = (like(a, "xw"[i]) for i, a in enumerate(end.args))
        return [Guess(relax(f"nn.conv{n}d", x, w, **conv_attrs(end, CONV)))] if n in SPATIAL else []
    if row_name(end) != "dot_general":
        return []
    a, b = (hole(shape_of(x) or (), dtype_of(x), "ab"[i]) for i, x in enumerate(end.args))
    again = Call(end.op, [a, b], end.attrs, end.sinfo_args)
    made: list[Guess] = []
    with suppress(TVMError, ValueError):
        for guess in contraction(again, dtype_of(a), ()):
            value = guess.value
            if isinstance(value, Call) and dtype_of(value) != dtype:
                value = relax("matmul", a, b)
            made.append(Guess(value))
    return made


# ---- ranges and triangles
def _arange(graph: Graph, call: Call) -> Guesses:
    """``start + step * iota``, counted in int64 or float64 and converted."""
    shape = shape_of(call)
    if shape is None or len(shape) != 1 or graph.find(call, "iota") is None:
        return
    numbers: dict[str, Any] = {"add": 0, "multiply": 1}
    for name in numbers:
        row = graph.find(call, name)
        for operand in () if row is None else row.args:
            known = graph.splat(operand)
            if known is not None:
                numbers[name] = known.item()
    start, step = numbers["add"], numbers["multiply"]
    end = start + step * shape[0]
    if isinstance(end, int | float) and math.isfinite(end):
        yield graph.once(
            ("arange", str(start), str(step), shape, dtype_of(call)),
            lambda: Guess(relax("arange", start, end, step, dtype=dtype_of(call))),
        )


def _triangle(graph: Graph, call: Call) -> Guesses:
    """``x`` where column - row <= k (tril), >= k (triu), else 0."""
    shape = shape_of(call)
    mask = graph.find(call.args[0], "compare")
    if shape is None or mask is None or len(shape) < 2 or graph.find(mask, "iota") is None:
        return
    moved = graph.find(mask, "add")
    offset = 0
    for operand in () if moved is None else moved.args:
        known = graph.splat(operand)
        if known is not None and known.dtype.kind in "iu":
            offset = int(known)

    def make(name: str, own: bool) -> Guess:
        x = like(call)
        if own:
            return Guess(relax(name, x, offset))
        zero = scalar(0, dtype_of(call))
        row, column = (
            hlo("iota", out=TensorStructInfo.make(shape[-2:], "int32"), iota_dimension=i)
            for i in (0, 1)
        )
        # JAX: row + k >= column keeps; for triu the other branch is kept.
        test = compare(plus(row, offset) if offset else row, column, "GE")
        test = spread(test, shape, range(len(shape) - 2))
        kept = select(test, x, zero) if name == "tril" else select(test, zero, x)
        return Guess(relax(name, x, offset if name == "tril" else offset + 1), (kept,))

    for name, own in product(("tril", "triu"), (True, False)):
        yield graph.once(
            (name, call.struct_info, offset, own), lambda name=name, own=own: make(name, own)
        )


_NORM: Final = ("rsqrt", "sqrt")
_STATISTICS: Final = _statistics("std", "variance", "mean")
PATTERNS: Final[dict[str, tuple[Pattern, ...]]] = {
    "multiply": (rule("layer_norm", layer_norm, 1, *_NORM),),
    "divide": (
        rule("softmax", _softmax("nn.softmax"), 0, "reduce"),
        rule("statistics", _statistics("variance", "mean"), 0, "reduce"),
        rule("layer_norm", layer_norm, 0, "sqrt"),
    ),
    "subtract": (rule("log_softmax", _softmax("nn.log_softmax"), 0, "log"),),
    "sqrt": (rule("statistics", _statistics("std"), 1, "reduce"),),
    "add": (
        rule("layer_norm", layer_norm, 2, *_NORM),
        rule("batch_norm", batch_norm, 2, *_NORM),
        rule("arange", _arange, 1, "iota"),
    ),
    "select": (
        rule("leakyrelu", _leakyrelu, 0, "multiply"),
        rule("triangle", _triangle, 2, "iota"),
    ),
    "convert": (
        rule("softmax", _softmax("nn.softmax"), 1, "reduce", narrow=True),
        rule("log_softmax", _softmax("nn.log_softmax"), 1, "log", narrow=True),
        rule("layer_norm", layer_norm, 3, *_NORM, narrow=True),
        rule("group_norm", group_norm, 5, *_NORM, narrow=True),
        rule("batch_norm", batch_norm, 3, *_NORM, narrow=True),
        rule("attention", _attention, 2, "dot_general", narrow=True),
        rule("statistics", _STATISTICS, 2, "reduce", narrow=True),
        rule("reduction", _reduced, 1, "reduce"),
        rule("product", _wide_product, 0, "dot_general", "convolution", narrow=True),
        rule("astype", _astype, 0, "select"),
        rule("arange", _arange, 3, "iota"),
    ),
    "reshape": (
        rule("attention", jax_attention, 3, "dot_general"),
        rule("group_norm", group_norm, 4, *_NORM),
        rule("statistics", _STATISTICS, 2, "reduce"),
        rule("reduction", _reduced, 1, "reduce"),
    ),
    "broadcast_in_dim": (rule("reduction", _reduced, 1, "reduce"),),
    "transpose": (rule("attention", _attention, 1, "dot_general"),),
    "batch_norm_inference": (rule("batch_norm", batch_norm_row),),
}
for _anchor, _patterns in (*WINDOWS.items(), *patterns().items()):
    PATTERNS[_anchor] = (*_patterns, *PATTERNS.get(_anchor, ()))
