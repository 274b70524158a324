"""Attention without a cache as a loop-level function, for ``op.tensor_ir_op``."""

from __future__ import annotations

import math
from typing import Any

from relax2xla import te, tir
from relax2xla.te import functions as f


def attention_sequence_prefill(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    target: Any = None,
    causal: int = 0,
    sm_scale: float = 1.0,
) -> tir.PrimFunc:
    """``softmax(sm_scale * q k^T) v``, and the base-2 logarithm of the sums.

    The function takes q (batch, n, h_q, d), k and v (batch, m, h_kv, d), and writes the result
    (batch, n, h_q, d) and the logarithms (batch, n, h_q), all of ``dtype``; it computes in float32.
    causal: a query sees the keys up to its place, where the last query is the last key's.
    target: a program runs where it is built for.
    """
    batch, n, m = (tir.SizeVar(name, "int64") for name in ("batch_size", "qo_len", "kv_len"))
    q = te.placeholder((batch, n, h_q, d), dtype, "q")
    k, v = (te.placeholder((batch, m, h_kv, d), dtype, name) for name in ("k", "v"))
    group = h_q // h_kv
    scale = tir.const(sm_scale / math.log(2), "float32")

    def product(b: Any, h: Any, i: Any, j: Any) -> Any:
        x = q[b, i, h, feature].astype("float32") * k[b, j, h // group, feature].astype("float32")
        return te.sum(x, axis=feature)

    feature = te.reduce_axis((0, d), "feature")
    scores = te.compute((batch, h_q, n, m), product, "scores")

    def scaled(b: Any, h: Any, i: Any, j: Any) -> Any:
        x = scores[b, h, i, j] * scale
        if not causal:
            return x
        return tir.Select(j - m <= i - n, x, tir.const(-math.inf, "float32"))

    masked = te.compute((batch, h_q, n, m), scaled, "masked")
    key = te.reduce_axis((0, m), "key")
    most = te.compute(
        (batch, h_q, n), lambda b, h, i: te.max(masked[b, h, i, key], axis=key), "most"
    )
    weights = te.compute(
        (batch, h_q, n, m),
        lambda b, h, i, j: f.exp2(masked[b, h, i, j] - most[b, h, i]),
        "weights",
    )
    other = te.reduce_axis((0, m), "other")
    total = te.compute(
        (batch, h_q, n), lambda b, h, i: te.sum(weights[b, h, i, other], axis=other), "total"
    )
    seen = te.reduce_axis((0, m), "seen")

    def weighted(b: Any, i: Any, h: Any, c: Any) -> Any:
        return te.sum(weights[b, h, i, seen] * v[b, seen, h // group, c].astype("float32"), seen)

    summed = te.compute((batch, n, h_q, d), weighted, "summed")
    output = te.compute(
        (batch, n, h_q, d),
        lambda b, i, h, c: (summed[b, i, h, c] / total[b, h, i]).astype(dtype),
        "output",
    )
    lse = te.compute(
        (batch, n, h_q),
        lambda b, i, h: (most[b, h, i] + f.log2(total[b, h, i])).astype(dtype),
        "lse",
    )
    made = te.create_prim_func([q, k, v, output, lse])
    return made.with_attr("tir.noalias", True).without_attr("global_symbol")
