"""Attention as ``jax.nn.dot_product_attention`` writes it, with as many heads for keys as queries.

JAX splits the heads into groups, here of one head each: an axis of size 1 goes through both
products, and the transposes between them move it about. Masked scores are a large negative number
there and -infinity in ``R.nn.attention``: the exponential of both is 0, since with a causal mask
every query sees a key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from relax2xla.ir import Call, Expr
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    dot_general,
    full,
    full_like,
    hlo,
    iota,
    reduce,
    relax,
    reshape,
    select,
    spread,
    transpose,
)
from relax2xla.op.shared.lowering import shape_of as static_shape
from relax2xla.transform.raising.common import hole, shortest
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess

# JAX's masked scores: 0.7 times the least finite float32, in which it computes all scores.
_MASKED: Final = -2.3819763e38


def jax_attention(graph: Graph, call: Call) -> Iterator[Guess]:
    """(batch, seq, heads, depth) throughout; a bias, a causal mask, both or neither."""
    last = graph.value(call.args[0])
    if not isinstance(last, Call) or last.attrs.get("permutation") != (1, 2, 3, 0, 4):
        return
    mixed = graph.find(last, "dot_general", 4)
    scores = None if mixed is None else graph.find(mixed.args[1], "dot_general")
    if mixed is None or scores is None or dtype_of(call) != "float32":
        return
    value, key, query = shape_of(mixed.args[0]), shape_of(scores.args[1]), shape_of(scores.args[0])
    if value is None or key is None or query is None or (len(query), len(key)) != (5, 4):
        return
    scaled = graph.find(mixed.args[1], "multiply")
    factors = [] if scaled is None else [graph.splat(a) for a in scaled.args]
    biased = graph.find(mixed.args[1], "add")
    own = None if biased is None else _bias_shape(graph, biased)
    masked = graph.find(mixed.args[1], "select") is not None
    dtype = dtype_of(call)
    mask: dict[str, Any] = {"causal_mask": "TopLeft"} if masked else {}

    def make(known: Any) -> Guess:
        q = hole((*query[:3], query[4]), dtype, "q")
        k, v = hole(key, dtype, "k"), hole(value, dtype, "v")
        factor = shortest(np.asarray(known))
        # None is the usual factor.
        scale = None if known == np.float32(1 / math.sqrt(query[4])) else factor
        if own is None:
            made = relax("nn.attention", q, k, v, scale=scale, **mask)
            return Guess(made, (_form(q, k, v, None, factor, masked) for _ in range(1)))
        bias = hole(own, dtype, "bias")
        made = relax("nn.attention_bias", q, k, v, bias, scale=scale, **mask)
        return Guess(made, (_form(q, k, v, bias, factor, masked) for _ in range(1)))

    for known in [f for f in factors if f is not None] or [np.float32(1)]:
        about = (query, key, value, own, masked, float(known))
        yield graph.once(("jax attention", about), lambda known=known: make(known))


def _bias_shape(graph: Graph, added: Call) -> tuple[int, ...] | None:
    """The shape (batch, heads, seq, seq of keys) of the bias among the operands of ``added``."""
    for operand in added.args:
        for level in graph.levels(operand):
            moved = graph.value(level.expr)
            if isinstance(moved, Call) and moved.attrs.get("permutation") == (2, 0, 1, 3, 4):
                shape = shape_of(moved.args[0])
                split = graph.value(moved.args[0])
                if shape is not None and shape[2] == 1 and row_name(split) != "multiply":
                    return (*shape[:2], *shape[3:])
    return None


def _form(q: Expr, k: Expr, v: Expr, bias: Expr | None, factor: float, masked: bool) -> Expr:
    batch, seq, heads, depth = static_shape(q)
    grouped = reshape(q, (batch, seq, heads, 1, depth))
    scores = dot_general(grouped, k, ([4], [3]), ((0, 2), (0, 2)))  # batch, heads, q, 1, k
    if factor != 1.0:
        scores = hlo("multiply", scores, full_like(scores, factor))
    top: Expr | None = None
    if bias is None and not masked:
        top = transpose(reduce(scores, "maximum", [4]), (3, 0, 1, 2))
    x = transpose(scores, (3, 0, 1, 2, 4))
    shape = static_shape(x)
    if bias is not None:
        own = static_shape(bias)
        moved = transpose(reshape(bias, (*own[:2], 1, *own[2:])), (2, 0, 1, 3, 4))
        x = hlo("add", x, broadcast_in_dim(moved, shape, range(5)))
    if masked:
        at, other = (iota(shape[3:], axis, "int32") for axis in (0, 1))
        seen = compare(hlo("add", at, full_like(at, 0)), other, "GE")
        below = select(seen, full(shape[3:], True, "bool"), full(shape[3:], False, "bool"))
        whole = hlo(
            "and", full(shape[1:], True, "bool"), broadcast_in_dim(below, shape[1:], (2, 3))
        )
        hidden = full(shape, _MASKED, dtype_of(x))
        x = select(broadcast_in_dim(whole, shape, (1, 2, 3, 4)), x, hidden)
    top = reduce(x, "maximum", [4]) if top is None else top
    powers = hlo("exponential", hlo("subtract", x, spread(top, shape, [4])))
    weights = hlo("divide", powers, spread(reduce(powers, "add", [4]), shape, [4]))
    mixed = dot_general(v, weights, ([1], [4]), ((0, 2), (1, 2)))  # batch, heads, depth, 1, q
    out = transpose(transpose(mixed, (3, 0, 4, 1, 2)), (1, 2, 3, 0, 4))
    return reshape(out, (batch, seq, heads, static_shape(v)[3]))
